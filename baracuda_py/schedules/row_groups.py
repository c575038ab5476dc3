"""Rows along one axis, a group of threads each: softmax and cross entropy, forward and backward.

A row of `cols` elements is cut into chunks of 16 bytes; chunk c belongs to thread c % group. Group, chunks a thread
and rows a group depend on `cols` and the element alone, so a row's bits depend on nothing else.
`kernels/softmax/row_groups.cuh` is the device side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.device import MOST_SMEM
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Axes, Kernel
from .rows import Rows

GROUPS = ((8, 1, 4), (32, 1, 4), (32, 4, 1), (128, 4, 1), (512, 4, 1))
"""(threads of a group, chunks a thread, rows a group takes at once), by growing row."""
ROWS_OF_A_WARP = ((8, 1, 4), (8, 4, 1), *GROUPS[2:])
"""The same for ops with much to do for a row itself, which a warp then does for four short rows at once."""

FLUSHED = (ElementKind.BF16,)
"""Elements of which `row_exp` is 0 where it is subnormal: the flushed ones of float are none of float16's."""
BLOCK = 128
LONG = 512
SLAB = LONG * 16
TILE_FIELDS = {"tile": "i64", "tiles": "i64", "axis_rows": "i64", "pitch": "i64", "tile_wide": "i32"}
_BLOCKS = 2048  # twice what a large device runs at once
_SECTOR = 32  # bytes of neighbouring rows that a tile has at least
WIDE, STRIDED, TILE = 0, 1, 2
"""How a row is read: 16 bytes at a time, element by element through its stride, from a tile in shared memory."""


def group_of(
    cols: int, element: ElementKind, most: int = 4, groups: Sequence[tuple[int, int, int]] = GROUPS
) -> tuple[int, int, int] | None:
    """The row of `groups` that holds `cols` elements in registers, at most `most` rows at once; None for a long row."""
    chunks = -(-cols * element.itemsize // 16)
    return next(((g, k, min(r, most)) for g, k, r in groups if chunks <= g * k), None)


def slabs(cols: int, element: ElementKind, smem: int, arrays: int = 1) -> int:
    """How many slabs (one chunk of every thread) of a long row stay in shared memory, two blocks a multiprocessor."""
    return min(-(-cols * element.itemsize // SLAB), (smem // 2 - 512) // (SLAB * arrays))


def row_sets(rows: int, group: tuple[int, int, int]) -> int:
    """How many times a group takes its rows in turn, so that a block's overhead is little beside them: a power of two.

    At most one row for each thread of a block, and no fewer than _BLOCKS blocks.
    """
    threads, _, at_once = group
    if threads > 32:
        return 1
    most = min(threads // at_once, rows // (BLOCK // threads * at_once * _BLOCKS))
    return 1 << (max(most, 1).bit_length() - 1)


class GroupRows(Rows):
    """Rows along one axis: of `full` operands, and one element a row of the others."""

    @property
    def step(self) -> tuple[int, ...]:
        """The stride of each full operand along its row."""
        held = zip(self.views[: self.full], self.inner_axes.strides, strict=False)
        return tuple(0 if view is None else s[0] if s else 1 for view, s in held)

    @property
    def aligned(self) -> bool:
        """Every full operand starts at a multiple of 16 bytes."""
        return all(v.ptr % 16 == 0 for v in self.views[: self.full] if v is not None)

    @property
    def wide(self) -> bool:
        """Every row is dense and starts at a multiple of 16 bytes."""
        first = self.views[self.present[0]]
        return self.run and self.access(16 // first.element.itemsize)  # type: ignore[union-attr]

    def wide_of(self, i: int, width: int) -> bool:
        """Whether the rows of operand i are dense, and `width` elements at multiples of `width` one access."""
        return self.inner_axes.strides[i][-1:] in ((), (1,)) and self._access(i, width)

    def params(self) -> dict[str, Any]:
        """The constant fields that `group_params` declares."""
        outer = self.outer.params("outer_shape", "outer", "outer_rank")
        return {"rows": self.rows, "cols": self.cols, **outer, "step": list(self.step)}


def group_params(full: int, per_row: int = 0) -> dict[str, str | int]:
    """Params fields for the operands of `group_rows`."""
    return {
        "rows": "i64", "cols": "i64", "outer_shape": "i64[8]", "outer": f"i64[{full + per_row}][8]",
        "step": f"i64[{max(full, 1)}]", "outer_rank": "i32",
        "long_group": LONG,
    }  # fmt: skip


def group_rows(full: Sequence[View | None], per_row: Sequence[View | None] = ()) -> GroupRows | str:
    """Merge the batch axes of operands whose last axis is the row and of operands with one element a row."""
    rank = len(next(v.shape for v in full if v is not None))
    return GroupRows.of(full, (range(rank - 1), (rank - 1,)), outer=per_row)


def group_kernels(
    template: str, params: Params, axes: Any, most: int = 4, threads: int = 1024, name: str = "rows",
    groups: Sequence[tuple[int, int, int]] = GROUPS,
) -> tuple[Kernel, ...]:  # fmt: skip
    """One kernel per row of `groups`; `template` holds {GROUP} for its three numbers.

    threads: how many a multiprocessor should hold at least.
    """
    return tuple(
        Kernel(
            f"{name}_{g}x{k}", template.replace("{GROUP}", f"{g}, {k}, {min(r, most)}"), params, axes,
            threads=max(g, BLOCK), min_blocks=max(threads // max(g, BLOCK), 1),
        )
        for g, k, r in groups
    )  # fmt: skip


def tile_kernels(template: str, params: Params, inputs: int, most: int, threads: int) -> tuple[Kernel, ...]:
    """`group_kernels` of tiles, without those whose shortest rows, of `inputs` operands, fill more than a block has."""
    kernels = group_kernels(template, params, {}, most, threads, name="tile")
    shorter = (0, *(g * k for g, k, _ in GROUPS))  # chunks that the group before holds

    def axes(chunks: int) -> Callable[[ElementKind], Axes]:
        def of(element: ElementKind) -> Axes:
            return {"MODE": (TILE,) if _tile_bytes(1, chunks + 1, element, inputs) <= MOST_SMEM else ()}

        return of

    return tuple(replace(kernel, axes=axes(chunks)) for kernel, chunks in zip(kernels, shorter, strict=False))


def launch(rows: int, group: tuple[int, int, int]) -> tuple[str, int, int]:
    """The name of a group's kernel, its block, and the number of blocks."""
    g, k, r = group
    block = max(g, BLOCK)
    return f"rows_{g}x{k}", block, -(-rows // (block // g * r))


@dataclass(frozen=True)
class Tile:
    """Neighbouring rows that a block brings to shared memory together, because the row's own axis is strided."""

    size: int
    count: int
    axis_rows: int
    pitch: int
    smem: int
    blocks: int
    wide: bool

    def params(self) -> dict[str, Any]:
        """The constant fields tile (rows a block), tiles (of one axis), axis_rows, pitch (elements), tile_wide."""
        return {
            "tile": self.size, "tiles": self.count, "axis_rows": self.axis_rows, "pitch": self.pitch,
            "tile_wide": int(self.wide),
        }  # fmt: skip


def _tile_bytes(sectors: int, chunks: int, element: ElementKind, inputs: int) -> int:
    """Shared memory of a tile of `sectors` of neighbours; an odd number of chunks spreads its rows over the banks."""
    return sectors * _SECTOR // element.itemsize * (chunks | 1) * 16 * inputs


def tile_of(rows: GroupRows, element: ElementKind, smem: int, inputs: int) -> Tile | None:
    """A tile for rows whose neighbours along the last batch axis are adjacent in memory; None where there is none."""
    neighbours = rows.outer_shape[-1] if rows.outer_shape else 0
    if neighbours < 8 or abs(rows.step[0]) <= 1 or any(o[-1] != 1 for o in rows.outer.strides):
        return None
    width = 16 // element.itemsize
    chunks = -(-rows.cols // width)
    pitch = (chunks | 1) * width
    for sectors in (2, 1):
        size = sectors * _SECTOR // element.itemsize
        needed = _tile_bytes(sectors, chunks, element, inputs)
        if needed <= smem // sectors:
            count = -(-neighbours // size)
            pitches = (*rows.step, *(s for o in rows.outer.strides for s in o[:-1]))
            wide = rows.aligned and neighbours % width == 0 and all(s % width == 0 for s in pitches)
            return Tile(size, count, neighbours, pitch, needed, count * (rows.rows // neighbours), wide)
    return None


def row_axis_last(view: View | None, axis: int) -> View | None:
    """The view with `axis` moved to the end."""
    if view is None:
        return None
    order = (*range(axis), *range(axis + 1, len(view.shape)), axis)
    return View(view.ptr, tuple(view.shape[i] for i in order), tuple(view.strides[i] for i in order), view.element)
