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


def test_the_dynamic_map_is_that_of_bitsandbytes() -> None:
    """Known entries of create_dynamic_map(), and its structure."""
    code = bc.dynamic_map()
    assert code.shape == (256,) and code.dtype == np.float32 and np.all(np.diff(code) > 0)
    assert code[255] == 1 and code[127] == 0 and np.array_equal(code[:127], -code[128:255][::-1])
    np.testing.assert_allclose(code[128:135], [5.5e-7, 3.25e-6, 7.75e-6, 2.125e-5, 4.375e-5, 6.625e-5, 8.875e-5], 1e-6)
    np.testing.assert_allclose(code[[191, 254]], [0.1 + 0.45 / 64, 1 - 0.45 / 64], 1e-6)
    torch = pytest.importorskip("torch")
    numbers = [0.0, 1.0]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2**i + 1)
        middles = (10 ** (i - 6)) * ((ends[:-1] + ends[1:]) / 2)
        numbers += middles.tolist() + (-middles).tolist()
    assert np.array_equal(code, np.sort(np.array(numbers, np.float32)))


@pytest.mark.parametrize("shape", [(40, 16), (256,), (1, 1), (513,)])
def test_scales_are_quantised_twice(shape: tuple[int, ...]) -> None:
    """Codes are the nearest by exhaustion, and the scales come back within half a step of the map."""
    code = bc.dynamic_map()
    scales = np.abs(RNG.standard_normal(shape)).astype(np.float32)
    absmax, absmax2, offset = bc.nest_scales(scales, code)
    flat = scales.reshape(-1).astype(np.float64)
    assert absmax.shape == flat.shape and absmax.dtype == np.uint8 and absmax2.shape == (-(-flat.size // 256),)
    assert offset.shape == () and abs(float(offset) - flat.mean()) < 1e-6
    centred = (scales.reshape(-1) - offset).astype(np.float32)
    largest = np.array([np.abs(centred[i : i + 256]).max() for i in range(0, flat.size, 256)], np.float32)
    assert np.array_equal(absmax2, largest)
    over = centred / np.maximum(largest, np.float32(2.0**-126))[np.arange(flat.size) // 256]
    off = np.abs(over.astype(np.float64)[:, None] - code.astype(np.float64))
    assert np.all(off[np.arange(flat.size), absmax] <= off.min(axis=1) + 1e-7)
    back = bc.nested_scales(absmax, code, absmax2, offset)
    assert np.abs(back - flat).max() <= 0.0071 * largest.max() + 1e-6


def test_nf4_with_double_quantisation() -> None:
    w = RNG.standard_normal((64, 256)).astype(np.float32)
    codes, scales = bc.block_quantize(w, kind="nf4", group=64)
    parts = bc.nest_scales(scales, code := bc.dynamic_map())
    again = bc.nested_scales(parts[0], code, *parts[1:]).reshape(scales.shape)
    once = bc.block_dequantize(codes, scales, kind="nf4", element="float32")
    twice = bc.block_dequantize(codes, again, kind="nf4", element="float32")
    assert 0 < np.linalg.norm(twice - once) < 0.01 * np.linalg.norm(once)
    with pytest.raises(bc.InvalidProblemError, match="code must have shape"):
        bc.nest_scales(scales, code[:16])
    with pytest.raises(bc.InvalidProblemError, match="scales must hold float32"):
        bc.nest_scales(scales.astype(np.float16), code)
    with pytest.raises(bc.InvalidProblemError, match="an item at least"):
        bc.nest_scales(scales[:0], code)


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
