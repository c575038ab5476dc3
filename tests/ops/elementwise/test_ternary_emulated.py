"""The kernels of `TernaryPlan` over the whole range of each element, against sums and products without rounding."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import truth
from call_emulated import call

from baracuda_py import TernaryKind, TernaryPlan
from baracuda_py.core.element import FLOATS, INTS, ElementKind, cast
from baracuda_py.testing.tolerance import ulp

pytestmark = pytest.mark.usefixtures("emulation")
mp = mpmath.mp.clone()
mp.dps = 900  # sums of any two doubles in full
COUNT = 1500

EXACT = {
    "lerp": lambda a, b, c, v: a + c * (b - a), "fma": lambda a, b, c, v: a * b + c,
    "mac": lambda a, b, c, v: a + b * c, "addcmul": lambda a, b, c, v: a + v * b * c,
    "addcdiv": lambda a, b, c, v: a + v * b / c, "clamp": lambda a, b, c, v: min(max(a, b), c),
}  # fmt: skip
# The magnitudes of what is added: a rounding of each is allowed.
SIZE = {
    "lerp": lambda a, b, c, v: abs(a) + abs(b) + abs(c) * (abs(a) + abs(b)), "fma": lambda a, b, c, v: 0,
    "mac": lambda a, b, c, v: abs(b * c), "addcmul": lambda a, b, c, v: abs(v * b * c),
    "addcdiv": lambda a, b, c, v: abs(v * b / c), "clamp": lambda a, b, c, v: 0,
}  # fmt: skip


def run(kind: str, element: ElementKind, a, b, c, **numbers):
    desc = TernaryPlan.descriptor(kind=kind, shape=a.shape, element=element)
    y = np.zeros(a.shape, element.dtype)
    return call(TernaryPlan, desc, {"y": y}, a=a, b=b, c=c, **numbers)["y"]


def operands(element: ElementKind, seed: int):
    rng = np.random.default_rng(seed)
    points = truth.points(element, 2000)
    points = points[np.isfinite(points.astype(np.float64))]
    a, b, c = (rng.choice(points, COUNT) for _ in range(3))
    with np.errstate(all="ignore"):  # a third of the sums cancel
        near = cast(-(b.astype(np.longdouble) * c.astype(np.longdouble)), element)
    near = np.where(np.isfinite(near.astype(np.float64)), near, a)
    return np.where(rng.random(COUNT) < 0.3, near, a), b, c


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("element", FLOATS, ids=str)
@pytest.mark.parametrize("value", [1.0, -0.37, 1e-30, 3e37])
def test_floats(kind, element, value):
    if not TernaryKind(kind).row.scaled and value != 1.0:
        pytest.skip("no coefficient")
    a, b, c = operands(element, len(kind))
    if kind == "addcdiv":
        c = np.where(c == 0, element.dtype.type(1), c)
    got = run(kind, element, a, b, c, value=value)
    v = mp.mpf(float(element.acc.dtype.type(value)))
    eps, tiny = mp.mpf(element.acc.limits.eps), mp.mpf(element.acc.limits.tiny)
    for x, y, z, found in zip(a, b, c, got, strict=True):
        x, y, z = (mp.mpf(float(n)) for n in (x, y, z))
        wanted = EXACT[kind](x, y, z, v)
        size = SIZE[kind](x, y, z, v)
        step = mp.mpf(float(ulp(np.longdouble(float(wanted)) if abs(wanted) < 1e300 else np.inf, element)))
        slack = step * mp.mpf(0.51 if element.itemsize == 2 else 0.5) + 2 * (eps * size + tiny * bool(size))
        if not np.isfinite(float(found)):
            edge = mp.mpf(element.limits.max) + mp.mpf(float(ulp(element.limits.max, element))) / 2
            assert wanted * np.sign(float(found)) + slack >= edge, (x, y, z, found)
            continue
        assert abs(mp.mpf(float(found)) - wanted) <= slack, (float(x), float(y), float(z), found, wanted)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_special_values(element):
    values = np.array([0.0, -0.0, 0.5, -2, np.inf, -np.inf, np.nan]).astype(element.dtype)
    a, b, c = (x.ravel() for x in np.meshgrid(values, values, values, indexing="ij"))
    wide = [x.astype(np.float64) for x in (a, b, c)]
    with np.errstate(all="ignore"):
        wanted = {
            "clamp": np.minimum(np.maximum(wide[0], wide[1]), wide[2]), "fma": wide[0] * wide[1] + wide[2],
            "mac": wide[0] + wide[1] * wide[2], "addcmul": wide[0] + wide[1] * wide[2],
            "addcdiv": wide[0] + wide[1] / wide[2],
        }  # fmt: skip
    for kind, right in wanted.items():
        np.testing.assert_array_equal(run(kind, element, a, b, c).astype(np.float64), right, kind)


@pytest.mark.parametrize("element", INTS, ids=str)
def test_integers(element):
    limits, rng = element.limits, np.random.default_rng(3)
    low, high = int(limits.min), int(limits.max)
    a, b, c = (rng.integers(low, high, 700, element.dtype, endpoint=True) for _ in range(3))
    a[:4], b[:4], c[:4] = low, high, low

    def wrapped(x):
        return [(n - low) % 2**element.bits + low for n in x]

    triples = [tuple(map(int, t)) for t in zip(a, b, c, strict=True)]
    assert run("fma", element, a, b, c).tolist() == wrapped(x * y + z for x, y, z in triples)
    assert run("mac", element, a, b, c).tolist() == wrapped(x + y * z for x, y, z in triples)
    assert run("addcmul", element, a, b, c, value=-3.0).tolist() == wrapped(x - 3 * y * z for x, y, z in triples)
    assert run("clamp", element, a, b, c).tolist() == [min(max(x, y), z) for x, y, z in triples]


@pytest.mark.parametrize("element", (*INTS, ElementKind.F64), ids=str)
def test_numbers_are_exact(element):
    high = int(element.limits.max) - 1 if element.is_integer else 7
    x = np.arange(40).astype(element.dtype)
    mask = x % 3 == 0
    got = run("where", element, mask, None, x, b_number=0.1, b_whole=high)
    np.testing.assert_array_equal(got, np.where(mask, element.dtype.type(high if element.is_integer else 0.1), x))
    whole = run("clamp", element, x, None, None, b_number=3, c_number=9, b_whole=3, c_whole=high)
    np.testing.assert_array_equal(whole, x.clip(3, high if element.is_integer else 9))


def test_where_keeps_the_payload_of_nan():
    bits = np.array([0x7F800001, 0xFFC12345, 0x7FC00000, 0x80000000], np.uint32)
    mask = np.array([True, False, True, False])
    got = run("where", ElementKind.F32, mask, bits.view(np.float32), bits[::-1].copy().view(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), np.where(mask, bits, bits[::-1]))


def test_a_truth_value_of_any_byte_is_true():
    mask = np.array([0, 1, 2, 128, 255], np.uint8).view(np.bool_)
    x = np.arange(5, dtype=np.float32)
    got = run("where", ElementKind.F32, mask, x, None, c_number=-1.0)
    np.testing.assert_array_equal(got, [-1, 1, 2, 3, 4])
