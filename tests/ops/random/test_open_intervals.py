"""Variates of open intervals are inside them, however few digits and exponents the element has."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import FLOATS
from baracuda_py.ops.random.distributions import RandomKind
from baracuda_py.ops.random.random_fill import RandomDescriptor, RandomPlan
from baracuda_py.testing.places import call

COUNT = 1000

# Functions, parameters that bring most variates to an end of the interval, and the interval.
ENDS = {
    "exponential": [((1e3,), 0), ((3e38,), 0), ((1e-38,), 0)],
    "rayleigh": [((1e-9,), 0), ((1e-38,), 0), ((3e38,), 0)],
    "weibull": [((1.0, 0.01), 0), ((1e-8, 2.0), 0), ((1e30, 0.1), 0)],
    "pareto": [((1.0, 0.01), 0), ((1e-9, 2.0), 0)],
    "log_normal": [((-200.0, 1.0), 0), ((200.0, 1.0), 0), ((0.0, 100.0), 0)],
    "gamma": [((1e-4, 1.0), 0), ((2.0, 1e30), 0), ((2.0, 1e-30), 0)],
    "chi_square": [((1e-4,), 0)],
    "f_ratio": [((1e-2, 1e-2), 0)],
    "maxwell": [((1e-12,), 0), ((1e38,), 0)],
    "wald": [((1e-10, 1.0), 0), ((1e30, 1e30), 0)],
    "beta": [((1e-3, 1e-3), 1), ((1e-5, 1.0), 1), ((1e6, 1e-2), 1)],
    "cauchy": [((0.0, 1e3), None), ((0.0, 3e38), None)],
    "laplace": [((0.0, 3e38), None)],
    "gumbel": [((0.0, 3e38), None)],
    "logistic": [((0.0, 3e38), None)],
    "student_t": [((0.01,), None)],
    "normal": [((0.0, 3e38), None)],
    "loggamma": [((1e-7,), None)],
    "geometric": [((1e-9,), 0)],
}  # fmt: skip


def drawn(place, name, element, *parameters, **arrays):
    """COUNT variates, or as many as the arrays have, in float64."""
    shape = next((x.shape for x in arrays.values()), (COUNT,))
    desc = RandomDescriptor(kind=RandomKind(name), shape=shape, element=element)
    numbers = {f"{one}_number": value for one, value in zip("abc", parameters, strict=False)}
    return call(RandomPlan, desc, ["y"], place, seed=3, **numbers, **arrays)["y"].astype(np.float64)


def check(place, name, element):
    """Draws of every row of the table, in the place."""
    for parameters, interval in ENDS[name]:
        y = drawn(place, name, element, *parameters)
        assert np.isfinite(y).all(), (parameters, y[~np.isfinite(y)][:5])
        assert interval is None or (y > 0).all(), parameters
        assert interval != 1 or (y < 1).all(), parameters


@pytest.mark.parametrize("element", FLOATS, ids=str)
@pytest.mark.parametrize("name", ENDS)
def test_no_variate_is_an_end(name, element):
    check("numpy", name, str(element))


@pytest.mark.parametrize("name", ENDS)
def test_no_variate_of_a_kernel_is_an_end(place, name):
    check(place, name, "float16")


def test_what_rounds_to_an_end_is_the_element_beside_it(place):
    least = 2.0**-24
    y, exact = (drawn(place, "exponential", element, 2.0**23) for element in ("float16", "float32"))
    small = exact < least / 2
    assert 100 < small.sum() < 900
    np.testing.assert_array_equal(y[small], least)
    np.testing.assert_allclose(y[~small], exact[~small], atol=0.51 * least)


def test_parameters_that_are_none_of_the_distribution_are_as_they_were(place):
    rate = np.array([np.inf, np.nan], np.float32)
    y = drawn(place, "exponential", "float32", a=rate)
    assert y[0] == 0 and np.isnan(y[1])


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_points_of_the_simplex_are_inside_it(element):
    y = bc.dirichlet(np.full((300, 3), 1e-3, element.dtype), seed=1).astype(np.float64)
    assert (y > 0).all() and (y < 1).all()
