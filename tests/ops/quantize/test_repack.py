"""Layouts of GPTQ, AWQ and bitsandbytes, packed here by loops as their authors pack them."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)


def gptq_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """int32 words along the first axis: code i begins at bit i · bits of the column."""
    k, n = codes.shape
    words = np.zeros((k * bits // 32, n), np.uint64)
    for i in range(k):
        word, shift = divmod(i * bits, 32)
        value = codes[i].astype(np.uint64) << np.uint64(shift)
        words[word] |= value & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            words[word + 1] |= value >> np.uint64(32)
    return words.astype(np.uint32).view(np.int32)


def awq_words(codes: np.ndarray) -> np.ndarray:
    rows, n = codes.shape
    words = np.zeros((rows, n // 8), np.uint32)
    for column in range(n // 8):
        for i, of in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            words[:, column] |= codes[:, column * 8 + of].astype(np.uint32) << np.uint32(4 * i)
    return words.view(np.int32)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq(bits: int, act_order: bool) -> None:
    k, n, groups = 96, 32, 3
    q = RNG.integers(0, 1 << bits, (k, n))
    z = RNG.integers(1, (1 << bits) + 1 if bits < 8 else 256, (groups, n))
    s = RNG.standard_normal((groups, n)).astype(np.float16)
    of = RNG.permutation(np.repeat(np.arange(groups), k // groups)) if act_order else np.arange(k) // (k // groups)
    words, zeros = gptq_words(q, bits), gptq_words(np.ascontiguousarray((z - 1).T), bits).T
    index = of.astype(np.int32) if act_order else None
    made = bc.repack_gptq(words, s, zeros, index, bits=bits)
    got = bc.block_dequantize(*made, kind=f"uint{bits}", element="float32")
    want = (q - z[of]).astype(np.float32) * s[of].astype(np.float32)
    assert np.array_equal(got, want.T)
    back = bc.pack_gptq(*made[:3], bits=bits)
    assert all(np.array_equal(a, b) for a, b in zip(back, (words, s, zeros), strict=True))


def test_gptq_without_zero_points_is_symmetric() -> None:
    q, s = RNG.integers(0, 16, (16, 8)), RNG.standard_normal((2, 8)).astype(np.float32)
    got = bc.block_dequantize(*bc.repack_gptq(gptq_words(q, 4), s), kind="uint4", element="float32")
    assert np.array_equal(got, ((q - 8) * np.repeat(s, 8, 0)).astype(np.float32).T)


@pytest.mark.parametrize(("k", "size"), [(320, 128), (192, 128), (264, 24)])
def test_gptq_whose_last_group_is_shorter(k: int, size: int) -> None:
    """AutoGPTQ makes ceil(k / group) groups, and says in g_idx which input is in which."""
    n, groups = 16, -(-k // size)
    q, z = RNG.integers(0, 16, (k, n)), RNG.integers(1, 16, (groups, n))
    s, of = RNG.standard_normal((groups, n)).astype(np.float16), np.arange(k) // size
    words, zeros = gptq_words(q, 4), gptq_words(np.ascontiguousarray((z - 1).T), 4).T
    made = bc.repack_gptq(words, s, zeros, of.astype(np.int32))
    got = bc.block_dequantize(*made, kind="uint4", element="float32")
    assert np.array_equal(got, ((q - z[of]) * s[of].astype(np.float32)).astype(np.float32).T)
    x = RNG.standard_normal((3, k)).astype(np.float32)
    np.testing.assert_allclose(bc.quantized_matmul(x, *made[:3], kind="uint4", index=made[3]), x @ got.T, atol=1e-3)


def test_zero_points_of_the_middle_depend_on_no_scale() -> None:
    s = np.array([[np.inf, np.nan, 0, 1]], np.float16)
    assert np.all(bc.repack_gptq(np.zeros((2, 4), np.int32), s)[2] == 8)


def test_awq() -> None:
    k, n, groups = 64, 24, 2
    q, z = RNG.integers(0, 16, (k, n)), RNG.integers(0, 16, (groups, n))
    s = RNG.standard_normal((groups, n)).astype(np.float16)
    made = bc.repack_awq(awq_words(q), s, awq_words(z))
    got = bc.block_dequantize(*made, kind="uint4", element="float32")
    want = (q - np.repeat(z, 32, 0)).astype(np.float32) * np.repeat(s, 32, 0).astype(np.float32)
    assert np.array_equal(got, want.T)
    back = bc.pack_awq(*made)
    assert all(np.array_equal(a, b) for a, b in zip(back, (awq_words(q), s, awq_words(z)), strict=True))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_codes_come_back(bits: int) -> None:
    codes = RNG.integers(0, 1 << bits, (3, 16), dtype=np.uint8)
    packed = bc.pack_codes(codes, bits)
    assert packed.shape == (3, 2 * bits) and np.array_equal(bc.unpack_codes(packed, bits), codes)
    whole = [int.from_bytes(row.tobytes(), "little") for row in packed]
    assert whole == [sum(int(c) << (bits * i) for i, c in enumerate(row)) for row in codes]


def test_double_quantised_scales() -> None:
    absmax, code = RNG.integers(0, 256, 300, dtype=np.uint8), RNG.standard_normal(256).astype(np.float32)
    absmax2 = RNG.uniform(0.5, 2, 2).astype(np.float32)
    got = bc.nested_scales(absmax, code, absmax2, 0.25)
    assert np.array_equal(got, code[absmax] * absmax2[np.arange(300) // 256] + np.float32(0.25))


def test_bad_input_is_named() -> None:
    words, s = np.zeros((2, 8), np.int32), np.ones((2, 8), np.float16)
    with pytest.raises(bc.InvalidProblemError, match="qweight must hold int32"):
        bc.repack_gptq(words.astype(np.int64), s)
    with pytest.raises(bc.InvalidProblemError, match="scales must have 8 columns"):
        bc.repack_gptq(words, np.ones((2, 9), np.float16))
    with pytest.raises(bc.InvalidProblemError, match="qzeros must have shape"):
        bc.repack_gptq(words, s, np.zeros((2, 2), np.int32))
    with pytest.raises(bc.InvalidProblemError, match="g_idx must have shape"):
        bc.repack_gptq(words, s, None, np.zeros(4, np.int32))
    with pytest.raises(bc.InvalidProblemError, match="give g_idx"):
        bc.repack_gptq(words, np.ones((3, 8), np.float16))
    for bits in (1, 6):  # which GPTQ has not, nor a format here
        with pytest.raises(bc.InvalidProblemError, match="bits must be 2, 3, 4 or 8"):
            bc.repack_gptq(np.zeros((3, 32), np.int32), np.ones((1, 32), np.float16), bits=bits)
    with pytest.raises(bc.InvalidProblemError, match="must have a group at least"):
        bc.repack_gptq(words, np.ones((0, 8), np.float16))
    with pytest.raises(bc.InvalidProblemError, match="of the groups of scales, got 0"):
        bc.repack_awq(np.zeros((16, 1), np.int32), np.ones((0, 8), np.float16), np.zeros((0, 1), np.int32))
    with pytest.raises(bc.InvalidProblemError, match="bits must be"):
        bc.pack_codes(np.zeros((1, 8), np.uint8), 5)
    with pytest.raises(bc.InvalidProblemError, match="whole bytes"):
        bc.pack_codes(np.zeros((1, 7), np.uint8), 4)
