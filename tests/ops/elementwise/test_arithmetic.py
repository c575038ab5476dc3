"""binary, cast, fill, affine: broadcasting, division, conversions."""

import math

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise import affine, binary_functions as binary, cast, fill

NAN, INF = math.nan, math.inf


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


def test_broadcasting():
    a, b = np.arange(6.0).reshape(3, 1, 2), np.arange(4.0).reshape(4, 1)
    assert binary.add(a, b).shape == (3, 4, 2)
    same(binary.mul(a, b), a * b)
    with pytest.raises(InvalidProblemError, match="do not broadcast"):
        binary.add(np.zeros(3), np.zeros(4))


def test_division_rounds_down_and_remainder_has_the_sign_of_b():
    a, b = np.array([7, -7, 7, -7, 5, -128], np.int8), np.array([2, 2, -2, -2, 0, -1], np.int8)
    same(binary.floor_divide(a, b), [3, -4, -4, 3, 0, -128])
    same(binary.remainder(a, b), [1, 1, -1, -1, 0, 0])
    same(binary.fmod(a, b), [1, -1, 1, -1, 0, 0])
    x, y = np.array([7.5, -7.5, 1, -1, 5]), np.array([2.0, 2.0, INF, INF, 0])
    same(binary.floor_divide(x, y), [3, -4, 0, -1, INF])
    same(binary.remainder(x, y), [1.5, 0.5, 1, INF, NAN])
    same(binary.fmod(x, y), [1.5, -1.5, 1, -1, NAN])


def test_nan_in_maximum_and_fmax():
    a, b = np.array([NAN, 1, NAN]), np.array([1, NAN, NAN])
    same(binary.maximum(a, b), [NAN, NAN, NAN])
    same(binary.fmax(a, b), [1, 1, NAN])
    same(binary.fmin(a, b), [1, 1, NAN])


def test_integer_division_is_refused_with_the_reason():
    x = np.arange(3)
    with pytest.raises(UnsupportedError, match="floor_divide"):
        binary.div(x, x)
    with pytest.raises(UnsupportedError, match="cast both"):
        binary.hypot(x, x)


def test_in_place_over_either_operand():
    a, b = np.arange(4.0), np.full(4, 2.0)
    same(binary.sub(a, b, out=b), [-2, -1, 0, 1])
    same(binary.sub(a, a, out=a), [0, 0, 0, 0])


def test_cast_rounds_once_and_clamps():
    x = np.array([1 + 2**-8 + 2**-40], np.float64)  # just above a bfloat16 midpoint; through float32 it would be on it
    assert cast.cast(x, "bfloat16").astype(np.float64)[0] == 1 + 2**-7
    same(cast.cast(np.array([NAN, 1e9, -1e9, 2.9, -2.9], np.float32), "int8"), [0, 127, -128, 2, -2])
    same(cast.cast(np.array([-1.5, 300], np.float32), "uint8"), [0, 255])
    same(cast.cast(np.array([300, -1], np.int32), "uint8"), [44, 255])
    same(cast.cast(np.array([NAN, 0, -0.0, 0.5]), bool), [1, 0, 0, 1])
    assert cast.cast(np.ones(2), ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert cast.cast(np.array([2**53 + 1]), np.float64)[0] == 2.0**53


def test_fill_writes_through_strides():
    x = np.zeros((4, 6), np.float32)
    assert fill.fill(x[::2, 1::2], 2.5).base is x
    assert x.sum() == 2.5 * 6 and (x[::2, 1::2] == 2.5).all()
    for wrong, said in (
        (1000, r"value must lie in \[-128, 127\] as it meets int8, got 1000"),
        (7.9, "must be an integer"),
    ):
        with pytest.raises(InvalidProblemError, match=said):
            fill.fill(np.zeros(2, np.int8), wrong)
    same(fill.fill(np.zeros(2, np.int64), np.array(7.9)), [7, 7])


def test_affine():
    x = np.arange(4, dtype=np.float32)
    same(affine.affine(x, 2, -1), [-1, 1, 3, 5])
    same(affine.affine(x, np.float32(0.5)), x / 2)
    same(affine.affine(np.array([100, -100], np.int8), 2, 1), [-55, 57])
    same(affine.affine(x, 2, out=x), [0, 2, 4, 6])
