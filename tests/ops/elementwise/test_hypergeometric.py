"""Kummer's function against mpmath over its range, what it refuses, and its gradient."""

import numpy as np
import pytest
from mpmath import mp

import baracuda_py as bc
from baracuda_py.ops.elementwise.special_function import SpecialFunctionPlan
from baracuda_py.ops.elementwise.special_function_backward import SpecialFunctionBackwardPlan
from baracuda_py.testing.places import call

RANGES = {  # of a, b and x
    "usual": ((0.1, 8), (0.1, 8), (-20, 20)), "long": ((0.5, 30), (0.5, 60), (0, 600)),
    "far": ((0.5, 3), (3, 9), (-5000, -300)), "steps": ((-6, 0), (0.3, 9), (-40, 15)),
    "poles": ((-3, 3), (-4.9, -0.1), (-3, 3)), "tiny": ((-1e-3, 1e-3), (1e-3, 2), (-1e-3, 1e-3)),
}  # fmt: skip


def drawn(name, count=40):
    rng = np.random.default_rng(3)
    a, b, x = (rng.uniform(*ends, count) for ends in RANGES[name])
    return a, b, x


def of(place, a, b, x):
    desc = SpecialFunctionPlan.descriptor(kind="hyp1f1", shape=x.shape, element="float64")
    return call(SpecialFunctionPlan, desc, ("y",), place, a=x, b=a, c=b)["y"]


def known(a, b, x):
    """The value, and by how much terms of the series cancel."""
    with mp.workdps(60):
        a, b, x = map(mp.mpf, (a, b, x))
        y = mp.hyp1f1(a, b, x)
        if x < 0:
            a, x, scale = b - a, -x, mp.exp(x)
        else:
            scale = mp.mpf(1)
        term = top = mp.mpf(1)
        for k in range(int(3 * x) + 60):
            term *= (a + k) / (b + k) * x / (k + 1)
            top = max(top, abs(term))
        return y, top * scale / abs(y)


@pytest.mark.parametrize("name", RANGES)
def test_values_are_those_of_mpmath(name, place):
    a, b, x = drawn(name, 40 if name != "far" else 8)
    y = of(place, a, b, x)
    for found, *point in zip(y, a, b, x, strict=True):
        value, loss = known(*point)
        if np.isnan(found):
            assert loss > 2**39, point
        elif loss < 2**39:
            top = abs(value) * mp.mpf(2) ** -52
            assert abs(mp.mpf(float(found)) - value) <= 4 * top, (point, found, value)
    assert np.isfinite(y).mean() > 0.6


def test_identities(place):
    x = np.array([-300, -2.5, -1e-9, 0, 1, 40, 700])
    np.testing.assert_allclose(of(place, np.full(7, 1.5), np.full(7, 1.5), x), np.exp(x), rtol=1e-15)
    np.testing.assert_array_equal(of(place, np.zeros(7), np.full(7, 3.5), x), 1)
    np.testing.assert_allclose(of(place, np.full(7, -1.0), np.full(7, 2.0), x), 1 - x / 2, rtol=1e-15)
    np.testing.assert_array_equal(of(place, np.ones(2), np.ones(2), np.array([800.0, 5000])), np.inf)


def test_what_has_no_value_is_nan(place):
    inf, nan = np.inf, np.nan
    a = np.array([1, 1, 1, inf, nan, 1, 1, 60, 1, 1])
    b = np.array([0, -2, 1, 1, 1, inf, nan, 0.5, 1, 1])
    x = np.array([1, 1, nan, 1, 1, 1, 1, -100, 5001, -inf])
    assert np.isnan(of(place, a, b, x)).all()


def test_the_gradient_is_that_of_mpmath(place):
    a, b, x = drawn("usual", 24)
    desc = SpecialFunctionBackwardPlan.descriptor(kind="hyp1f1", shape=x.shape, element="float64")
    dx = call(SpecialFunctionBackwardPlan, desc, ("da",), place, dy=np.full(24, 2.0), a=x, b=a, c=b)["da"]
    for found, *point in zip(dx, a, b, x, strict=True):
        p, q, z = point
        value, loss = known(p + 1, q + 1, z)
        if loss < 2**39:
            np.testing.assert_allclose(found, float(2 * p / q * value), rtol=4e-14 if loss > 10 else 4e-15)
    np.testing.assert_allclose(bc.hyp1f1_backward(np.ones(24), 1.0, 1.0, x), np.exp(x), rtol=4e-15)


def test_numbers_and_other_elements():
    x = np.linspace(-5, 5, 12, dtype=np.float32).reshape(3, 4)
    y = bc.hyp1f1(0.5, 1.5, x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, bc.hyp1f1(0.5, 1.5, x.astype(np.float64)), rtol=1e-7)
    assert bc.hyp1f1(np.ones((3, 1)), np.full(4, 2.0), 0.5).shape == (3, 4)


def test_a_sum_that_leaves_the_range_ends_there(place):
    """More terms would not bring it back: infinite where all have one sign."""
    a, b, x = np.array([[1e30, 2, 3], [1e9, 2, 4000], [1e30, 0.5, 1e-3], [800, 0.5, 300], [300, 0.5, 30]]).T
    y = of(place, a, b, x)
    assert np.isinf(y[:3]).all() and (y[:3] > 0).all()
    values = [mp.hyp1f1(*point) for point in zip(a[3:], b[3:], x[3:], strict=True)]
    assert values[0] > mp.mpf(2) ** 1024 and y[3] == np.inf
    np.testing.assert_allclose(y[4], float(values[1]), rtol=1e-14)
    far = np.array([[-1e30, 2, 1], [-1e30, 1.5, 5], [2, 1.5, -1e30], [-1e9, 2.5, 4000]])
    assert np.isnan(of(place, *far.T)).all()
    y = of(
        place, np.array([1.0, 2.5]), np.array([2.0, 3.0]), np.array([-4900.0, -3000.0])
    )  # terms beyond 2^4096 come back
    np.testing.assert_allclose(y, [float(mp.hyp1f1(1, 2, -4900)), float(mp.hyp1f1(2.5, 3, -3000))], rtol=1e-14)


def test_the_time_of_a_value_does_not_grow_with_its_size():
    """In terms of the series: NumPy adds those of all elements, until none goes on."""
    from baracuda_py.ops.elementwise.specials import hypergeometric

    counted, added = [], hypergeometric.over

    def count(a, b):
        counted.append(1)
        return added(a, b)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hypergeometric, "over", count)
        bc.hyp1f1(np.array([-1e30, 1e30, 1e9, -1e9, -1e300]), np.array([2.0]), np.array([1.0]))
    assert len(counted) < 2000
