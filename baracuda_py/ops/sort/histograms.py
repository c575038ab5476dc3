"""histogram, histc, histogramdd, bincount: counts, or sums of weights, by bins (torch.histogram, numpy.bincount)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import Array, ElementKind, InvalidProblemError
from ...core.checked import shown, truth, whole
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import reshaped, with_axis
from ...core.arrays import read
from ...core.numbers import plain
from ..elementwise.binary_functions import div, mul
from ..elementwise.cast import cast
from ..indexing.gather_backward import gather_backward
from ..indexing.positions import NOWHERE
from ..layout.creation import zeros
from ..reduce.reduce import sum as total_of  # type: ignore[attr-defined]  # made from a table
from ..reduce.reduce_pair import aminmax
from ..scan.diff import diff
from .histogram import BinIndexPlan, HistogramPlan, bin_index, histogram_counts
from .seen import numbered, row_of

_count = range  # a keyword of the functions has its name
_ENDS = (ElementKind.F32, ElementKind.F64, ElementKind.I32, ElementKind.I64)


def _range(x: Any, given: Any, options: dict[str, Any]) -> dict[str, Any]:
    """low and high: numbers, or without them the extremes of x, on the device; of no elements 0 and 1."""
    if given is not None:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise InvalidProblemError(f"range must be (low, high), got {shown(given)}")
        known = all(isinstance(end, (int, float, np.integer, np.floating)) for end in given)
        if known and not -np.inf < given[0] <= given[1] < np.inf:
            raise InvalidProblemError(f"range must be finite numbers low <= high, got {shown(given)}")
        return {"low": given[0], "high": given[1]}
    if 0 in read(x, "x").shape:
        return {"low": 0.0, "high": 1.0}
    low, high = aminmax(x, **options)
    if read(x, "x").element not in _ENDS:
        low, high = (cast(one, ElementKind.F64, **options) for one in (low, high))
    return {"low": low, "high": high}


def _bins(x: Any, bins: Any, given: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What a call says of its bins: how many there are and their range, or their edges."""
    if isinstance(bins, (int, np.integer)):
        return {"bins": whole("bins", bins, 1), **_range(x, given, options)}
    if given is not None:
        raise InvalidProblemError("range goes with a number of bins; bins are edges here")
    return {"edges": bins}


def _fit(weight: Any, name: str, x: Any) -> None:
    """Raises where weights have not the shape of x."""
    given, shape = read(weight, name).shape, read(x, "x").shape
    if given != shape:
        raise InvalidProblemError(f"{name} must have the shape {shape} of x, got {given}")


def _sums(weight: Any, index: Any, length: int, options: dict[str, Any]) -> Any:
    """The weights of every bin, added in the order of the elements; integers and truths in float64, as in NumPy."""
    element = read(weight, "weight").element
    if element.is_integer or element is ElementKind.BOOL:
        weight = cast(weight, ElementKind.F64, **{**options, "out": None})
    return gather_backward(row_of(weight, "weight"), row_of(index, "x"), shape=(length,), axis=0, **options)


@entry(HistogramPlan)
def histogram(
    x: Array, bins: Any = 10, range: Any = None, weight: Array | None = None, density: bool = False, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """How many elements of x are in every bin, and the edges of the bins, float64 (torch.histogram, numpy.histogram).

    bins: how many, equal parts of range = (low, high), by default the extremes of x; or an array of ascending edges,
    float32 or float64. Counts are int64. weight: an array of x's shape: sums of weights instead, in the order of the
    elements, integers in float64. density: counts or sums over their total and the widths of bins, in float64. See
    `HistogramPlan`.
    """
    options = {"stream": stream, "preference": preference}
    to, to_edges = each_of(out, 2)
    density = truth("density", density)
    if weight is not None:
        _fit(weight, "weight", x)
    facts = _bins(x, bins, range, options)
    plain = weight is None and not density
    given = {n: one for n, one in (("y", to if plain else None), ("bin_edges", to_edges)) if one is not None}
    made = histogram_counts(
        x, return_y=weight is None, return_bin_edges=True, out=given or None, **facts, **options
    )  # fmt: skip
    counts, edges = (None, made) if weight is not None else made
    if weight is not None:
        length = int(edges.shape[0]) - 1
        into = {} if density or to is None else {"out": to}
        counts = _sums(weight, bin_index(x, none=NOWHERE, **facts, **options), length, {**options, **into})
    if not density:
        return counts, edges
    wide = cast(counts, ElementKind.F64, **options)
    total = mul(diff(edges, **options), total_of(wide, **options), **options)
    return div(wide, total, out=to, **options), edges


@entry(HistogramPlan)
def histogram_bin_edges(
    x: Array, bins: Any = 10, range: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The edges of the bins of `histogram`, float64 (numpy.histogram_bin_edges, for a number of bins)."""
    options = {"stream": stream, "preference": preference}
    facts = _bins(x, bins, range, options)
    return histogram_counts(x, return_y=False, return_bin_edges=True, out=out, **facts, **options)


@entry(HistogramPlan)
def histc(
    x: Array, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """How many elements of x are in each of `bins` equal parts of [min, max], in x's element (torch.histc).

    min and max both 0: the extremes of x, which are moved apart by 1 each where they are equal.
    """
    options = {"stream": stream, "preference": preference}
    ends = None if all(isinstance(end, (int, float)) and end == 0 for end in map(plain, (min, max))) else (min, max)
    facts = {"bins": whole("bins", bins, 1), **_range(x, ends, options)}
    counts = histogram_counts(x, widen=1.0, **facts, **options)
    return cast(counts, read(x, "x").element, out=out, **options)


def _joint(
    columns: Sequence[Any], bins: Any, ranges: Any, weight: Any, density: bool, out: Sequence[Any],
    options: dict[str, Any],
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Counts of points by bins along every axis, and the edges along each; a column has the places along an axis.

    out: what counts and edges are written to, None for what is made.
    """
    count = len(columns)
    if ranges is not None and not isinstance(ranges, (tuple, list)):
        raise InvalidProblemError(f"range must be (low, high) of every axis, got {shown(ranges)}")
    each = list(bins) if isinstance(bins, (tuple, list)) else [bins] * count
    pairs = [None] * count if ranges is None else list(ranges)
    if len(pairs) == 2 * count and not isinstance(pairs[0], (tuple, list)):
        pairs = list(zip(pairs[::2], pairs[1::2], strict=True))
    if len(each) != count or len(pairs) != count:
        raise InvalidProblemError(f"bins and range must be for {count} axes, got {len(each)} and {len(pairs)}")
    index, edges, sizes = None, [], []
    for column, number, given, to in zip(columns, each, pairs, out[1:], strict=True):
        facts = _bins(column, number, given, options)
        edges.append(histogram_counts(column, return_y=False, return_bin_edges=True, out=to, **facts, **options))
        sizes.append(int(edges[-1].shape[0]) - 1)
        index = bin_index(column, facts.pop("edges", None), index, **facts, **options)
    hist = bincount(index, weight, length=int(np.prod(sizes)), **options)
    hist = reshaped(hist, sizes, "y")
    if truth("density", density):
        wide = cast(hist, ElementKind.F64, **options)
        hist = div(wide, total_of(wide, **options), **options)
        for axis, edge in enumerate(edges):
            width = diff(edge, **options)
            for _ in _count(count - 1 - axis):
                width = with_axis(width, -1, "width")
            hist = div(hist, width, **options)
    return hist if out[0] is None else cast(hist, read(hist, "y").element, out=out[0], **options), edges


@entry(BinIndexPlan)
def histogramdd(
    x: Array, bins: Any = 10, range: Sequence[Any] | None = None, weight: Array | None = None, density: bool = False, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Counts of points by bins along every axis, and a tuple of the edges along each (torch.histogramdd).

    x: [n, d], a point a row. bins: a number for all axes, or for each a number or an array of edges. range: (low, high)
    for every axis, flat as in PyTorch or in pairs. weight: [n], floats. density: over total and volumes, in float64.
    """
    shape = read(x, "x").shape
    if len(shape) != 2 or not shape[1]:
        raise InvalidProblemError(f"x must have shape (points, axes), got {shape}")
    columns, options = [numbered(x, 1, a, "x") for a in _count(shape[1])], {"stream": stream, "preference": preference}
    to, to_edges = each_of(out, 2)
    hist, edges = _joint(columns, bins, range, weight, density, (to, *each_of(to_edges, len(columns))), options)
    return hist, tuple(edges)


@entry(BinIndexPlan)
def histogram2d(
    x: Array, y: Array, bins: Any = 10, range: Sequence[Any] | None = None, weight: Array | None = None,
    density: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Counts of the points (x[i], y[i]) by bins along both axes, and the edges along each (numpy.histogram2d)."""
    options = {"stream": stream, "preference": preference}
    hist, edges = _joint((x, y), bins, range, weight, density, each_of(out, 3), options)
    return hist, edges[0], edges[1]


@entry(HistogramPlan)
def bincount(
    x: Array, weights: Array | None = None, *, length: int | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[b] = how often b is in x, or the sum of its weights, for b < length (torch.bincount, jax.numpy.bincount).

    x: integers. length: of y, as which is the largest is known on the device alone; without it x must be NumPy's, and
    is looked at. Others are not counted, negative ones neither. Counts are int64; weights, of x's shape, are added in
    the order of the elements, integers in float64.
    """
    options = {"stream": stream, "preference": preference}
    element = read(x, "x").element
    if not element.is_integer:
        raise InvalidProblemError(f"x must be integers, got {element}; cast counts of bools or floats first")
    if length is None:
        if not isinstance(x, np.ndarray):
            where = "is known on the device alone, or call nn.functional.bincount, which waits for it"
            raise InvalidProblemError(f"give length=, as the largest of a {type(x).__name__} {where}")
        length = max(int(x.max()) + 1, 0) if x.size else 0
    count = whole("length", length, 0)
    if weights is not None:
        _fit(weights, "weights", x)
        index = bin_index(x, bins=max(count, 1), low=0, high=count, closed=False, none=NOWHERE, **options)
        return _sums(weights, index, count, {**options, "out": out})
    if count == 0:
        none = zeros((0,), ElementKind.I64, like=x)
        return none if out is None else cast(none, ElementKind.I64, out=out, **options)
    return histogram_counts(x, bins=count, low=0, high=count, closed=False, out=out, **options)
