"""Scan: prefixes along one axis of any position. `kernels/include/baracuda/scan_axis.cuh` is the device side.

* *rows*: a group of lanes a row, chunk by chunk; neighbouring groups have neighbouring rows;
* *block* (few rows, or rows of several segments): a block a row, whose warps share its tiles;
* *neighbours* (the axis is not innermost): a tile of a strip of neighbouring rows a block, read and written along the
  kept axis, once each: what is before a tile comes from the blocks before it, whose flags are cleared by a launch.

Elsewhere a row of more segments than a block scans takes three launches: the segments' totals, what is before each, and
the scan. A block reads its row twice, the second time from a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Axes, Blocks, Geometry, Kernel, Problem, Step, aligned
from .geometry import Merged, grid
from .reduce import REDUCE
from .row_groups import row_axis_last
from .rows import Rows

THREADS = 256
TILES = 32  # of a segment
BLOCK_SEGMENTS = 4  # of a row that a block scans: 64 KiB of elements
GROUP = 32  # segments of a group, and groups of a span
LEVELS = 5  # of what blocks leave for those after them: segments, groups, spans, tiles, what is before tiles
STATE = 32  # bytes a state may have
CARRIES = 1024  # threads that scan the totals of a row's segments
_SECTOR = 32  # bytes of neighbours worth turning a tile for
_TURNED = 16  # lanes a row from which on tiles are turned: shorter rows lie close enough in a warp
_SHARED = 4  # tiles of a row from which on a block scans it, where rows are few
_WARPS = 16  # of a multiprocessor that keep its memory busy: fewer rows than these are few

_CONSTANTS = {
    "scan_threads": THREADS, "scan_tiles": TILES, "scan_block_segments": BLOCK_SEGMENTS, "scan_block": CARRIES,
    "max_scan_state": STATE, **REDUCE,
}  # fmt: skip
INPUTS, OUTPUTS, BEGINS, ENDS = 4, 2, 3, 2
"""Operands that a scan has at most: inputs, outputs, and what a row has one of, before its first element and after."""


@dataclass(frozen=True)
class ScanOperands:
    """The operands by name, None where a kind has none of that number; numbers are those of the device side's kinds."""

    inputs: Sequence[str | None]
    outputs: Sequence[str | None]
    begins: Sequence[str | None] = ()
    ends: Sequence[str | None] = ()

    def names(self) -> dict[str, str | None]:
        """The name behind each pointer of the parameter struct."""
        groups = (("in", INPUTS, self.inputs), ("out", OUTPUTS, self.outputs), ("begin", BEGINS, self.begins),
                  ("end", ENDS, self.ends))  # fmt: skip
        return {f"{group}{i}": given[i] if i < len(given) else None for group, n, given in groups for i in range(n)}


def scan_params(name: str, **more: str | int) -> Params:
    """The parameter struct of the scan kernels; `more` are fields that a page adds."""
    operands = ScanOperands((), ()).names()
    return Params(
        name, **dict.fromkeys(operands, "ptr"), carries="workspace", flags="workspace", segments="i64", pieces="i64",
        units="i64", tiles="i64", marks="i64", states_at=f"i64[{LEVELS}]", flags_at=f"i64[{LEVELS}]", rows="i64",
        cols="i64", outer_shape="i64[8]", outer=f"i64[{len(operands)}][8]", step=f"i64[{INPUTS + OUTPUTS}]",
        outer_rank="i32", lanes="i32", reverse="i32", exclusive="i32", shifted="i32", **_CONSTANTS, **more,
    )  # fmt: skip


def scan_kernels(
    kind: str, params: Params, *, prefix: str = "",
    elements: tuple[ElementKind, ...] = tuple(ElementKind), wide: bool = True, blocks: Blocks = 0,
) -> tuple[Kernel, ...]:  # fmt: skip
    """The kernels of a scan.

    kind: the C++ type of the functor. prefix: stands before the names. elements: those
    that need these kernels, of the row's. wide: whether rows may be read 16 bytes at a time. blocks: the min_blocks of
    *neighbours*, some of which read while others wait.
    """

    def kernel(name: str, template: str, threads: int = THREADS, least: Blocks = 0, **axes: tuple[bool, ...]) -> Kernel:
        def of(element: ElementKind) -> Axes:
            return axes if element in elements else {"NONE": ()}

        name = f"{prefix}{name}"
        return Kernel(name, template, params, of, threads, least)

    both, loads = (False, True), (True, False) if wide else (False,)
    return (
        kernel("rows", f"scan_rows<{kind}, {{WIDE}}, {{TOTALS}}>", WIDE=loads, TOTALS=both),
        kernel("block", f"scan_block_rows<{kind}, {{WIDE}}>", WIDE=loads),
        kernel("neighbours", f"scan_neighbours<{kind}, {{WIDE}}>", least=blocks, WIDE=(True, False)),
        kernel("clear", "scan_clear"),
        kernel("carries", f"scan_carries<{kind}>", CARRIES),
    )


def width_of(element: ElementKind) -> int:
    """Elements of a chunk: 16 bytes, at most 8."""
    return min(16 // element.itemsize, 8)


def scan_geometry(
    p: Problem, operands: ScanOperands, axis: int, *, reverse: bool, exclusive: bool = False, shifted: bool = False,
    views: Mapping[str, View] = MappingProxyType({}), places: Mapping[str, Any] = MappingProxyType({}),
    prefix: str = "", base: int = 0, wide: bool = True, chunk: ElementKind | None = None,
) -> Geometry | str:  # fmt: skip
    """The launches that scan the operands' rows along `axis`; the first input fixes the chunk, or the element `chunk`.

    views: of operands that are seen otherwise than they were given; places: where their memory is, as a step says it.
    prefix: stands before the kernels' names. base: where the launches' own part of the workspace begins.
    wide: as in `scan_kernels`.
    """
    names = operands.names()
    given = {**p.views, **views}
    found = {pointer: None if name is None else given.get(name) for pointer, name in names.items()}
    seen = {pointer: _at_least_one_axis(view, pointer) for pointer, view in found.items()}
    full = [row_axis_last(v, axis) for pointer, v in seen.items() if pointer[:2] in ("in", "ou")]
    single = [v for pointer, v in seen.items() if pointer[:2] in ("be", "en")]
    first = full[0]
    assert first is not None
    rank = len(first.shape)
    rows = Rows.of(full, (range(rank - 1), (rank - 1,)), outer=single, free=(0,))
    if isinstance(rows, str):
        return rows
    element = chunk or first.element
    width, count = width_of(element), rows.cols
    chunks = max(1, -(-count // width))
    lanes = min(1 << (chunks - 1).bit_length(), 32)
    tiles = -(-chunks // lanes)
    segments = -(-tiles // TILES)
    constants: dict[str, Any] = {
        **{pointer: places.get(str(name), name) if name in given else "@null" for pointer, name in names.items()},
        **rows.outer.params("outer_shape", "outer", "outer_rank"), "rows": rows.rows, "cols": count,
        "step": [s[0] if s else 1 for s in rows.inner_axes.strides[: len(full)]], "carries": base, "segments": segments,
        "flags": base, "pieces": 1, "units": 1, "tiles": tiles, "marks": 0, "states_at": [0] * LEVELS,
        "flags_at": [0] * LEVELS, "lanes": lanes, "reverse": reverse, "exclusive": exclusive, "shifted": shifted,
    }  # fmt: skip
    dense = all(v is None or v.dense for v in seen.values())
    if _beside(rows, element, lanes):
        layout = "contiguous" if dense else "inner_contiguous"
        return _neighbours(rows, element, lanes, constants, prefix, base, layout)
    kernel, axes, blocks, inner = _design(
        rows, element, lanes, tiles, segments, wide and (rows.cols % width == 0 or not reverse), p.device.sms
    )
    layout = "contiguous" if dense else "inner_contiguous" if inner else "strided"
    if kernel == "block":
        return Geometry((Step(f"{prefix}{kernel}", grid(blocks), constants, axes, THREADS),), base, layout)
    last = Step(f"{prefix}{kernel}", grid(blocks), constants, {**axes, "TOTALS": False}, THREADS)
    if segments == 1:
        return Geometry((last,), base, layout)
    totals = Step(f"{prefix}{kernel}", grid(blocks), constants, {**axes, "TOTALS": True}, THREADS)
    carries = Step(f"{prefix}carries", grid(rows.rows), constants, {}, CARRIES)
    return Geometry((totals, carries, last), base + aligned(rows.rows * segments * STATE), layout)


def _design(
    rows: Rows, element: ElementKind, lanes: int, tiles: int, segments: int, wide: bool, sms: int
) -> tuple[str, dict[str, Any], int, bool]:
    """The kernel, its axes without TOTALS, its blocks, and whether rows are read as they lie in memory.

    wide: whether rows may be read 16 bytes at a time where they lie so.
    """
    width = width_of(element)
    inner = rows.inner
    loads = {"WIDE": wide and inner and rows.access(width)}
    few = tiles >= _SHARED and rows.rows < _WARPS * sms
    if lanes == 32 and segments <= BLOCK_SEGMENTS and (segments > 1 or few):
        return "block", loads, rows.rows, inner
    return "rows", loads, -(-rows.rows * segments // (THREADS // lanes)), inner


def _beside(rows: Rows, element: ElementKind, lanes: int) -> bool:
    """Whether neighbouring rows lie side by side, and are long enough to be read so."""
    kept = rows.outer
    return (
        lanes >= _TURNED and kept.rank > 0 and kept.strides[0][-1] == 1 and rows.inner_axes.strides[0] != (1,)
        and kept.shape[-1] * element.itemsize >= _SECTOR
    )  # fmt: skip


def _neighbours(
    rows: Rows, element: ElementKind, lanes: int, constants: dict[str, Any], prefix: str, base: int, layout: str
) -> Geometry:
    """A block a tile of a strip of neighbouring rows; where a row has several tiles, flags are cleared before."""
    kept, columns = rows.outer, min(4, 16 // element.itemsize)  # of a thread
    across, tiles = THREADS // lanes * columns, constants["tiles"]
    pieces = -(-kept.shape[-1] // across)
    units = rows.rows // kept.shape[-1] * pieces
    strides = [s for s, v in zip(kept.strides, rows.views[: rows.full], strict=False) if v is not None]
    wide = (
        kept.shape[-1] % columns == 0 and all(s[-1] == 1 for s in strides)
        and Merged((rows.inner_axes, kept), rows.views[: rows.full], rows.full).access(columns)
    )  # fmt: skip
    found = {**constants, "pieces": pieces, "units": units}
    if tiles == 1:
        return Geometry((Step(f"{prefix}neighbours", grid(units), found, {"WIDE": wide}, THREADS),), base, layout)
    states_at, flags_at = _left(units, constants["segments"], tiles)
    *states_at, states = (at * across for at in states_at)
    *flags_at, flags = flags_at
    place = base + aligned(states * STATE)
    found |= {"marks": flags, "flags": place, "states_at": states_at, "flags_at": flags_at}
    scan = Step(f"{prefix}neighbours", grid(units * tiles), found, {"WIDE": wide}, THREADS)
    clear = Step(f"{prefix}clear", grid(-(-flags // THREADS)), found, {}, THREADS)
    return Geometry((clear, scan), place + aligned(4 * flags), layout)


def _left(units: int, segments: int, tiles: int) -> tuple[list[int], list[int]]:
    """Where each level's states and flags begin, and where the last one's end; tiles and what is before share flags."""
    counts = [units * n for n in (segments, -(-segments // GROUP), -(-segments // GROUP**2), tiles, tiles)]
    states = list(accumulate(counts, initial=0))
    return states, [*states[:4], states[3], states[4]]


def _at_least_one_axis(view: View | None, pointer: str) -> View | None:
    """A number as a row of one element."""
    if view is None or view.shape or pointer[:2] in ("be", "en"):
        return view
    return View(view.ptr, (1,), (1,), view.element)
