"""roi_align: regions of images as bins of one size, sampled bilinearly (torchvision.ops.roi_align, ps_roi_align)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Variant, View,
    Vjp, element, extent, flag, integer, number, operand, output, per_axis,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.planes import planes_geometry, planes_kernels, planes_params

FAR = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RoiAlignDescriptor(Descriptor):
    """x is [batch, channels, height, width], rois [regions, 5], y [regions, out_channels, *output_size].

    A region is (number of the image, x1, y1, x2, y2), in units of spatial_scale places. sampling_ratio: samples of a
    bin along each axis; 0 for as many as it is places long. aligned: places are centres, and regions may be smaller
    than one. position_sensitive: bin (i, j) of output channel c reads channel (c · rows + i) · columns + j.
    """

    batch: int = extent()
    channels: int = extent()
    height: int = extent()
    width: int = extent()
    regions: int = extent()
    output_size: Any = per_axis(minimum=1, of="rank")
    spatial_scale: float = number(1.0, above=0.0)
    sampling_ratio: int = integer(0, minimum=0, maximum=2**16)
    aligned: bool = flag(False)
    position_sensitive: bool = flag(False)
    element: ElementKind = element()

    @property
    def rank(self) -> int:
        """Spatial axes."""
        return 2

    def validate(self) -> None:
        """Places to read, and channels for all bins."""
        if min(self.height, self.width) < 1:
            raise InvalidProblemError(f"x must have height and width of 1 or more, got {self.height} and {self.width}")
        if self.position_sensitive and self.channels % self.bins:
            raise InvalidProblemError(f"channels must be a multiple of the {self.bins} bins, got {self.channels}")

    @property
    def bins(self) -> int:
        """Bins of a region."""
        return int(self.output_size[0] * self.output_size[1])

    @property
    def out_channels(self) -> int:
        """Channels of y."""
        return self.channels // self.bins if self.position_sensitive else self.channels

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of x."""
        return self.height, self.width


def random_rois(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: regions about the image, in eighths of a place, at times without area, far away or of no image."""
    extent = np.array([desc.width, desc.height] * 2) / desc.spatial_scale
    rois = np.zeros(shape)
    if shape[0]:
        rois[:, 0] = rng.integers(-1 if rng.random() < 0.3 else 0, max(desc.batch, 1) + (rng.random() < 0.3), shape[0])
        corners = np.round(8 * rng.uniform(-0.3, 1.3, (shape[0], 2, 2)) * extent[:2]) / 8
        rois[:, 1:] = np.sort(corners, 1).reshape(-1, 4) if rng.random() < 0.8 else corners.reshape(-1, 4)
    return rois


@dataclass(slots=True, kw_only=True)
class RoiAlignArgs(Args):
    """Any strides."""

    x: Array = operand("batch channels height width")
    rois: Array = operand("regions 5", values=random_rois)
    y: Array = output("regions out_channels *output_size")


def regions_of(desc: RoiAlignDescriptor, rois: Any) -> Iterator[tuple[int, int, list[Any], int]]:
    """Region by region its number, its image, the samples of its axes, and the divisor of its sums (NumPy).

    The samples of an axis are (places low and high, share of high, inside), each [bins, samples].
    """
    for r, (image, x1, y1, x2, y2) in enumerate(np.asarray(rois, np.float64)):
        axes, count = [], 1
        for low, high, bins, places in zip((y1, x1), (y2, x2), desc.output_size, desc.size, strict=True):
            shift = 0.5 if desc.aligned else 0.0
            start, end = low * desc.spatial_scale - shift, high * desc.spatial_scale - shift
            bin_size = (end - start if desc.aligned else np.fmax(end - start, 1.0)) / bins
            samples = desc.sampling_ratio or max(0, int(np.ceil(bin_size)) if np.isfinite(bin_size) else 0)
            samples = samples if abs(start) <= FAR and abs(end) <= FAR else 0
            c = start + np.arange(bins)[:, None] * bin_size + (np.arange(samples) + 0.5) * bin_size / max(samples, 1)
            inside = (c >= -1) & (c <= places)
            c = np.where(inside, np.fmax(c, 0), 0)
            first = np.minimum(c.astype(np.int64), places - 1)
            last = np.minimum(first + 1, places - 1)
            axes.append((first, last, np.where(last > first, c - first, 0.0), inside))
            count *= samples
        if 0 <= image < desc.batch:
            yield r, int(image), axes, max(count, 1)


def reference(desc: RoiAlignDescriptor, *, x: Any, rois: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: sample by sample."""
    kind, (rows, columns) = x.dtype.type, desc.output_size
    y = np.zeros((desc.regions, desc.out_channels, rows, columns), x.dtype)
    with np.errstate(all="ignore"):
        for r, image, (vertical, horizontal), count in regions_of(desc, rois):
            for i in range(rows):
                for j in range(columns):
                    channels = slice(i * columns + j, None, desc.bins) if desc.position_sensitive else slice(None)
                    own, total = x[image, channels], np.zeros(desc.out_channels, x.dtype)
                    for low, high, share, inside in zip(*(one[i] for one in vertical), strict=True):
                        for left, right, part, within in zip(*(one[j] for one in horizontal), strict=True):
                            if not (inside and within):
                                continue
                            for at, v in ((low, 1 - share), (high, share)):
                                for col, h in ((left, 1 - part), (right, part)):
                                    total = total + kind(v * h) * own[:, at, col]
                    y[r, :, i, j] = total / kind(count)
    return {"y": y}


ROI_FIELDS: dict[str, Any] = {
    "extent": "i64[2]", "bins": "i64[2]", "roi_steps": "i64[2]", "images": "i64", "regions": "i64", "ratio": "i64",
    "scale": "f64", "aligned": "i32", "sensitive": "i32", "roi_far": FAR,
}  # fmt: skip
PARAMS = Params("RoiAlignParams", y="ptr", x="ptr", rois="ptr", **ROI_FIELDS, **planes_params(2))


def roi_values(p: Problem) -> dict[str, Any]:
    """What both kernels know of regions."""
    desc = p.desc
    return {
        "extent": desc.size, "bins": desc.output_size, "roi_steps": p.rois.strides, "images": desc.batch,
        "regions": desc.regions, "ratio": desc.sampling_ratio, "scale": desc.spatial_scale, "aligned": desc.aligned,
        "sensitive": desc.position_sensitive,
    }  # fmt: skip


def by_bin(view: View, bins: int) -> View:
    """An image with an axis for the channels of one bin, behind that of output channels."""
    images, channels, *spatial = view.strides
    shape = (view.shape[0], view.shape[1] // bins, bins, *view.shape[2:])
    return View(view.ptr, shape, (images, channels * bins, channels, *spatial), view.element)


def roi_geometry(p: Problem, target: View, source: View, image: str) -> Geometry | str:
    """The launch; `image` is the operand of the two that has the images' shape."""
    bins = p.desc.bins if p.desc.position_sensitive else 1
    views = (by_bin(target, bins if image == "target" else 1), by_bin(source, bins if image == "source" else 1))
    if bins == 1:  # all bins of a region read the same channels
        views = tuple(View(v.ptr, v.shape, (*v.strides[:2], 0, *v.strides[3:]), v.element) for v in views)  # type: ignore[assignment]
    return planes_geometry(views, (1,), (0, 2, 3, 4), roi_values(p), (p.rois,))


def _geometry(p: Problem) -> Geometry | str:
    return roi_geometry(p, p.y, p.x, "source")


def roi_case(draw: Any, descriptor: Any) -> Any:
    """Small images, whole words of channels at times."""
    size, sensitive = (draw.integer(1, 3), draw.integer(1, 3)), draw.flag()
    channels = draw.choice((1, 3, 8, 16, 0)) * (size[0] * size[1] if sensitive else 1)
    batch, height, width, regions = draw.integer(1, 2), draw.integer(1, 6), draw.integer(1, 7), draw.integer(0, 3)
    if draw.integer(0, 3) == 3:  # channels alone are contiguous, as with channels last
        size, channels, height, width, regions = (1, 1), 16, 1, 1, 2
    return descriptor(
        batch=batch, channels=channels, height=height, width=width, regions=regions, output_size=size,
        spatial_scale=draw.choice((1.0, 0.5, 0.25)),
        sampling_ratio=draw.choice((0, 0, 1, 2, 3)), aligned=draw.flag(), position_sensitive=sensitive,
        element=draw.element,
    )  # fmt: skip


def bench_rois(torch: Any, desc: RoiAlignDescriptor) -> dict[str, Any]:
    """A benchmark's regions."""
    corners = torch.rand(desc.regions, 2, 2) * torch.tensor([desc.width, desc.height]) / desc.spatial_scale
    corners = corners.sort(1).values.reshape(desc.regions, 4)
    images = torch.randint(0, desc.batch, (desc.regions, 1)).float()
    return {"rois": torch.cat([images, corners], 1).to(getattr(torch, str(desc.element)))}


BENCHMARKS = (
    Benchmark(
        "1024 regions of [2, 256, 200, 304] f32, 7 × 7", batch=2, channels=256, height=200, width=304, regions=1024,
        output_size=7, spatial_scale=0.25, sampling_ratio=2, aligned=True, element="float32", work=BYTES, target=None,
        peers=(), make=bench_rois,
    ),
)  # fmt: skip


class RoiAlignPlan(Plan):
    """y[k, c, i, j] = the mean of x[image of k, c] at the samples of bin (i, j) of region k, bilinearly between places.

    Samples more than one place outside of x count as 0, as in torchvision; coordinates are float64. A region whose
    image there is not, or of which a coordinate is not finite or beyond 2^20, gives 0.
    """

    op = "image.roi_align"
    descriptor = RoiAlignDescriptor
    args = RoiAlignArgs
    reference = staticmethod(reference)
    vjp = Vjp("RoiAlignBackwardPlan", grads={"x": "dx"})
    value_policy = "a region of no image, with a coordinate that is not finite or beyond 2^20, gives 0"
    variants = (
        Variant(
            "planes", _geometry, source="image/roi_align.cu", elements=FLOATS,
            kernels=planes_kernels("roi_align<{T}, {N}, {TOGETHER}>", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = BENCHMARKS

    @staticmethod
    def case(draw: Any) -> RoiAlignDescriptor:
        return roi_case(draw, RoiAlignDescriptor)  # type: ignore[no-any-return]


roi_aligned = functional(RoiAlignPlan, "roi_aligned", follows="x")
