"""ediff1d: what NumPy says, and differences of no order."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.scan.diff import DiffDescriptor, DiffPlan
from baracuda_py.testing.places import call


def test_what_numpy_says():
    x = np.array([1.0, 4, 9, 7])
    ends = np.array([-1.0, 2]), np.array([5.0])
    np.testing.assert_array_equal(bc.ediff1d(x), np.ediff1d(x))
    np.testing.assert_array_equal(bc.ediff1d(x, *ends), np.ediff1d(x, *ends))
    np.testing.assert_array_equal(bc.ediff1d(x[:1], *ends), np.ediff1d(x[:1], *ends))
    assert bc.ediff1d(np.zeros(0)).shape == (0,)
    np.testing.assert_array_equal(bc.ediff1d(np.array([0, 255], np.uint8)[::-1]), [1])
    np.testing.assert_array_equal(bc.ediff1d(x.reshape(2, 2)), np.ediff1d(x))


def test_no_differences_are_a_copy(place):
    for dtype in (np.float16, np.bool_, np.int8, np.float64):
        x = np.array([[0, 1, -1], [1, 0, 2]]).astype(dtype)
        desc = DiffDescriptor(shape=(2, 3), axis=1, n=0, element=str(x.dtype))
        np.testing.assert_array_equal(call(DiffPlan, desc, ("y",), place, x=x)["y"], x)
    zeros = np.array([-0.0, 0.0])
    assert np.signbit(bc.diff(zeros, n=0)).tolist() == [True, False]
    with pytest.raises(InvalidProblemError, match="leave them out"):
        bc.diff(zeros, zeros, n=0)
