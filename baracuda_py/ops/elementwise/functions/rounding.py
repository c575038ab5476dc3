"""Rounding to whole numbers, and to decimals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .row import WITH_INTEGERS, Coefficient, Function, exact, ulps


def _round_in_torch(torch: Any, x: Any, decimals: Any) -> Any:
    return torch.round(x, decimals=int(decimals)) if decimals else torch.round(x)


def _floats(function: Any) -> Any:
    """`function` of floats; integers as they are."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _residue(x: Any, t: Any, p: Any) -> Any:
    """x - t p, or its sign: t p as two numbers (Veltkamp 1968, Dekker 1971)."""

    def halves(a: Any) -> tuple[Any, Any]:
        shifted = a * (2.0 ** ((np.finfo(x.dtype).nmant + 2) // 2) + 1)
        high = shifted - (shifted - a)
        return high, a - high

    high = t * p
    (a, b), (c, d) = halves(t), halves(p)
    return (x - high) - (((a * c - high) + a * d + b * c) + b * d)


def _round(x: Any, decimals: Any) -> Any:
    """The multiple of 10^-decimals nearest to x, of two equally near the even one.

    A product that rounds to a tie lies on the side that its residue says.
    """
    if decimals == 0 or x.dtype.kind != "f":
        return np.rint(x) if x.dtype.kind == "f" else x
    p = x.dtype.type(10) ** abs(decimals)
    t = x * p if decimals > 0 else x / p
    whole = ~(np.abs(t) < 2.0 ** (np.finfo(x.dtype).nmant + 1))
    t = np.where(whole, 0, t)
    side = -_residue(t, x, p) if decimals > 0 else _residue(x, t, p)
    y, tie = np.rint(t), np.abs(t - np.trunc(t)) == 0.5
    y = np.where(tie & (side > 0), np.ceil(t), np.where(tie & (side < 0), np.floor(t), y))
    return np.where(whole, x, y / p if decimals > 0 else y * p)


FLOOR = Function("rounding/Floor", _floats(np.floor), elements=WITH_INTEGERS, torch="floor")
CEIL = Function("rounding/Ceil", _floats(np.ceil), elements=WITH_INTEGERS, torch="ceil")
TRUNC = Function("rounding/Trunc", _floats(np.trunc), elements=WITH_INTEGERS, torch="trunc", aliases=("fix",))
ROUND = Function(
    "rounding/Round", _round, elements=WITH_INTEGERS, bound=ulps(0.501, 0.501), aliases=("rint", "around"),
    coefficients=(Coefficient("decimals", 0.0, low=-22, high=22, whole=True, floats=True, drawn=(-2, 3)),),
    torch=_round_in_torch,
)  # fmt: skip
FRAC = Function("rounding/Frac", lambda x: x - np.trunc(x), lambda dy, x: dy, slope=exact, torch="frac")
