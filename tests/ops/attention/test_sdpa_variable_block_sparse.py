"""sdpa_variable_block_sparse: blocks of one size, blocks written out, tokens behind the last, gradients."""

from __future__ import annotations

import numpy as np
import pytest
from attention_rows import MMA, rounded, run

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.sparse.sdpa_block_sparse import sdpa_block_sparse
from baracuda_py.ops.attention.sparse.sdpa_block_sparse_backward import sdpa_block_sparse_backward
from baracuda_py.ops.attention.sparse.sdpa_variable_block_sparse import (
    SdpaVariableBlockSparseDescriptor, SdpaVariableBlockSparsePlan, sdpa_variable_block_sparse,
)  # fmt: skip
from baracuda_py.ops.attention.sparse.sdpa_variable_block_sparse_backward import (
    SdpaVariableBlockSparseBackwardDescriptor, SdpaVariableBlockSparseBackwardPlan, sdpa_variable_block_sparse_backward,
)  # fmt: skip

GRADS = ("dq", "dk", "dv")
ROWS, COLUMNS = np.array([[3, 0, 4, 3], [1, 1, 1, 7]]), np.array([[5, 8, 0], [2, 2, 9]], np.int32)
CAUSAL = [{}, {"is_causal": True}, {"is_causal": True, "causal_alignment": "bottom_right"}]


def problem(rng, heads=4, queries=10, keys=13, blocks=(4, 3)):
    """q, k, v and a pattern of two key heads."""
    shapes = (2, heads, queries, 8), (2, 2, keys, 8), (2, 2, keys, 6)
    return [*(rng.standard_normal(shape) for shape in shapes), rng.random((2, *blocks)) < 0.5]


@pytest.mark.parametrize("facts", CAUSAL)
def test_blocks_of_one_size(facts):
    q, k, v, pattern = problem(np.random.default_rng(0))
    sizes = np.full((2, 4), 3), np.full((2, 3), 5)  # the last ones reach beyond the last token
    even = {"query_block": 3, "key_block": 5}
    shared = pattern.repeat(2, 0)[None]
    want = sdpa_block_sparse(q, k, v, shared, return_lse=True, **even, **facts)
    got = sdpa_variable_block_sparse(q, k, v, pattern, *sizes, return_lse=True, **facts)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    dy = np.random.default_rng(1).standard_normal(want[0].shape)
    grads = sdpa_variable_block_sparse_backward(q, k, v, pattern, *sizes, *got, dy, **facts)
    for a, b in zip(grads, sdpa_block_sparse_backward(q, k, v, shared, *want, dy, **even, **facts), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("facts", CAUSAL)
def test_blocks_written_out(facts):
    q, k, v, pattern = problem(np.random.default_rng(2))
    each = np.zeros((2, 10, 13), bool)
    for head in range(2):
        rows, columns = (np.cumsum([0, *sizes[head]]) for sizes in (ROWS, COLUMNS))
        for i, j in np.argwhere(pattern[head]):
            each[head, rows[i] : rows[i + 1], columns[j] : columns[j + 1]] = True
    single = {"query_block": 1, "key_block": 1}
    want = sdpa_block_sparse(q, k, v, each.repeat(2, 0)[None], return_lse=True, **single, **facts)
    got = sdpa_variable_block_sparse(q, k, v, pattern, ROWS, COLUMNS, return_lse=True, **facts)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_tokens_behind_the_last_block_and_negative_sizes():
    q, k, v, _ = problem(np.random.default_rng(3))
    every = np.ones((2, 2, 2), np.uint8)
    rows, columns = np.array([[4, 2]] * 2), np.array([[-3, 7]] * 2)
    y, lse = sdpa_variable_block_sparse(q, k, v, every, rows, columns, return_lse=True)
    want = sdpa_variable_block_sparse(q[:, :, :6], k[:, :, :7], v[:, :, :7], every, rows, np.array([[0, 7]] * 2))
    np.testing.assert_allclose(y[:, :, :6], want, rtol=1e-13, atol=1e-14)
    assert not y[:, :, 6:].any()
    assert (lse[:, :, 6:] == -np.inf).all()


def test_directional_differences():
    rng = np.random.default_rng(4)
    q, k, v, pattern = problem(rng)
    y, lse = sdpa_variable_block_sparse(q, k, v, pattern, ROWS, COLUMNS, return_lse=True)
    dy = rng.standard_normal(y.shape)
    grads = sdpa_variable_block_sparse_backward(q, k, v, pattern, ROWS, COLUMNS, y, lse, dy)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        ends = [
            sdpa_variable_block_sparse(
                *(x + s * way if i == n else a for i, a in enumerate((q, k, v))), pattern, ROWS, COLUMNS
            )
            for s in (1e-6, -1e-6)
        ]
        want = ((ends[0] - ends[1]) * dy).sum() / 2e-6
        np.testing.assert_allclose((grads[n] * way).sum(), want, rtol=1e-6, atol=1e-8)


def test_what_does_not_fit_is_refused():
    q, k, v, pattern = problem(np.random.default_rng(5))
    for wrong in ((pattern[:1], ROWS, COLUMNS), (pattern, ROWS[:, :3], COLUMNS), (pattern, ROWS, COLUMNS[0])):
        with pytest.raises(InvalidProblemError):
            sdpa_variable_block_sparse(q, k, v, *wrong)
    with pytest.raises(InvalidProblemError):
        sdpa_variable_block_sparse(q, k, v, pattern, ROWS.astype(float), COLUMNS)


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_kernels_over_several_tiles(element):
    rng = np.random.default_rng(6)
    sizes = {
        "batch_size": 1, "num_heads": 4, "num_kv_heads": 2, "query_len": 150, "key_len": 201, "d_k": 32, "d_v": 32,
        "row_blocks": 5, "column_blocks": 6, "element": element, "is_causal": True, "causal_alignment": "bottom_right",
    }  # fmt: skip
    shapes = [(1, 4, 150, 32), (1, 2, 201, 32), (1, 2, 201, 32), (1, 4, 150, 32)]
    q, k, v, dy = rounded(element, *(rng.standard_normal(shape) for shape in shapes))
    arrays = {
        "q": q, "k": k, "v": v, "block_mask": rng.random((2, 5, 6)) < 0.4,
        "row_sizes": np.array([[64, 1, 63, 17, 5], [3, 90, 0, 50, 7]]),
        "column_sizes": np.array([[1, 64, 64, 30, 42, 0], [100, 20, 20, 20, 20, 20]]),
    }  # fmt: skip
    desc = SdpaVariableBlockSparseDescriptor(**sizes)
    got = run("emulator", SdpaVariableBlockSparsePlan, desc, arrays, {"y", "lse"}, MMA)
    wide = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in arrays.items()}
    want = dict(SdpaVariableBlockSparsePlan.reference(desc, **wide, wanted={"y", "lse"}))
    saved = {"y": rounded(element, want["y"])[0], "lse": want["lse"].astype(np.float32), "dy": dy}
    desc = SdpaVariableBlockSparseBackwardDescriptor(**sizes)
    got |= run("emulator", SdpaVariableBlockSparseBackwardPlan, desc, arrays | saved, set(GRADS), MMA)
    wide |= {n: x.astype(np.float64) for n, x in saved.items()}
    want |= SdpaVariableBlockSparseBackwardPlan.reference(desc, **wide, wanted=set(GRADS))
    for name, x in want.items():
        limit = (4e-3 if element == "float16" else 1e-5) * np.abs(x[np.isfinite(x)]).max()
        np.testing.assert_allclose(got[name], x, rtol=0, atol=limit, err_msg=name)
