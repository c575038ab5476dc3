"""quantile, percentile and those of the numbers alone: a sort, and places in it (torch.quantile, numpy.percentile)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...calls.refusing import refuse_call
from ...core.views import with_axis, without_axes
from ...core.arrays import read
from .seen import axis_of, row_of
from .sort import SortPlan, sort
from .sorted_quantile import sorted_quantile


def _quantile(
    x: Any, q: Any, axis: Any, keepdims: bool, interpolation: Any, percent: bool, ignore_nan: bool, out: Any,
    stream: Any, preference: Any,
) -> Any:  # fmt: skip
    shape, options = read(x, "x").shape, {"stream": stream, "preference": preference}
    keepdims = truth("keepdims", keepdims)
    at = 0 if axis is None else axis_of(x, axis)[0]
    seen = with_axis(x, 0, "x") if not shape else x if axis is not None else row_of(x, "x")
    number, most = isinstance(q, (int, float, np.integer, np.floating)), 100 if percent else 1
    if number and not 0 <= q <= most:
        raise InvalidProblemError(f"q must be from 0 to {most}, got {shown(q)}")
    levels = None if number else q
    facts = {"axis": at, "interpolation": interpolation, "percent": percent, "ignore_nan": ignore_nan}
    refuse_call(sorted_quantile, {"x": seen, "q": levels}, facts, None, preference)  # before x is sorted
    ordered = sort(seen, axis=at, return_indices=False, **options)
    many = 0 if number else len(read(q, "q").shape)
    places = range(many + at, many + at + (1 if axis is not None else len(shape))) if keepdims and shape else ()
    y = sorted_quantile(
        ordered, levels, level=float(q) if number else 0.5,
        out=None if out is None else without_axes(out, tuple(places), "out"), **facts, **options,
    )  # fmt: skip
    if out is not None:
        return out
    for place in places:
        y = with_axis(y, place, "y")
    return y


@entry(SortPlan)
def quantile(
    x: Array, q: Array | float, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The quantiles of levels q of every row along `axis`, or of all elements (torch.quantile, numpy.quantile).

    q: a number from 0 to 1, or an array of float32 or float64 of one axis, which comes first in y, or none. A sort, and
    `sorted_quantile` of it, which has the methods and the rules of NaN. q has no gradient.
    """
    return _quantile(x, q, axis, keepdims, interpolation, False, False, out, stream, preference)


@entry(SortPlan)
def nanquantile(
    x: Array, q: Array | float, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of the numbers of every row, NaN aside (torch.nanquantile)."""
    return _quantile(x, q, axis, keepdims, interpolation, False, True, out, stream, preference)


@entry(SortPlan)
def percentile(
    x: Array, q: Array | float, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of levels that are counted in hundredths (numpy.percentile)."""
    return _quantile(x, q, axis, keepdims, interpolation, True, False, out, stream, preference)


@entry(SortPlan)
def nanpercentile(
    x: Array, q: Array | float, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`nanquantile` of levels that are counted in hundredths (numpy.nanpercentile)."""
    return _quantile(x, q, axis, keepdims, interpolation, True, True, out, stream, preference)
