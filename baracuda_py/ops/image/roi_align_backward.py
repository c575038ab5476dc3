"""roi_align_backward: dx from dy, each place a sum over the regions that sample it, in their order; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Variant, operand, output,
)  # fmt: skip
from ...schedules.planes import planes_kernels, planes_params
from .roi_align import (
    BENCHMARKS, ROI_FIELDS, RoiAlignDescriptor, random_rois, regions_of, roi_case, roi_geometry, roi_values,
)  # fmt: skip
from .roi_tiles import TILES_FIELDS, tiles_geometry, tiles_kernel


@dataclass(frozen=True, kw_only=True)
class RoiAlignBackwardDescriptor(RoiAlignDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class RoiAlignBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("regions out_channels *output_size")
    rois: Array = operand("regions 5", values=random_rois)
    dx: Array = output("batch channels height width")


def _weights(samples: Any, extent: int) -> Any:
    """[bins, extent]: what all samples of a bin read of a place together."""
    low, high, share, inside = samples
    made = np.zeros((low.shape[0], extent))
    for i in range(low.shape[1]):
        for b in np.flatnonzero(inside[:, i]):
            made[b, low[b, i]] += 1 - share[b, i]
            if high[b, i] > low[b, i]:
                made[b, high[b, i]] += share[b, i]
    return made


def reference(desc: RoiAlignBackwardDescriptor, *, dy: Any, rois: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: region by region, bin by bin."""
    kind, columns = dy.dtype.type, desc.output_size[1]
    dx = np.zeros((desc.batch, desc.channels, *desc.size), dy.dtype)
    with np.errstate(all="ignore"):
        for r, image, samples, count in regions_of(desc, rois):
            rows, cols = (_weights(one, extent) for one, extent in zip(samples, desc.size, strict=True))
            for i, j in np.ndindex(*desc.output_size):
                channels = slice(i * columns + j, None, desc.bins) if desc.position_sensitive else slice(None)
                for at in zip(*np.nonzero(np.outer(rows[i], cols[j])), strict=True):
                    weight = kind(rows[i, at[0]] / count * cols[j, at[1]])
                    dx[image, channels, at[0], at[1]] += weight * dy[r, :, i, j]
    return {"dx": dx}


PARAMS = Params("RoiAlignBackwardParams", dx="ptr", dy="ptr", rois="ptr", **ROI_FIELDS, **planes_params(2))

TILES = Params("RoiAlignTilesParams", dx="ptr", dy="ptr", rois="ptr", **ROI_FIELDS, **TILES_FIELDS)


def _tiles(p: Problem) -> Geometry | str:
    return tiles_geometry(p, roi_values(p), p.desc.position_sensitive, (p.rois,))


def _geometry(p: Problem) -> Geometry | str:
    return roi_geometry(p, p.dx, p.dy, "target")


class RoiAlignBackwardPlan(Plan):
    """dx[n, c, y, x] = Σ over the regions of image n, in their order, and their bins, of their weight there · dy."""

    op = "image.roi_align_backward"
    direction = "backward"
    descriptor = RoiAlignBackwardDescriptor
    args = RoiAlignBackwardArgs
    reference = staticmethod(reference)
    value_policy = "a region of no image, with a coordinate that is not finite or beyond 2^20, hands nothing back"
    variants = (
        Variant(
            "tiles", _tiles, source="image/roi_align_tiles.cu", elements=FLOATS,
            kernels=(tiles_kernel("roi_align_tiles<{T}, {N}, {TOGETHER}>", TILES),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/roi_align_backward.cu", elements=FLOATS,
            kernels=planes_kernels("roi_align_backward<{T}, {N}, {TOGETHER}>", PARAMS), may_spill=True,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> RoiAlignBackwardDescriptor:
        return roi_case(draw, RoiAlignBackwardDescriptor)  # type: ignore[no-any-return]


roi_align_backward = functional(RoiAlignBackwardPlan, follows="dy")
