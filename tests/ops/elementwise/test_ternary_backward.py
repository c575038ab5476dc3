"""Gradients of functions of three operands: ties, broadcasting, numbers, what is not wanted, the whole range."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import truth
from call_emulated import call

import baracuda_py as bc
from baracuda_py import TernaryBackwardPlan
from baracuda_py.core.element import FLOATS
from baracuda_py.testing.tolerance import ulp

mp = mpmath.mp.clone()
mp.dps = 700


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), wanted)


def test_clamp_at_its_bounds():
    x, low, high = np.array([-2.0, -1, 0, 1, 2, np.nan]), np.full(6, -1.0), np.full(6, 1.0)
    dy = np.arange(1.0, 7)
    da, db, dc = bc.clamp_backward(dy, x, low, high)
    same(da, [0, 2, 3, 4, 0, 0])
    same(db, [1, 0, 0, 0, 0, 0])
    same(dc, [0, 0, 0, 0, 5, 0])
    crossed = bc.clamp_backward(dy, x, high, low)  # the upper bound wins
    same(crossed[0], np.zeros(6))
    same(crossed[1], np.zeros(6))
    same(crossed[2], dy)
    equal = bc.clamp_backward(np.ones(3), np.array([0.0, 1, 2]), np.ones(3), np.ones(3))
    same(equal, [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    same(bc.clamp_backward(dy, x, b_number=-1.0, c_number=np.inf), [0, 2, 3, 4, 5, 0])


def test_broadcast_operands_are_summed():
    rng = np.random.default_rng(0)
    dy, a, b, c = (rng.standard_normal(shape) for shape in ((4, 3, 5), (3, 1), (4, 1, 5), (5,)))
    da, db, dc = bc.fma_backward(dy, a, b, c)
    np.testing.assert_allclose(da, (dy * b).sum((0, 2))[:, None], rtol=1e-12)
    np.testing.assert_allclose(db, (dy * a).sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(dc, dy.sum((0, 1)), rtol=1e-12)
    mask = rng.random((3, 5)) < 0.5
    db, dc = bc.where_backward(dy, mask, b, c)
    np.testing.assert_allclose(db, (dy * mask).sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(dc, (dy * ~mask).sum((0, 1)), rtol=1e-12)
    one = bc.lerp_backward(dy, np.zeros((4, 3, 5)), np.ones((4, 3, 5)), np.array(0.25))
    np.testing.assert_allclose(one[2], dy.sum(), rtol=1e-12)
    np.testing.assert_array_equal(one[1], dy * 0.25)


def test_what_is_not_wanted_and_numbers():
    dy, a, b, c = np.random.default_rng(1).standard_normal((4, 6))
    every = bc.addcdiv_backward(dy, a, b, c, value=3.0)
    same(bc.addcdiv_backward(dy, a, b, c, value=3.0, return_da=False, return_db=False), every[2])
    np.testing.assert_allclose(every[1], 3 * dy / c, rtol=1e-12)
    np.testing.assert_allclose(every[2], -3 * dy * b / c**2, rtol=1e-12)
    same(bc.mac_backward(dy, a, b, c_number=2.0), [dy, 2 * dy])
    with pytest.raises(bc.InvalidProblemError, match="da, db and dc are all None"):
        bc.TernaryBackwardPlan.select(
            bc.TernaryBackwardDescriptor(kind="fma", shape=(6,), element="float64"), device="cpu"
        ).run(bc.TernaryBackwardArgs(dy=dy, a=a, b=b, c=c))
    with pytest.raises(bc.InvalidProblemError, match="da must be"):
        bc.TernaryBackwardPlan.select(
            bc.TernaryBackwardDescriptor(kind="where", shape=(6,), element="float64"), device="cpu"
        ).run(bc.TernaryBackwardArgs(dy=dy, a=a > 0, b=b, c=c, da=np.zeros(6, bool)))
    with pytest.raises(bc.UnsupportedError, match="int64 is not supported"):
        bc.fma_backward(np.arange(3), np.arange(3), np.arange(3), np.arange(3))


PRODUCTS = {
    "fma": (lambda d, a, b, c, v: d * b, lambda d, a, b, c, v: d * a, lambda d, a, b, c, v: d),
    "mac": (lambda d, a, b, c, v: d, lambda d, a, b, c, v: d * c, lambda d, a, b, c, v: d * b),
    "addcmul": (lambda d, a, b, c, v: d, lambda d, a, b, c, v: d * v * c, lambda d, a, b, c, v: d * v * b),
    "addcdiv": (
        lambda d, a, b, c, v: d, lambda d, a, b, c, v: d * v / c, lambda d, a, b, c, v: -d * v * b / (c * c),
    ),
    "lerp": (
        lambda d, a, b, c, v: d * (1 - c), lambda d, a, b, c, v: d * c, lambda d, a, b, c, v: d * (b - a),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_kernels_over_the_whole_range(kind, element):
    rng = np.random.default_rng(len(kind))
    points = truth.points(element, 2000)
    points = points[np.isfinite(points.astype(np.float64))]
    dy, a, b, c = (rng.choice(points, 800) for _ in range(4))
    c = np.where(c == 0, element.dtype.type(1), c)
    value = float(np.float32(1e20))
    desc = TernaryBackwardPlan.descriptor(kind=kind, shape=a.shape, element=element)
    made = {name: np.zeros(a.shape, element.dtype) for name in ("da", "db", "dc")}
    call(TernaryBackwardPlan, desc, made, dy=dy, a=a, b=b, c=c, value=value)
    for name, formula in zip(made, PRODUCTS[kind], strict=True):
        for *given, found in zip(dy, a, b, c, made[name], strict=True):
            wanted = formula(*(mp.mpf(float(n)) for n in given), mp.mpf(value))
            step = mp.mpf(float(ulp(np.longdouble(float(wanted)) if abs(wanted) < 1e300 else np.inf, element)))
            slack = step * mp.mpf(0.51 if element.itemsize == 2 else 3)
            if np.isfinite(float(found)):
                assert abs(mp.mpf(float(found)) - wanted) <= slack, (name, *map(float, given), found)
            else:
                edge = mp.mpf(element.limits.max) + mp.mpf(float(ulp(element.limits.max, element))) / 2
                assert wanted * np.sign(float(found)) + slack >= edge, (name, *map(float, given), found)
