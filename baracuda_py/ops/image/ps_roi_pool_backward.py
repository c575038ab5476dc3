"""ps_roi_pool_backward: dx from dy, each place a sum over the regions that have it in its channel's bin; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, operand, output,
)  # fmt: skip
from ...schedules.planes import planes_kernels, planes_params
from .ps_roi_pool import BENCHMARKS, PsRoiPoolDescriptor, sensitive_geometry
from .roi_align import random_rois
from .roi_planes import PLANES_FIELDS, region_planes
from .roi_pool import POOLED_FIELDS, pooled_case, pooled_of, pooled_values
from .roi_tiles import TILES_FIELDS, tiles_geometry, tiles_kernel


@dataclass(frozen=True, kw_only=True)
class PsRoiPoolBackwardDescriptor(PsRoiPoolDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class PsRoiPoolBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("regions out_channels *output_size")
    rois: Array = operand("regions 5", values=random_rois)
    dx: Array = output("batch channels height width")


def reference(desc: PsRoiPoolBackwardDescriptor, *, dy: Any, rois: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: region by region, bin by bin."""
    dx = np.zeros((desc.batch, desc.channels, *desc.size), dy.dtype)
    with np.errstate(all="ignore"):
        for r, image, rows, columns in pooled_of(desc, rois):
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    area = dy.dtype.type(max((bottom - top) * (right - left), 1))
                    own = dx[image, i * desc.output_size[1] + j :: desc.bins, top:bottom, left:right]
                    own += (dy[r, :, i, j] / area)[:, None, None]
    return {"dx": dx}


PARAMS = Params("PsRoiPoolBackwardParams", dx="ptr", dy="ptr", rois="ptr", **POOLED_FIELDS, **planes_params(2))

TILES = Params("PsRoiPoolTilesParams", dx="ptr", dy="ptr", rois="ptr", **POOLED_FIELDS, **TILES_FIELDS)


WARPS = 4  # of a block, each of which has a plane
WHOLE = Params(
    "PsRoiPoolBackwardPlanesParams", x="ptr", dy="ptr", rois="ptr", **POOLED_FIELDS, **PLANES_FIELDS,
    roi_threads=32 * WARPS,
)  # fmt: skip


def _whole(p: Problem) -> Geometry | str:
    return region_planes(
        p, "whole", pooled_values(p, None), p.dx, p.dy, nbytes=p.desc.element.acc.itemsize, each=WARPS, sensitive=True,
        threads=32 * WARPS,
    )  # fmt: skip


def _tiles(p: Problem) -> Geometry | str:
    return tiles_geometry(p, pooled_values(p, None), True, (p.rois,))


def _geometry(p: Problem) -> Geometry | str:
    return sensitive_geometry(p, p.dx, p.dy, (p.desc.bins, 1))


class PsRoiPoolBackwardPlan(Plan):
    """dx[n, channel of bin (i, j), y, x] = Σ over the regions of image n, in order, of dy over the bin's places.

    It is the gradient of the forward, so 0 in the last row and column, where torchvision's own hands some back.
    """

    op = "image.ps_roi_pool_backward"
    direction = "backward"
    descriptor = PsRoiPoolBackwardDescriptor
    args = PsRoiPoolBackwardArgs
    reference = staticmethod(reference)
    value_policy = "a region of no image, with a coordinate that is not finite or beyond 2^20, hands nothing back"
    variants = (
        Variant(
            "whole", _whole, source="image/ps_roi_pool_backward_planes.cu", elements=FLOATS,
            kernels=(
                Kernel("whole", "ps_roi_pool_backward_planes<{T}>", WHOLE, threads=32 * WARPS, min_blocks=3),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "tiles", _tiles, source="image/ps_roi_pool_tiles.cu", elements=FLOATS,
            kernels=(tiles_kernel("ps_roi_pool_tiles<{T}, {N}, {TOGETHER}>", TILES),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/ps_roi_pool_backward.cu", elements=FLOATS,
            kernels=planes_kernels("ps_roi_pool_backward<{T}, {N}, {TOGETHER}>", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> PsRoiPoolBackwardDescriptor:
        return pooled_case(draw, PsRoiPoolBackwardDescriptor, True)  # type: ignore[no-any-return]


ps_roi_pool_backward = functional(PsRoiPoolBackwardPlan, follows="dy")
