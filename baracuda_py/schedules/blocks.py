"""Blocks: a map over arrays of which every block shares a number or two, as quantised arrays share scales.

A block has `block[i]` elements along axis i. An axis is seen as two, blocks and the elements of one, and what a block
has one of stands still along the latter: strides alone then say where a scale is, whatever its scope. Where blocks do
not divide an axis its last one is shorter, and the array falls into boxes of equal blocks, each a launch of its own.

Elements of 4 bits lie two a byte along the last axis. Where they are read in wide accesses their strides count halves
of bytes; else a thread has a byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..core.element import ElementKind
from ..core.tensor import AXES, Shape, View, dense_strides
from ..core.variant import Geometry, LibraryStep, Step
from .geometry import Merged
from .map import THREADS, chunked, lay_out

_ONE = 2  # elements of a thread that takes them one by one, and bytes of one that takes pairs
SINGLE = {"single_elements": _ONE}
"""Params fields of kernels that `BlockMap` launches."""


@dataclass(frozen=True)
class Box:
    """A part of an array in whole blocks: its first element and block, its extents, and those of a block."""

    start: Shape
    first: Shape
    shape: Shape
    block: Shape


def boxes(shape: Shape, block: Shape) -> Iterator[Box]:
    """The array in boxes; one where the blocks divide it."""

    def parts(extent: int, size: int) -> list[tuple[int, int, int, int]]:
        rest = extent % size
        if extent <= size:
            return [(0, 0, extent, max(extent, 1))]
        whole = [(0, 0, extent - rest, size)]
        return [*whole, (extent - rest, extent // size, rest, rest)] if rest else whole

    for chosen in itertools.product(*map(parts, shape, block)):
        start, first, extents, sizes = zip(*chosen, strict=True) if chosen else ((), (), (), ())
        yield Box(start, first, extents, sizes)


def split(view: View, box: Box) -> View:
    """Elements of a box along (blocks, elements of a block) of every axis; without elements there is one block."""
    pairs = [(n // size, size) if n else (1, 0) for n, size in zip(box.shape, box.block, strict=True)]
    strides = [s for stride, size in zip(view.strides, box.block, strict=True) for s in (stride * size, stride)]
    at = view.ptr + view.element.itemsize * offset(view, box.start)
    return View(at, tuple(n for pair in pairs for n in pair), tuple(strides), view.element)


def counted(view: View, box: Box) -> View:
    """Of an array with an item a block, those of a box."""
    shape = tuple(max(1, n // size) for n, size in zip(box.shape, box.block, strict=True))
    return View(view.ptr + view.element.itemsize * offset(view, box.first), shape, view.strides, view.element)


def held(view: View, box: Box) -> View:
    """What each block has one of, as `split` has the elements: `view` has an item a block along every axis."""
    shape = split(View(0, box.shape, (0,) * len(box.shape), view.element), box).shape
    strides = tuple(s for stride in view.strides for s in (stride, 0))
    return View(view.ptr + view.element.itemsize * offset(view, box.first), shape, strides, view.element)


def offset(view: View, start: Shape) -> int:
    """The offset of an element."""
    return sum(a * s for a, s in zip(start, view.strides, strict=True))


def place(name: str, view: View, start: Shape, base: int = 0) -> Any:
    """Where a launch finds an operand, or from byte `base` on what stands in the workspace: at an element of it."""
    at = base + view.element.itemsize * offset(view, start)
    return (name, at) if at or name == WORKSPACE else name


WORKSPACE = "@workspace"
Instance: TypeAlias = "tuple[str, Mapping[str, Any]]"
Kernels: TypeAlias = Callable[[str], Instance]
"""A layout (flat, groups, columns, strided, one, bytes) → the kernel that serves it."""


def _plain(layout: str) -> Instance:
    return layout, {}


@dataclass(frozen=True)
class BlockMap:
    """Operands of a map: `dense` has an element each (outputs first), `shared` one for each block, or is absent.

    lead: the dense operand of which a thread takes `chunk` bytes. packed: the one whose elements have 4 bits, or None.
    numbers: whether the kernels read the row-major numbers of elements. split_columns: whether what stands still along
    a chunk has kernels of its own; chunks are half as long where it moves.
    """

    shape: Shape
    block: Shape
    dense: Mapping[str, View]
    shared: Mapping[str, View | None]
    lead: str
    chunk: int
    packed: str | None = None
    numbers: bool = False
    split_columns: bool = False
    kept: str | None = None  # the shared operand that is at byte 0 of the workspace, if one is
    beside: str | None = None  # a further operand of an item each, in the place of the numbers
    each: Mapping[str, int] = field(default_factory=dict)  # chunks of a thread by wide layout, where it is not one

    def launches(self, values: Mapping[str, Any], kernel: Kernels = _plain) -> Geometry | str:
        """A launch for each box. values: the op's own constants; kernel: the kernel of a layout, and its axes."""
        steps: list[Step | LibraryStep] = []
        layouts: set[str] = set()
        for box in boxes(self.shape, self.block):
            found = self._wide(box, values, kernel) or self._single(box, values, kernel)
            if isinstance(found, str):
                return found
            steps += found.steps
            layouts.add(found.layout)
        return Geometry(tuple(steps), layout=max(layouts, key=_LAYOUTS.index))

    @property
    def width(self) -> int:
        """Elements of a wide chunk."""
        return self.chunk // self.dense[self.lead].element.itemsize

    def _shared(self, box: Box) -> list[View | None]:
        return [None if view is None else held(view, box) for view in self.shared.values()]

    def _pointers(self, box: Box) -> dict[str, Any]:
        start = (*box.start[:-1], box.start[-1] // 2) if self.packed else box.start
        made = {n: place(n, v, start if n == self.packed else box.start) for n, v in self.dense.items()}
        for name, view in self.shared.items():
            home = WORKSPACE if name == self.kept else name
            made[name] = "@null" if view is None else place(home, view, box.first)
        return made

    def _number(self, box: Box) -> View | None:
        """An operand without memory, whose offsets number the elements of the array, or what is in its place."""
        if self.beside is not None:
            return split(self.dense[self.beside], box)
        return split(View(0, self.shape, dense_strides(self.shape), ElementKind.F32), box) if self.numbers else None

    def _base(self, box: Box) -> int:
        return sum(a * s for a, s in zip(box.start, dense_strides(self.shape), strict=True))

    def _wide(self, box: Box, values: Mapping[str, Any], kernel: Kernels) -> Geometry | None:
        """Chunks of several elements, or None where they do not lie so."""
        elements = []
        for name, view in self.dense.items():
            if name == self.beside:
                continue
            if name == self.packed:
                if box.shape[-1] % 2 or (view.shape[-1] > 1 and view.strides[-1] != 1):
                    return None
                view = View(view.ptr, box.shape, (*(2 * s for s in view.strides[:-1]), 1), view.element)
                start = split(View(0, box.shape, view.strides, ElementKind.U8), box)
                elements.append(View(view.ptr + start.ptr // 2, start.shape, start.strides, view.element))
            else:
                elements.append(split(view, box))
        shared = self._shared(box)
        number = self._number(box)
        plain = lay_out((*elements, number))
        alone = all(v is None or all(s == 0 or n == 1 for n, s in zip(v.shape, v.strides, strict=True)) for v in shared)
        constants = {**values, **self._pointers(box), **_STEPS, "base": self._base(box)}
        if alone and not isinstance(plain, str) and plain.dense and plain.access(self.width):
            return self._launch(kernel("flat"), plain, self.width, 1, constants)
        found = lay_out((*elements, *shared, number))
        if isinstance(found, str) or not found.groups[0].shape:
            return None
        still = all(s[-1] == 0 for s in found.groups[0].strides[len(elements) : len(elements) + len(shared)])
        width = self.width if still or not self.split_columns else self.width // 2
        if not (found.inner and found.groups[0].shape[-1] % width == 0 and found.access(width)):
            return None
        name = "strided" if not self.split_columns else "groups" if still else "columns"
        return self._launch(kernel(name), found, width, self.each.get(name, 1), constants)

    def _single(self, box: Box, values: Mapping[str, Any], kernel: Kernels) -> Geometry | str:
        """Elements one by one, of any strides; of packed ones a thread has the two of a byte."""
        constants = {**values, **self._pointers(box), **_STEPS, "base": self._base(box)}
        if self.packed is None:
            dense = [split(v, box) for n, v in self.dense.items() if n != self.beside]
            views = [*dense, *self._shared(box), self._number(box)]
            found = lay_out(views)
            return found if isinstance(found, str) else self._launch(kernel("one"), found, 1, _ONE, constants)
        return self._bytes(box, constants, kernel)

    def _bytes(self, box: Box, constants: dict[str, Any], kernel: Kernels) -> Geometry | str:
        """The last axis in bytes. A block has an even number of them, all, or one; then a byte has those of two."""
        columns, size = box.shape[-1], box.block[-1]
        apart = size == 1 and columns > 1
        halves = Box(
            (*box.start[:-1], box.start[-1] // 2), (*box.first[:-1], box.first[-1] // 2 if apart else box.first[-1]),
            (*box.shape[:-1], -(-columns // 2)), (*box.block[:-1], 1 if apart else -(-size // 2)),
        )  # fmt: skip

        def doubled(view: View, times: int) -> View:
            return View(view.ptr, view.shape, (*view.strides[:-1], times * view.strides[-1]), view.element)

        views: list[View | None] = []
        for name, view in self.dense.items():
            views.append(split(view if name == self.packed else doubled(view, 2), halves))
            if name != self.packed:
                constants["step"] = view.strides[-1]
        for name, one in self.shared.items():
            views.append(None if one is None else held(doubled(one, 2) if apart else one, halves))
            constants[f"{name}_step"] = one.strides[-1] if apart and one is not None else 0
        numbers = View(0, self.shape, dense_strides(self.shape), ElementKind.F32)
        views.append(split(doubled(numbers, 2), halves) if self.numbers else None)
        byte = View(0, halves.shape, (*(0 for _ in halves.shape[1:]), 1), ElementKind.U8)
        views.append(split(byte, Box((0,) * len(halves.shape), halves.first, halves.shape, halves.block)))
        found = lay_out(views)
        constants["columns"] = columns
        return found if isinstance(found, str) else self._launch(kernel("bytes"), found, 1, _ONE, constants)

    def _launch(self, kernel: Instance, found: Merged, width: int, each: int, constants: Mapping[str, Any]) -> Geometry:
        params = {**constants, **chunked(found, width)}
        params["strides"] = [*params["strides"], *[[0] * AXES] * (self.places - len(found.views))]
        grid = max(1, -(-params["chunks"] // (THREADS * each)))
        name, axes = kernel
        return Geometry((Step(name, (grid, 1, 1), params, axes, THREADS),), layout=found.layout(found.inner))

    @property
    def places(self) -> int:
        """Operands that a kernel counts: the dense and shared ones, the element's number and the byte's."""
        return len(self.dense) - (self.beside is not None) + len(self.shared) + 2


_STEPS = {"step": 0, "scales_step": 0, "zero_points_step": 0, "columns": 0}
_LAYOUTS = ("contiguous", "inner_contiguous", "strided")


def block_of(shape: Shape, block: Sequence[int]) -> Shape:
    """Extents of blocks within an array; 0 stands for all of an axis."""
    return tuple(min(size or max(extent, 1), max(extent, 1)) for extent, size in zip(shape, block, strict=True))


def blocks_of(shape: Shape, block: Shape) -> Shape:
    """How many blocks there are along every axis, at least one."""
    return tuple(max(1, -(-extent // size)) for extent, size in zip(shape, block, strict=True))


def block_for(shape: Shape, blocks: Shape) -> Shape | None:
    """The extents of blocks that divide an array into `blocks` of them; None where there are none."""
    lead = len(shape) - len(blocks)
    if lead < 0:
        return None
    counts = (*(1 for _ in range(lead)), *blocks)
    if any(count == 0 or (count > 1 and extent % count) for extent, count in zip(shape, counts, strict=True)):
        return None
    return tuple(0 if count == 1 else extent // count for extent, count in zip(shape, counts, strict=True))
