"""nms: of boxes in the order of their scores those that no better one covers (torchvision.ops.nms, batched_nms)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Step,
    Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from ...core.views import constant, shape_of
from ..sort.sort import argsort

THREADS, TILE = 512, 64
WORDS, WALKERS = 4, 1024  # tiles that a block of the pairs compares one with; threads of the walk
MOST = 1 << 15  # boxes whose pairs are all compared, in 128 MiB


@dataclass(frozen=True, kw_only=True)
class NmsDescriptor(Descriptor):
    """boxes are [boxes_count, 4] (x1, y1, x2, y2), order [places], groups [boxes_count]."""

    boxes_count: int = extent()
    places: int = extent()
    element: ElementKind = element()


def random_boxes(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: boxes that overlap, in eighths, at times without area."""
    corners = np.round(8 * rng.uniform(0, 6, (*shape[:-1], 2))) / 8
    sizes = np.round(8 * rng.uniform(0, 5, (*shape[:-1], 2))) / 8
    return np.concatenate([corners, corners + sizes * (rng.random((*shape[:-1], 1)) < 0.9)], -1)


def random_order(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: boxes in some order, at times one that there is not."""
    order = np.resize(rng.permutation(max(desc.boxes_count, 1)), shape)
    return np.where(rng.random(shape) < 0.05, rng.choice((-1, desc.boxes_count)), order)


def random_groups(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: a few groups."""
    return rng.integers(-1, 2, shape)


@dataclass(slots=True, kw_only=True)
class NmsArgs(Args):
    """Any strides; order and groups are int64 or int32."""

    boxes: Array = operand("boxes_count 4", values=random_boxes)
    order: Array = operand("places", element=INDICES[::-1], values=random_order)
    groups: Array | None = operand("boxes_count", element=INDICES[::-1], optional=True, values=random_groups)
    keep: Array = output("places", element=ElementKind.I64)
    count: Array = output("", element=ElementKind.I64)
    iou_threshold: Scalar = scalar(values=(0.3, 0.5, 0.0, 0.7))


def reference(
    desc: NmsDescriptor, *, boxes: Any, order: Any, groups: Any, iou_threshold: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    kind = np.float64 if desc.element is ElementKind.F64 else np.float32
    order = order[(order >= 0) & (order < desc.boxes_count)].astype(np.int64)
    own = np.asarray(boxes, np.float64).astype(kind)[order]
    group = np.zeros(order.size, np.int64) if groups is None else groups[order]
    low, high, kept = own[:, :2], own[:, 2:], []
    with np.errstate(all="ignore"):
        area = (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])
        alive = np.ones(order.size, bool)
        for i in range(order.size):
            if not alive[i]:
                continue
            kept.append(order[i])
            size = np.fmax(np.fmin(high[i], high) - np.fmax(low[i], low), kind(0))
            shared = size[:, 0] * size[:, 1]
            alive &= ~((shared / (area[i] + area - shared) > kind(iou_threshold)) & (group == group[i]))
    keep = np.full(desc.places, -1, np.int64)
    keep[: len(kept)] = kept
    return {"keep": keep, "count": np.array(len(kept), np.int64)}


PARAMS = Params(
    "NmsParams", keep="ptr", count="ptr", boxes="ptr", order="ptr", groups="ptr", struck="workspace",
    masks="workspace", iou_threshold="scalar", boxes_count="i64", places="i64", words="i64", box_steps="i64[2]",
    order_step="i64", group_step="i64", keep_step="i64", order_wide="i32", groups_wide="i32", nms_threads=THREADS,
    nms_tile=TILE, nms_words=WORDS, nms_walkers=WALKERS, nms_most=MOST,
)  # fmt: skip


def _values(p: Problem) -> tuple[dict[str, Any], str]:
    """What the kernels know, and the layout."""
    desc = p.desc
    params = {
        "struck": 0, "masks": 0, "boxes_count": desc.boxes_count, "places": desc.places,
        "words": -(-desc.places // TILE), "box_steps": p.boxes.strides, "order_step": p.order.strides[0],
        "group_step": 0 if p.groups is None else p.groups.strides[0], "keep_step": p.keep.strides[0],
        "order_wide": p.order.element is ElementKind.I64,
        "groups_wide": p.groups is not None and p.groups.element is ElementKind.I64,
    }  # fmt: skip
    dense = all(v.dense for v in (p.boxes, p.order, p.keep, p.groups) if v is not None)
    return params, "contiguous" if dense else "strided"


def _pairs(p: Problem) -> Geometry | str:
    places = p.desc.places
    if not TILE < places <= MOST:
        return f"all pairs are compared of {TILE + 1} to {MOST} boxes, got {places}"
    params, layout = _values(p)
    words = params["words"]
    steps = (
        Step("nms_pairs", (-(-words // WORDS), words, 1), params, {}, WORDS * TILE),
        Step("nms_walk", (1, 1, 1), params, {}, WALKERS),
    )
    return Geometry(steps, aligned(8 * words * places), layout)


def _block(p: Problem) -> Geometry | str:
    params, layout = _values(p)
    return Geometry((Step("nms", (1, 1, 1), params, {}, THREADS),), aligned(max(p.desc.places, 1)), layout)


def bench_boxes(torch: Any, desc: NmsDescriptor) -> dict[str, Any]:
    """A benchmark's boxes."""
    corners, sizes = 1000 * torch.rand(desc.boxes_count, 2), 100 * torch.rand(desc.boxes_count, 2)
    boxes = torch.cat([corners, corners + sizes], 1)
    return {"boxes": boxes, "order": torch.randperm(desc.boxes_count), "iou_threshold": 0.5}


class NmsPlan(Plan):
    """keep: of the boxes in `order` those of which no kept one before covers more than iou_threshold; count: how many.

    Two boxes cover each other by the area they share over that of both, where their groups are equal. keep has -1
    behind the `count` boxes kept, and nothing is read back. A box without area covers none; NaN compares as not
    covered. Of 65 to 32768 boxes all pairs are compared first, a bit each, in a workspace of n² / 8 bytes.
    """

    op = "image.nms"
    descriptor = NmsDescriptor
    args = NmsArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a place of `order` outside [0, boxes) names no box and is skipped"
    variants = (
        Variant(
            "pairs", _pairs, source="image/nms.cu", elements=FLOATS, guarantee=Guarantee(),
            kernels=(
                Kernel("nms_pairs", "nms_pairs<{T}>", PARAMS, threads=WORDS * TILE),
                Kernel("nms_walk", "nms_walk", PARAMS, threads=WALKERS),
            ),
        ),
        Variant(
            "block", _block, source="image/nms.cu", elements=FLOATS, guarantee=Guarantee(),
            kernels=(Kernel("nms", "nms<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "4096 boxes f32", boxes_count=4096, places=4096, element="float32", work=BYTES, target=None,
            peers=(), make=bench_boxes,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NmsDescriptor:
        count = draw.sizes(0, 1, 5, 20, 70, rare=(600,))
        return NmsDescriptor(boxes_count=count, places=max(0, count + draw.choice((0, 0, -3))), element=draw.element)


_nms = functional(NmsPlan, "nms")


def _order(boxes: Any, scores: Any, options: dict[str, Any]) -> Any:
    shape, given = shape_of(boxes, "boxes"), shape_of(scores, "scores")
    if len(shape) != 2 or shape[1] != 4 or given != shape[:1]:
        raise InvalidProblemError(f"boxes must be [n, 4] and scores [n], got shapes {shape} and {given}")
    return argsort(constant(scores), descending=True, **options)


@entry(NmsPlan)
def nms(
    boxes: Array, scores: Array, iou_threshold: Any, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The boxes that no better one covers by more than iou_threshold, and how many there are (torchvision.ops.nms).

    boxes: [n, 4], corners (x1, y1, x2, y2); scores: [n]. Returns keep [n], int64, best first, of equal scores the
    lowest index, with -1 behind the last; and count, 0-d int64 on the device: `keep[:int(count)]` is torchvision's
    result. A box is struck out by a kept one where the area they share is above iou_threshold of that of both.
    """
    options = {"stream": stream, "preference": preference}
    return _nms(constant(boxes), _order(boxes, scores, options), iou_threshold=iou_threshold, out=out, **options)


@entry(NmsPlan)
def batched_nms(
    boxes: Array, scores: Array, groups: Array, iou_threshold: Any, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`nms` of each group of boxes by itself (torchvision.ops.batched_nms); groups [n], int64 or int32, as classes.

    Returns keep and count as `nms` does, the groups' boxes together in the order of their scores.
    """
    options = {"stream": stream, "preference": preference}
    order = _order(boxes, scores, options)
    return _nms(constant(boxes), order, groups=groups, iou_threshold=iou_threshold, out=out, **options)
