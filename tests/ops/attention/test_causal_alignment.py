"""Where queries stand when there are other numbers of keys: packed ops as FlashAttention, dense as torch."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS

LENGTHS = [(5, 9), (9, 5), (1, 7), (4, 4), (3, 0), (0, 2), (6, 1)]  # of queries and keys
PACKED = (
    "flash_sdpa_varlen", "flash_sdpa_varlen_backward", "batch_ragged_prefill", "batch_paged_prefill",
    "batch_paged_extend", "batch_paged_extend_quantized",
)  # fmt: skip
TERMS = [
    {"is_causal": True}, {"window_left": 2}, {"window_right": 1}, {"is_causal": True, "window_left": 1},
    {"window_left": 0, "window_right": 3},
]  # fmt: skip


def seen(queries, keys, bottom, is_causal=False, window_left=None, window_right=None):
    """The rule pair by pair: query i stands at position i, or i + keys - queries."""
    rows = np.zeros((queries, keys), bool)
    for i in range(queries):
        at = i + (keys - queries if bottom else 0)
        for j in range(keys):
            late = (is_causal and j > at) or (window_right is not None and j > at + window_right)
            early = window_left is not None and j < at - window_left
            rows[i, j] = not late and not early
    return rows


def attended(q, k, v, dy, mask):
    """y [rows, heads, d], lse [heads, rows] and the gradients of y · dy of one sequence, a softmax row by row."""
    y, lse = np.zeros((*q.shape[:2], v.shape[2])), np.full(q.shape[1::-1], -np.inf)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = q.shape[-1] ** -0.5
    for head in range(q.shape[1]):
        for i, row in enumerate(mask):
            if not row.any():
                continue
            s = scale * k[row, head] @ q[i, head]
            lse[head, i] = np.log(np.exp(s).sum())
            p = np.exp(s) / np.exp(s).sum()
            y[i, head] = p @ v[row, head]
            jacobian = np.diag(p) - np.outer(p, p)  # of the softmax
            ds = jacobian @ (v[row, head] @ dy[i, head])
            dq[i, head] = scale * ds @ k[row, head]
            dk[row, head] += scale * np.outer(ds, q[i, head])
            dv[row, head] += np.outer(p, dy[i, head])
    return y, lse, dq, dk, dv


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    ends = np.cumsum([(0, 0), *LENGTHS], axis=0)
    total_q, total_k = ends[-1]
    shapes = (total_q, 2, 8), (total_k, 2, 8), (total_k, 2, 6), (total_q, 2, 6)
    return [rng.standard_normal(shape) for shape in shapes], ends[:, 0].copy(), ends[:, 1].copy()


def expected(problem, bottom, **terms):
    """y, lse, dq, dk and dv, sequence by sequence."""
    (q, k, v, dy), ends_q, ends_k = problem
    parts = []
    for b, (queries, keys) in enumerate(LENGTHS):
        rows, others = slice(ends_q[b], ends_q[b + 1]), slice(ends_k[b], ends_k[b + 1])
        parts.append(attended(q[rows], k[others], v[others], dy[rows], seen(queries, keys, bottom, **terms)))
    return [np.concatenate(made, 1 if n == 1 else 0) for n, made in enumerate(zip(*parts, strict=True))]


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("alignment", [None, "bottom_right", "top_left"])
def test_packed_sequences_align_the_last_query_with_the_last_key(problem, terms, alignment):
    (q, k, v, dy), ends_q, ends_k = problem
    facts = terms if alignment is None else terms | {"causal_alignment": alignment}
    y, lse, *grads = expected(problem, alignment != "top_left", **terms)
    close = {"rtol": 1e-12, "atol": 1e-12}
    got = bc.flash_sdpa_varlen(q, k, v, ends_q, ends_k, return_lse=True, **facts)
    for a, b in zip(got, (y, lse), strict=True):
        np.testing.assert_allclose(a, b, **close)
    for a, b in zip(bc.batch_ragged_prefill(q, k, v, ends_q, ends_k, return_lse=True, **facts), (y, lse), strict=True):
        np.testing.assert_allclose(a, b, **close)
    made = bc.flash_sdpa_varlen_backward(q, k, v, *got, dy, ends_q, ends_k, **facts)
    for a, b in zip(made, grads, strict=True):
        np.testing.assert_allclose(a, b, **close)
    hidden = np.isneginf(lse).all(0)
    assert hidden.any() and not got[0][hidden].any() and np.isneginf(got[1][:, hidden]).all()
    paged = in_pages(k, v, ends_k)
    got = bc.batch_paged_prefill(q, *paged, ends_q, **tables(), return_lse=True, **facts)
    for a, b in zip(got, (y, lse), strict=True):
        np.testing.assert_allclose(a, b, **close)


def tables():
    """Three pages of four cells a sequence."""
    return {"page_table": np.arange(3 * len(LENGTHS)).reshape(-1, 3), "lengths": np.array([n for _, n in LENGTHS])}


def in_pages(k, v, ends):
    """The packed keys and values in pages of four."""
    caches = [np.full((3 * len(LENGTHS), 2, 4, x.shape[-1]), np.nan) for x in (k, v)]
    for b in range(len(LENGTHS)):
        for n, row in enumerate(range(ends[b], ends[b + 1])):
            for cache, x in zip(caches, (k, v), strict=True):
                cache[3 * b + n // 4, :, n % 4] = x[row]
    return caches


@pytest.mark.parametrize(("queries", "keys"), [(5, 9), (9, 5)])
def test_dense_attention_stays_torchs(queries, keys):
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 2, n, 8)) for n in (queries, keys, keys))
    mask = seen(queries, keys, False, is_causal=True)
    want, *_ = attended(*(x[0].swapaxes(0, 1) for x in (q, k, v, q)), mask)
    want = want.swapaxes(0, 1)[None]
    pattern = np.ones((1, 1, 1, 1), bool)
    for y in (bc.flash_sdpa(q, k, v, is_causal=True), bc.sdpa(q, k, v, is_causal=True),
              bc.sdpa_block_sparse(q, k, v, pattern, is_causal=True)):  # fmt: skip
        np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-12)


def test_the_first_line_of_the_docstring_says_which():
    found = {}
    for name in EXPORTS:
        function = getattr(bc, name)
        if inspect.isfunction(function) and "causal_alignment" in inspect.signature(function).parameters:
            first = inspect.getdoc(function).splitlines()[0]
            found[name] = "bottom right" if "bottom right" in first else "top left" if "top left" in first else None
    assert {n for n, side in found.items() if side == "bottom right"} == set(PACKED)
    assert {n for n, side in found.items() if side == "top left"} == set(found) - set(PACKED) and len(found) >= 8
    for name, side in found.items():
        default = inspect.signature(getattr(bc, name)).parameters["causal_alignment"].default
        descriptor = getattr(bc, name).plan.descriptor
        assert default == descriptor.__dataclass_fields__["causal_alignment"].default == side.replace(" ", "_")
