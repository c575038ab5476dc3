"""Pooled regions by whole planes in shared memory: the geometry of kernels/image/roi_planes.cuh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import ElementKind, Geometry, Problem, Step, View
from ...schedules.map import THREADS as PLANES_THREADS

THREADS, WINDOW = 256, 512  # of a block, and regions whose list it has at once
ENOUGH = 8  # regions of an image for which reading all of its places pays
BESIDE = 36 * 1024  # the most bytes of shared memory that lists and stages take beside the planes
PAIRED = 112 * 1024  # what leaves room for a second block on a multiprocessor of most memory

PLANES_FIELDS: dict[str, Any] = {
    "x_steps": "i64[4]", "y_steps": "i64[4]", "argmax_steps": "i64[4]", "height": "i64",
    "channels": "i64", "groups": "i64", "each": "i64", "roi_window": WINDOW, "planes_threads": PLANES_THREADS,
}  # fmt: skip


def read_axes(kind: ElementKind) -> Mapping[str, Any]:
    """{N} channels of a place are 16 bytes of shared memory."""
    return {"N": (16 // kind.itemsize,)}


def region_planes(
    p: Problem, kernel: str, values: Mapping[str, Any], image: View, pooled: View, argmax: View | None = None, *,
    nbytes: int, each: int = 0, sensitive: bool = False, threads: int = THREADS, axes: Mapping[str, Any] | None = None,
) -> Geometry | str:  # fmt: skip
    """The launch of blocks whose planes have `nbytes` a place: of `each` sums at most, or, 0, of what is read.

    values: what the kernel knows of regions. image, pooled: the operand of the images' shape, and that of the bins'.
    sensitive: a plane is read by one bin. Of what is read a place has 16 bytes of channels, and where blocks are few,
    several have the same planes.
    """
    desc, places = p.desc, p.desc.height * p.desc.width
    if desc.regions < ENOUGH * max(desc.batch, 1):
        return f"planes are for {ENOUGH} regions an image or more, got {desc.regions} of {desc.batch}"
    if max(desc.output_size) > 256 or desc.bins > 1024:
        return f"planes are for 1024 bins, 256 along an axis, got {desc.output_size}"
    if 0 in image.shape:
        return "images have no element"
    if image.shape[1] > 1 and abs(image.strides[1]) < min(abs(s) for s in image.strides[2:]):
        return "channels are neighbours in memory"
    reads = each == 0
    most = min(p.device.smem, PAIRED) if reads else p.device.smem
    room = (most - BESIDE) // (places * nbytes)
    if places >= 2**16 or room < 1:
        return f"a plane of {desc.size} does not fit into shared memory"
    groups = desc.bins if sensitive else 1
    channels = desc.channels // groups
    each = nbytes // desc.element.itemsize if reads else min(each, channels, room)
    blocks = -(-channels // each) * groups * desc.batch
    if blocks >= 2**31 or desc.regions >= 2**31:
        return "more than 2^31 blocks or regions"
    shares = min(max(1, 3 * p.device.sms // blocks), 8) if reads and not sensitive else 1
    params = {
        **values, **({} if reads else {"x": "dx"}), "x_steps": image.strides, "y_steps": pooled.strides,
        "argmax_steps": (argmax or pooled).strides, "height": desc.height, "channels": channels, "groups": groups,
        "each": each,
    }  # fmt: skip
    dense = all(v.dense for v in (image, pooled, p.rois, argmax) if v is not None)
    smem = places * nbytes * (1 if reads else each)
    step = Step(kernel, (blocks, shares, 1), params, dict(axes or {}), threads, smem)
    return Geometry((step,), layout="contiguous" if dense else "strided")
