"""Quotients and remainders of floats against exact fractions and Python's zeros, over all exponents."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from run_functors import elements, run

import baracuda_py as bc
from baracuda_py.core.element import cast
from baracuda_py.testing.draw import everywhere

NAMES = {
    "floor_divide": "FloorDivide<T>::value(a, b)", "trunc_divide": "TruncDivide<T>::value(a, b)",
    "remainder": "Remainder<T>::value(a, b)", "fmod": "Fmod<T>::value(a, b)",
}  # fmt: skip


def operands(element):
    """Numbers of all sizes, multiples of b rounded to the element, their neighbours, and every pair of ends."""
    rng = np.random.default_rng(element.bits)
    a, b = everywhere(element, (1200,), rng), everywhere(element, (1200,), rng)
    with np.errstate(all="ignore"):
        wide = b.astype(np.longdouble)
        times = np.exp2(rng.uniform(0, 1.2 * np.finfo(wide.dtype).nmant, 1200)).astype(np.int64) * rng.choice(
            (-1, 1), 1200
        )
        many = (wide * times).astype(np.float64).astype(element.dtype)
        few = (wide * rng.integers(-40, 40, 1200)).astype(np.float64).astype(element.dtype)
        code = np.dtype(f"i{element.itemsize}")
        beside = (many.view(code) + rng.integers(-2, 3, 1200).astype(code)).view(element.dtype)
    ends = np.array([0, -0.0, 1, -1, 3, -3, np.inf, -np.inf, np.nan], element.dtype)
    x = np.concatenate([a, many, few, beside, np.repeat(ends, ends.size)])
    y = np.concatenate([b, b, b, b, np.tile(ends, ends.size)])
    return x, y


def expected(name, element, x, y):
    """A result by its definition, rounded once to the element."""
    sign = math.copysign(1, x) * math.copysign(1, y)
    divides = name.endswith("divide")
    if math.isnan(x) or math.isnan(y) or (y == 0 and (x == 0 or not divides)) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if y == 0 or (math.isinf(x) and name == "trunc_divide"):
        return sign * math.inf
    if math.isinf(x):
        return math.nan
    if not divides:
        value = math.fmod(x, y) if name == "fmod" else x % y
        return float(np.asarray(cast(np.float64(value), element)))
    exact = Fraction(x) / Fraction(y) if math.isfinite(y) else Fraction(0)
    whole = math.floor(exact) if name == "floor_divide" else math.trunc(exact)
    if name == "floor_divide" and math.isinf(y) and x != 0 and sign < 0:
        whole = -1
    return rounded(whole, element) if whole else sign * 0.0


def rounded(whole, element):
    """An integer to the element's digits, halves to even, beyond the largest an infinity."""
    limits = ml_dtypes.finfo(element.dtype)
    drop = max(abs(whole).bit_length() - limits.nmant - 1, 0)
    kept, rest = divmod(abs(whole), 1 << drop)
    value = (kept + (2 * rest + (kept & 1) > 1 << drop)) << drop
    size = math.inf if value > int(float(limits.max)) else float(value)
    return size if whole > 0 else -size


def compare(name, element, a, b, got):
    pairs = [(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    with np.errstate(all="ignore"):
        right = np.array([expected(name, element, x, y) for x, y in pairs])
    got = got.astype(np.float64)
    same = (got == right) & (np.signbit(got) == np.signbit(right)) | np.isnan(got) & np.isnan(right)
    wrong = [(*pairs[i], got[i], right[i]) for i in np.flatnonzero(~same)]
    assert not wrong, f"{name} of {element}: {len(wrong)} wrong; a, b, got, wanted: {wrong[:5]}"


@elements()
def test_in_numpy(element):
    a, b = operands(element)
    for name in NAMES:
        compare(name, element, a, b, getattr(bc, name)(a, b))


@elements()
@pytest.mark.usefixtures("emulation")
def test_on_kernels(element):
    a, b = operands(element)
    rows = run(["elementwise/binary/division.cuh"], element, list(NAMES.values()), a, b)
    for name, got in zip(NAMES, rows, strict=True):
        compare(name, element, a, b, got)
