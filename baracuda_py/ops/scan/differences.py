"""What diff and its gradient launch: y[i] = x[i + by] - x[i] over arrays that lie in pieces, by maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import Step, aligned
from ...schedules.map import map_geometry, map_kernels, map_params, widths
from ...schedules.runs import run_kernel, run_params, run_step

PARAMS = Params("DifferenceParams", y="ptr", a="ptr", b="ptr", plus="i32", minus="i32", **map_params(3))
RUN_PARAMS = Params("DifferenceRunsParams", y="ptr", x="ptr", **run_params(2))
_HALVES = (ElementKind.F16, ElementKind.BF16)


def _kernels(name: str, to: str, source: str) -> tuple[Kernel, ...]:
    """The maps into `to` from `source`, one of which is the accumulator of 16-bit floats: of those alone."""
    made = map_kernels(
        f"difference<{to}, {source}, {{LAYOUT}}>", PARAMS,
        widths_of=lambda element: widths(element.acc.itemsize) if element in _HALVES else (),
    )  # fmt: skip
    return tuple(replace(kernel, name=f"{name}{kernel.name}") for kernel in made)


def _single(down: bool) -> tuple[Kernel, ...]:
    """Of one difference, or of several without a wider accumulator."""
    sign = "true" if down else "false"
    runs = run_kernel(f"difference_runs<{{T}}, {sign}>", RUN_PARAMS, source="scan/difference_runs.cu")
    return *map_kernels("difference<{T}, {T}, {LAYOUT}>", PARAMS), runs


SINGLE, SINGLE_BACKWARD = _single(down=False), _single(down=True)
_SEVERAL = (
    *_kernels("first_", "{A}", "{T}"), *_kernels("middle_", "{A}", "{A}"), *_kernels("last_", "{T}", "{A}"),
)  # fmt: skip
KERNELS, KERNELS_BACKWARD = (*SINGLE, *_SEVERAL), (*SINGLE_BACKWARD, *_SEVERAL)


@dataclass(frozen=True)
class Piece:
    """A part of an array along an axis: its elements, of which the first is number `start` of the whole.

    view is None where nobody wants the part. where, base: its memory, as a step says it.
    """

    start: int
    count: int
    view: View | None
    where: str
    base: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.count

    def part(self, axis: int, first: int, count: int) -> tuple[View, Any]:
        """Elements first … of the whole, which are in this piece, and where they are."""
        view = self.view
        assert view is not None
        shift = (first - self.start) * view.strides[axis] * view.element.itemsize
        shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
        return View(view.ptr + shift, shape, view.strides, view.element), (self.where, self.base + shift)


def in_a_row(parts: Sequence[tuple[str, int, View | None]]) -> list[Piece]:
    """Pieces one behind another, of operands (name, extent, view); empty ones are none."""
    pieces, start = [], 0
    for name, count, view in parts:
        if count:
            pieces.append(Piece(start, count, view, name))
        start += count
    return pieces


class Levels:
    """Two places in the workspace, for arrays that are in turn made from one another."""

    def __init__(self, like: View, axis: int, most: int) -> None:
        """Dense, of the extents of `like` but for up to `most` along the axis; 16-bit floats in the accumulator."""
        self.like, self.axis = like, axis
        self.element = like.element.acc if like.element in _HALVES else like.element
        self.size = aligned(View(0, self._shape(most), (), self.element).nbytes)
        self.used = 0

    def _shape(self, count: int) -> Shape:
        return (*self.like.shape[: self.axis], count, *self.like.shape[self.axis + 1 :])

    def next(self, level: int, count: int) -> list[Piece]:
        """An array in the place that level - 1 has not."""
        shape, base = self._shape(count), level % 2 * self.size
        self.used = max(self.used, base + self.size)
        return [Piece(0, count, View(base, shape, dense_strides(shape), self.element), "@workspace", base)]


def subtract(p: Problem, axis: int, y: Sequence[Piece], x: Sequence[Piece], by: int) -> list[Any] | str:
    """The launches of y[i] = x[i + by] - x[i], where x beyond its ends is 0."""
    steps: list[Any] = []
    edges = {n - shift for piece in x for n in (piece.start, piece.stop) for shift in (0, by)}
    for piece in y:
        if piece.view is None:
            continue
        if (step := _along_runs(p, axis, piece, x, by)) is not None:
            steps.append(step)
            continue
        cuts = sorted({piece.start, piece.stop, *(n for n in edges if piece.start < n < piece.stop)})
        for first, stop in pairwise(cuts):
            found = _run(p, axis, piece, x, first, stop - first, by)
            if isinstance(found, str):
                return found
            steps.extend(found.steps)
    return steps


def _along_runs(p: Problem, axis: int, y: Piece, x: Sequence[Piece], by: int) -> Step | None:
    """One launch of neighbours' differences, ends and all, where x is one piece and rows are runs of memory.

    by is 1 in a plan of SINGLE, -1 in one of SINGLE_BACKWARD.
    """
    if abs(by) != 1 or len(x) != 1:
        return None
    (source,) = x
    out, less = y.view, source.view
    if out is None or less is None or not out.element is less.element is p.desc.element:
        return None
    values = {"y": (y.where, y.base), "x": (source.where, source.base)}
    return run_step("runs", out, less, axis, shift=y.start - source.start + min(by, 0), values=values)


def copied(p: Problem, axis: int, y: Sequence[Piece], x: Sequence[Piece]) -> list[Any] | str:
    """The launches of y = x: differences to what stands before all of x, which is nothing."""
    count = max((piece.stop for piece in x), default=0)
    return subtract(p, axis, y, [replace(piece, start=piece.start + count) for piece in x], count)


def _run(p: Problem, axis: int, y: Piece, x: Sequence[Piece], first: int, count: int, by: int) -> Geometry | str:
    """One launch: elements first … of y, for which x[i] and x[i + by] are each in one piece or beyond the ends."""
    out, place = y.part(axis, first, count)
    found = [next((one for one in x if one.start <= at < one.stop), None) for at in (first, first + by)]
    a, b = (
        None if one is None else one.part(axis, at, count) for one, at in zip(found, (first, first + by), strict=True)
    )
    some = a or b or (out, place)  # what is nothing is read all the same
    (less, less_place), (more, more_place) = a or some, b or some
    values = {"y": place, "a": less_place, "b": more_place, "minus": a is not None, "plus": b is not None}
    made = map_geometry(p, (out, less, more), values)
    if isinstance(made, str) or p.desc.element not in _HALVES or out.element is less.element is p.desc.element:
        return made
    prefix = "last_" if out.element in _HALVES else "first_" if less.element in _HALVES else "middle_"
    steps = [replace(step, kernel=f"{prefix}{step.kernel}") for step in made.steps if isinstance(step, Step)]
    return replace(made, steps=tuple(steps))
