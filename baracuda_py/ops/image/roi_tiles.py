"""Gradients of regions by tiles: the geometry of kernels/image/roi_tiles.cuh, whose blocks own places of the images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...schedules.map import THREADS as PLANES_THREADS
from .roi_align import by_bin

THREADS, ROWS, COLUMNS = 256, 8, 32  # of a block and its tile
BATCH, BINS = 4, 16  # regions whose weights a block has at once, and bins of an axis that it has room for

TILES_FIELDS: dict[str, Any] = {
    "places": "i64[2]", "tiles": "i64[2]", "groups": "i64", "channels": "i64", "dx_steps": "i64[5]",
    "dy_steps": "i64[4]", "roi_threads": THREADS, "roi_rows": ROWS, "roi_columns": COLUMNS, "roi_batch": BATCH,
    "roi_bins": BINS, "planes_threads": PLANES_THREADS,
}  # fmt: skip


def _channels(kind: ElementKind) -> int:
    """Of a thread, whose sums are in registers."""
    return 16 if kind is ElementKind.F64 else 32


def tiles_kernel(template: str, params: Params) -> Kernel:
    """The kernel of an op; {N} channels of a thread, which are neighbours in memory where they are TOGETHER."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"N": (_channels(kind),), "TOGETHER": ("true", "false")}

    return Kernel("tiles", template, params, axes, threads=THREADS, min_blocks=2)


def tiles_geometry(p: Problem, values: Mapping[str, Any], sensitive: bool, others: tuple[View, ...]) -> Geometry | str:
    """The launch; values: what the kernel knows of regions. sensitive: channels are those of one bin each."""
    desc = p.desc
    if max(desc.output_size) > BINS:
        return f"tiles have room for {BINS} bins along an axis, got {desc.output_size}"
    groups = desc.bins if sensitive else 1
    if 0 in p.dx.shape:
        return "dx has no element"
    dx, dy, each = by_bin(p.dx, groups), p.dy, _channels(desc.element)
    channels, wide = dx.shape[1], 16 // desc.element.itemsize
    strides = [s for v, axis in ((dx, 1), (dy, 1)) for a, s in enumerate(v.strides) if a != axis and v.shape[a] > 1]
    together = (
        channels % wide == 0 and dx.strides[1] == dy.strides[1] == 1 and not any(s % wide for s in strides)
        and p.dx.ptr % 16 == p.dy.ptr % 16 == 0
    )  # fmt: skip
    tiles = [-(-n // size) for n, size in zip(desc.size, (ROWS, COLUMNS), strict=True)]
    blocks = max(1, tiles[0] * tiles[1] * groups * desc.batch * -(-channels // each))
    if blocks >= 2**31:
        return "more than 2^31 blocks"
    params = {
        **values, "places": desc.size, "tiles": tiles, "groups": groups, "channels": channels, "dx_steps": dx.strides,
        "dy_steps": dy.strides,
    }  # fmt: skip
    axes = {"N": each, "TOGETHER": "true" if together else "false"}
    dense = all(v.dense for v in (p.dx, p.dy, *others))
    layout = "contiguous" if dense else "inner_contiguous" if together else "strided"
    return Geometry((Step("tiles", (blocks, 1, 1), params, axes, THREADS),), layout=layout)
