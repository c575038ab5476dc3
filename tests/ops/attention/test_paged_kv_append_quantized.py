"""paged_kv_append_quantized: what is stored and how near it is, groups, NaN and zeros, layouts, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import decode

TABLE = np.array([[3, 0], [1, 6], [5, 4]], np.int32)
OFFSETS = np.array([0, 3, 6], np.int32)
AT: dict[str, Any] = {"page_table": TABLE, "cache_offsets": OFFSETS}
PLACES = [(3, 0), (3, 1), (1, 3), (6, 0), (4, 2), (4, 3)]  # page and cell of two tokens a sequence
LARGEST = {"int8": 127, "int4": 7, "float8_e4m3fn": 448, "float8_e5m2": 57344}
STEP = {"int8": 0.5 / 127, "int4": 0.5 / 7, "float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}
"""The largest error over the largest number of a group."""


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def caches(form: str, d: int = 64, group: int | None = None) -> list[np.ndarray]:
    """Caches of keys and values, then their scales, with something in them."""
    codes = np.full((7, 2, 4, d // 2 if form == "int4" else d), 0x11, np.int8 if form == "int8" else np.uint8)
    scales = np.full((7, 2, 4, d // (group or d)), 5, np.float32)
    return [codes, codes.copy(), scales, scales.copy()]


def numbers(codes: np.ndarray, scales: np.ndarray, form: str) -> np.ndarray:
    """What a reader of the caches sees."""
    if form == "int4":
        pair = np.stack([codes << 4, codes], -1).view(np.int8) >> 4
        values: Any = pair.reshape(*codes.shape[:-1], -1)
    else:
        values = codes if form == "int8" else decode(codes, form)
    values = values.astype(np.float32)
    return values * np.repeat(scales, values.shape[-1] // scales.shape[-1], -1)


@pytest.mark.parametrize(("form", "group"), [(f, None) for f in LARGEST] + [("int4", n) for n in (32, 64, 128)])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
def test_reading_gives_it_back(form: str, group: int | None, source: str) -> None:
    d = 128
    k, v = (bc.cast(draw(6, 2, d, seed=i) * 10**i, source) for i in (1, 2))
    held = caches(form, d, group)
    result = bc.paged_kv_append_quantized(k, v, *held, **AT, format=form, group_size=group)
    assert all(one is other for one, other in zip(result, held, strict=True))
    for new, codes, scales in ((k, held[0], held[2]), (v, held[1], held[3])):
        found = numbers(codes, scales, form)
        for token, (page, cell) in enumerate(PLACES):
            rows = np.asarray(new[token], np.float32).reshape(2, scales.shape[-1], -1)
            most = np.abs(rows).max(-1)
            np.testing.assert_array_equal(scales[page, :, cell], most / np.float32(LARGEST[form]))
            error = np.abs(found[page, :, cell].reshape(rows.shape) - rows).max(-1)
            assert (error <= most * STEP[form] * 1.0001).all()
        touched = np.zeros((7, 4), bool)
        touched[tuple(zip(*PLACES, strict=True))] = True
        assert (codes.swapaxes(1, 2)[~touched].view(np.uint8) == 0x11).all()
        assert (scales.swapaxes(1, 2)[~touched] == 5).all()


def test_known_codes() -> None:
    x = np.array([7, -7, 3.5, 2.5, -0.5, 1.5, 0, -3], np.float32).reshape(1, 1, 8)
    held = [np.zeros((1, 1, 1, 4), np.uint8) for _ in range(2)] + [np.zeros((1, 1, 1, 1), np.float32) for _ in range(2)]
    bc.paged_kv_append_quantized(x, 2 * x, *held, slot_mapping=np.zeros(1, np.int32), format="int4")
    codes = [7, -7, 4, 2, 0, 2, 0, -3]  # ties go to even numbers
    packed = [(codes[i] & 15) | (codes[i + 1] & 15) << 4 for i in (0, 2, 4, 6)]
    for cache in held[:2]:
        assert cache.ravel().tolist() == packed
    assert held[2].item() == 1 and held[3].item() == 2


@pytest.mark.parametrize("form", LARGEST)
def test_zeros_and_what_is_not_finite(form: str) -> None:
    """Of one group only; the least numbers, whose scale rounds to 0, count as zeros."""
    k = draw(6, 2, 64)
    k[0, 0], k[1, 0], k[2, 0, 5], k[3, 0, 63], k[4, 0, 0] = 0, 2.0**-149, np.nan, np.inf, -np.inf
    held = caches(form)
    bc.paged_kv_append_quantized(k, k, *held, **AT, format=form)
    for (page, cell), want in zip(PLACES, [0, 0, np.nan, np.nan, np.nan], strict=False):
        assert not held[0][page, 0, cell].any()
        np.testing.assert_array_equal(held[2][page, 0, cell], [want])
        assert held[0][page, 1, cell].any() and held[2][page, 1, cell] > 0


def test_a_subnormal_scale_keeps_codes_in_range() -> None:
    """180 · 2^-149 / 127 rounds to 2^-149: the quotient would be 180."""
    x = np.full((1, 1, 4), -180 * 2.0**-149, np.float32)
    held = [np.zeros((1, 1, 1, 4), np.int8) for _ in range(2)] + [np.zeros((1, 1, 1, 1), np.float32) for _ in range(2)]
    bc.paged_kv_append_quantized(x, x, *held, slot_mapping=np.zeros(1, np.int32))
    assert (held[0] == -127).all() and held[2].item() == np.float32(2.0**-149)


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_pages_of_other_layouts_slots_and_tokens_without_a_place(form: str) -> None:
    k, v = draw(3, 2, 64), draw(3, 2, 64, seed=1)
    a, b, c = caches(form), [np.ascontiguousarray(np.swapaxes(x, 1, 2)) for x in caches(form)], caches(form)
    facts: dict[str, Any] = {"page_table": TABLE, "cache_offsets": np.array([-1, 8, 2], np.int32), "format": form}
    bc.paged_kv_append_quantized(k, v, *a, **facts)
    bc.paged_kv_append_quantized(k, v, *b, **facts, layout="nhd")
    bc.paged_kv_append_quantized(k, v, *c, slot_mapping=np.array([-1, -7, 22]), format=form)
    for one, other, third in zip(a, b, c, strict=True):
        np.testing.assert_array_equal(one, np.swapaxes(other, 1, 2))
        np.testing.assert_array_equal(one, third)
    assert ((a[2] != 5).any((1, 3))).sum() == 1


def test_a_dense_cache_is_a_page_a_sequence() -> None:
    k, v = draw(6, 2, 64), draw(6, 2, 64, seed=1)
    codes, scales = np.zeros((3, 2, 9, 64), np.int8), np.zeros((3, 2, 9, 1), np.float32)
    dense = [codes, codes.copy(), scales, scales.copy()]
    paged, pages = caches("int8"), np.arange(3, dtype=np.int32)[:, None]
    bc.paged_kv_append_quantized(k, v, *dense, page_table=pages, cache_offsets=OFFSETS)
    bc.paged_kv_append_quantized(k, v, *paged, **AT)
    for one, other in zip(dense, paged, strict=True):
        for token, (page, cell) in enumerate(PLACES):
            np.testing.assert_array_equal(one[token // 2, :, OFFSETS[token // 2] + token % 2], other[page, :, cell])


def test_what_does_not_go_together_is_refused() -> None:
    k = draw(3, 2, 64)
    held, refused = caches("int8"), (bc.InvalidProblemError, bc.UnsupportedError)
    with pytest.raises(refused, match="group_size"):
        bc.paged_kv_append_quantized(k, k, *held, **AT, group_size=32)
    with pytest.raises(refused, match="group_size"):
        bc.paged_kv_append_quantized(k, k, *caches("int4", 64, 16), **AT, format="int4", group_size=16)
    with pytest.raises(refused, match="d_k must be even"):
        bc.paged_kv_append_quantized(k[..., :7], k[..., :7], *caches("int4", 6), **AT, format="int4")
    with pytest.raises(refused, match="k_scales"):
        bc.paged_kv_append_quantized(k, k, *caches("int4"), **AT, format="int4", group_size=32)
    with pytest.raises(refused, match="k_cache"):
        bc.paged_kv_append_quantized(k, k, *held, **AT, format="int4")
    with pytest.raises(refused, match="format"):
        bc.paged_kv_append_quantized(k, k, *held, **AT, format="int5")
    with pytest.raises(refused, match="float64"):
        bc.paged_kv_append_quantized(k.astype(np.float64), k.astype(np.float64), *held, **AT)
    with pytest.raises(refused, match="page_table"):
        bc.paged_kv_append_quantized(k, k, *held, cache_offsets=OFFSETS)
