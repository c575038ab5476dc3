"""One merge of axes, from which every schedule launches.

A schedule sorts the axes of its operands into groups (all of them; rows and columns; kept and reduced), outermost
group first. `Merged.of` puts the axes of a group in order where their order is free, merges neighbours that every
operand steps through evenly, and answers what dispatch asks: dense or not, how wide an access may be, whether 32 bits
hold every offset, the layout class, and the padded fields of a parameter struct.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.tensor import AXES, Shape, View, merge_axes, pad

if TYPE_CHECKING:
    from typing_extensions import Self


MOST_BLOCKS = 2**31 - 1  # along the first axis of a grid


def strides_of(view: View | None, rank: int) -> list[int]:
    """The strides of an operand, zeros for one that is absent."""
    return list(view.strides) if view is not None else [0] * rank


def grid(blocks: int) -> tuple[int, int, int]:
    """Blocks in rows of as many as an axis of the grid holds; at least one. The last row may have too many."""
    return min(max(blocks, 1), MOST_BLOCKS), max(1, -(-blocks // MOST_BLOCKS)), 1


@dataclass(frozen=True)
class Axes:
    """Merged axes, outermost first, with the strides of every operand along them (zeros for an absent one)."""

    shape: Shape
    strides: tuple[Shape, ...]

    @property
    def count(self) -> int:
        """Elements of one operand along these axes."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def params(self, shape: str = "shape", strides: str = "strides", rank: str = "rank") -> dict[str, Any]:
        """The fields of a parameter struct that takes up to 8 axes, under the names it has for them."""
        return {shape: pad(self.shape), strides: [pad(s) for s in self.strides], rank: self.rank}


@dataclass(frozen=True)
class Merged:
    """Operands over groups of merged axes. The first `full` operands have every group, the others all but the last."""

    groups: tuple[Axes, ...]
    views: tuple[View | None, ...]
    full: int

    @classmethod
    def of(
        cls, views: Sequence[View | None], groups: Sequence[Sequence[int]], *, outer: Sequence[View | None] = (),
        free: Collection[int] = (),
    ) -> Self | str:  # fmt: skip
        """Merge operands of one common shape; a string says why not.

        groups: the axes of each group. outer: operands with the axes of all groups but the last, in the groups' order.
        free: the groups whose elements may be visited in any order: their axes are taken from the widest stride of
        the first operand present to the narrowest, so that operands that are transposed alike come out dense.
        """
        first = next(v for v in views if v is not None)
        found, start = [], 0
        for number, axes in enumerate(groups):
            order = sorted(axes, key=lambda a: -abs(first.strides[a])) if number in free else list(axes)
            places = [start + list(axes).index(a) for a in order]  # of these axes in an outer operand
            strides = [(0,) * len(order) if v is None else tuple(v.strides[a] for a in order) for v in views]
            last = number == len(groups) - 1
            strides += [(0,) * len(order) if v is None or last else tuple(v.strides[a] for a in places) for v in outer]
            shape, kept = merge_axes(tuple(first.shape[a] for a in order), strides)
            if len(shape) > AXES:
                return f"more than {AXES} axes remain after merging"
            found.append(Axes(shape, kept))
            start += len(order)
        return cls(tuple(found), (*views, *outer), len(views))

    @property
    def present(self) -> list[int]:
        """The operands of every group that are given, by number."""
        return [i for i, view in enumerate(self.views[: self.full]) if view is not None]

    @property
    def dense(self) -> bool:
        """Every operand is row-major without gaps over all groups."""
        return all(self._view(i).dense for i in self.present)

    @property
    def run(self) -> bool:
        """Every operand passes through the last group as one run of memory."""
        last = self.groups[-1]
        return last.rank <= 1 and all(last.strides[i] in ((), (1,)) for i in self.present)

    @property
    def inner(self) -> bool:
        """Every operand steps along the last axis of the last group by 1, or stays where it is."""
        return all(self.groups[-1].strides[i][-1:] in ((), (1,), (0,)) for i in self.present)

    def layout(self, inner: bool) -> str:
        """The layout class for the SKU; `inner`: what the schedule takes for contiguous along the last group."""
        return "contiguous" if self.dense else "inner_contiguous" if inner else "strided"

    def access(self, width: int) -> bool:
        """Whether every operand that moves along the last axis may do so `width` elements at a time.

        Its pointer and all its other strides are multiples of such an access (of 16 bytes, where that is wider). The
        last axis is the caller's to look at: its strides must be 1, and its extent may leave a tail.
        """
        return all(self._access(i, width) for i in self.present)

    def vector(self, nbytes: int = 16) -> int:
        """The widest access up to `nbytes`, in elements of the first operand, that all of them may take along a run."""
        width = nbytes // self._view(self.present[0]).element.itemsize
        while width > 1 and not (self.run and self.access(width)):
            width //= 2
        return width

    @property
    def reach(self) -> int:
        """What an index must hold: the number of elements and every sum of (n - 1) |stride|."""
        spans = [
            sum((n - 1) * abs(s) for axes in self.groups for n, s in zip(axes.shape, axes.strides[i], strict=True))
            for i, view in enumerate(self.views)
            if view is not None
        ]
        return max(math.prod(axes.count for axes in self.groups), *spans)

    def _strides(self, i: int) -> Shape:
        return tuple(s for axes in self.groups for s in axes.strides[i])

    def _view(self, i: int) -> View:
        """Operand i over the merged axes of all groups."""
        view = self.views[i]
        assert view is not None
        return View(view.ptr, tuple(n for axes in self.groups for n in axes.shape), self._strides(i), view.element)

    def _access(self, i: int, width: int) -> bool:
        last = self.groups[-1].strides[i][-1:]
        if last == (0,):
            return True
        view, strides = self.views[i], self._strides(i)
        assert view is not None
        pitches = strides[:-1] if last else strides
        return view.ptr % min(view.element.itemsize * width, 16) == 0 and all(s % width == 0 for s in pitches)
