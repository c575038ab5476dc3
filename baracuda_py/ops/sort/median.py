"""median, nanmedian and mode: an element of every row, and where it stands (torch.median, torch.mode)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Variant,
    choice, element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.checked import truth
from ...core.element import decode
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.variant import Step
from ...core.views import with_axis
from ...core.arrays import read
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.map import THREADS, chunked, lay_out, map_params
from ...schedules.radix_sort import key_order
from ..indexing.gather import gather
from .order import EVERY, KEYS, RowDescriptor, order_of, rows_back, rows_last
from .searchsorted import one_each
from .seen import Outs, axis_of, row_of
from .sort import SortPlan, sort

_ROW = 256  # threads that look for the longest run of a row


class SortedPlaceKind(enum.Enum):
    """Which element of a sorted row is looked for."""

    MEDIAN = "median"
    NANMEDIAN = "nanmedian"
    MODE = "mode"

    @property
    def cpp(self) -> str:
        """The functor in kernels/sort/statistics.cu."""
        return {"median": "Median", "nanmedian": "NanMedian", "mode": "Mode"}[self.value]


@dataclass(frozen=True, kw_only=True)
class SortedPlaceDescriptor(RowDescriptor):
    """x has shape `shape` and rows sorted along `axis`; place has one element along it."""

    kind: SortedPlaceKind = choice(SortedPlaceKind)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        """A row has an element."""
        if not self.shape or not self.count:
            raise InvalidProblemError(f"shape must have an element along axis {self.axis}, got {self.shape}")

    @property
    def one_shape(self) -> Shape:
        """The shape with one element along the axis."""
        return self.resized(1)


@dataclass(slots=True, kw_only=True)
class SortedPlaceArgs(Args):
    """Any strides. x: sorted as `sort` does."""

    x: Array = operand("*shape", values=KEYS)
    place: Array = output("*one_shape", element=ElementKind.I64)


def reference(desc: SortedPlaceDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy, row by row."""
    rows = rows_last(desc, x)
    n = rows.shape[-1]
    numbers = (rows == rows).sum(-1)
    if desc.kind is SortedPlaceKind.MEDIAN:
        place = np.where(numbers < n, numbers, (n - 1) // 2)
    elif desc.kind is SortedPlaceKind.NANMEDIAN:
        place = np.where(numbers == 0, 0, (numbers - 1) // 2)
    else:
        place = np.zeros(rows.shape[:-1], np.int64)
        for at in np.ndindex(place.shape):
            row = rows[at]
            differ = (row[1:] != row[:-1]) & ((row[1:] == row[1:]) | (row[:-1] == row[:-1]))
            ends = np.flatnonzero(np.append(differ, True))
            place[at] = ends[np.argmax(np.diff(ends, prepend=-1))]
    return {"place": rows_back(desc, place[..., None], 1)}


PARAMS = Params("SortedPlaceParams", place="ptr", x="ptr", extent="i64", step="i64", order="u64[7]", floats="i32",
                **map_params(2))  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, axis = p.desc, p.desc.axis
    strides = [0 if a == axis else s for a, s in enumerate(p.x.strides)]
    views = (p.place, View(p.x.ptr, desc.one_shape, tuple(strides), p.x.element))
    params = {
        "extent": desc.count, "step": p.x.strides[axis], "order": key_order(desc.element),
        "floats": desc.element.is_float,
    }  # fmt: skip
    if desc.kind is not SortedPlaceKind.MODE:
        return one_each("place", views, params)
    found = lay_out(views)
    if isinstance(found, str):
        return found
    if p.place.size > MOST_BLOCKS:
        return "more than 2^31 blocks"
    step = Step("mode", (p.place.size, 1, 1), {**params, **chunked(found, 1)}, {}, _ROW)
    return Geometry((step,), layout=found.layout(found.inner))


def in_torch(torch: Any, desc: SortedPlaceDescriptor, *, x: Any) -> Any:
    """Counts of equal elements, all pairs of a row compared: torch has no function of sorted rows."""
    rows = x.movedim(desc.axis, -1)
    n, numbers = rows.shape[-1], (rows == rows).sum(-1)
    if desc.kind is SortedPlaceKind.MEDIAN:
        place = torch.where(numbers < n, numbers, (n - 1) // 2)
    elif desc.kind is SortedPlaceKind.NANMEDIAN:
        place = ((numbers - 1) // 2).clamp(0)
    else:
        nan = rows != rows
        equal = (rows[..., None] == rows[..., None, :]) | (nan[..., None] & nan[..., None, :])
        count, first = equal.sum(-1).max(-1)
        place = first + count - 1
    return place[..., None].movedim(-1, desc.axis)


class SortedPlacePlan(Plan):
    """place = where an element of a sorted row stands, by one of `SortedPlaceKind`.

    median: the lower of two middle ones, or the first NaN of a row that has one; nanmedian: of the numbers alone, 0
    where there are none; mode: the last of the most frequent elements, of equally frequent ones the smallest; every
    NaN is one element to it.
    """

    op = "sort.sorted_place"
    kinds = SortedPlaceKind
    descriptor = SortedPlaceDescriptor
    args = SortedPlaceArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "halves", _geometry, source="sort/statistics.cu", elements=EVERY,
            kinds=(SortedPlaceKind.MEDIAN, SortedPlaceKind.NANMEDIAN),
            kernels=(Kernel("place", "place_of<{KIND}, key_word<{T}>>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
        Variant(
            "runs", _geometry, source="sort/statistics.cu", elements=EVERY, kinds=(SortedPlaceKind.MODE,),
            kernels=(Kernel("mode", f"mode_of<key_word<{{T}}>, {_ROW}>", PARAMS, threads=_ROW),),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip

    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "median of [65536, 1024] f32", kind="median", shape=(65536, 1024), axis=1, element="float32",
            peers=(EAGER,), make=lambda torch, desc: {"x": torch.randn(desc.shape).sort(-1).values},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SortedPlaceDescriptor:
        shape = draw.shape(1, 3, 1, 7)
        if draw.flag():
            shape = (draw.integer(1, 3), draw.sizes(33, 300, 700))
        axis = draw.integer(-len(shape), len(shape) - 1)
        return SortedPlaceDescriptor(kind=draw.kind, shape=shape, axis=axis, element=draw.element)

    @classmethod
    def complete(cls, desc: SortedPlaceDescriptor, arrays: dict[str, Any]) -> None:
        """Sorted rows."""
        rows = rows_last(desc, arrays["x"])
        order = order_of(decode(rows, desc.element))
        arrays["x"] = np.ascontiguousarray(rows_back(desc, np.take_along_axis(rows, order, -1)))


sorted_place = functional(SortedPlacePlan)


def _middle(x: Any, kind: SortedPlaceKind, axis: Any, keepdims: bool, out: Any, stream: Any, preference: Any) -> Any:
    """The element of every row and its index: a sort, where in it, and what stood there."""
    shape, options = read(x, "x").shape, {"stream": stream, "preference": preference}
    keepdims = truth("keepdims", keepdims)
    at, count = axis_of(x, axis)
    if not count:
        raise InvalidProblemError(f"axis {axis} of x must have an element, got shape {shape}")
    outs = Outs(out, 2, at, keepdims and bool(shape), max(len(shape), 1))
    seen = x if shape else with_axis(x, 0, "x")
    order, indices = sort(seen, axis=at, **options)
    place = sorted_place(order, kind=kind, axis=at, **options)
    where = gather(indices, place, axis=at, out=outs.seen(1), **options)
    values = gather(seen, where, axis=at, out=outs.seen(0), **options)
    return outs.result(0, values), outs.result(1, where)


def _median(
    name: str, kind: SortedPlaceKind, x: Any, axis: Any, keepdims: bool, out: Any, stream: Any, preference: Any
) -> Any:
    if axis is not None:
        return _middle(x, kind, axis, keepdims, out, stream, preference)
    if truth("keepdims", keepdims):
        raise InvalidProblemError(f"keepdims of {name} goes with an axis, got None")
    both = None if out is None else (out, None)
    row = row_of(x, "x") if read(x, "x").shape else x
    return _middle(row, kind, 0, False, both, stream, preference)[0]


@entry(SortPlan)
def median(
    x: Array, axis: int | None = None, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The median of every row along `axis`, and where it stands; without an axis that of all elements (torch.median).

    The lower of two middle elements, as in PyTorch; NumPy's median, their mean, is quantile(x, 0.5). A row with a NaN
    has the median NaN, where the first stands. Of equal elements the one that a stable sort puts there. The gradient
    of x is dy where the median stood. Four calls: a sort, the place in it, and two gathers.
    """
    return _median("median", SortedPlaceKind.MEDIAN, x, axis, keepdims, out, stream, preference)


@entry(SortPlan)
def nanmedian(
    x: Array, axis: int | None = None, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`median` of the numbers of every row, NaN aside; NaN where there are none (torch.nanmedian)."""
    return _median("nanmedian", SortedPlaceKind.NANMEDIAN, x, axis, keepdims, out, stream, preference)


@entry(SortPlan)
def mode(
    x: Array, axis: int = -1, keepdims: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The most frequent element of every row along `axis`, and where it stands last (torch.mode).

    Of equally frequent ones the smallest. Every NaN counts as one element, above all numbers. The gradient of x is dy
    where the mode stood.
    """
    return _middle(x, SortedPlaceKind.MODE, axis, keepdims, out, stream, preference)
