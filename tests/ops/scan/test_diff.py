"""Differences of neighbours against NumPy's, and their gradient as a transposed one."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_differences_are_numpys(dtype, axis):
    rng = np.random.default_rng(0)
    x, first, last = (rng.integers(0, 200, (3, 4)).astype(dtype) for _ in range(3))
    for n in (1, 2, 3, 5):
        np.testing.assert_array_equal(bc.diff(x, n=n, axis=axis), np.diff(x, n, axis))
        np.testing.assert_array_equal(
            bc.diff(x, first, last, n=n, axis=axis), np.diff(x, n, axis, prepend=first, append=last)
        )
        np.testing.assert_array_equal(bc.diff(x, append=last[:, :4], n=n, axis=axis), np.diff(x, n, axis, append=last))


def test_the_sum_of_differences_is_the_whole():
    x = np.random.default_rng(1).standard_normal((5, 9))
    np.testing.assert_allclose(bc.cumsum(bc.diff(x, np.zeros((5, 1)))), x, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_gradient_is_the_transpose(n):
    rng = np.random.default_rng(n)
    x, first, last = rng.standard_normal((2, 6)), rng.standard_normal((2, 1)), rng.standard_normal((2, 2))
    y = bc.diff(x, first, last, n=n)
    dy = rng.standard_normal(y.shape)
    dx, dfirst, dlast = bc.diff_backward(dy, shape=(2, 6), n=n, before=1, after=2)
    pairs = ((dx, x), (dfirst, first), (dlast, last))
    np.testing.assert_allclose((dy * y).sum(), sum((a * b).sum() for a, b in pairs), rtol=1e-12)


def test_what_is_refused():
    with pytest.raises(InvalidProblemError, match="prepend must have shape"):
        bc.diff(np.ones((2, 3)), np.ones((1, 1)))
    with pytest.raises(InvalidProblemError, match="axis"):
        bc.diff(np.array(1.0))
    with pytest.raises(InvalidProblemError, match="n must be"):
        bc.diff(np.ones(3), n=-1)
