"""Sums, products, quotients and remainders."""

from __future__ import annotations

from typing import Any

import numpy as np

from .row import (
    EVERY, WITH_INTEGERS, Operation, Smooth, exact, positive, rounded_once, rounded_product, ulps, widened,
)  # fmt: skip


def same(dy: Any, a: Any, b: Any, *_: Any) -> Any:
    """dy itself."""
    return dy


def times_b(dy: Any, a: Any, b: Any, *_: Any) -> Any:
    """dy b."""
    return dy * b


def times_a(dy: Any, a: Any, b: Any, *_: Any) -> Any:
    """dy a."""
    return dy * a


def _settled(a: Any, b: Any, more: Any) -> Any:
    """The whole number (a - fmod(a, b)) / b, and `more`, rounded once, of floats.

    A quotient of rounded numbers is near it; what a multiple of b leaves of a has the digits that the quotient lacks.
    """
    near, rest = a / b, np.fmod(a, b)
    q = np.rint((a - rest) / b)
    part = 1024 * np.maximum(np.spacing(np.abs(q)), q.dtype.type(1))
    lacks = np.rint((np.fmod(a, part * b) - rest) / b) - np.fmod(q, part)
    q = q + (lacks - part * np.rint(lacks / part) + more)
    q = np.where(q == 0, np.copysign(q.dtype.type(0), near), q)
    return np.where((b == 0) | (np.isinf(near) & np.isfinite(a)), near, q)


def _floor_divide(a: Any, b: Any) -> Any:
    """The quotient rounded down: NumPy's is off by one where a / b or a - fmod(a, b) is rounded."""
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    rest = np.fmod(a, b)
    return _settled(a, b, np.where((rest != 0) & ((rest < 0) != (b < 0)), a.dtype.type(-1), a.dtype.type(0)))


def _trunc_divide(a: Any, b: Any) -> Any:
    """The quotient cut towards 0: a / b alone may round up to the next integer."""
    if a.dtype.kind != "f":
        return (a - np.fmod(a, b)) // np.where(b == 0, b.dtype.type(1), b) * (b != 0)
    return np.where(np.isinf(a), a / b, _settled(a, b, a.dtype.type(0)))


def _whole_quotient(name: str) -> Any:
    """torch's function of the integers and their quotients; torch raises where b is 0, and the result here is 0."""

    def function(torch: Any, a: Any, b: Any) -> Any:
        call = getattr(torch, name) if name != "trunc_divide" else lambda x, y: torch.div(x, y, rounding_mode="trunc")
        if a.is_floating_point():
            return call(a, b)
        x, y = a.to(torch.int64), b.to(torch.int64)
        return torch.where(y == 0, 0, call(x, torch.where(y == 0, 1, y))).to(a.dtype)

    return function


def _steps(rng: np.random.Generator, shape: Any) -> Any:
    """Odd quarters, whose quotients by `_units` are never whole."""
    return (2 * rng.integers(-20, 20, shape) + 1) / 4


def _units(rng: np.random.Generator, shape: Any) -> Any:
    return rng.choice((-2.0, -1.0, -0.5, 0.5, 1.0, 2.0), shape)


_APART = Smooth(_steps, _units)
_DIVIDES = Smooth(b=lambda rng, shape: positive(rng, shape) * rng.choice((-1, 1), shape))

ADD = Operation(
    "arithmetic/Add", np.add, (same, same), elements=EVERY, bound=rounded_once, slope=exact, torch="add",
)  # fmt: skip
ADD_SCALED = Operation(
    "arithmetic/AddScaled", lambda a, b, alpha: a + alpha * b, (same, lambda dy, a, b, alpha: dy * alpha),
    elements=WITH_INTEGERS, coefficients=("alpha",), bound=ulps(0.501, 0.501), slope=ulps(0.501, 0.501),
    torch=lambda torch, a, b, alpha: torch.add(a, b, alpha=alpha),
)  # fmt: skip
SUB = Operation(
    "arithmetic/Sub", np.subtract, (same, lambda dy, a, b: -dy), elements=WITH_INTEGERS, bound=rounded_once,
    slope=exact,
    torch="sub", aliases=("subtract",),
)  # fmt: skip
MUL = Operation(
    "arithmetic/Mul", np.multiply, (times_b, times_a), elements=EVERY, bound=rounded_product, slope=rounded_product,
    torch="mul",
    aliases=("multiply",),
)  # fmt: skip
DIV = Operation(
    "arithmetic/Div", np.divide, (lambda dy, a, b: dy / b, widened(lambda dy, a, b: -dy * a / b / b)),
    bound=rounded_product,
    torch="div", whole="floor_divide or trunc_divide is the integer division", smooth=_DIVIDES,
    aliases=("divide", "true_divide"),
)  # fmt: skip
TRUNC_DIVIDE = Operation(
    "division/TruncDivide", _trunc_divide, elements=WITH_INTEGERS, bound=ulps(0.51, 0.51),
    torch=_whole_quotient("trunc_divide"),
    smooth=_APART,
)  # fmt: skip
FLOOR_DIVIDE = Operation(
    "division/FloorDivide", _floor_divide, elements=WITH_INTEGERS, bound=ulps(0.51, 0.51),
    torch=_whole_quotient("floor_divide"),
    smooth=_APART,
)  # fmt: skip
REMAINDER = Operation(
    "division/Remainder", np.remainder, (same, widened(lambda dy, a, b: -dy * _floor_divide(a, b))),
    elements=WITH_INTEGERS, bound=ulps(1, 1), torch=_whole_quotient("remainder"), smooth=_APART, aliases=("mod",),
)  # fmt: skip
FMOD = Operation(
    "division/Fmod", np.fmod, (same, widened(lambda dy, a, b: -dy * _trunc_divide(a, b))), elements=WITH_INTEGERS,
    bound=exact,
    torch=_whole_quotient("fmod"), smooth=_APART,
)  # fmt: skip
SQUARED_DIFFERENCE = Operation(
    "difference/SquaredDifference", lambda a, b: (a - b) * (a - b),
    (widened(lambda dy, a, b: 2 * dy * (a - b)), widened(lambda dy, a, b: -2 * dy * (a - b))),
    elements=WITH_INTEGERS, bound=ulps(3, 3), torch=lambda torch, a, b: (a - b) * (a - b),
)  # fmt: skip


def _absolute_difference(a: Any, b: Any) -> Any:
    return np.where(a < b, b - a, a - b) if a.dtype.kind != "f" else np.abs(a - b)


def _signed(dy: Any, a: Any, b: Any) -> Any:
    return np.where(a > b, dy, np.where(a < b, -dy, dy * 0))


ABSOLUTE_DIFFERENCE = Operation(
    "difference/AbsoluteDifference", _absolute_difference,
    (_signed, lambda dy, a, b: _signed(dy, b, a)),
    elements=WITH_INTEGERS, bound=rounded_once, slope=exact,
    torch=lambda torch, a, b: torch.where(a < b, b - a, a - b) if not a.is_floating_point() else torch.abs(a - b),
)  # fmt: skip
