"""Gauss's function against mpmath over its range, what it refuses, and its gradient; Bernoulli numbers."""

import numpy as np
import pytest
from mpmath import mp

import baracuda_py as bc
from baracuda_py.ops.elementwise.special_function import SpecialFunctionPlan
from baracuda_py.ops.elementwise.special_function_backward import SpecialFunctionBackwardPlan
from baracuda_py.ops.elementwise.unary import UnaryPlan
from baracuda_py.testing.places import call

RANGES = {  # of a, b, c and x
    "usual": ((0.2, 8), (0.2, 8), (0.4, 9), (-6, 0.9)), "near one": ((-3, 3), (-3, 3), (0.2, 5), (0.9, 0.99999)),
    "far": ((0.1, 4), (0.1, 4), (0.5, 6), (-1e6, -10)), "negative": ((-6, 6), (-6, 6), (-3, 3), (-2, 0.8)),
    "large": ((20, 60), (20, 60), (30, 90), (-5, 0.8)),
}  # fmt: skip


def of(place, a, b, c, x):
    desc = SpecialFunctionPlan.descriptor(kind="hyp2f1", shape=x.shape, element="float64")
    return call(SpecialFunctionPlan, desc, ("y",), place, a=x, b=a, c=b, d=c)["y"]


def known(a, b, c, x):
    with mp.workdps(50):
        return float(mp.hyp2f1(*map(mp.mpf, (a, b, c, x))))


@pytest.mark.parametrize("name", RANGES)
def test_values_are_those_of_mpmath(name, place):
    rng = np.random.default_rng(5)
    given = [rng.uniform(*ends, 24) for ends in RANGES[name]]
    y = of(place, *given)
    wanted = np.array([known(*point) for point in zip(*given, strict=True)])
    kept = np.isfinite(y)  # of the large ones one has terms that cancel too far
    assert kept.sum() >= (23 if name == "large" else 24)
    np.testing.assert_allclose(y[kept], wanted[kept], rtol=2e-15)


def test_identities(place):
    x = np.array([-1e300, -300, -2.5, -1e-9, 0, 0.3, 0.75, 1 - 2.0**-53])
    one = np.ones(8)
    np.testing.assert_allclose(of(place, 0.5 * one, 3 * one, 3 * one, x), (1 - x) ** -0.5, rtol=1e-15)
    np.testing.assert_array_equal(of(place, 0 * one[1:], 7.5 * one[1:], 2 * one[1:], x[1:]), 1)
    log = -np.log1p(-x[1:-1]) / np.where(x[1:-1] == 0, 1, x[1:-1])
    np.testing.assert_allclose(of(place, *one[:, None].repeat(2, 1).T[:, :6], 2 * one[:6], x[1:-1]),
                               np.where(x[1:-1] == 0, 1, log), rtol=1e-15)  # fmt: skip
    np.testing.assert_allclose(of(place, -2 * one[:1], 3 * one[:1], -5 * one[:1], np.full(1, 0.3)), [1.414], rtol=1e-15)


def test_at_one_and_beyond(place):
    inf, nan = np.inf, np.nan
    a, b = np.array([0.5, 1, 2, -0.5, -2, -3, 0.5, 0.5]), np.array([0.25, 1, 2, 0.5, 0.5, 1.5, 1, -0.5])
    c, x = np.array([2, 2, 2, 3, -1.5, 2.5, 2, -0.5]), np.array([1.0, 1, 1, 1, 1, 2, 2, 1])
    wanted = [1.1128357888987643, inf, inf, 0.9054147873672267, 8 / 3, -0.12380952380952381, nan, nan]
    wanted[-1] = inf  # (1 - x)^-0.5
    np.testing.assert_allclose(of(place, a, b, c, x), wanted, rtol=4e-15)


def test_what_has_no_value_is_nan(place):
    inf, nan = np.inf, np.nan
    a = np.array([1, 1, inf, nan, 1, 1, 1, 2000, 1, -4, -60.5])
    b = np.array([1, 1, 1, 1, inf, 1, 1, 1, 1, 1, 70])
    c = np.array([0, -2, 1, 1, 1, nan, 1, 1, 1, -3, 0.5])
    x = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, nan, 0.5, -inf, 0.5, 0.4])
    assert np.isnan(of(place, a, b, c, x)).all()


def test_the_gradient_is_that_of_mpmath(place):
    rng = np.random.default_rng(6)
    a, b, c, x = (rng.uniform(*ends, 24) for ends in RANGES["usual"])
    a[:2] = 0, -1
    desc = SpecialFunctionBackwardPlan.descriptor(kind="hyp2f1", shape=x.shape, element="float64")
    dx = call(SpecialFunctionBackwardPlan, desc, ("da",), place, dy=np.full(24, 2.0), a=x, b=a, c=b, d=c)["da"]
    wanted = [2 * p * q / r * known(p + 1, q + 1, r + 1, z) for p, q, r, z in zip(a, b, c, x, strict=True)]
    np.testing.assert_allclose(dx, wanted, rtol=8e-15)


def test_numbers_and_other_elements():
    x = np.linspace(-5, 0.9, 12, dtype=np.float32).reshape(3, 4)
    y = bc.hyp2f1(0.5, 1.5, 2.5, x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, bc.hyp2f1(0.5, 1.5, 2.5, x.astype(np.float64)), rtol=1e-7)
    assert bc.hyp2f1(np.ones((3, 1)), np.full(4, 2.0), 3.5, 0.5).shape == (3, 4)
    np.testing.assert_allclose(
        bc.hyp2f1_backward(np.ones(3), 1.0, 2.0, 2.0, np.array([0, 0.5, -1])), [1, 4, 0.25], rtol=2e-15
    )


def test_bernoulli_numbers(place):
    x = np.array([*range(0, 40), *range(200, 262), 1e30, -1, 0.5, np.inf, np.nan])
    desc = UnaryPlan.descriptor(kind="bernoulli_number", shape=x.shape, element="float64")
    y = call(UnaryPlan, desc, ("y",), place, x=x)["y"]
    wanted = [float(mp.bernoulli(int(n))) if n < 260 else -np.inf if n % 4 == 0 else 0 for n in x[:102]]
    wanted[1] = -0.5
    np.testing.assert_allclose(y, [*wanted, -np.inf, np.nan, np.nan, np.nan, np.nan], rtol=2.0**-52)


@pytest.mark.parametrize("odd", range(3))
def test_a_parameter_that_is_nan(odd, place):
    """Also where the value would be 1 whatever the others are: at x = 0, and with b = 0."""
    given = [np.full(2, 0.7), np.array([0.7, 0.0]), np.full(2, 2.5)]
    given[odd] = np.full(2, np.nan)
    assert np.isnan(of(place, *given, np.array([0.0, 0.5]))).all()


def test_beta_at_its_pole(place):
    """+inf on either side of 0, as SciPy has it, in gammas and beyond their range."""
    a, b = np.array([0.0, -0.0, -0.0, 3.0]), np.array([23.0, 23.0, 300.0, -0.0])
    desc = SpecialFunctionPlan.descriptor(kind="beta", shape=a.shape, element="float64")
    assert (call(SpecialFunctionPlan, desc, ("y",), place, a=a, b=b)["y"] == np.inf).all()
