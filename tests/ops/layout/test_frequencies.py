"""The frequencies of transforms and their order, against numpy.fft."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError


def test_frequencies_are_those_of_numpy():
    for n in (1, 2, 3, 8, 9, 1000, 1001):
        for d in (1.0, 0.3, -2.5):
            np.testing.assert_allclose(bc.fftfreq(n, d, "float64"), np.fft.fftfreq(n, d), rtol=1e-15)
            np.testing.assert_allclose(bc.rfftfreq(n, d, "float64"), np.fft.rfftfreq(n, d), rtol=1e-15)
    assert bc.fftfreq(4).dtype == bc.rfftfreq(4).dtype == np.float32
    out = np.empty(4, np.float16)
    assert bc.fftfreq(4, out=out) is out and out.tolist() == [0, 0.25, -0.5, -0.25]


@pytest.mark.parametrize("shape", [(1,), (5,), (6,), (4, 3), (2, 3, 5), (0, 3)])
def test_shifts_are_those_of_numpy(shape):
    x = np.arange(np.prod(shape)).reshape(shape)
    several = ((0, -1),) if len(shape) > 1 else ()
    for axis in (None, *range(len(shape)), -1, *several):
        shifted = bc.fftshift(x, axis)
        np.testing.assert_array_equal(shifted, np.fft.fftshift(x, axis))
        np.testing.assert_array_equal(bc.ifftshift(x, axis), np.fft.ifftshift(x, axis))
        np.testing.assert_array_equal(bc.ifftshift(shifted, axis), x)


def test_numbers_of_any_element_are_shifted_into_out():
    for element in ("bool", "uint8", "float16", "complex128"):
        x = (np.arange(15).reshape(3, 5) % 2).astype(element)
        out = np.empty((5, 3), element).T
        assert bc.fftshift(x, 1, out=out) is out
        np.testing.assert_array_equal(out, np.fft.fftshift(x, 1))
    x = np.arange(5)[::-1]
    np.testing.assert_array_equal(bc.fftshift(x), np.fft.fftshift(x))


def test_what_is_refused():
    for function in (bc.fftfreq, bc.rfftfreq):
        with pytest.raises(InvalidProblemError, match="n must"):
            function(0)
        with pytest.raises(InvalidProblemError, match="d must not be 0"):
            function(4, 0.0)
        with pytest.raises(InvalidProblemError, match="element must be a float"):
            function(4, element="complex64")
    for function in (bc.fftshift, bc.ifftshift):
        with pytest.raises(InvalidProblemError, match="axis"):
            function(np.zeros((2, 3)), 2)
        with pytest.raises(InvalidProblemError, match="twice"):
            function(np.zeros((2, 3)), (0, -2))
