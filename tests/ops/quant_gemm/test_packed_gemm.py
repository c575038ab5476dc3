"""Products of packed integers: exact against NumPy over all bytes, packing there and back, errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

RNG = np.random.default_rng


def signs(x: Any) -> Any:
    return np.where(x < 0, -1, 1)


def nibbles(q: Any) -> Any:
    """Two numbers of four bits in a byte, the first in the low half."""
    q = np.concatenate([q, np.zeros_like(q[..., : q.shape[-1] % 2])], -1).astype(np.uint8) & 15
    return q[..., ::2] | q[..., 1::2] << 4


@pytest.mark.parametrize("k", [1, 7, 8, 33, 1000])
def test_signs_of_any_number_with_padding_that_cancels(k: int) -> None:
    a, b = (RNG(n).standard_normal((n, k)) for n in (3, 5))
    packed = [bc.pack_signs(x) for x in (a, b)]
    assert packed[0].shape == (3, -(-k // 8)) and packed[0].dtype == np.uint8
    assert (bc.unpack_signs(packed[0], k, element="int8") == signs(a)).all()
    y = bc.binary_matmul(*packed, k=k)
    assert y.dtype == np.int32 and (y == signs(a) @ signs(b).T).all()


def test_zero_and_nan_are_positive_signs() -> None:
    assert bc.pack_signs(np.float32([0, -0.0, np.nan, -1, 1, -np.inf, np.inf, -1e-45])).tolist() == [0b10101000]


@pytest.mark.parametrize("k", [1, 6, 7, 64, 301])
@pytest.mark.parametrize("signed", [True, False])
def test_int4_over_its_whole_range(k: int, signed: bool) -> None:
    low, high = (-8, 8) if signed else (0, 16)
    a, b = (RNG(n).integers(low, high, (n, k)) for n in (9, 5))
    y = bc.int4_matmul(nibbles(a), nibbles(b), k=k, signed=signed)
    assert (y == a @ b.T).all()


@pytest.mark.parametrize("k", [1, 4, 6, 301])
@pytest.mark.parametrize("axis", [None, -1])
def test_ternary_weights_there_and_back(k: int, axis: int | None) -> None:
    w = RNG(k).standard_normal((5, k)).astype(np.float32)
    packed, scale = bc.ternary_quantize(w, axis=axis)
    size = np.mean(np.abs(w.astype(np.float64)), axis=axis)
    assert scale.dtype == np.float32 and np.allclose(scale, size, rtol=1e-6) and packed.shape == (5, -(-k // 4))
    factor = scale if axis is None else scale[:, None]
    weights = bc.ternary_unpack(packed, k)
    assert weights.dtype == np.int8 and (weights == np.clip(np.rint(w / factor), -1, 1)).all()
    x = RNG(1).integers(-128, 128, (2, 3, k), dtype=np.int8)
    want = x.astype(np.int64) @ weights.astype(np.int64).T
    assert (bc.ternary_matmul(x, packed) == want).all()
    by_row = RNG(2).uniform(0.5, 2, (2, 3, 1)).astype(np.float32)
    y = bc.ternary_matmul(x, packed, by_row, scale, element="bfloat16")
    assert y.dtype == ml_dtypes.bfloat16 and np.allclose(y.astype(np.float64), want * by_row * scale, rtol=2**-8)


def test_ternary_ties_go_to_zero_and_nan_is_zero() -> None:
    w = np.float32([[0.5, -0.5, 1.5, -0.75, np.nan, 0, 3, -3]])
    packed, _ = bc.ternary_quantize(np.where(np.isnan(w), 0, w))
    assert bc.ternary_unpack(packed).tolist() == [[0, 0, 1, -1, 0, 0, 1, -1]]  # the mean of sizes is 1.15625
    zeros, scale = bc.ternary_quantize(np.zeros((2, 4), np.float16))
    assert not bc.ternary_unpack(zeros).any() and scale == 0
    assert not bc.ternary_unpack(bc.ternary_quantize(w)[0]).any()  # a scale of NaN


def test_scales_and_bias_take_floats() -> None:
    a, b = (RNG(n).integers(0, 256, (n, 4), dtype=np.uint8) for n in (3, 5))
    exact = bc.binary_matmul(a, b).astype(np.float64)
    by_row, by_column = (RNG(n).uniform(0.5, 2, n).astype(np.float32) for n in (3, 5))
    y = bc.binary_matmul(a, b, by_row, by_column, bias=by_column)
    assert y.dtype == np.float32
    assert np.allclose(y, exact * by_row[:, None] * by_column + by_column, rtol=1e-6)
    assert np.allclose(bc.binary_matmul(a, b, np.float32([2]), element="float16"), 2 * exact)
    with pytest.raises(InvalidProblemError, match="int32"):
        bc.binary_matmul(a, b, by_row, element="int32")


def test_errors() -> None:
    a, b, q = np.zeros((3, 4), np.uint8), np.zeros((5, 4), np.uint8), np.zeros((3, 16), np.int8)
    cases: list[tuple[Any, str, type[Exception]]] = [
        (lambda: bc.binary_matmul(a, b[:, :3]), "b must have shape", InvalidProblemError),
        (lambda: bc.binary_matmul(a, b, k=33), "k", InvalidProblemError),
        (lambda: bc.binary_matmul(a, b, k=9), "shape", InvalidProblemError),
        (lambda: bc.binary_matmul(a, b[0]), "two axes", InvalidProblemError),
        (
            lambda: bc.binary_matmul(a, b, np.ones(2, np.float32)),
            "scale_a must be one number, or 3",
            InvalidProblemError,
        ),
        (lambda: bc.ternary_matmul(q, b[:, :3]), "b must have shape", InvalidProblemError),
        (lambda: bc.ternary_matmul(q.astype(np.uint8), b), "int8", InvalidProblemError),
        (lambda: bc.int4_matmul(q[:, :4], b), "uint8", InvalidProblemError),
        (lambda: bc.ternary_quantize(np.zeros((2, 4), np.float32), axis=0), "axis", InvalidProblemError),
        (lambda: bc.ternary_quantize(q), "floats", InvalidProblemError),
        (lambda: bc.ternary_unpack(q), "uint8", UnsupportedError),
        (lambda: bc.ternary_unpack(a, 17), "k", InvalidProblemError),
        (lambda: bc.unpack_signs(a, element="int16"), "element", UnsupportedError),
    ]
    for call, text, kind in cases:
        with pytest.raises(kind, match=text):
            call()
