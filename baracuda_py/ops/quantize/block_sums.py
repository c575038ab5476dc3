"""Sums over every block of an array, in the workspace, and the launch that makes gradients of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import ElementKind, Kernel, Params, Problem, View
from ...core.tensor import dense_strides
from ...core.variant import LibraryStep, Step, aligned
from ...schedules.blocks import WORKSPACE, boxes, counted, held, place, split
from ...schedules.map import THREADS, chunked, lay_out, map_params
from ...schedules.reduce import reduce_launches


@dataclass(frozen=True)
class Sums:
    """The launches that make them, the workspace that those use, and whether reads are coalesced.

    view: the sums of all blocks, at byte 0 of the workspace.
    """

    steps: tuple[Step | LibraryStep, ...]
    used: int
    coalesced: bool
    view: View


def sums_of_blocks(
    p: Problem, dense: Mapping[str, View], shared: Mapping[str, View | None], element: ElementKind, width: int,
    values: Mapping[str, Any],
) -> Sums | str:  # fmt: skip
    """A sum of `element` for every block of a map of `dense` operands, which have an item each.

    shared: what a block has one of, with an item for each block; the place of an absent one is that of the first.
    width: elements of a chunk. values: the op's own constants.
    """
    desc = p.desc
    shape = desc.scale_shape
    sums = View(0, shape, dense_strides(shape), element)
    used, coalesced = aligned(math.prod(shape) * element.itemsize), True
    steps: list[Step | LibraryStep] = []
    first = next(view for view in shared.values() if view is not None)
    for box in boxes(desc.shape, desc.block):
        views = [split(view, box) for view in dense.values()]
        views += [held(first if view is None else view, box) for view in shared.values()]
        at: dict[str, Any] = {name: place(name, view, box.start) for name, view in dense.items()}
        at |= {n: "@null" if v is None else place(n, v, box.first) for n, v in shared.items()}
        at["y"] = place(WORKSPACE, sums, box.first)
        inner = tuple(range(1, len(views[0].shape), 2))
        found = reduce_launches(
            p.device, views, (counted(sums, box),), inner, mapped=True, values={**values, **at}, base=used, width=width
        )
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Sums(tuple(steps), used, coalesced, sums)


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
