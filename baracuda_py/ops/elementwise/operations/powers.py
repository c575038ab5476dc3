"""Powers, exponentials and logarithms of two numbers, angles and distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import Forward
from .row import WITH_INTEGERS, Operation, Smooth, positive, ulps, widened

# ---- powers ---------------------------------------------------------------------------------------------------------


def _pow(a: Any, b: Any) -> Any:
    """a to the b. Integers wrap; a negative exponent leaves what is whole of 1 / aⁿ: ±1 of ±1, else 0."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    word = np.dtype(f"u{a.dtype.itemsize}")
    factor, rest = a.astype(word), b.astype(word)
    power = np.ones(np.broadcast_shapes(a.shape, b.shape), word)
    for _ in range(8 * word.itemsize):
        power = np.where(rest & word.type(1), power * factor, power)
        factor, rest = factor * factor, rest >> word.type(1)
    power = power.astype(a.dtype)
    if a.dtype.kind == "u":
        return power
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b & 1, -1, 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, power)


def _pow_a(dy: Any, a: Any, b: Any) -> Any:
    """dy b a^(b - 1), and 0 where b is 0. The power is a^b / a, since b - 1 may be rounded; of 0 and infinity, where
    that will not do, b - 1 of an even b beyond 2^53 is odd."""
    whole = np.where(np.abs(b) < 2.0**53, np.power(a, b - 1), np.copysign(np.power(np.abs(a), b), a))
    below = np.where((a == 0) | np.isinf(a), whole, np.power(a, b) / a)
    return np.where(b == 0, 0, dy * (b * below))


def _pow_b(dy: Any, a: Any, b: Any) -> Any:
    """dy a^b log(a), and 0 where a is 0 and b is not negative."""
    return np.where((a == 0) & (b >= 0), 0, dy * (np.power(a, b) * np.log(a)))


POW = Operation(
    "power/Pow", _pow, (widened(_pow_a), widened(_pow_b)), elements=WITH_INTEGERS, bound=ulps(4.5, 2.5),
    slope=ulps(4, 24),
    torch="pow", smooth=Smooth(a=positive), aliases=("power",),
)  # fmt: skip


def _ldexp(a: Any, b: Any) -> Any:
    """a 2^b, exactly scaled by the whole part of b: the rest multiplies what is neither subnormal nor near the end."""
    near = np.clip(np.where(np.isnan(b), 0, b), -40000, 40000)
    whole = np.rint(near)
    up = np.where(np.abs(a) < 1, 60, -1)
    part = np.ldexp(a, up) * np.exp2(near - whole)
    return np.where(np.isnan(b), b, np.ldexp(part, whole.astype(np.int32) - up))


LDEXP = Operation(
    "ldexp/Ldexp", _ldexp,
    (
        widened(lambda dy, a, b: _ldexp(dy, b)),
        widened(lambda dy, a, b: _ldexp(dy * a * np.log(np.longdouble(2)), b)),
    ),
    bound=ulps(3.5, 2.5), torch="ldexp",
)  # fmt: skip

# ---- exponentials and logarithms ------------------------------------------------------------------------------------


def _logaddexp(exp: Any, scale: Any) -> Any:
    """max + log(1 + base^-|a - b|), in base e or 2; of two equal infinities the same."""

    def formula(a: Any, b: Any) -> Any:
        top, least = np.maximum(a, b), np.minimum(a, b)
        found = top + np.log1p(exp(np.where(top == least, 0, least - top))) / scale(a)
        return np.where(np.isinf(top), top, found)

    return formula


def _share(exp: Any) -> Any:
    """dy / (1 + base^(b - a)), the part that a has of the sum; far down as two square roots of the exponential."""

    def gradient(dy: Any, a: Any, b: Any) -> Any:
        root = exp(-np.abs(a - b) / 2)
        part = np.where(a < b, root, 1)
        return dy * part * (part / (1 + root * root))

    return gradient


def _for_b(gradient: Any) -> Any:
    return lambda dy, a, b: gradient(dy, b, a)


_ln2 = lambda x: np.log(x.dtype.type(2))  # noqa: E731
_one = lambda x: x.dtype.type(1)  # noqa: E731
_SUM = Forward(4)  # the logarithm of the sum may be near 0 where its two terms are not

LOGADDEXP = Operation(
    "logaddexp/Logaddexp", _logaddexp(np.exp, _one), (widened(_share(np.exp)), widened(_for_b(_share(np.exp)))),
    bound=lambda element: _SUM, slope=ulps(8, 8), torch="logaddexp",
)  # fmt: skip
LOGADDEXP2 = Operation(
    "logaddexp/Logaddexp2", _logaddexp(np.exp2, _ln2), (widened(_share(np.exp2)), widened(_for_b(_share(np.exp2)))),
    bound=lambda element: _SUM, slope=ulps(8, 8), torch="logaddexp2",
)  # fmt: skip


def _times_log(log: Any) -> Any:
    """a log(b), and 0 where a is 0 and b is a number."""
    return lambda a, b: np.where(np.isnan(b), b, np.where(a == 0, a.dtype.type(0), a * log(b)))


def _dy_log(log: Any, end: float) -> Any:
    """dy log(b), 0 where a is 0 and b not inside of the domain."""
    return lambda dy, a, b: np.where((a == 0) & (b <= end), 0, _times_log(log)(dy, b))


XLOGY = Operation(
    "xlogy/Xlogy", _times_log(np.log), (_dy_log(np.log, 0), widened(lambda dy, a, b: dy * a / b)), bound=ulps(3.5, 3.5),
    torch="xlogy", smooth=Smooth(b=positive),
)  # fmt: skip
XLOG1PY = Operation(
    "xlogy/Xlog1py", _times_log(np.log1p), (_dy_log(np.log1p, -1), widened(lambda dy, a, b: dy * a / (1 + b))),
    bound=ulps(3.5, 3.5), torch="special.xlog1py", smooth=Smooth(b=positive),
)  # fmt: skip

# ---- angles and distances -------------------------------------------------------------------------------------------


def _atan2_part(dy: Any, other: Any, a: Any, b: Any) -> Any:
    """dy other / (a² + b²), and 0 at the origin."""
    square = a * a + b * b
    return dy * other * np.where(square == 0, 0, 1 / square)


ATAN2 = Operation(
    "polar/Atan2", np.arctan2,
    (widened(lambda dy, a, b: _atan2_part(dy, b, a, b)), widened(lambda dy, a, b: _atan2_part(dy, -a, a, b))),
    bound=ulps(3.5, 2.5), slope=ulps(4, 8), torch="atan2", aliases=("arctan2",),
)  # fmt: skip
HYPOT = Operation(
    "polar/Hypot", np.hypot,
    (widened(lambda dy, a, b: dy * (a / np.hypot(a, b))), widened(lambda dy, a, b: dy * (b / np.hypot(a, b)))),
    bound=ulps(3.5, 2.5), slope=ulps(4, 8), torch="hypot",
)  # fmt: skip
