"""roi_pool: the largest element of each bin of a region of an image (torchvision.ops.roi_pool, Fast R-CNN)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Variant,
    View, Vjp, element, extent, number, operand, output, per_axis,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...schedules.planes import planes_geometry, planes_kernels, planes_params
from .roi_align import FAR, bench_rois, by_bin, random_rois
from .roi_planes import PLANES_FIELDS, THREADS, read_axes, region_planes


@dataclass(frozen=True, kw_only=True)
class RoiPoolDescriptor(Descriptor):
    """x is [batch, channels, height, width], rois [regions, 5], y and argmax [regions, channels, *output_size].

    A region is (number of the image, x1, y1, x2, y2), in units of spatial_scale places.
    """

    batch: int = extent()
    channels: int = extent()
    height: int = extent()
    width: int = extent()
    regions: int = extent()
    output_size: Any = per_axis(minimum=1, of="rank")
    spatial_scale: float = number(1.0, above=0.0)
    element: ElementKind = element()

    @property
    def rank(self) -> int:
        """Spatial axes."""
        return 2

    def validate(self) -> None:
        """Places to read."""
        if min(self.height, self.width) < 1:
            raise InvalidProblemError(f"x must have height and width of 1 or more, got {self.height} and {self.width}")

    @property
    def bins(self) -> int:
        """Bins of a region."""
        return int(self.output_size[0] * self.output_size[1])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of x."""
        return self.height, self.width

    @property
    def closed(self) -> bool:
        """Whether a region has its last place, and may reach the last one of x."""
        return True

    @property
    def limits(self) -> tuple[int, ...]:
        """What no bin reaches beyond."""
        return self.size if self.closed else tuple(n - 1 for n in self.size)


@dataclass(slots=True, kw_only=True)
class RoiPoolArgs(Args):
    """Any strides. argmax: where in its plane, row by row, each maximum is, -1 of an empty bin; int64 or int32."""

    x: Array = operand("batch channels height width")
    rois: Array = operand("regions 5", values=random_rois)
    y: Array = output("regions channels *output_size")
    argmax: Array | None = output("regions channels *output_size", element=INDICES[::-1], optional=True)


def half_away(x: Any) -> Any:
    """The nearest integers, of halves the one further from 0, as C rounds."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def pooled_of(desc: Any, rois: Any) -> Iterator[tuple[int, int, list[tuple[int, int]], list[tuple[int, int]]]]:
    """Region by region its number, its image, and the places [low, high) of the bins of its two axes (NumPy)."""
    for r, (image, *corners) in enumerate(np.asarray(rois, np.float64)):
        x1, y1, x2, y2 = half_away(np.multiply(corners, desc.spatial_scale))
        if not (0 <= image < desc.batch and all(abs(c) <= FAR for c in (x1, y1, x2, y2))):
            continue
        axes = []
        for low, high, bins, limit in zip((y1, x1), (y2, x2), desc.output_size, desc.limits, strict=True):
            start, size = int(low), max(int(high - low) + desc.closed, 1)
            ends = [(start + i * size // bins, start - (-(i + 1) * size // bins)) for i in range(bins)]
            axes.append([(min(max(a, 0), limit), min(max(b, 0), limit)) for a, b in ends])
        yield r, int(image), axes[0], axes[1]


def reference(desc: RoiPoolDescriptor, *, x: Any, rois: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: bin by bin."""
    shape = (desc.regions, desc.channels, *desc.output_size)
    y, argmax = np.zeros(shape, x.dtype), np.full(shape, -1, np.int64)
    with np.errstate(all="ignore"):
        for r, image, rows, columns in pooled_of(desc, rois):
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    if top >= bottom or left >= right:
                        continue
                    own = x[image, :, top:bottom, left:right].reshape(desc.channels, (bottom - top) * (right - left))
                    best = own.argmax(1)
                    y[r, :, i, j] = own[np.arange(desc.channels), best]
                    row, column = np.divmod(best, right - left)
                    argmax[r, :, i, j] = (top + row) * desc.width + left + column
    return {"y": y} | ({"argmax": argmax} if "argmax" in wanted else {})


POOLED_FIELDS: dict[str, Any] = {
    "limits": "i64[2]", "bins": "i64[2]", "roi_steps": "i64[2]", "images": "i64", "regions": "i64", "width": "i64",
    "scale": "f64", "closed": "i32", "wide": "i32", "roi_far": FAR,
}  # fmt: skip
PARAMS = Params("RoiPoolParams", y="ptr", x="ptr", argmax="ptr", rois="ptr", **POOLED_FIELDS, **planes_params(3))


def pooled_values(p: Problem, argmax: View | None) -> dict[str, Any]:
    """What the kernels know of regions."""
    desc = p.desc
    return {
        "limits": desc.limits, "bins": desc.output_size, "roi_steps": p.rois.strides, "images": desc.batch,
        "regions": desc.regions, "width": desc.width, "scale": desc.spatial_scale, "closed": desc.closed,
        "wide": argmax is None or argmax.element is ElementKind.I64,
    }  # fmt: skip


def pooled_geometry(p: Problem, target: View, source: View, argmax: View | None) -> Geometry | str:
    """The launch; all bins of a region have the same channels, and argmax the strides of the operand of its shape."""
    other = argmax or target
    views = [by_bin(v, 1) for v in (target, source, other)]
    views = [View(v.ptr, v.shape, (*v.strides[:2], 0, *v.strides[3:]), v.element) for v in views]
    return planes_geometry(views, (1,), (0, 2, 3, 4), pooled_values(p, argmax), (p.rois,))


WHOLE = Params(
    "RoiPoolPlanesParams", y="ptr", x="ptr", argmax="ptr", rois="ptr", **POOLED_FIELDS, **PLANES_FIELDS,
    roi_threads=THREADS,
)  # fmt: skip


def _whole(p: Problem) -> Geometry | str:
    axes = {"N": read_axes(p.desc.element)["N"][0]}
    return region_planes(p, "whole", pooled_values(p, p.argmax), p.x, p.y, p.argmax, nbytes=16, axes=axes)


def _geometry(p: Problem) -> Geometry | str:
    return pooled_geometry(p, p.y, p.x, p.argmax)


def pooled_case(draw: Any, descriptor: Any, sensitive: bool = False) -> Any:
    """Small images, whole words of channels at times."""
    size = (draw.integer(1, 3), draw.integer(1, 3))
    channels = draw.choice((1, 3, 8, 16, 0)) * (size[0] * size[1] if sensitive else 1)
    batch, height, width = draw.integer(1, 2), draw.integer(1, 6), draw.integer(1, 7)
    regions = draw.sizes(0, 1, 2, 3, 17)
    if draw.integer(0, 3) == 3:  # channels alone are contiguous, as with channels last
        size, channels, height, width, regions = (1, 1), 16, 1, 1, 2
    return descriptor(
        batch=batch, channels=channels, height=height, width=width, regions=regions, output_size=size,
        spatial_scale=draw.choice((1.0, 0.5, 0.25)), element=draw.element,
    )  # fmt: skip


BENCHMARKS = (
    Benchmark(
        "1024 regions of [2, 256, 50, 76] f32, 7 × 7", batch=2, channels=256, height=50, width=76, regions=1024,
        output_size=7, spatial_scale=0.0625, element="float32", work=BYTES, target=None, peers=(), make=bench_rois,
    ),
)  # fmt: skip


class RoiPoolPlan(Plan):
    """y[k, c, i, j] = the largest element of x[image of k, c] in bin (i, j) of region k, and where it is.

    Corners are rounded to places, halves away from 0, and a region has both; of n places bin i of b has those from
    floor(i n / b) to ceil((i + 1) n / b), exactly. NaN propagates; of equal elements, and of several NaN, the first
    counts. An empty bin, and a region whose image there is not or of which a coordinate is not finite or beyond 2^20,
    gives 0, and argmax -1.
    """

    op = "image.roi_pool"
    descriptor = RoiPoolDescriptor
    args = RoiPoolArgs
    reference = staticmethod(reference)
    vjp = Vjp("RoiPoolBackwardPlan", grads={"x": "dx"})
    value_policy = "a region of no image, with a coordinate that is not finite or beyond 2^20, gives 0"
    variants = (
        Variant(
            "whole", _whole, source="image/roi_pool_planes.cu", elements=FLOATS,
            kernels=(Kernel("whole", "roi_pool_planes<{T}, {N}>", WHOLE, read_axes, threads=THREADS, min_blocks=3),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/roi_pool.cu", elements=FLOATS,
            kernels=planes_kernels("roi_pool<{T}, {N}, {TOGETHER}>", PARAMS),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> RoiPoolDescriptor:
        return pooled_case(draw, RoiPoolDescriptor)  # type: ignore[no-any-return]


roi_pooled = functional(RoiPoolPlan, "roi_pooled", follows="x")
