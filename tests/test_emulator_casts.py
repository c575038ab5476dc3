"""Integers become floats as on a GPU: rounded once, to nearest even, by instructions and by what replaces them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.jit import Unit
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")

INTEGERS = [kind for kind in ElementKind if kind.is_integer and kind.bits >= 8]
FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64)
_LOOPS = "\n".join(
    f"  for (int i = 0; i < p.n; ++i) static_cast<{to.ctype}*>(p.y[{n}])[i] = "
    f"cast<{to.ctype}>(static_cast<const {of.ctype}*>(p.x[{n // len(FLOATS)}])[i]);"
    for n, (of, to) in enumerate((of, to) for of in INTEGERS for to in FLOATS)
)
CODE = f"""
#include <baracuda/types.cuh>
using namespace baracuda;
struct P {{ void* x[{len(INTEGERS)}]; void* y[{len(INTEGERS) * len(FLOATS)}]; long long n; }};
extern "C" __global__ void casts(const __grid_constant__ P p) {{
{_LOOPS}
}}
"""


def hard_values(kind: ElementKind) -> list[int]:
    """Ends of the range, and the midpoints between neighbouring floats, one less and one more, at every magnitude."""
    found = {0, 1, int(kind.limits.min), int(kind.limits.max)}
    for power in range(kind.bits):
        for digits in (float_digits(to) for to in FLOATS):
            for step in (0, 1, 3):  # midpoints above an even and an odd float
                middle = (1 << power) + step * (1 << power >> digits + 1)
                found |= {sign * (middle + near) for sign in (1, -1) for near in (-1, 0, 1)}
    return sorted(x for x in found if kind.limits.min <= x <= kind.limits.max)


def float_digits(kind: ElementKind) -> int:
    return kind.limits.digits


def rounded(x: int, kind: ElementKind) -> float:
    """x to nearest even with the digits of a float, by integer arithmetic alone."""
    size, digits = abs(x), float_digits(kind) + 1
    unit = 1 << max(0, size.bit_length() - digits)
    whole, rest = divmod(size, unit)
    whole += 2 * rest > unit or (2 * rest == unit and whole % 2)
    exact = whole * unit
    return float(np.copysign(np.inf if exact > kind.limits.max else exact, x)) if x else 0.0


@cache
def converted(target: str) -> tuple[list[list[int]], list[np.ndarray]]:
    """The values of every integer kind, and what the kernel makes of them for each pair of kinds."""
    values = [hard_values(kind) for kind in INTEGERS]
    count = max(map(len, values))
    given = [np.resize(np.array(v, kind.dtype), count) for v, kind in zip(values, INTEGERS, strict=True)]
    made = [np.zeros(count, to.dtype) for _ in INTEGERS for to in FLOATS]
    params = np.array([*(a.ctypes.data for a in (*given, *made)), count], np.uint64).tobytes()
    unit = Unit("emulator_casts", CODE, symbols=("casts",))
    run_kernel(translated(unit, target, "casts"), "casts", (1, 1, 1), (1, 1, 1), 0, params, 1)
    return values, made


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("of", INTEGERS, ids=str)
def test_integers_become_floats_rounded_once(of: ElementKind, to: ElementKind, target: str) -> None:
    values, made = converted(target)
    given = values[INTEGERS.index(of)]
    got = made[INTEGERS.index(of) * len(FLOATS) + FLOATS.index(to)][: len(given)].astype(np.float64)
    wanted = np.array([rounded(x, to) for x in given])
    wrong = np.flatnonzero(got != wanted)
    assert not wrong.size, [(given[i], got[i], wanted[i]) for i in wrong[:5]]


def test_the_values_tell_two_roundings_from_one() -> None:
    values = [x for kind in INTEGERS for x in hard_values(kind)]
    bf16 = ElementKind.BF16
    twice = [x for x in values if rounded(int(rounded(x, ElementKind.F64)), bf16) != rounded(x, bf16)]
    assert len(twice) > 50
