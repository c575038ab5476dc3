"""detrend: rows without their mean, or without the line of least squares (scipy.signal.detrend)."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.checked import shown, whole, wholes
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..layout.axes import place
from ..layout.concat import concat
from ..layout.creation import arange
from ..layout.views import part
from .reduce import ReducePlan
from .reduce_backward import ReduceBackwardPlan


@cache
def _sum(text: str, axis: int) -> Any:
    return reduction(text, "sum", axis=axis, keepdims=True)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _without(x: Any, axis: int, kind: ElementKind, linear: bool, out: Any, options: Any) -> Any:
    """x less its mean along an axis, and less its slope: two launches more, and the places counted from the middle."""
    shape = shape_of(x, "x")
    n = shape[axis]
    wide = x if kind.acc is kind else _formula(f"{kind.acc}(x)")(x, **options)
    means = _sum("x / n", axis)(x=wide, n=float(max(n, 1)), **options)
    if not linear or n < 2:
        return _formula(f"{kind}(x - m)")(x=wide, m=means, out=out, **options)
    with beside(x, options["stream"]):
        places = arange(n, element=kind.acc, like=x)
    along = reshaped(places, [n if a == axis else 1 for a in range(len(shape))], "places")
    facts = {"i": along, "h": (n - 1) / 2}
    slopes = _sum("(x - m) * (i - h) / s", axis)(x=wide, m=means, **facts, s=n * (n * n - 1) / 12, **options)
    return _formula(f"{kind}(x - m - (i - h) * b)")(x=wide, m=means, b=slopes, **facts, out=out, **options)


@composed("detrend_backward", "x", reads=())
@entry(ReducePlan)
def detrend(
    x: Array, axis: int = -1, type: str = "linear", bp: Any = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x less the line that fits it best along `axis`, or less its mean (scipy.signal.detrend), of floats.

    type: "linear", less m + b (i - (n - 1) / 2) with m the mean and b the slope of least squares; "constant", less m.
    bp: places at which the axis is cut, each piece having a line of its own (linear only). Sums are in float32 at
    least, about the mean. Two launches for "constant", four for "linear"; 16-bit floats take one more, pieces as many
    each and one that joins them.
    """
    options = {"stream": stream, "preference": preference}
    kind, shape = read(x, "x").element, shape_of(x, "x")
    if not kind.is_float:
        raise UnsupportedError(f"detrend is of floats, got {kind}; write cast(x, 'float32')")
    along = place(axis, len(shape))
    if type not in ("linear", "constant", "l", "c"):
        raise InvalidProblemError(f'type must be "linear" or "constant", got {shown(type)}')
    linear, n = type[0] == "l", shape[along]
    (out,) = each_of(out, 1)
    cuts = (
        (whole("bp", bp, 0, n),)
        if isinstance(bp, (int, np.integer))
        else wholes("bp", bp, 0, n, "places")
        if linear
        else ()
    )
    ends = sorted({0, n, *cuts}) if linear else [0, n]
    if len(ends) <= 2:
        return _without(x, along, kind, linear, out, options)
    pieces = [part(x, along, start, stop) for start, stop in pairwise(ends)]
    made = [_without(piece, along, kind, linear, None, options) for piece in pieces]
    return concat(made, axis=along, out=out, **options)


@entry(ReduceBackwardPlan)
def detrend_backward(
    dy: Array, x: Array | None = None, axis: int = -1, type: str = "linear", bp: Any = 0, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `detrend`, which is dy detrended: what it takes away is a projection, symmetric. x is not looked at."""
    del x
    return detrend(dy, axis, type, bp, out=out, stream=stream, preference=preference)
