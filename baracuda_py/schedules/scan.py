"""Scan: prefixes along one axis of any position. `kernels/include/baracuda/scan_axis.cuh` is the device side.

* *rows*: a group of lanes a row, chunk by chunk; neighbouring groups have neighbouring rows;
* *neighbours* (the axis is not innermost): 16 neighbouring rows a block, turned in shared memory, so that reads and
  writes run along the kept axis.

A row of several segments takes three launches: the segments' totals, what is before each, and the scan. It is read
twice: its bits must not depend on the timing of blocks that wait for each other.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Spills, Step, aligned
from .geometry import grid
from .row_groups import row_axis_last
from .rows import Rows, row_params

THREADS = 256
TILES = 32  # of a segment
COLUMNS = 16  # neighbouring rows of a block
STATE = 16  # bytes a state may have
CARRIES = 1024  # threads that scan the totals of a row's segments
_SECTOR = 32  # bytes of neighbours worth turning a tile for
_TURNED = 16  # lanes a row from which on tiles are turned: shorter rows lie close enough in a warp


def scan_params(name: str) -> Params:
    """The parameter struct of the scan kernels."""
    return Params(
        name, x="ptr", y="ptr", indices="ptr", carries="workspace", segments="i64", pieces="i64", lanes="i32",
        reverse="i32", exclusive="i32", **row_params(3),
    )  # fmt: skip


def scan_kernels(kind: str, params: Params, spills: Spills = MappingProxyType({})) -> tuple[Kernel, ...]:
    """The kernels of a scan; `kind` is the C++ type of the functor; `spills` are those that do, by name."""
    both = {"TOTALS": (False, True)}
    return (
        Kernel(
            "rows", f"scan_rows<{kind}, {{T}}, {{WIDE}}, {{TOTALS}}>", params, {"WIDE": (True, False), **both},
            threads=THREADS, spills=spills.get("rows", False),
        ),
        Kernel(
            "neighbours", f"scan_neighbours<{kind}, {{T}}, {{TOTALS}}>", params, both, threads=THREADS,
            spills=spills.get("neighbours", False),
        ),
        Kernel("carries", f"scan_carries<{kind}>", params, threads=CARRIES),
    )  # fmt: skip


def width_of(element: ElementKind) -> int:
    """Elements of a chunk: 16 bytes, at most 8."""
    return min(16 // element.itemsize, 8)


def scan_geometry(
    p: Problem, x: View, y: View, indices: View | None, axis: int, *, reverse: bool, exclusive: bool
) -> Geometry | str:
    """The launches that scan x along `axis` into y (and the places into `indices`)."""
    views = tuple(row_axis_last(v, axis) for v in (x, y, indices))
    rank = len(x.shape)
    rows = Rows.of(views, (range(rank - 1), (rank - 1,)), free=(0,))
    if isinstance(rows, str):
        return rows
    width, count = width_of(x.element), rows.cols
    chunks = max(1, -(-count // width))
    lanes = min(1 << (chunks - 1).bit_length(), 32)
    segments = max(1, -(-count // (TILES * lanes * width)))
    constants: dict[str, Any] = {
        **rows.params(), "carries": 0, "segments": segments, "pieces": 1, "lanes": lanes, "reverse": reverse,
        "exclusive": exclusive, "indices": "indices" if "indices" in p.views else "@null",
    }  # fmt: skip
    kept = rows.outer
    if (
        lanes >= _TURNED and kept.rank and kept.strides[0][-1] == 1 and rows.inner_axes.strides[0] != (1,)
        and kept.shape[-1] * x.element.itemsize >= _SECTOR
    ):  # fmt: skip
        constants["pieces"] = -(-kept.shape[-1] // COLUMNS)
        blocks = rows.rows // kept.shape[-1] * constants["pieces"] * segments
        kernel, axes, inner = "neighbours", {}, True
    else:
        blocks = -(-rows.rows * segments // (THREADS // lanes))
        inner = rows.run
        wide = inner and rows.access(width) and (count % width == 0 or not reverse)
        kernel, axes = "rows", {"WIDE": wide}
    steps = [Step(kernel, grid(blocks), constants, {**axes, "TOTALS": False}, THREADS)]
    if segments > 1:
        totals = Step(kernel, grid(blocks), constants, {**axes, "TOTALS": True}, THREADS)
        steps = [totals, Step("carries", grid(rows.rows), constants, {}, CARRIES), *steps]
    used = aligned(rows.rows * segments * STATE) if segments > 1 else 0
    dense = all(v is None or v.dense for v in (x, y, indices))
    return Geometry(tuple(steps), used, "contiguous" if dense else "inner_contiguous" if inner else "strided")
