"""indexer_k_append: against the formula in float64, the ops that it joins, and what indexer_logits reads of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call
from scipy.linalg import hadamard

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.indexer.indexer_k_append import (
    IndexerKAppendDescriptor,
    IndexerKAppendPlan,
    indexer_k_append,
)

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
PAGE, OFFSETS, BOUNDS = 4, np.array([3, 0, 9]), np.array([0, 4, 4, 6])  # of seven tokens: the last is padding
TABLE = np.array([[3, 0, 8], [1, 6, 9], [5, 4, 2]])
TABLES: dict[str, Any] = {"page_table": TABLE, "cache_offsets": OFFSETS, "token_indptr": BOUNDS}
PLACES = [(t, b, int(OFFSETS[b] + t - BOUNDS[b])) for b in range(3) for t in range(BOUNDS[b], BOUNDS[b + 1])]


def keys(d: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Keys away from 0, weights and biases of their norm."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((7, d)) + 0.7).astype(dtype), rng.uniform(0.5, 2, d), rng.standard_normal(d)


def caches(d: int, dtype: Any = np.uint8) -> list[Any]:
    return [np.full((10, PAGE, d), 0x11, dtype), np.full((10, PAGE), 7, np.float32)]


def formula(x: Any, position: int, weight: Any, bias: Any, facts: dict[str, Any]) -> Any:
    """u of one key, in float64, pair by pair."""
    d, u = len(x), x.astype(np.float64)
    if facts.get("norm", True):
        u = (u - u.mean()) / np.sqrt(u.var() + 1e-6)
        u = (u if weight is None else u * weight) + (0 if bias is None else bias)
    rotary = facts.get("rotary_dim", d)
    first, old = d - rotary if facts.get("rotary_columns") == "last" else 0, u.copy()
    for pair in range(rotary // 2):
        angle = position * 10000.0 ** (-2 * pair / rotary)
        one, two = (2 * pair, 2 * pair + 1) if facts.get("pairing") == "interleaved" else (pair, pair + rotary // 2)
        one, two = first + one, first + two
        u[one] = old[one] * np.cos(angle) - old[two] * np.sin(angle)
        u[two] = old[two] * np.cos(angle) + old[one] * np.sin(angle)
    return hadamard(d) @ u / np.sqrt(d) if facts.get("hadamard", True) else u


FACTS: list[dict[str, Any]] = [
    {"rotary_dim": 64},
    {"rotary_dim": 64, "rotary_columns": "last", "pairing": "interleaved", "power_of_two": True},
    {"norm": False, "rotary_dim": 10, "rotary_columns": "last"},
    {"hadamard": False, "power_of_two": True},
    {"norm": False, "rotary_dim": 0, "pairing": "interleaved"},
]


def emulated(k: Any, cache: Any, scales: Any, facts: dict[str, Any], tables: dict[str, Any], **given: Any) -> None:
    """By the kernel, into the same arrays."""
    table = tables.get("page_table")
    weight = given.get("weight")
    desc = IndexerKAppendDescriptor(
        num_tokens=len(k), d=k.shape[1], num_pages=len(cache), page_size=cache.shape[1], **facts, element=str(k.dtype),
        batch_size=0 if table is None else len(table), max_pages=0 if table is None else table.shape[1],
        weight_element=str(k.dtype if weight is None else weight.dtype),
    )  # fmt: skip
    outputs = {"k_cache": cache} | ({} if scales is None else {"k_scales": scales})
    call(IndexerKAppendPlan, desc, outputs, k=k, **tables, **given)


@pytest.mark.parametrize("by", [None, "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("d", [128, 64, 512])
def test_is_the_formula(d: int, facts: dict[str, Any], by: str | None) -> None:
    """On the host, and by kernels of every element; codes are within a step of the quotient."""
    k, weight, bias = keys(d, np.dtype(by or "float32"))
    weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    given = {} if facts.get("norm") is False else {"weight": weight, "bias": bias}
    cache, scales = caches(d)
    if by is None:
        indexer_k_append(k, cache, scales, **given, **facts, **TABLES)
    else:
        emulated(k, cache, scales, facts, TABLES, **given)
    written = np.zeros((10, PAGE), bool)
    for t, b, place in PLACES:
        at = TABLE[b, place // PAGE], place % PAGE
        written[at] = True
        u = formula(k[t], place, weight, bias, facts)
        scale = np.abs(u).max() / 448
        scale = 2.0 ** np.ceil(np.log2(scale)) if facts.get("power_of_two") else scale
        np.testing.assert_allclose(scales[at], scale, rtol=1e-5)
        got = cache[at].view(E4M3).astype(np.float64) * scales[at]
        np.testing.assert_array_less(np.abs(got - u), np.abs(u) / 15.9 + scale * 2.0**-9)
    assert (cache[~written] == 0x11).all() and (scales[~written] == 7).all()


@pytest.mark.parametrize("by", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("d", [128, 100, 300, 6])
def test_plain_cells(d: int, by: str | None) -> None:
    """The cache holds u in the element; of rows that are not aligned too."""
    kind, two = np.dtype(by or "float32"), not d & (d - 1)
    k, weight, bias = keys(d, kind)
    facts = {"format": "plain", "hadamard": two, "rotary_dim": 6}
    cache, odd = caches(d, kind)[0], np.full((10, PAGE, d + 1), 7, kind)[..., 1:]
    far = np.full((7, d + 1), 7, kind)[:, 1:]
    far[:] = k
    for x, to in ((k, cache), (far, odd)):
        if by is None:
            indexer_k_append(x, to, weight=weight.astype(kind), bias=bias.astype(kind), **facts, **TABLES)
        else:
            emulated(x, to, None, facts, TABLES, weight=weight.astype(kind), bias=bias.astype(kind))
    for t, b, place in PLACES:
        at = TABLE[b, place // PAGE], place % PAGE
        want = formula(k[t], place, weight.astype(kind).astype(float), bias.astype(kind).astype(float), facts)
        tolerance = 1e-5 if kind == np.float32 else 2**-8
        np.testing.assert_allclose(cache[at].astype(np.float64), want, rtol=tolerance, atol=1e-5)
        np.testing.assert_array_equal(odd[at], cache[at])


@pytest.mark.parametrize("power_of_two", [False, True])
def test_is_the_ops_one_after_the_other(power_of_two: bool) -> None:
    """By slots and tables of cosines and sines; layer_norm, rope and hadamard_quantize make the same codes."""
    k, weight, bias = keys(128, seed=4)
    weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    slots, positions = np.array([9, 30, -1, 0, 17, 39, 5]), np.array([5, 0, 3, 1000, 77, 2, 31])
    angle = positions[:, None] * 10000.0 ** (-np.arange(32) / 32)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    (one, one_scales), (two, two_scales) = caches(128), caches(128)
    given = {"weight": weight, "bias": bias, "slot_mapping": slots, "rotary_dim": 64, "power_of_two": power_of_two}
    indexer_k_append(k, one, one_scales, **given, positions=positions, scale=1.5)
    indexer_k_append(k, two, two_scales, **given, cos=cos, sin=sin, scale=1.5)
    np.testing.assert_allclose(one_scales, two_scales, rtol=1e-6)
    normal = bc.layer_norm(k, weight=weight, bias=bias, eps=1e-6)
    turned = bc.rope(normal[None, None], positions, rotary_dim=64, scale=1.5)[0, 0]
    codes, scales = bc.hadamard_quantize(turned, normalized=True)
    cells, held = one.reshape(-1, 128), one_scales.reshape(-1)
    for t, slot in enumerate(slots):
        if slot < 0:
            continue
        if power_of_two:
            assert scales[t, 0] <= held[slot] < 2 * scales[t, 0] and np.frexp(held[slot])[0] == 0.5
        else:
            np.testing.assert_allclose(held[slot], scales[t, 0], rtol=1e-6)
            assert (cells[slot] != codes[t].view(np.uint8)).mean() < 0.02
        assert (cells[slot] != two.reshape(-1, 128)[slot]).mean() < 0.02
    assert (one == 0x11).all(-1).sum() == 34


def test_what_is_appended_is_read() -> None:
    """Views of pages of bytes, all codes and then their scales, as DeepGEMM has them; logits are those of u."""
    rng, d = np.random.default_rng(2), 128
    k, weight, bias = keys(d, seed=3)
    pages = np.full((10, PAGE * (d + 4)), 0xEE, np.uint8)
    cache = pages[:, : PAGE * d].reshape(10, PAGE, d)
    scales = pages[:, PAGE * d :].view(np.float32)
    assert np.shares_memory(cache, pages) and np.shares_memory(scales, pages)
    facts = {"rotary_dim": 64, "power_of_two": True}
    indexer_k_append(
        k, cache, scales, weight=weight.astype(np.float32), bias=bias.astype(np.float32), **facts, **TABLES
    )
    q = rng.standard_normal((2, 4, d)).astype(np.float32)
    codes, held = bc.hadamard_quantize(q, normalized=True)
    w = rng.standard_normal((2, 4)).astype(np.float32)
    sequences, ends = np.array([0, 2]), np.array([7, 11])
    starts = np.array([3, 9])
    paged = {"page_table": TABLE, "batch_indices": sequences, "starts": starts, "ends": ends}
    logits = bc.indexer_logits(codes.view(E4M3), cache.view(E4M3), w * held[..., 0], scales, **paged)
    chosen = bc.indexer_topk(codes.view(E4M3), cache.view(E4M3), w * held[..., 0], scales, **paged, top_k=2)
    for n, b in enumerate(sequences):
        seen = [(t, place) for t, own, place in PLACES if own == b]
        u = np.stack([formula(k[t], place, weight, bias, {**facts, "hadamard": False}) for t, place in seen])
        want = (w[n][:, None] * np.maximum(q[n] @ u.T, 0)).sum(0)  # a transform of both changes no product
        got = logits[n, [place for _, place in seen]]
        size = np.abs(w[n][:, None] * (q[n] @ u.T)).sum(0)
        assert (np.abs(got - want) < 0.05 * size + 0.5).all()
        best = sorted(sorted(range(starts[n], ends[n]), key=lambda s: -logits[n, s])[:2])
        np.testing.assert_array_equal(chosen[n], best)


@pytest.mark.parametrize("by", [None, "float32"])
def test_keys_of_zeros_and_of_what_is_not_finite(by: str | None) -> None:
    k, facts = np.zeros((4, 16), np.float32), {"norm": False, "hadamard": False, "rotary_dim": 0}
    k[1, 3], k[2, 3], k[2, 4], k[3] = np.nan, np.inf, -2, -3e38
    for powers in (False, True):
        cache, scales = np.zeros((1, 4, 16), np.uint8), np.zeros((1, 4), np.float32)
        where, own = {"slot_mapping": np.arange(4)}, {**facts, "power_of_two": powers}
        if by is None:
            indexer_k_append(k, cache, scales, **where, **own)
        else:
            emulated(k, cache, scales, own, where)
        numbers = cache[0].view(E4M3).astype(np.float32)
        assert scales[0, 0] == 2.0**-126 and not numbers[0].any()
        assert np.isnan(scales[0, 1]) and np.isnan(numbers[1]).all()
        assert np.isinf(scales[0, 2]) and np.isnan(numbers[2, 3]) and not numbers[2, :3].any()
        np.testing.assert_allclose(numbers[3] * scales[0, 3], k[3], rtol=2**-4)


def test_empty_problems() -> None:
    cache, scales = caches(16)
    indexer_k_append(np.zeros((0, 16), np.float32), cache, scales, **TABLES | {"token_indptr": np.zeros(4, int)})
    assert (cache == 0x11).all() and (scales == 7).all()
    none = np.zeros((2, 0), np.float32)
    scales = caches(0)[1]
    where = {"slot_mapping": np.array([1, 5]), "hadamard": False, "rotary_dim": 0}
    indexer_k_append(none, np.zeros((10, PAGE, 0), np.uint8), scales, **where)
    assert (scales.reshape(-1)[[1, 5]] == np.float32(2.0**-126)).all() and scales[0, 0] == 7


def test_what_does_not_go_together_is_refused() -> None:
    k, weight, _ = keys(16)
    weight, slots = weight.astype(np.float32), {"slot_mapping": np.arange(7)}
    codes, scales = caches(16)
    angle = {"cos": np.ones((7, 8), np.float32), "sin": np.ones((7, 8), np.float32)}
    odd, plain = [np.zeros((10, PAGE, 12), np.uint8), scales], np.zeros((10, PAGE, 16), np.float32)
    for x, cache, facts, match in (
        (k, [codes, scales], slots, "give positions"),
        (k, [codes, scales], {}, "page_table"),
        (k, [codes, scales], TABLES | slots, "leave out"),
        (k, [codes, scales], TABLES | {"norm": False, "weight": weight}, "weight must be None"),
        (k, [codes, scales], TABLES | {"cos": angle["cos"]}, "cos and sin go together"),
        (k, [codes, scales], TABLES | angle | {"positions": np.arange(7)}, "replace positions"),
        (k, [codes], TABLES, "needs them"),
        (k, [plain, scales], TABLES | {"format": "plain"}, "leave out k_scales"),
        (k, [plain], TABLES | {"format": "plain", "power_of_two": True}, "power_of_two"),
        (k[:, :12], odd, TABLES, "power of two"),
        (k, [codes, scales], TABLES | {"rotary_dim": 18}, "rotary_dim"),
        (k, [plain, scales], TABLES, "k_cache"),
    ):  # fmt: skip
        with pytest.raises((InvalidProblemError, UnsupportedError), match=match):
            indexer_k_append(x, *cache, **facts)
