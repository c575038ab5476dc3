"""paged_kv_append_fp8: what is stored, that decoding reads it back, heads' scales, saturation, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import decode

TABLE = np.array([[3, 0], [1, 6], [5, 4]], np.int32)
OFFSETS = np.array([0, 3, 6], np.int32)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def caches(d: int = 16) -> list[np.ndarray]:
    return [np.full((7, 2, 4, d), 0x11, np.uint8) for _ in range(2)]


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("d", [16, 7])
def test_it_is_quantise_and_append(element: str, source: str, d: int) -> None:
    k, v = (bc.cast(draw(6, 2, d, seed=i), source) for i in (1, 2))
    heads = np.array([0.5, 2], np.float32)
    facts: dict[str, Any] = {"page_table": TABLE, "cache_offsets": OFFSETS}
    made, want = caches(d), caches(d)
    result = bc.paged_kv_append_fp8(
        k, v, *made, **facts, k_scale=0.01, v_scale=0.3, k_head_scale=heads, cache_element=element
    )
    assert result[0] is made[0] and result[1] is made[1]
    scale = (np.float32(0.01) * heads)[None, :, None]
    codes = [bc.quantize(k, scale, to_element=element), bc.quantize(v, 0.3, to_element=element)]
    bc.paged_kv_append(*(np.asarray(c).view(np.uint8) for c in codes), *want, **facts)
    for one, other in zip(made, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (made[0] != 0x11).any() and (made[0] == 0x11).any()


def test_decoding_reads_it_back() -> None:
    k, v, q = draw(6, 2, 16, seed=1), draw(6, 2, 16, seed=2), draw(3, 4, 16, seed=3).astype(np.float16)
    held, scales = caches(), {"k_scale": 0.01, "v_scale": 0.02, "v_head_scale": np.array([1, 0.5], np.float32)}
    bounds = np.array([0, 1, 3, 6], np.int32)
    start, lengths = np.zeros(3, np.int32), np.array([1, 2, 3], np.int32)
    bc.paged_kv_append_fp8(k, v, *held, page_table=TABLE, cache_offsets=start, token_indptr=bounds, **scales)
    y = bc.batch_paged_decode_fp8(q, *held, page_table=TABLE, lengths=lengths, **scales)
    for b, (first, last) in enumerate(itertools.pairwise(bounds)):
        for h in range(4):
            score = k[first:last, h // 2] @ q[b, h].astype(np.float32) / 4
            weight = np.exp(score - score.max())
            np.testing.assert_allclose(y[b, h], weight / weight.sum() @ v[first:last, h // 2], atol=0.15)


def test_large_numbers_saturate_and_nan_stays() -> None:
    k = np.array([np.inf, -1e30, np.nan, 448, 449, -0.0, 2.0**-10, 1], np.float32).reshape(1, 1, 8)
    held = [np.zeros((1, 1, 2, 8), np.uint8) for _ in range(2)]
    at = {"page_table": np.zeros((1, 1), np.int32), "cache_offsets": np.ones(1, np.int32)}
    bc.paged_kv_append_fp8(k, k, *held, **at, v_scale=2.0)
    found = decode(held[0], "float8_e4m3fn").astype(np.float32)[0, 0, 1]
    np.testing.assert_array_equal(found, [448, -448, np.nan, 448, 448, 0, 0, 1])
    assert decode(held[1], "float8_e4m3fn").astype(np.float32)[0, 0, 1, 3] == 224
    assert not held[0][0, 0, 0].any()


def test_pages_of_other_layouts_and_tokens_without_a_place() -> None:
    k, v = draw(3, 2, 16), draw(3, 2, 16, seed=1)
    a, b = caches(), [np.ascontiguousarray(np.swapaxes(c, 1, 2)) for c in caches()]
    facts: dict[str, Any] = {"page_table": TABLE, "cache_offsets": np.array([-1, 8, 2], np.int32), "k_scale": 0.1}
    bc.paged_kv_append_fp8(k, v, *a, **facts)
    bc.paged_kv_append_fp8(k, v, *b, **facts, layout="nhd")
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, np.swapaxes(other, 1, 2))
        assert ((one != 0x11).any((1, 3))).sum() == 1


def test_what_does_not_go_together_is_refused() -> None:
    k, held = draw(3, 2, 16), caches()
    facts: dict[str, Any] = {"page_table": TABLE, "cache_offsets": OFFSETS}
    with pytest.raises(bc.InvalidProblemError, match="k_head_scale"):
        bc.paged_kv_append_fp8(k, k, *held, **facts, k_head_scale=np.ones(3, np.float32))
    with pytest.raises((bc.UnsupportedError, bc.InvalidProblemError), match="int8"):
        bc.paged_kv_append_fp8(k, k, *held, **facts, cache_element="int8")
    with pytest.raises((bc.UnsupportedError, bc.InvalidProblemError), match="float64"):
        bc.paged_kv_append_fp8(k.astype(np.float64), k.astype(np.float64), *held, **facts)
    with pytest.raises(bc.InvalidProblemError, match="page_table"):
        bc.paged_kv_append_fp8(k, k, *held, cache_offsets=OFFSETS)


def test_a_slot_mapping_names_page_and_cell() -> None:
    k, v = draw(3, 2, 16), draw(3, 2, 16, seed=1)
    a, b = caches(), caches()
    bc.paged_kv_append_fp8(k, v, *a, slot_mapping=np.array([12, 7, 18]), k_scale=0.1)
    bc.paged_kv_append_fp8(k, v, *b, page_table=TABLE, cache_offsets=OFFSETS, k_scale=0.1)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)
