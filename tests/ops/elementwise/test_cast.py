"""Casts through the functional layer: packed shapes, tags of carriers, saturation, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc


def test_float8_travels_as_bytes():
    x = np.array([1.0, 448, 500, -1e9, np.nan], np.float32)
    plain, clamped = bc.cast(x, "float8_e4m3fn"), bc.cast(x, "float8_e4m3fn", saturate=True)
    assert plain.dtype == clamped.dtype == np.uint8
    np.testing.assert_array_equal(plain.view(ml_dtypes.float8_e4m3fn).astype("f4"), [1, 448, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(clamped.view(ml_dtypes.float8_e4m3fn).astype("f4"), [1, 448, 448, -448, np.nan])
    back = bc.cast(clamped, "float32", element="float8_e4m3fn")
    np.testing.assert_array_equal(back, [1, 448, 448, -448, np.nan])
    np.testing.assert_array_equal(bc.cast(clamped.view(ml_dtypes.float8_e4m3fn), "float32"), back)
    assert bc.cast(clamped, "float32")[1] == 0x7E  # without a tag, bytes are numbers


def test_packed_elements_take_half_the_bytes():
    x = np.array([[0.4, -1.2, 6.5], [np.nan, 2.6, -0.2]])
    packed = bc.cast(x, "float4_e2m1fn")
    assert packed.shape == (2, 2) and packed.dtype == np.uint8
    back = bc.cast(packed, "float64", element="float4_e2m1fn", shape=x.shape)
    np.testing.assert_array_equal(back, [[0.5, -1, 6], [6, 3, -0.0]])
    assert bc.cast(packed, "float64", element="float4_e2m1fn").shape == (2, 4)  # the last of each row is the filling
    i = np.array([9, -9, 3, 200], np.int16)
    assert bc.cast(bc.cast(i, "int4"), "int16", element="int4").tolist() == [-7, 7, 3, -8]
    assert bc.cast(bc.cast(i, "int4", saturate=True), "int16", element="int4").tolist() == [7, -8, 3, 7]
    assert bc.cast(bc.cast(i, "uint4", saturate=True), "int16", element="uint4").tolist() == [9, 0, 3, 15]


def test_integers_wrap_or_clamp():
    x = np.array([-1, 256, 300, 2**40 + 5])
    assert bc.cast(x, "uint8").tolist() == [255, 0, 44, 5]
    assert bc.cast(x, "uint8", saturate=True).tolist() == [0, 255, 255, 255]
    assert bc.cast(np.array([1e30, -np.inf]), "float16", saturate=True).tolist() == [65504, -65504]


def test_refusals():
    with pytest.raises(bc.InvalidProblemError, match="at least one axis"):
        bc.cast(np.zeros(()), "int4")
    with pytest.raises(bc.InvalidProblemError, match="one int4 in a byte"):
        bc.cast(np.zeros(4, ml_dtypes.int4), "int8")
    with pytest.raises(bc.UnsupportedError, match="complex64"):
        bc.cast(np.zeros(4, np.complex64), "float32")
    with pytest.raises(bc.InvalidProblemError, match="x must have shape"):
        bc.cast(np.zeros(4, np.uint8), "int8", element="int4", shape=(9,))
    with pytest.raises(bc.UnknownKeywordError, match="saturate"):
        bc.cast(np.zeros(4), "int8", saturated=True)
