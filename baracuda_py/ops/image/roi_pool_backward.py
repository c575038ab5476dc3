"""roi_pool_backward: dx from dy, each place a sum over the bins whose maximum it is, in order; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, operand, output,
)  # fmt: skip
from ...core import ElementKind
from ...core.element import INDICES
from ...schedules.map import divider
from ...schedules.planes import planes_kernels, planes_params
from .roi_align import random_rois
from .roi_planes import PLANES_FIELDS, THREADS, region_planes
from .roi_pool import (
    BENCHMARKS, POOLED_FIELDS, RoiPoolDescriptor, pooled_case, pooled_geometry, pooled_of, pooled_values,
)  # fmt: skip
from .roi_tiles import TILES_FIELDS, tiles_geometry, tiles_kernel


@dataclass(frozen=True, kw_only=True)
class RoiPoolBackwardDescriptor(RoiPoolDescriptor):
    """The forward's fields."""


def random_argmax(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: places of x, at times none."""
    return rng.integers(-1, desc.height * desc.width + (rng.random() < 0.2), shape)


@dataclass(slots=True, kw_only=True)
class RoiPoolBackwardArgs(Args):
    """Any strides; rois and argmax are those of the forward."""

    dy: Array = operand("regions channels *output_size")
    rois: Array = operand("regions 5", values=random_rois)
    argmax: Array = operand("regions channels *output_size", element=INDICES[::-1], values=random_argmax)
    dx: Array = output("batch channels height width")


def reference(desc: RoiPoolBackwardDescriptor, *, dy: Any, rois: Any, argmax: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: region by region, bin by bin."""
    dx = np.zeros((desc.batch, desc.channels, *desc.size), dy.dtype)
    with np.errstate(all="ignore"):
        for r, image, rows, columns in pooled_of(desc, rois):
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    row, column = np.divmod(argmax[r, :, i, j].astype(np.int64), desc.width)
                    own = np.flatnonzero((row >= top) & (row < bottom) & (column >= left) & (column < right))
                    dx[image, own, row[own], column[own]] += dy[r, own, i, j]
    return {"dx": dx}


PARAMS = Params(
    "RoiPoolBackwardParams", dx="ptr", dy="ptr", argmax="ptr", rois="ptr", **POOLED_FIELDS, **planes_params(3)
)

TILES = Params(
    "RoiPoolTilesParams",
    dx="ptr",
    dy="ptr",
    argmax="ptr",
    rois="ptr",
    argmax_steps="i64[4]",
    **POOLED_FIELDS,
    **TILES_FIELDS,
)


SLOTS = 4  # bins that a thread has under way
WHOLE = Params(
    "RoiPoolBackwardPlanesParams", x="ptr", dy="ptr", argmax="ptr", rois="ptr", **POOLED_FIELDS, **PLANES_FIELDS,
    by_bins="u32[3]", by_columns="u32[3]", roi_threads=THREADS, roi_slots=SLOTS,
)  # fmt: skip


def _whole(p: Problem) -> Geometry | str:
    wide = p.argmax.element is ElementKind.I64
    ends = [n - 1 for n in p.desc.output_size]
    if any(sum(n * abs(s) for n, s in zip(ends, v.strides[2:], strict=True)) >= 2**31 for v in (p.dy, p.argmax)):
        return "bins of a region lie 2^31 elements apart"
    values = pooled_values(p, p.argmax)
    values |= {"by_bins": divider(p.desc.bins), "by_columns": divider(p.desc.output_size[1])}
    return region_planes(
        p, "whole", values, p.dx, p.dy, p.argmax, nbytes=p.desc.element.acc.itemsize, each=1,
        axes={"I": "i64" if wide else "i32"},
    )  # fmt: skip


def _tiles(p: Problem) -> Geometry | str:
    return tiles_geometry(
        p, {**pooled_values(p, p.argmax), "argmax_steps": p.argmax.strides}, False, (p.rois, p.argmax)
    )


def _geometry(p: Problem) -> Geometry | str:
    return pooled_geometry(p, p.dx, p.dy, p.argmax)


class RoiPoolBackwardPlan(Plan):
    """dx[n, c, y, x] = Σ over the regions of image n and their bins, in order, whose argmax is (y, x), of dy."""

    op = "image.roi_pool_backward"
    direction = "backward"
    descriptor = RoiPoolBackwardDescriptor
    args = RoiPoolBackwardArgs
    reference = staticmethod(reference)
    value_policy = (
        "a region of no image, with a coordinate that is not finite or beyond 2^20, hands nothing back, "
        "nor does a bin whose argmax it has not"
    )
    variants = (
        Variant(
            "whole", _whole, source="image/roi_pool_backward_planes.cu", elements=FLOATS,
            kernels=(
                Kernel(
                    "whole", "roi_pool_backward_planes<{T}, {I}>", WHOLE, {"I": ("i64", "i32")}, threads=THREADS,
                    min_blocks=4,
                ),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "tiles", _tiles, source="image/roi_pool_tiles.cu", elements=FLOATS,
            kernels=(tiles_kernel("roi_pool_tiles<{T}, {N}, {TOGETHER}>", TILES),), may_spill=True,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/roi_pool_backward.cu", elements=FLOATS,
            kernels=planes_kernels("roi_pool_backward<{T}, {N}, {TOGETHER}>", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> RoiPoolBackwardDescriptor:
        return pooled_case(draw, RoiPoolBackwardDescriptor)  # type: ignore[no-any-return]


roi_pool_backward = functional(RoiPoolBackwardPlan, follows="dy")
