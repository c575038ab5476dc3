"""roi_align, ps_roi_align, roi_pool and ps_roi_pool: torchvision's functions of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of
from ..layout.concat import concat
from ..layout.creation import full
from .ps_roi_pool import PsRoiPoolPlan, ps_roi_pooled
from .roi_align import RoiAlignPlan, roi_aligned
from .roi_pool import RoiPoolPlan, roi_pooled


def rois_of(x: Any, boxes: Any, options: dict[str, Any]) -> Any:
    """Regions [K, 5], the number of the image first, from an array of them or a list with one array for each image."""
    if not isinstance(boxes, (list, tuple)):
        found = shape_of(boxes, "boxes")
        if len(found) != 2 or found[1] != 5:
            raise InvalidProblemError(
                f"boxes must be [K, 5], (image, x1, y1, x2, y2), or a list of [k, 4] for each image, got shape {found}"
            )
        return boxes
    images = shape_of(x, "x")[0]
    shapes = [shape_of(one, f"boxes[{i}]") for i, one in enumerate(boxes)]
    if len(boxes) != images or any(len(s) != 2 or s[1] != 4 for s in shapes):
        raise InvalidProblemError(f"boxes must be a list of [k, 4] for each of {images} images, got shapes {shapes}")
    with beside(x, options["stream"]):
        numbers = [
            full((s[0], 1), float(i), element=read(one, "boxes").element, like=one)
            for i, (one, s) in enumerate(zip(boxes, shapes, strict=True))
        ]
    rows = [concat([n, one], axis=1, **options) for n, one in zip(numbers, boxes, strict=True)]
    return concat(rows, axis=0, **options) if len(rows) > 1 else rows[0]


def _ratio(value: Any) -> int:
    return max(whole("sampling_ratio", value, -1), 0)


def _size(value: Any) -> Any:
    return value if isinstance(value, Sequence) else whole("output_size", value, 1)


@entry(RoiAlignPlan)
def roi_align(
    x: Array, boxes: Any, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Regions of images as bins of one size, sampled bilinearly (torchvision.ops.roi_align); see `RoiAlignPlan`.

    x: [N, C, H, W]; boxes: [K, 5], (number of the image, x1, y1, x2, y2) in x's element, or a list of [k, 4] for each
    image; y: [K, C, *output_size]. spatial_scale: places of x for a unit of boxes. sampling_ratio: samples of a bin
    along each axis, by default as many as it is places long. aligned: places are centres, half a place further. The
    gradient for x is summed in the regions' order, without atomics; boxes have none, as in torchvision.
    """
    options = {"stream": stream, "preference": preference}
    return roi_aligned(
        x, rois_of(x, boxes, options), output_size=_size(output_size), spatial_scale=spatial_scale,
        sampling_ratio=_ratio(sampling_ratio), aligned=truth("aligned", aligned), out=out, **options,
    )  # fmt: skip


@entry(RoiAlignPlan)
def ps_roi_align(
    x: Array, boxes: Any, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`roi_align` whose bins read channels of their own (torchvision.ops.ps_roi_align): [K, C / bins, *output_size].

    Bin (i, j) of output channel c reads channel (c · rows + i) · columns + j of x; places are centres (aligned).
    """
    options = {"stream": stream, "preference": preference}
    return roi_aligned(
        x, rois_of(x, boxes, options), output_size=_size(output_size), spatial_scale=spatial_scale,
        sampling_ratio=_ratio(sampling_ratio), aligned=True, position_sensitive=True, out=out, **options,
    )  # fmt: skip


@entry(RoiPoolPlan)
def roi_pool(
    x: Array, boxes: Any, output_size: Any, spatial_scale: float = 1.0, *, return_argmax: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The largest element of each bin of regions of images (torchvision.ops.roi_pool); see `RoiPoolPlan`.

    x: [N, C, H, W]; boxes: [K, 5], (number of the image, x1, y1, x2, y2) in x's element, or a list of [k, 4] for each
    image; y: [K, C, *output_size]. spatial_scale: places of x for a unit of boxes, whose corners are then rounded.
    return_argmax: also the place of each maximum in its plane, int64 [K, C, *output_size], -1 of an empty bin, which is
    0. NaN propagates. The gradient for x is summed in the regions' order, without atomics; boxes have none.
    """
    options = {"stream": stream, "preference": preference}
    return roi_pooled(
        x, rois_of(x, boxes, options), output_size=_size(output_size), spatial_scale=spatial_scale,
        return_argmax=truth("return_argmax", return_argmax), out=out, **options,
    )  # fmt: skip


@entry(PsRoiPoolPlan)
def ps_roi_pool(
    x: Array, boxes: Any, output_size: Any, spatial_scale: float = 1.0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Means of the bins of regions, each of channels of its own (torchvision.ops.ps_roi_pool); see `PsRoiPoolPlan`.

    x: [N, C, H, W]; boxes: [K, 5] or a list, as of `roi_pool`; y: [K, C / bins, *output_size], whose bin (i, j) of
    channel c reads channel (c · rows + i) · columns + j of x. Corners are rounded, and as in torchvision the last row
    and column of x never count. The gradient for x is that of this mean, in a fixed order; boxes have none.
    """
    options = {"stream": stream, "preference": preference}
    return ps_roi_pooled(
        x, rois_of(x, boxes, options), output_size=_size(output_size), spatial_scale=spatial_scale, out=out, **options,
    )  # fmt: skip
