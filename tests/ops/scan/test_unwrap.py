"""unwrap: what NumPy says, phases wound up again, halves of a period; by the kernels too."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.scan.unwrap import UnwrapDescriptor, UnwrapPlan
from baracuda_py.testing.places import call


def unwrapped(place, x, axis=-1, reverse=False, **options):
    desc = UnwrapDescriptor(shape=x.shape, axis=axis, reverse=reverse, element=str(x.dtype))
    return call(UnwrapPlan, desc, ("y",), place, x=x, **options)["y"]


@pytest.mark.parametrize(("shape", "axis"), [((5, 40), 1), ((300, 9), 0), ((2, 5000), 1), ((1,), 0)])
def test_what_numpy_says(place, shape, axis):
    x = np.random.default_rng(0).uniform(-9, 9, shape)
    np.testing.assert_allclose(unwrapped(place, x, axis), np.unwrap(x, axis=axis), atol=1e-9)
    np.testing.assert_allclose(unwrapped(place, x, axis, period=3.0), np.unwrap(x, axis=axis, period=3.0), atol=1e-9)
    found = unwrapped(place, x, axis, discont=5.0)
    np.testing.assert_allclose(found, np.unwrap(x, 5.0, axis=axis), atol=1e-9)
    turned = np.flip(np.unwrap(np.flip(x, axis), axis=axis), axis)
    np.testing.assert_allclose(unwrapped(place, x, axis, reverse=True), turned, atol=1e-9)


def test_a_phase_that_was_wound_up(place):
    true = np.cumsum(np.random.default_rng(1).uniform(-3, 3.1, 2000)) + 0.5
    true -= true[0] - np.angle(np.exp(1j * true[0]))
    wound = np.angle(np.exp(1j * true))
    np.testing.assert_allclose(unwrapped(place, wound), true, atol=1e-8)
    single = unwrapped(place, wound.astype(np.float32))
    np.testing.assert_allclose(single, true, rtol=2e-6, atol=2e-6)


def test_jumps_of_half_a_period_stay(place):
    x = np.array([0, 4, 0, 3, 8, 0.0])
    np.testing.assert_array_equal(unwrapped(place, x, period=8.0), np.unwrap(x, period=8))
    ints = np.array([1, 2, 3, 4, 5, 6, 1, 2, 3], np.float64)
    np.testing.assert_array_equal(unwrapped(place, ints, period=6.0), np.arange(1, 10))


def test_what_follows_an_infinity_is_nan(place):
    y = unwrapped(place, np.array([1, np.inf, 1, 2.0]))
    np.testing.assert_array_equal(np.isnan(y), [False, True, True, True])
    for first in (np.inf, -np.inf, np.nan):  # what comes first stays, as a jump from it has no number of turns
        y = unwrapped(place, np.array([first, 1, 2.0]))
        np.testing.assert_array_equal(y, [first, np.nan, np.nan])
    y = unwrapped(place, np.array([1.7e308, -1.7e308, 1, 2]))
    np.testing.assert_array_equal(y, [1.7e308, np.nan, np.nan, np.nan])
    assert bc.unwrap(np.zeros((0, 3)), axis=0).shape == (0, 3)
