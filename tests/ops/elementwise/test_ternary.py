"""Functions of three operands: known values, numbers and arrays as operands, bounds of every sort, refusals."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.ops.elementwise.complex_binary import ComplexBinaryPlan

NAN, INF = math.nan, math.inf


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


def test_clamp_with_bounds_of_every_sort():
    x = np.array([-2.0, -0.5, 0.5, 2.0, NAN])
    same(bc.clamp(x, -1, 1), [-1, -0.5, 0.5, 1, NAN])
    same(bc.clamp(x, max=0.0), [-2, -0.5, 0, 0, NAN])
    same(bc.clamp(x, min=0.0), [0, 0, 0.5, 2, NAN])
    same(bc.clamp(x, np.array([0.0]), 1.0), [0, 0, 0.5, 1, NAN])
    same(bc.clamp(x, None, np.array([1.0, 1, 1, 1, 1])), [-2, -0.5, 0.5, 1, NAN])
    same(bc.clamp(x, 1, -1), [-1, -1, -1, -1, NAN])  # the upper bound wins
    same(bc.clamp(x, NAN, 1), [NAN] * 5)
    same(bc.clip(x), x)
    same(bc.clamp_min(x, 0), bc.clamp(x, 0))
    same(bc.clamp_max(x, 0), bc.clamp(x, None, 0))
    assert bc.clamp(np.zeros(3), np.zeros((4, 1)), 1).shape == (4, 3)


def test_clamp_of_integers():
    x = np.array([0, 5, 200, 255], np.uint8)
    same(bc.clamp(x, -5, 100), [0, 5, 100, 100])
    same(bc.clamp(x, 10, 1000), [10, 10, 200, 255])
    same(bc.clip(x), x)
    big = np.array([2**63, 2**64 - 1, 5], np.uint64)
    assert bc.clamp(big, 7, 2**64 - 2).tolist() == [2**63, 2**64 - 2, 7]
    assert bc.clamp(np.array([2**62 + 1]), 2**62 + 3, None).tolist() == [2**62 + 3]
    with pytest.raises(bc.InvalidProblemError, match=r"min must be an integer for uint8, got 0.5"):
        bc.clamp(x, 0.5)
    with pytest.raises(bc.InvalidProblemError, match="max must be an integer for uint8, got inf"):
        bc.clamp(x, 0, INF)
    with pytest.raises(bc.InvalidProblemError, match="min and max are both None"):
        bc.clamp(x)


def test_where():
    mask = np.array([True, False, True])
    x = np.array([1, 2, 3], np.int16)
    assert bc.where(mask, x, -(2**15)).tolist() == [1, -(2**15), 3]
    assert bc.where(mask, 7, x).tolist() == [7, 2, 7]
    assert bc.where(mask, mask, False).dtype == np.bool_
    assert bc.where(mask, 1.0, 0).dtype == np.float32
    assert bc.where(mask, 1, 0).dtype == np.int64
    assert bc.where(mask, True, False).tolist() == mask.tolist()
    assert bc.where(mask[:, None], x, np.int16(0)).shape == (3, 3)
    same(bc.masked_fill(np.ones((2, 3)), mask, -INF), [[-INF, 1, -INF]] * 2)
    assert bc.masked_fill(np.array([1, 2]), np.array([True, False]), 2**62 + 1).tolist() == [2**62 + 1, 2]
    for wrong, said in (
        (40000, "b must lie in .* as it meets int16, got 40000"),
        (0.5, "b must be an integer for int16"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.where(mask, x, wrong)
    with pytest.raises(bc.InvalidProblemError, match="condition must be bool"):
        bc.where(x, x, x)
    with pytest.raises(bc.InvalidProblemError, match="b is required, got None"):
        bc.where(mask, x, None)
    with pytest.raises(bc.InvalidProblemError, match="do not broadcast"):
        bc.where(mask, np.zeros(2), np.zeros(3))


def test_where_of_complex_numbers():
    z = np.array([1 + 2j, complex(-0.0, math.nan), 3j], np.complex64)
    mask = np.array([True, True, False])
    np.testing.assert_array_equal(bc.where(mask, z, 0.5), np.where(mask, z, np.complex64(0.5)))
    np.testing.assert_array_equal(bc.masked_fill(z, mask, -300), np.where(mask, np.complex64(-300), z))
    with pytest.raises(bc.InvalidProblemError, match=r"b must be an array .*, got complex"):
        bc.where(mask, z, 1j)
    with pytest.raises(bc.UnsupportedError, match="clamp takes no complex64"):
        bc.clamp(z, 0, 1)


def test_lerp_ends_exactly():
    a, b = np.array([1e8, -3.0, 0.1], np.float32), np.array([0.1, 7.0, 0.3], np.float32)
    np.testing.assert_array_equal(bc.lerp(a, b, 1.0), b)
    np.testing.assert_array_equal(bc.lerp(a, b, 0.0), a)
    same(bc.lerp(a, b, np.array([0.5, 0.25, 1], np.float32)), [5e7, -0.5, b[2]])
    largest = np.finfo(np.float32).max
    same(bc.lerp(np.array([-largest]), np.array([largest]), 0.5), [0])


def test_products_and_sums():
    a, b, c = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])
    same(bc.fma(a, b, c), [8, 14])
    same(bc.fma(a, 2, 1), [3, 5])
    same(bc.mac(a, b, c), [16, 26])
    same(bc.addcmul(a, b, c, value=0.5), [8.5, 14])
    same(bc.addcdiv(a, c, b, value=3), [6, 6.5])
    same(bc.addcmul(np.array([100], np.int8), np.array([100], np.int8), 2), [44])
    with pytest.raises(bc.UnsupportedError, match="addcdiv takes no int64"):
        bc.addcdiv(np.arange(3), 1, 1)


def test_a_product_that_would_overflow_on_the_way():
    a, b, c = np.array([1.0]), np.array([1e300]), np.array([1e-300])
    same(bc.addcmul(a, b, c, value=1e20), 1 + 1e20)
    same(bc.addcdiv(a, b, np.array([1e-300]), value=1e-290), 1e310)
    same(bc.addcdiv(a, b, np.array([1e-300]), value=1e-300), 1 + 1e300)


def test_errors_name_the_operand_as_the_caller_does():
    x = np.zeros(3)
    with pytest.raises(bc.InvalidProblemError, match="min must be float64, got float32"):
        bc.clamp(x, np.zeros(3, np.float32), 1.0)
    with pytest.raises(bc.InvalidProblemError, match="mask must be bool, got float64"):
        bc.masked_fill(x, x, 1.0)
    with pytest.raises(bc.InvalidProblemError, match=r"a \(3,\), weight \(2,\) do not broadcast"):
        bc.lerp(x, 1.0, np.zeros(2))
    with pytest.raises(bc.InvalidProblemError, match=r"max must be an array .*, got str"):
        bc.clamp(x, 1.0, "two")


def test_in_place_and_numpy_numbers():
    x = np.arange(4.0)
    bc.clamp(x, np.float64(1), np.int64(2), out=x)
    same(x, [1, 1, 2, 2])
    y = np.arange(4.0)
    bc.where(np.array([True, False, True, False]), x, y, out=y)
    same(y, [1, 1, 2, 3])


def test_unknown_keywords_name_the_one_meant():
    with pytest.raises(bc.UnknownKeywordError, match="value"):
        bc.addcmul(np.zeros(2), np.zeros(2), np.zeros(2), alpha=2)
    with pytest.raises(bc.UnknownKeywordError, match="unexpected keyword"):
        bc.where(np.zeros(2, bool), 1.0, 2.0, other=3)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_against_torch(dtype, place):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((4, 5), (1, 5), (4, 1)))
    a, b, c, dy = (x.astype(dtype) for x in (a, b, c, a * 1j))
    tol = {"rtol": 1e-12 if dtype is np.complex128 else 2e-5, "atol": 1e-13 if dtype is np.complex128 else 1e-5}
    for name, more in (("lerp", {}), ("addcmul", {"value": -0.7}), ("addcdiv", {"value": 1.5})):
        leaves = [torch.tensor(x, requires_grad=True) for x in (a, b, c)]
        y = getattr(torch, name)(*leaves, **more)
        np.testing.assert_allclose(on(place, getattr(bc, name), a, b, c, **more), y.detach().numpy(), **tol)
        wanted = torch.autograd.grad(y, leaves, torch.tensor(dy))
        got = on(place, getattr(bc, f"{name}_backward"), dy, a, b, c, **more)
        for mine, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, other.numpy(), **tol)
    mask = a.real > 0
    np.testing.assert_array_equal(on(place, bc.where, mask, a, c), np.where(mask, a, c))
    for refused in (lambda: bc.clamp(a, 0, 1), lambda: bc.fma(a, a, a), lambda: bc.clamp_backward(dy, a, a, a)):
        with pytest.raises(UnsupportedError, match="takes no complex"):
            refused()


def test_isclose_of_complex_numbers(place):
    a = np.array([1 + 1j, complex(np.nan, 0), complex(np.inf, 1), 2j, 0])
    b = np.array([1 + 1.000001j, complex(0, np.nan), complex(np.inf, 1), 2.1j, 1e-9])
    for more in ({}, {"equal_nan": True}, {"rtol": 0.1}, {"atol": 0.2, "rtol": 0.0}):
        np.testing.assert_array_equal(
            on(place, bc.isclose, a, b, plan=ComplexBinaryPlan, kind="isclose", **more),
            np.isclose(a, b, **more),
            err_msg=str(more),
        )


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_eight_bit_floats_are_chosen_bit_by_bit(dtype):
    words, mask = np.arange(256, dtype=np.uint8).reshape(2, 128), np.arange(256).reshape(2, 128) % 3 == 0
    x = words.view(dtype)
    wanted = np.where(mask, np.asarray(1.3, dtype).view(np.uint8), words)
    np.testing.assert_array_equal(bc.masked_fill(x, mask, 1.3).view(np.uint8), wanted)
    out = np.zeros_like(x)
    assert bc.where(mask, x, x[:1], out=out) is out
    np.testing.assert_array_equal(out.view(np.uint8), np.where(mask, words, words[:1]))
    np.testing.assert_array_equal(bc.where(mask, x, words[:1]), np.where(mask, words, words[:1]))
    with pytest.raises(UnsupportedError):
        bc.where(mask, x, words.astype(np.float32))


def test_eight_bit_floats_stay_what_they_are_in_torch():
    torch = pytest.importorskip("torch")
    x, mask = torch.ones(2, 3).to(torch.float8_e5m2), torch.tensor([True, False, True])
    y = bc.masked_fill(x, mask, 0.5)
    assert y.dtype == torch.float8_e5m2 and y.float().tolist() == [[0.5, 1, 0.5]] * 2
