"""Sums over every block of an array, in the workspace, and the launch that makes gradients of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import ElementKind, Kernel, Params, Problem, View
from ...core.tensor import Shape, dense_strides
from ...core.variant import Step, aligned
from ...schedules.blocks import WORKSPACE, Box, boxes, counted, held, place, split
from ...schedules.map import THREADS, chunked, lay_out, map_params
from ...schedules.reduce import reduce_launches
from .affine import BlockFields


@dataclass(frozen=True)
class Sums:
    """The launches that make them, the workspace that those use, and whether reads are coalesced.

    view: the sums of all blocks, at byte 0 of the workspace.
    """

    steps: tuple[Step, ...]
    used: int
    coalesced: bool
    view: View


def sums_of_blocks(
    p: Problem, dense: Mapping[str, View], shared: Mapping[str, View | None], element: ElementKind, width: int,
    values: Mapping[str, Any], packed: str = "", prefix: str = "",
) -> Sums | str:  # fmt: skip
    """A sum of `element` for every block of a map of `dense` operands, which have an item each.

    shared: what a block has one of, with an item for each block, or None. width: elements of a chunk. values: the op's
    own constants. packed: the dense operand of bytes whose strides count halves of them. prefix: of kernels' names.
    """
    desc = p.desc
    shape = desc.scale_shape
    sums = View(0, shape, dense_strides(shape), element)
    used, coalesced = aligned(math.prod(shape) * element.itemsize), True
    steps: list[Step] = []
    for box in boxes(desc.shape, desc.block):
        views = [_split(view, box, 2 if name == packed else 1) for name, view in dense.items()]
        views += [_still(view, box) for view in shared.values()]
        at: dict[str, Any] = {n: _place(n, v, box.start, 2 if n == packed else 1) for n, v in dense.items()}
        at |= {n: "@null" if v is None else place(n, v, box.first) for n, v in shared.items()}
        at["y"] = place(WORKSPACE, sums, box.first)
        inner = tuple(range(1, len(views[0].shape), 2))
        found = reduce_launches(
            p.device, views, (counted(sums, box),), inner, mapped=True, values={**values, **at}, prefix=prefix,
            base=used, width=width,
        )  # fmt: skip
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Sums(tuple(steps), used, coalesced, sums)


def _still(view: View | None, box: Box) -> View:
    """Where what a block shares is: in bytes, so that dense operands alone say along which axis arrays are read."""
    if view is None:
        view = View(0, (1,) * len(box.shape), (0,) * len(box.shape), ElementKind.U8)
    found = held(view, box)
    return View(found.ptr, found.shape, found.strides, ElementKind.U8)


def _split(view: View, box: Box, parts: int) -> View:
    """As `split`, of a view whose strides count parts of an element."""
    found = split(view, box)
    return View(view.ptr + (found.ptr - view.ptr) // parts, found.shape, found.strides, found.element)


def _place(name: str, view: View, start: Shape, parts: int) -> Any:
    """Where an operand begins; its strides count parts of an element."""
    found = place(name, view, start)
    return (name, found[1] // parts) if isinstance(found, tuple) and found[1] >= parts else name


def over_blocks_sums(desc: BlockFields, terms: Any) -> Any:
    """The sums of blocks, in NumPy."""
    sums = np.broadcast_to(terms, desc.shape)
    for axis, (count, size) in enumerate(zip(desc.scale_shape, desc.block, strict=True)):
        empty = (*sums.shape[:axis], 1, *sums.shape[axis + 1 :])
        starts = np.arange(count) * size
        sums = np.add.reduceat(sums, starts, axis) if desc.shape[axis] else np.zeros(empty, sums.dtype)
    return sums


def finish_kernel(template: str, params: Params, source: str) -> Kernel:
    """The kernel that `finish` launches."""
    return Kernel("finish", template, params, threads=THREADS, source=source)


def finish_params(name: str, operands: int, **fields: str) -> Params:
    """Its parameters: the sums, the op's own, and where the sums and `operands` arrays of an item a block are."""
    return Params(name, sums="workspace", **fields, **map_params(1 + operands))


def finish(sums: Sums, views: Sequence[View | None], values: Mapping[str, Any]) -> Step | str:
    """A thread for each block. views: arrays with an item for each block; absent ones stay in place."""
    found = lay_out((sums.view, *views))
    if isinstance(found, str):
        return found
    params = {**values, "sums": 0, **chunked(found, 1)}
    return Step("finish", (max(1, -(-params["chunks"] // THREADS)), 1, 1), params, {}, THREADS)
