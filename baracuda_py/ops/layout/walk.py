"""Walk: how the elements of a copy are found in its operand, made step by step as views are made of arrays.

A walk is affine: loop j of `loops`, counted by i_j, moves the index of every axis a of the operand by steps[j][a], so
that the element at (i_0, i_1, …) is x[start + Σ i_j steps[j]]. Loops that follow one another make up an axis of the
result, as `groups` says. No array is looked at: strides come in when the walk meets an operand (`View`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, View, dense_strides


@dataclass(frozen=True)
class Walk:
    """The axes of a result over an operand of shape `shape`: each a group of loops, outermost first."""

    shape: Shape
    start: Shape
    groups: tuple[tuple[tuple[int, Shape], ...], ...]
    """For each axis of the result its loops, (extent, steps along the operand's axes) each."""

    @classmethod
    def of(cls, shape: Sequence[int]) -> Walk:
        """All of an operand in its order."""
        rank = len(shape)
        groups = tuple(((n, tuple(int(a == b) for b in range(rank))),) for a, n in enumerate(shape))
        return cls(tuple(shape), (0,) * rank, groups)

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        return tuple(math.prod(n for n, _ in group) for group in self.groups)

    @property
    def fields(self) -> dict[str, Any]:
        """What `ViewCopyDescriptor` takes."""
        loops = [loop for group in self.groups for loop in group]
        # Which loops make up an axis is not told by products of 0, nor does it matter where nothing is copied.
        if any(n == 0 for n, _ in loops):
            loops = [(n, (0,) * len(self.shape)) for n in self.out_shape]
        return {
            "loops": tuple(n for n, _ in loops), "start": self.start, "steps": tuple(steps for _, steps in loops),
            "out_shape": self.out_shape,
        }  # fmt: skip

    def permuted(self, order: Sequence[int]) -> Walk:
        """The axes in another order."""
        return replace(self, groups=tuple(self.groups[a] for a in order))

    def sliced(self, axis: int, start: int, count: int, step: int = 1) -> Walk:
        """`count` elements along an axis of one loop, from `start` on, `step` apart (below 0: backwards)."""
        ((_, steps),) = self.groups[axis]
        moved = self._advanced(start, steps) if count else self
        return moved._with(axis, ((count, tuple(step * s for s in steps)),))

    def taken(self, axis: int, index: int) -> Walk:
        """Without an axis, at one index of it."""
        moved = self.sliced(axis, index, 1)
        return replace(moved, groups=(*moved.groups[:axis], *moved.groups[axis + 1 :]))

    def split(self, axis: int, extents: Sequence[int]) -> Walk:
        """An axis of one loop as several, whose extents have its own as their product."""
        ((_, steps),) = self.groups[axis]
        many = tuple(((n, tuple(k * s for s in steps)),) for n, k in zip(extents, dense_strides(extents), strict=True))
        return replace(self, groups=(*self.groups[:axis], *many, *self.groups[axis + 1 :]))

    def merged(self, axis: int, count: int) -> Walk:
        """`count` axes from `axis` on as one, the first outermost."""
        one = tuple(itertools.chain(*self.groups[axis : axis + count]))
        return replace(self, groups=(*self.groups[:axis], one, *self.groups[axis + count :]))

    def repeated(self, axis: int, count: int) -> Walk:
        """With a new axis along which nothing changes."""
        loop = ((count, (0,) * len(self.shape)),)
        return replace(self, groups=(*self.groups[:axis], loop, *self.groups[axis:]))

    def windowed(self, axis: int, size: int, step: int) -> Walk:
        """An axis as windows of `size` elements, `step` apart; the place within a window is a last axis."""
        ((n, steps),) = self.groups[axis]
        moved = self._with(axis, (((n - size) // step + 1, tuple(step * s for s in steps)),))
        return replace(moved, groups=(*moved.groups, ((size, steps),)))

    def diagonal(self, offset: int, first: int, second: int) -> Walk:
        """x[…, i, …, i + offset, …] of two axes, i being a last axis; below the diagonal where offset is below 0."""
        ((rows, down),), ((columns, along),) = self.groups[first], self.groups[second]
        count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        moved = self._advanced(-min(offset, 0), down)._advanced(max(offset, 0), along) if count else self
        kept = tuple(group for a, group in enumerate(self.groups) if a not in (first, second))
        return replace(moved, groups=(*kept, ((count, tuple(map(sum, zip(down, along, strict=True)))),)))

    def _advanced(self, count: int, steps: Shape) -> Walk:
        return replace(self, start=tuple(at + count * s for at, s in zip(self.start, steps, strict=True)))

    def _with(self, axis: int, loops: tuple[tuple[int, Shape], ...]) -> Walk:
        return replace(self, groups=(*self.groups[:axis], loops, *self.groups[axis + 1 :]))


# ---- what a descriptor's fields say --------------------------------------------------------------------------------


def grouped(out_shape: Shape, loops: Shape) -> list[int]:
    """How many loops make up each axis of the result; raises where they do not."""
    counts, at = [], 0
    for axis, extent in enumerate(out_shape):
        left, first = extent, at
        while at < len(loops) and (left != 1 or loops[at] == 1) and (left % loops[at] == 0 if loops[at] else left == 0):
            left = left // loops[at] if loops[at] else 1
            at += 1
            if left == 1 and axis < len(out_shape) - 1:
                break
        if left != 1:
            raise InvalidProblemError(f"loops {loops} do not make up axis {axis} of out_shape {out_shape}")
        counts.append(at - first)
    if at < len(loops):
        raise InvalidProblemError(f"loops {loops} are more than out_shape {out_shape} has")
    return counts


def within(shape: Shape, start: Shape, loops: Shape, steps: Sequence[Shape]) -> None:
    """Raise unless a walk stays inside the operand."""
    if any(len(one) != len(shape) for one in (start, *steps)) or len(steps) != len(loops):
        raise InvalidProblemError(
            f"start and each of the {len(loops)} steps must have an item for each axis of shape {shape}, got {start} "
            f"and {tuple(steps)}"
        )
    if 0 in loops:
        return
    for axis, extent in enumerate(shape):
        reach = [(n - 1) * one[axis] for n, one in zip(loops, steps, strict=True)]
        low, high = (start[axis] + sum(bound(0, r) for r in reach) for bound in (min, max))
        if low < 0 or high >= extent:
            raise InvalidProblemError(f"the walk reaches from {low} to {high} along axis {axis} of shape {shape}")


def seen(x: View, start: Shape, loops: Shape, steps: Sequence[Shape]) -> tuple[View, int]:
    """The view of an operand that a walk sees, an axis for each loop; and where it begins, in elements."""
    if 0 in loops:
        return View(x.ptr, loops, dense_strides(loops), x.element), 0
    begin = sum(at * s for at, s in zip(start, x.strides, strict=True))
    strides = tuple(sum(k * s for k, s in zip(one, x.strides, strict=True)) for one in steps)
    return View(x.ptr + begin * x.element.itemsize, loops, strides, x.element), begin


def unfolded(y: View, counts: Sequence[int], loops: Shape) -> View:
    """The result as a view with an axis for each loop."""
    strides: list[int] = []
    at = 0
    for count, stride in zip(counts, y.strides, strict=True):
        strides += [k * stride for k in dense_strides(loops[at : at + count])]
        at += count
    return View(y.ptr, loops, tuple(strides), y.element)


def apart(shape: Shape, loops: Shape, steps: Sequence[Shape]) -> bool:
    """Whether a walk surely meets no element twice: each step passes what the smaller ones reach together."""
    if 0 in loops:
        return True
    places = dense_strides(shape)
    numbers = sorted(
        (abs(sum(k * p for k, p in zip(one, places, strict=True))), n)
        for n, one in zip(loops, steps, strict=True)
        if n > 1
    )
    reach = 0
    for step, extent in numbers:
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def box(start: Shape, loops: Shape, steps: Sequence[Shape]) -> tuple[Shape, Shape] | None:
    """Where the box of elements that a walk meets begins, and its extents; None where they may be none."""
    low, extents = list(start), [1] * len(start)
    for n, one in zip(loops, steps, strict=True):
        moved = [a for a, step in enumerate(one) if step and n > 1]
        if not moved:
            continue
        axis = moved[0]
        if len(moved) > 1 or abs(one[axis]) != 1 or extents[axis] != 1:
            return None
        extents[axis] = n
        low[axis] += min(one[axis], 0) * (n - 1)
    return None if 0 in loops else (tuple(low), tuple(extents))


def around(shape: Shape, low: Shape, extents: Shape) -> list[tuple[Shape, Shape]]:
    """The boxes that make up all of an array but a box, from the outermost axis on: where each begins, its extents."""
    found = []
    for axis, (n, at, extent) in enumerate(zip(shape, low, extents, strict=True)):
        for first, end in ((0, at), (at + extent, n)):
            rest = shape[axis + 1 :]
            if first < end and 0 not in rest:
                begins = (*low[:axis], first, *(0,) * len(rest))
                found.append((begins, (*extents[:axis], end - first, *rest)))
    return found
