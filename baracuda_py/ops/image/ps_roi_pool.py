"""ps_roi_pool: means of the bins of a region, each of channels of its own (torchvision.ops.ps_roi_pool, R-FCN)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, View, Vjp, operand,
    output,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.planes import planes_geometry, planes_kernels, planes_params
from .roi_align import bench_rois, by_bin, random_rois
from .roi_planes import PLANES_FIELDS, THREADS, read_axes, region_planes
from .roi_pool import POOLED_FIELDS, RoiPoolDescriptor, pooled_case, pooled_of, pooled_values


@dataclass(frozen=True, kw_only=True)
class PsRoiPoolDescriptor(RoiPoolDescriptor):
    """x is [batch, channels, height, width], rois [regions, 5], y [regions, out_channels, *output_size].

    A region is (number of the image, x1, y1, x2, y2), in units of spatial_scale places; channels are a multiple of the
    bins, and bin (i, j) of output channel c reads channel (c · rows + i) · columns + j.
    """

    def validate(self) -> None:
        """Places to read, and channels for all bins."""
        RoiPoolDescriptor.validate(self)
        if self.channels % self.bins:
            raise InvalidProblemError(f"channels must be a multiple of the {self.bins} bins, got {self.channels}")

    @property
    def out_channels(self) -> int:
        """Channels of y."""
        return self.channels // self.bins

    @property
    def closed(self) -> bool:
        """Regions end before their last place, and before the last one of x, as torchvision's do."""
        return False


@dataclass(slots=True, kw_only=True)
class PsRoiPoolArgs(Args):
    """Any strides."""

    x: Array = operand("batch channels height width")
    rois: Array = operand("regions 5", values=random_rois)
    y: Array = output("regions out_channels *output_size")


def reference(desc: PsRoiPoolDescriptor, *, x: Any, rois: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: bin by bin, place by place."""
    y = np.zeros((desc.regions, desc.out_channels, *desc.output_size), x.dtype)
    with np.errstate(all="ignore"):
        for r, image, rows, columns in pooled_of(desc, rois):
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    own = x[image, i * desc.output_size[1] + j :: desc.bins]
                    total = np.zeros(desc.out_channels, x.dtype)
                    for row in range(top, bottom):
                        for column in range(left, right):
                            total = total + own[:, row, column]
                    y[r, :, i, j] = total / x.dtype.type(max((bottom - top) * (right - left), 1))
    return {"y": y}


PARAMS = Params("PsRoiPoolParams", y="ptr", x="ptr", rois="ptr", **POOLED_FIELDS, **planes_params(2))


WHOLE = Params(
    "PsRoiPoolPlanesParams", y="ptr", x="ptr", rois="ptr", **POOLED_FIELDS, **PLANES_FIELDS, roi_threads=THREADS
)


def _whole(p: Problem) -> Geometry | str:
    axes = {"N": read_axes(p.desc.element)["N"][0]}
    return region_planes(p, "whole", pooled_values(p, None), p.x, p.y, nbytes=16, sensitive=True, axes=axes)


def sensitive_geometry(p: Problem, target: View, source: View, bins: tuple[int, int]) -> Geometry | str:
    """The launch; `bins` of target and source, of the images as many as a region has."""
    views = [by_bin(view, own) for view, own in zip((target, source), bins, strict=True)]
    return planes_geometry(views, (1,), (0, 2, 3, 4), pooled_values(p, None), (p.rois,))


def _geometry(p: Problem) -> Geometry | str:
    return sensitive_geometry(p, p.y, p.x, (1, p.desc.bins))


BENCHMARKS = (
    Benchmark(
        "1024 regions of [2, 1029, 50, 76] f32, 7 × 7", batch=2, channels=1029, height=50, width=76, regions=1024,
        output_size=7, spatial_scale=0.0625, element="float32", work=BYTES, target=None, peers=(), make=bench_rois,
    ),
)  # fmt: skip


class PsRoiPoolPlan(Plan):
    """y[k, c, i, j] = the mean of x[image of k, (c · rows + i) · columns + j] in bin (i, j) of region k.

    Corners are rounded to places, halves away from 0; a region of n = max(end - start, 1) places has in bin i of b
    those from floor(i n / b) to ceil((i + 1) n / b), exactly, of which the last row and column of x never count, as in
    torchvision. An empty bin, and a region whose image there is not or of which a coordinate is not finite or beyond
    2^20, gives 0.
    """

    op = "image.ps_roi_pool"
    descriptor = PsRoiPoolDescriptor
    args = PsRoiPoolArgs
    reference = staticmethod(reference)
    vjp = Vjp("PsRoiPoolBackwardPlan", grads={"x": "dx"})
    value_policy = "a region of no image, with a coordinate that is not finite or beyond 2^20, gives 0"
    variants = (
        Variant(
            "whole", _whole, source="image/ps_roi_pool_planes.cu", elements=FLOATS,
            kernels=(Kernel("whole", "ps_roi_pool_planes<{T}, {N}>", WHOLE, read_axes, threads=THREADS, min_blocks=3),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/ps_roi_pool.cu", elements=FLOATS,
            kernels=planes_kernels("ps_roi_pool<{T}, {N}, {TOGETHER}>", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> PsRoiPoolDescriptor:
        return pooled_case(draw, PsRoiPoolDescriptor, True)  # type: ignore[no-any-return]


ps_roi_pooled = functional(PsRoiPoolPlan, "ps_roi_pooled", follows="x")
