"""Special functions: known values, identities, poles and limits, in PyTorch's way."""

import math

import numpy as np
import pytest
from test_unary_kinds import at

import baracuda_py as bc

NAN, INF = math.nan, math.inf
EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("name", "given", "x", "y"),
    [
        ("erfinv", {}, [-1, 0, 1, 0.5, 1.5], [-INF, 0, INF, 0.4769362762044699, NAN]),
        ("erfcx", {}, [0, -INF, INF, 1], [1, INF, 0, 0.427583576155807]),
        ("ndtr", {}, [-INF, 0, INF, 1.959963984540054], [0, 0.5, 1, 0.975]),
        ("ndtri", {}, [0, 0.5, 1, 0.975, -0.1, 1.1], [-INF, 0, INF, 1.959963984540054, NAN, NAN]),
        ("log_ndtr", {}, [0, INF, -30], [math.log(0.5), 0, -454.3212439563432]),
        (
            "lgamma",
            {},
            [1, 2, 0, -1, 0.5, 5, INF, -INF],
            [0, 0, INF, INF, math.log(math.pi) / 2, math.log(24), INF, INF],
        ),
        ("digamma", {}, [1, 0.5, 0, -2, INF], [-EULER, -EULER - 2 * math.log(2), -INF, NAN, INF]),
        ("polygamma", {"n": 0}, [1], [-EULER]),
        ("polygamma", {"n": 1}, [1, 0.5, 0, -1], [math.pi**2 / 6, math.pi**2 / 2, INF, INF]),
        ("polygamma", {"n": 2}, [1], [-2.404113806319189]),
        ("polygamma", {"n": 3}, [-0.5], [math.pi**4 + 96.0]),
        ("i0", {}, [0, 1, -1, INF], [1, 1.2660658777520084, 1.2660658777520084, INF]),
        ("i1", {}, [0, 1, -1, INF], [0, 0.565159103992485, -0.565159103992485, INF]),
        ("i0e", {}, [0, INF, 10], [1, 0, 0.12783333716342861]),
        ("i1e", {}, [0, INF, -10], [0, 0, -0.12126268138445552]),
        ("sinc", {}, [0, 1, -7, 0.5, INF], [1, 0, 0, 2 / math.pi, NAN]),
        ("spherical_bessel_j0", {}, [0, INF, math.pi / 2], [1, 0, 2 / math.pi]),
        ("entr", {}, [0, 1, -1, 0.5, INF], [0, 0, -INF, math.log(2) / 2, -INF]),
    ],
)
def test_known_values(name, given, x, y, place):
    got = at(place, getattr(bc, name), np.array([*x, NAN], np.float64), **given)
    np.testing.assert_allclose(got, [*y, NAN], rtol=4e-15, atol=1e-300)


def test_inverses(place):
    p = np.concatenate([np.linspace(0.01, 0.99, 99), 10.0 ** -np.arange(3, 300, 20)])
    np.testing.assert_allclose(at(place, bc.ndtr, at(place, bc.ndtri, p)), p, rtol=2e-12)
    x = np.linspace(-0.999, 0.999, 101)
    np.testing.assert_allclose(at(place, bc.erf, at(place, bc.erfinv, x)), x, rtol=1e-14, atol=1e-16)


def test_recurrences(place):
    x = np.array([-7.3, -0.6, 0.2, 0.9, 1.7, 12.4, 80.0])
    np.testing.assert_allclose(at(place, bc.digamma, x + 1), at(place, bc.digamma, x) + 1 / x, rtol=1e-12, atol=1e-13)
    gap = at(place, bc.lgamma, x + 1) - at(place, bc.lgamma, x)
    np.testing.assert_allclose(gap, np.log(np.abs(x)), rtol=1e-11, atol=1e-13)
    for n in (1, 2, 5, 20):
        step = (-1) ** n * math.factorial(n) / x ** (n + 1)
        above, here = at(place, bc.polygamma, x + 1, n=n), at(place, bc.polygamma, x, n=n)
        np.testing.assert_allclose(above - here, step, rtol=1e-9, atol=1e-12 * np.abs(here).max() / 1e3)


@pytest.mark.parametrize("n", [1, 3, 17, 60])
def test_orders_of_polygamma_whose_factors_leave_the_range_apart(n, place):
    """n! and x^-n may, their product does not: (n - 1)! / x^n far out."""
    x = np.array([1e4, 1e5])
    got = at(place, bc.polygamma, x, n=n)
    wanted = [(-1) ** (n + 1) * math.exp(math.lgamma(n) - n * math.log(v)) * (1 + n / (2 * v)) for v in x]
    np.testing.assert_allclose(got, wanted, rtol=1e-6 * n)


def test_gradients_that_are_functions_too(place):
    x, dy = np.array([0.3, 1.4, 2.5, 9.0, 40.0]), np.array([1.0, -2.0, 0.5, 3.0, 1.0])
    for name, slope in (
        ("lgamma", at(place, bc.digamma, x)), ("digamma", at(place, bc.polygamma, x, n=1)), ("i0", at(place, bc.i1, x)),
        ("ndtr", np.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    ):  # fmt: skip
        got = at(place, getattr(bc, f"{name}_backward"), dy, x)
        np.testing.assert_allclose(got, dy * slope, rtol=1e-13, err_msg=name)
    got = at(place, bc.polygamma_backward, dy, x, n=2)
    np.testing.assert_allclose(got, dy * at(place, bc.polygamma, x, n=3), rtol=1e-14)


@pytest.mark.parametrize("given", [{}, {"n": -1}, {"n": 1.5}, {"n": 61}])
def test_the_order_of_polygamma_is_checked(given):
    with pytest.raises(bc.InvalidProblemError, match="n of polygamma"):
        bc.polygamma(np.ones(2), **given)
