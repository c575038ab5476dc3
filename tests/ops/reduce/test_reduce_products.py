"""Products of factors of all sizes, whose partial products leave the range in any order, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from run_emulated import laid_out, run

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.ops.reduce.reduce import ReduceDescriptor, ReduceKind, ReducePlan
from baracuda_py.ops.reduce.reduce_backward import ReduceBackwardPlan

F16, F32, F64 = ElementKind.F16, ElementKind.F32, ElementKind.F64
INF, NAN = math.inf, math.nan


def factors(rng, element: ElementKind, count: int, target: float) -> np.ndarray:
    """Numbers of all exponents, subnormal ones too, in any order, whose product is about 2 ** target."""
    low, high = math.log2(element.limits.tiny), math.log2(element.limits.max) - 1
    powers = rng.uniform(low, high, count)
    for k in range(count):  # the last ones lead to the target
        excess = powers.sum() - target
        powers[k] = np.clip(powers[k] - excess, low, high)
    return cast(rng.permutation(rng.choice((-1, 1), count) * np.exp2(powers)), element)


def least_normal(element: ElementKind) -> Fraction:
    """The smallest number that is not subnormal."""
    return Fraction(2) ** element.limits.min_exponent


def exact(x: np.ndarray) -> Fraction:
    """The product."""
    return math.prod((Fraction(float(v)) for v in x), start=Fraction(1))


def check(found: float, truth: Fraction, element: ElementKind, ulps: float) -> None:
    """`found` is within so many ulp of the truth, in the element; infinite where that rounds beyond the range."""
    top = Fraction(element.limits.max)
    if abs(truth) > top * (1 + Fraction(1, 2**54)):
        assert math.isinf(found) or abs(found) == element.limits.max, (found, float(top))
        assert (found > 0) == (truth > 0)
        return
    exponent = math.frexp(float(max(abs(truth), least_normal(element))))[1] - 1
    ulp = Fraction(2) ** (exponent - element.limits.digits)
    assert abs(Fraction(found) - truth) <= Fraction(ulps) * ulp, (found, float(truth))
    assert math.copysign(1, found) == (1 if truth > 0 else -1)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("count", "axis"), [(2, 1), (7, 0), (40, 0), (40, 1), (300, 1), (2500, 0)])
def test_no_partial_product_leaves_the_range(element, count, axis):
    rng = np.random.default_rng(count)
    low, high, bits = element.limits.min_exponent, math.log2(element.limits.max), element.limits.digits
    targets = [0, high - 2, high + 30, low + 2, low - bits / 2, low - 1, low - bits - 30, 100 * high]
    rows = np.stack([factors(rng, element, count, target) for target in targets])
    wanted = [exact(row) for row in rows]
    for kind in (ReduceKind.PROD, ReduceKind.NANPROD):
        x = rows.copy()
        if kind is ReduceKind.NANPROD:
            x = np.insert(x, rng.integers(0, count + 1, 3), element.dtype.type(NAN), axis=1)
        x = np.ascontiguousarray(x if axis == 1 else x.T)
        desc = ReduceDescriptor(kind=kind, shape=x.shape, axis=axis, element=element)
        with np.errstate(all="ignore"):
            formula = ReducePlan.reference(desc, x=x.astype(np.longdouble))["y"].astype(element.dtype)
        for found in (run(ReducePlan, desc, x=laid_out(x))["y"], formula):
            for y, truth in zip(found, wanted, strict=True):
                subnormal = element is F64 and abs(truth) < least_normal(element)
                check(float(y), truth, element, 0.75 if subnormal else 0.51)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F32, F64], ids=str)
def test_zeros_and_infinities_among_factors_of_all_sizes(element):
    top, least = element.limits.max, element.limits.tiny
    rows = [
        ([top] * 20 + [0.0] + [least] * 3, 0.0), ([top] * 20 + [-0.0], -0.0), ([least] * 20 + [-INF], -INF),
        ([least] * 20 + [INF] + [-top] * 3, -INF), ([least] * 20 + [0.0, INF], NAN), ([top] * 20 + [INF, -0.0], NAN),
        ([top] * 20 + [NAN, 0.0], NAN), ([-least] * 21, -0.0), ([-top] * 21, -INF), ([], 1.0),
    ]  # fmt: skip
    for values, wanted in rows:
        for count in (24, 300):
            x = np.ones((count, 1), element.dtype)
            x[count - len(values) :, 0] = values
            for axis, given in ((0, np.repeat(x, 16, 1)), (1, np.ascontiguousarray(x.T))):
                desc = ReduceDescriptor(kind=ReduceKind.PROD, shape=given.shape, axis=axis, element=element)
                y = run(ReducePlan, desc, x=laid_out(given))["y"]
                np.testing.assert_array_equal(y, np.full_like(y, wanted))
                np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(np.full_like(y, wanted)[y == 0]))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F32, F64], ids=str)
def test_gradients_are_products_of_the_others(element):
    rng = np.random.default_rng(8)
    for target in (0.0, 90.0, -60.0):
        x = factors(rng, element, 60, target)
        dy = cast(np.array([rng.choice((1e-30, 3.0, 1e30))]), element)
        desc = ReduceBackwardPlan.descriptor(kind=ReduceKind.PROD, shape=(1, 60), axis=1, element=element)
        dx = run(ReduceBackwardPlan, desc, dy=laid_out(dy), x=laid_out(x[None]), y=None)["dx"][0]
        whole = exact(x) * Fraction(float(dy[0]))
        for found, value in zip(dx, x, strict=True):
            check(float(found), whole / Fraction(float(value)), element, 4.75 if element is F64 else 0.51)
