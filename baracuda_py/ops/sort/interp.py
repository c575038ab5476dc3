"""interp: piecewise linear interpolation of points (numpy.interp, jax.numpy.interp)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array, registry
from ...core.checked import real, shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import constant, cut, shape_of, without_axes
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..indexing.take import take
from ..random.draws import is_array
from ..layout.concat import concat, stack
from ..layout.views import part
from .searchsorted import SearchsortedPlan, searchsorted
from .sort import sort

# From the nearer end, so that both are exact. A line of no length, which has x only where xp ends in equal ones, is b1.
# Where a difference is infinite, the mean of both ends by their distances, and at an end that end. What is not chosen
# is made of zeros, so that its gradient is 0 and not 0 times an infinity.
_PLAIN = "(isfinite(b1 - b0) and (isfinite(a1 - a0) or x != a0 and x != a1 and (isinf(a0) or isinf(a1))))"
_STEP = f"((b1 - b0 if {_PLAIN} else 0) / (1 if a0 == a1 else a1 - a0))"
_NEAR = f"(b1 - (a1 - x) * {_STEP} if x - a0 > a1 - x else b0 + (x - a0) * {_STEP})"
_ELSE = f"({_PLAIN} or x == a0 or x == a1)"
_WIDTH = "(1 if a0 == a1 else 0.5 * a1 - 0.5 * a0)"
_MEAN = (
    f"((0 if {_ELSE} else b0) * ((0.5 * a1 - 0.5 * x) / {_WIDTH})"
    f" + (0 if {_ELSE} else b1) * ((0.5 * x - 0.5 * a0) / {_WIDTH}))"
)
_LINE = f"b1 if a0 == a1 and x == x else {_NEAR} if {_PLAIN} else b0 if x == a0 else b1 if x == a1 else {_MEAN}"


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(SearchsortedPlan)
def interp(
    x: Array, xp: Array, fp: Array, left: Any = None, right: Any = None, period: float | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = the value at x of the lines between the points (xp, fp), of which xp ascends (numpy.interp).

    x: any shape; xp, fp: vectors of n >= 1; all of one float. left, right: numbers for x below xp[0] and above the last
    of xp, by default fp[0] and the last of fp; "extrapolate" (JAX's) continues the line there. period: x and xp are
    taken modulo it, and xp need not ascend; left and right are not looked at then. NaN gives NaN; at a point the result
    is its value, whatever lies beside it, and between an infinite one and a finite one infinite. 4 launches, with a
    period 8 more and a sort; gradients of x, xp and fp.
    """
    options = {"stream": stream, "preference": preference}
    kinds = {name: read(one, name).element for name, one in (("x", x), ("xp", xp), ("fp", fp))}
    if len(set(kinds.values())) > 1 or not kinds["x"].is_float:
        raise InvalidProblemError(f"x, xp and fp must be of one float, got {', '.join(map(str, kinds.values()))}")
    own, values = shape_of(xp, "xp"), shape_of(fp, "fp")
    if len(own) != 1 or own != values or not own[0]:
        raise InvalidProblemError(f"xp and fp must be vectors of one length, 1 at least, got shapes {own} and {values}")
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period, options)
        left = right = None
    n, rank = shape_of(xp, "xp")[0], len(shape_of(x, "x"))
    text, numbers = _with_ends(left, right)
    # Row k of the table has the ends of line k: where it begins, where it ends, and fp there.
    begin, end = slice(0, max(n - 1, 1)), slice(min(1, n - 1), n)
    table = stack([cut(one, [side], "xp") for one in (xp, fp) for side in (begin, end)], axis=1, **options)
    inner = cut(constant(xp), [slice(1, max(n - 1, 1))], "xp")
    rows = take(table, searchsorted(inner, constant(x), right=True, **options), axis=0, **options)
    columns = (without_axes(part(rows, rank, k, k + 1), (rank,), "rows") for k in range(4))
    named = dict(zip(("a0", "a1", "b0", "b1"), columns, strict=True))
    return _formula(text)(x=x, **named, **numbers, out=out, **options)


def _with_ends(left: Any, right: Any) -> tuple[str, dict[str, Any]]:
    """The formula of a value on its line, which may lie before the first or behind the last, and its numbers."""
    text, numbers = _LINE, {}
    for name, value, outside, corner in (("left", left, "x < a0", "b0"), ("right", right, "x > a1", "b1")):
        if isinstance(value, str) and value != "extrapolate":
            raise InvalidProblemError(f'{name} must be a number or "extrapolate", got {shown(value)}')
        if value is None:
            text = f"{corner} if {outside} else {text}"
        elif not isinstance(value, str):
            numbers[name] = value if is_array(value) else real(name, value)
            text = f"{name} if {outside} else {text}"
    return text, numbers


def _periodic(x: Any, xp: Any, fp: Any, period: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """x and the points in one period, and of these one more on either side."""
    size = abs(real("period", period))
    if not 0 < size < math.inf:
        raise InvalidProblemError(f"period must be a number other than 0, got {shown(period)}")
    n, remainder, add = shape_of(xp, "xp")[0], registry.public("remainder"), registry.public("add")
    places, order = sort(remainder(xp, size, **options), **options)
    values = take(fp, order, axis=0, **options)
    first, last = slice(0, 1), slice(n - 1, n)
    ends = [add(cut(places, [side], "xp"), step, **options) for side, step in ((last, -size), (first, size))]
    around = [cut(values, [side], "fp") for side in (last, first)]
    wide = (concat([before, own, behind], **options) for own, (before, behind) in ((places, ends), (values, around)))
    return (remainder(x, size, **options), *wide)
