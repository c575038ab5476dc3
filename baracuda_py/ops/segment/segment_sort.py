"""Order within segments: sorts and the best of every segment, and the best of rows of which a part counts."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import truth, whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import constant, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..indexing.gather import gather
from ..indexing.take import take
from ..layout.creation import arange
from ..sort.sort import SortPlan, argsort
from ..sort.topk import TopkPlan, topk
from .segment_index import segment_ids, segment_padded
from .segment_kinds import beyond


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _row(x: Any, offsets: Any) -> tuple[int, int]:
    """How many elements and segments there are."""
    shape, bounds = shape_of(x, "x"), shape_of(offsets, "offsets")
    if len(shape) != 1 or len(bounds) != 1 or not bounds[0]:
        raise InvalidProblemError(f"x must be a vector and offsets [segments + 1], got shapes {shape} and {bounds}")
    return shape[0], bounds[0] - 1


def _order(x: Any, offsets: Any, descending: bool, options: dict[str, Any], out: Any = None) -> Any:
    """Where the elements of every segment stand in order: by their values, then by their segments, both stable."""
    count, segments = _row(x, offsets)
    ids = segment_ids(offsets, tokens=count, **options)
    behind = _formula("i if i >= 0 else n")(i=ids, n=segments, **options)
    order = argsort(constant(x), descending=descending, **options)
    return gather(order, argsort(gather(behind, order, axis=0, **options), **options), axis=0, out=out, **options)


@entry(SortPlan)
def segment_sort(
    x: Array, offsets: Array, descending: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The elements of every segment of a vector in order, and where they stood (CUB's segmented sort): stable.

    offsets: [segments + 1], the first of which is 0 (values on the device, not looked at). What stands behind the last
    is sorted as one more segment. The order is that of `sort`. Two sorts whatever the lengths are.
    """
    options, (to, to_indices) = {"stream": stream, "preference": preference}, each_of(out, 2)
    order = _order(x, offsets, truth("descending", descending), options, to_indices)
    return gather(x, order, axis=0, out=to, **options), order


@entry(SortPlan)
def segment_topk(
    x: Array, offsets: Array, k: int, largest: bool = True, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The k largest, or smallest, elements of every segment of a vector, and where they stood: [segments, k] each.

    The best stand first; of equal ones the first. A segment with fewer has 0 and -1 behind them. offsets as of
    `segment_sort`, of which it takes the first.
    """
    options, (to, to_indices) = {"stream": stream, "preference": preference}, each_of(out, 2)
    k = whole("k", k, 0)
    order = _order(x, offsets, truth("largest", largest), options)
    places = segment_padded(offsets, tokens=shape_of(x, "x")[0], length=k, absent=beyond(offsets), **options)
    at = take(order, places, axis=0, **options)
    indices = _formula("a if p >= 0 else -1")(a=at, p=places, out=to_indices, **options)
    there = _formula("a if p >= 0 else none")(a=at, p=places, none=beyond(places), **options)
    return take(x, there, axis=0, out=to, **options), indices


@entry(TopkPlan)
def topk_varlen(
    x: Array, lengths: Array, k: int, *, offsets: Array | None = None, page_table: Array | None = None,
    page_size: int = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The k largest of the first lengths[r] elements of every row r of x, and where they stand: [rows, k] each.

    For attention to chosen tokens (FlashInfer's top_k_ragged_transform and top_k_page_table_transform): offsets [rows]
    are added to the places; page_table [rows, pages] makes of place p page_table[r, p / page_size] · page_size +
    p % page_size. A row with fewer has the least number of x's element and -1 behind them. lengths, offsets and
    page_table are int64 or int32, the places int64. The rows are read and written once before the search.
    """
    options, (to, to_indices) = {"stream": stream, "preference": preference}, each_of(out, 2)
    shape, element = shape_of(x, "x"), read(x, "x").element
    rows = {"lengths": lengths, "offsets": offsets}
    if len(shape) != 2 or any(shape_of(one, n) != shape[:1] for n, one in rows.items() if one is not None):
        raise InvalidProblemError(f"x must be [rows, n], lengths and offsets [rows], got x of shape {shape}")
    if page_table is not None and (offsets is not None or len(shape_of(page_table, "page_table")) != 2):
        raise InvalidProblemError("page_table must be [rows, pages], and stands in the place of offsets")
    for name, one in {**rows, "page_table": page_table}.items():
        if one is not None and read(one, name).element not in INDICES:
            raise InvalidProblemError(f"{name} must be int64 or int32, got {read(one, name).element}")
    size, many = whole("page_size", page_size, 1), with_axis(lengths, 1, "lengths")
    least = float("-inf") if element.is_float else 0 if element.bits == 1 else int(element.limits.min)
    text = f"x if j < l else {element}(low)"
    with beside(x, stream):
        numbers = arange(shape[1], like=lengths)
    seen = _formula(text)(x=x, j=numbers, l=many, low=least, **options)
    y, places = topk(seen, k, out=None if to is None else {"y": to}, **options)
    if page_table is None:
        moved, facts = "i", {}
        if offsets is not None:
            moved, facts = "i + o", {"o": with_axis(offsets, 1, "offsets")}
    else:
        pages = _formula("i // p if i < l else 0")(i=places, p=size, l=many, **options)
        moved, facts = "int64(g) * p + i % p", {"g": gather(page_table, pages, axis=1, **options), "p": size}
    text = f"int64({moved}) if i < l else int64(-1)"
    return y, _formula(text)(i=places, l=many, **facts, out=to_indices, **options)
