"""Marlin's layouts, tiled here lane by lane as its kernels read them, and GPTQ's and AWQ's words that become them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(3)
INTERLEAVED = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}


def words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [rows, n], in the order of their interleaving, the first in the lowest bits of a word."""
    order = INTERLEAVED[bits]
    of = codes.reshape(len(codes), -1, len(order)).astype(np.uint32)
    made = np.zeros(of.shape[:2], np.uint32)
    for i, place in enumerate(order):
        made |= of[..., place] << np.uint32(bits * i)
    return made.view(np.int32)


def tiles(q: np.ndarray, bits: int, sparse: bool = False) -> np.ndarray:
    """Codes [k, n]: for a tile of 16 x 64, what each lane has of each of four matrices, one after the other."""
    k, n = q.shape
    rows = []
    for top in range(0, k, 16):
        row = []
        for left in range(0, n, 64):
            for lane in range(32):
                c, r = lane // 4, 2 * (lane % 4)
                for matrix in range(4):
                    for upper in (0, 1):
                        column = (
                            left + 16 * (c // 2) + 8 * (c % 2) + 4 * upper + matrix
                            if sparse
                            else left + 16 * matrix + 8 * upper + c
                        )
                        row += [q[top + r + d, column] for d in (0, 1, 8, 9)]
        rows.append(row)
    return words(np.array(rows).reshape(k // 16, -1), bits)


def by_columns(x: np.ndarray) -> np.ndarray:
    """Scales or zero points of groups: of 64 columns those that are 8 apart beside each other."""
    order = [i + 8 * j for i in range(8) for j in range(8)]
    return x.reshape(len(x), -1, 64)[:, :, order].reshape(x.shape)


def alone(x: np.ndarray) -> np.ndarray:
    """Scales of whole columns."""
    order = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
    return x.reshape(len(x), -1, 32)[:, :, order].reshape(x.shape)


def problem(bits: int, k: int, n: int, groups: int) -> tuple[Any, ...]:
    q, z = RNG.integers(0, 1 << bits, (k, n)), RNG.integers(0, 1 << bits, (groups, n))
    return q, z, RNG.standard_normal((groups, n)).astype(np.float16)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "groups"), [(32, 128, 2), (48, 64, 1), (96, 192, 3)])
@pytest.mark.parametrize("zeroed", [False, True])
def test_tiles(bits: int, k: int, n: int, groups: int, zeroed: bool) -> None:
    q, z, s = problem(bits, k, n, groups)
    stored = [
        tiles(q, bits),
        alone(s) if groups == 1 else by_columns(s),
        words(by_columns(z), bits) if zeroed else None,
    ]
    made = bc.repack_marlin(*stored, bits=bits)
    got = bc.block_dequantize(*made, kind=f"uint{bits}", element="float32")
    middle = np.repeat(z, k // groups, 0) if zeroed else 1 << (bits - 1)
    want = (q - middle) * np.repeat(s, k // groups, 0).astype(np.float64)
    np.testing.assert_array_equal(got, want.T.astype(np.float32))
    back = bc.pack_marlin(made[0], made[1], made[2] if zeroed else None, bits=bits)
    for a, b in zip(back, (*stored, None, None), strict=True):
        assert a is b is None or np.array_equal(a, b)
    x = RNG.standard_normal((3, k)).astype(np.float32)
    y = bc.quantized_matmul(x, *made[:3], kind=f"uint{bits}")
    np.testing.assert_allclose(y, x.astype(np.float64) @ want, rtol=1e-4, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("bits", [4, 8])
def test_act_order(bits: int) -> None:
    """GPTQ's words, whose inputs are in no order of groups, by way of Marlin's and back."""
    k, n, groups = 64, 64, 4
    q, _, s = problem(bits, k, n, groups)
    of = RNG.permutation(np.repeat(np.arange(groups), k // groups)).astype(np.int32)
    order = np.argsort(of, kind="stable")
    codes = np.stack([bc.pack_codes(row.astype(np.uint8), bits) for row in q.T])
    packed = bc.pack_marlin(codes, np.ascontiguousarray(s.T), None, of, bits=bits)
    want = (tiles(q[order], bits), by_columns(s), None, of[order], order.astype(np.int32))
    for a, b in zip(packed, want, strict=True):
        assert a is b is None or (np.array_equal(a, b) and a.dtype == b.dtype)
    made = bc.repack_marlin(*packed, bits=bits)
    assert np.array_equal(made[0], codes) and np.array_equal(made[3], of)
    x = RNG.standard_normal((5, k)).astype(np.float32)
    weights = (q - (1 << (bits - 1))) * s[of].astype(np.float64)
    y = bc.quantized_matmul(x, *made[:3], kind=f"uint{bits}", index=made[3])
    np.testing.assert_allclose(y, x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-3 * np.abs(weights).max())
    sorted_by_caller = bc.repack_marlin(*packed[:4], bits=bits)
    y = bc.quantized_matmul(x[:, order], *sorted_by_caller[:3], kind=f"uint{bits}", index=sorted_by_caller[3])
    np.testing.assert_allclose(y, x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-3 * np.abs(weights).max())


@pytest.mark.parametrize("source", ["gptq", "awq"])
def test_words_of_others_become_marlins(source: str) -> None:
    q, z, s = problem(4, 64, 64, 2)
    codes = bc.pack_codes(np.ascontiguousarray(q.T).astype(np.uint8), 4)
    parts = (codes, np.ascontiguousarray(s.T), np.ascontiguousarray(z.T).astype(np.uint8))
    if source == "gptq":
        parts = bc.repack_gptq(*bc.pack_gptq(*parts, zero_offset=0), zero_offset=0)[:3]
    else:
        parts = bc.repack_awq(*bc.pack_awq(*parts))
    packed = bc.pack_marlin(*parts)
    assert np.array_equal(packed[0], tiles(q, 4)) and np.array_equal(packed[2], words(by_columns(z), 4))


def pruned(k: int, n: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes [k, n] less their middle, 2:4 sparse, and the places [n, k / 4, 2] of those kept, ascending."""
    q = RNG.integers(-(1 << (bits - 1)), 1 << (bits - 1), (n, k // 4, 4))
    places = np.sort(np.argsort(RNG.random(q.shape), -1)[..., :2], -1)
    mask = np.zeros(q.shape, bool)
    np.put_along_axis(mask, places, True, -1)
    return np.where(mask, q, 0).reshape(n, k).T, places


def metadata(places: np.ndarray) -> np.ndarray:
    """int16 [k / 32, 2 n]: words of four groups, rows and pairs of words moved as CUTLASS' reorder_meta moves them."""
    n, groups, _ = places.shape
    nibbles = (places[..., 0] | places[..., 1] << 2).reshape(n, groups // 4, 4)
    found = (nibbles << np.arange(0, 16, 4)).sum(-1)
    made = np.zeros(found.size, np.uint16)
    for row in range(n):
        for column in range(groups // 4):
            to = row // 64 * 64 + row % 2 * 2 + row % 8 // 4 + row % 4 // 2 * 32 + row % 64 // 8 * 4
            turn = int(to % 2 == 0 and column % 2 == 1) - int(to % 2 == 1 and column % 2 == 0)
            at, pair = to + turn, column - turn
            made[pair // 2 * n * 2 + at * 2 + pair % 2] = found[row, column]
    return made.view(np.int16).reshape(groups // 8, 2 * n)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "groups"), [(64, 64, 1), (128, 128, 2), (32, 192, 1)])
def test_sparse24(bits: int, k: int, n: int, groups: int) -> None:
    q, places = pruned(k, n, bits)
    s = RNG.standard_normal((groups, n)).astype(np.float16)
    kept = np.take_along_axis(q.T.reshape(n, -1, 4), places, -1).reshape(n, k // 2).T + (1 << (bits - 1))
    order = [8 * i + j for i in range(8) for j in (0, 4, 1, 5, 2, 6, 3, 7)]
    stored = s if groups == 1 else s.reshape(groups, -1, 64)[:, :, order].reshape(s.shape)
    made = bc.repack_marlin24(tiles(kept, bits, sparse=True), metadata(places), stored, bits=bits)
    want = (q * np.repeat(s, k // groups, 0).astype(np.float64)).T
    got = bc.block_dequantize(*made, kind=f"int{bits}", element="float32")
    np.testing.assert_array_equal(got, want.astype(np.float32))
    x = RNG.standard_normal((3, k)).astype(np.float32)
    y = bc.sparse24_matmul(x, *bc.sparse24_compress(got))
    np.testing.assert_allclose(y, x.astype(np.float64) @ want.T, rtol=1e-4, atol=1e-3 * np.abs(want).max())


def test_errors() -> None:
    q, z, s = problem(4, 32, 64, 2)
    good = tiles(q, 4)
    for given, facts, match in (
        ((good.astype(np.int64), s), {}, "qweight must hold int32"),
        ((good, s[:, :32]), {}, "scales must have 64 columns"),
        ((good, s, z[:, :4].astype(np.int32)), {}, "qzeros must have shape"),
        ((good, s), {"bits": 3}, "bits must be 4 or 8"),
        ((good, np.ones((3, 64), np.float16)), {}, "groups that divide k"),
        ((good, s, None, np.zeros(3, np.int32)), {}, "g_idx must have shape"),
        ((good, s, None, None, np.zeros(32, np.int32)), {}, "sort_indices needs g_idx"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=match):
            bc.repack_marlin(*given, **facts)
    with pytest.raises(bc.InvalidProblemError, match="16 inputs and 64 outputs"):
        bc.pack_marlin(np.zeros((64, 12), np.uint8), np.ones((64, 1), np.float32))
    with pytest.raises(bc.InvalidProblemError, match="meta must have shape"):
        bc.repack_marlin24(good, np.zeros((2, 64), np.int16), np.ones((1, 64), np.float16))


def test_empty() -> None:
    made = bc.repack_marlin(np.zeros((0, 128), np.int32), np.ones((1, 64), np.float16))
    assert made[0].shape == (64, 0) and bc.pack_marlin(*made[:3])[0].shape == (0, 128)
