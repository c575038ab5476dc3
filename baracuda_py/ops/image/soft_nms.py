"""soft_nms: boxes best first, whose scores sink with what better ones cover of them (Bodla et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Forward, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    Step, Variant, choice, element, extent, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.element import INDICES
from ...core.variant import aligned
from .nms import random_boxes, random_groups

THREADS, HELD = 1024, 512  # of a block; of one whose threads hold their boxes
WALKERS, ROWS, PAIRED = 256, 16, (16, 32)  # threads of the walk, rows of pairs of a block, boxes of a thread
METHODS = ("linear", "gaussian")


@dataclass(frozen=True, kw_only=True)
class SoftNmsDescriptor(Descriptor):
    """boxes are [boxes_count, 4] (x1, y1, x2, y2), scores and groups [boxes_count].

    method: linear multiplies a score by 1 - iou where iou is above iou_threshold; gaussian by exp(-iou² / sigma).
    """

    boxes_count: int = extent()
    method: str = choice(METHODS, "linear")
    element: ElementKind = element()


def random_scores(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: scores in hundredths, of which some are equal."""
    return np.round(100 * rng.random(shape)) / 100


@dataclass(slots=True, kw_only=True)
class SoftNmsArgs(Args):
    """Any strides; groups are int64 or int32."""

    boxes: Array = operand("boxes_count 4", values=random_boxes)
    scores: Array = operand("boxes_count", values=random_scores)
    groups: Array | None = operand("boxes_count", element=INDICES[::-1], optional=True, values=random_groups)
    keep: Array = output("boxes_count", element=ElementKind.I64)
    kept_scores: Array = output("boxes_count")
    count: Array = output("", element=ElementKind.I64)
    iou_threshold: Scalar = scalar(0.3, values=(0.3, 0.5, 0.0, 0.7))
    sigma: Scalar = scalar(0.5, values=(0.5, 0.25, 1.0))
    score_threshold: Scalar = scalar(0.001, values=(0.001, 0.25, 0.0))


def reference(
    desc: SoftNmsDescriptor, *, boxes: Any, scores: Any, groups: Any, iou_threshold: Any, sigma: Any,
    score_threshold: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    kind = np.float64 if desc.element is ElementKind.F64 else np.float32
    own, left = (np.array(np.asarray(v, np.float64), kind) for v in (boxes, scores))
    group = np.zeros(desc.boxes_count, np.int64) if groups is None else groups
    low, high, least = own[:, :2], own[:, 2:], kind(score_threshold)
    keep, kept = np.full(desc.boxes_count, -1, np.int64), np.zeros(desc.boxes_count, kind)
    with np.errstate(all="ignore"):
        area = (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])
        alive, count = left >= least, 0
        while alive.any():
            places = np.flatnonzero(alive)
            i = int(places[np.argmax(left[places])])
            keep[count], kept[count], alive[i] = i, left[i], False
            count += 1
            size = np.fmax(np.fmin(high[i], high) - np.fmax(low[i], low), kind(0))
            shared = size[:, 0] * size[:, 1]
            iou = shared / (area[i] + area - shared)
            if desc.method == "linear":
                sunk = np.where(iou > kind(iou_threshold), left * (kind(1) - iou), left)
            else:
                part = iou.astype(np.float64)
                sunk = (left.astype(np.float64) * np.exp(-(part * part) / np.float64(sigma))).astype(kind)
            left = np.where((group == group[i]) & (iou == iou), sunk, left)
            alive &= left >= least
    return {"keep": keep, "kept_scores": kept, "count": np.array(count, np.int64)}


PARAMS = Params(
    "SoftNmsParams", keep="ptr", kept_scores="ptr", count="ptr", boxes="ptr", scores="ptr", groups="ptr",
    left="workspace", words="workspace", iou_threshold="scalar", sigma="scalar", score_threshold="scalar",
    boxes_count="i64", box_steps="i64[2]", score_step="i64", group_step="i64", keep_step="i64", kept_step="i64",
    groups_wide="i32", gaussian="i32", soft_threads=THREADS, soft_held=HELD, soft_walkers=WALKERS, soft_rows=ROWS,
)  # fmt: skip


def _values(p: Problem) -> tuple[dict[str, Any], str]:
    """What the kernels know, and the layout."""
    params = {
        "left": 0, "words": 0, "boxes_count": p.desc.boxes_count, "box_steps": p.boxes.strides,
        "score_step": p.scores.strides[0], "group_step": 0 if p.groups is None else p.groups.strides[0],
        "keep_step": p.keep.strides[0], "kept_step": p.kept_scores.strides[0], "gaussian": p.desc.method == "gaussian",
        "groups_wide": p.groups is not None and p.groups.element is ElementKind.I64,
    }  # fmt: skip
    dense = all(v.dense for v in (p.boxes, p.scores, p.keep, p.kept_scores, p.groups) if v is not None)
    return params, "contiguous" if dense else "strided"


def _each(kind: ElementKind) -> dict[str, tuple[int, ...]]:
    """Boxes of a thread: few, and as many as its registers hold."""
    return {"EACH": (2, 4 if kind is ElementKind.F64 else 8)}


def _held(p: Problem) -> Geometry | str:
    count, each = p.desc.boxes_count, _each(p.desc.element)["EACH"]
    if not 0 < count <= HELD * each[-1]:
        return f"a block holds 1 to {HELD * each[-1]} boxes of {p.desc.element}, got {count}"
    params, layout = _values(p)
    few = count <= HELD * each[0]
    return Geometry((Step("soft_nms_held", (1, 1, 1), params, {"EACH": each[0 if few else -1]}, HELD),), 0, layout)


def _pairs(p: Problem) -> Geometry | str:
    count = p.desc.boxes_count
    if not HELD < count <= WALKERS * PAIRED[-1]:
        return f"pairs are of {HELD + 1} to {WALKERS * PAIRED[-1]} boxes, got {count}"
    params, layout = _values(p)
    each = PAIRED[count > WALKERS * PAIRED[0]]
    smem = WALKERS * each * p.desc.element.acc.itemsize
    steps = (
        Step("soft_nms_pairs", (-(-count // ROWS), 1, 1), params, {"EACH": each}, WALKERS),
        Step("soft_nms_walk", (1, 1, 1), params, {"EACH": each}, WALKERS, smem),
    )
    return Geometry(steps, aligned(count * WALKERS * each // 8), layout)


def _block(p: Problem) -> Geometry | str:
    params, layout = _values(p)
    size = aligned(max(p.desc.boxes_count, 1) * p.desc.element.acc.itemsize)
    return Geometry((Step("soft_nms", (1, 1, 1), params, {}, THREADS),), size, layout)


def bench_boxes(torch: Any, desc: SoftNmsDescriptor) -> dict[str, Any]:
    """A benchmark's boxes."""
    corners, sizes = 1000 * torch.rand(desc.boxes_count, 2), 100 * torch.rand(desc.boxes_count, 2)
    return {"boxes": torch.cat([corners, corners + sizes], 1), "scores": torch.rand(desc.boxes_count)}


# A score sinks up to once for each other box: exp, whose error is an eps at most, and a product, each rounded.
_GUARANTEE = Guarantee(Forward(3), roundings=lambda desc: 6 * desc.boxes_count)


class SoftNmsPlan(Plan):
    """keep: the boxes in the order in which each has the largest score left; kept_scores: that score; count: how many.

    When a box is kept, the scores of those left of its group sink: linear, s (1 - iou) where iou > iou_threshold;
    gaussian, s exp(-iou² / sigma). A box whose score is below score_threshold, or NaN, is dropped. Of equal scores the
    lowest index comes first. An iou that is NaN, as of two boxes without area, leaves a score as it is. Behind `count`
    keep has -1 and kept_scores 0, and nothing is read back. A score is rounded each time it sinks, up to n - 1 times of
    n boxes, in float32 or, of float64, in float64: kept_scores are within 3 n eps of the formula's.
    """

    op = "image.soft_nms"
    descriptor = SoftNmsDescriptor
    args = SoftNmsArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "pairs", _pairs, source="image/soft_nms.cu", elements=FLOATS, guarantee=_GUARANTEE,
            kernels=(
                Kernel("soft_nms_pairs", "soft_nms_pairs<{T}, {EACH}>", PARAMS, {"EACH": PAIRED}, threads=WALKERS),
                Kernel("soft_nms_walk", "soft_nms_walk<{T}, {EACH}>", PARAMS, {"EACH": PAIRED}, threads=WALKERS),
            ), may_spill=True,
        ),
        Variant(
            "held", _held, source="image/soft_nms.cu", elements=FLOATS, guarantee=_GUARANTEE,
            kernels=(Kernel("soft_nms_held", "soft_nms_held<{T}, {EACH}>", PARAMS, _each, threads=HELD),),
            may_spill=True,
        ),
        Variant(
            "block", _block, source="image/soft_nms.cu", elements=FLOATS, guarantee=_GUARANTEE,
            kernels=(Kernel("soft_nms", "soft_nms<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "4096 boxes f32", boxes_count=4096, element="float32", work=BYTES, target=None, peers=(), make=bench_boxes,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SoftNmsDescriptor:
        count = draw.sizes(0, 1, 5, 20, 70, rare=(600,))
        return SoftNmsDescriptor(boxes_count=count, method=draw.choice(METHODS), element=draw.element)


_soft_nms = functional(SoftNmsPlan, "soft_nms")


@entry(SoftNmsPlan)
def soft_nms(
    boxes: Array, scores: Array, iou_threshold: Any = 0.3, *, method: str = "linear", sigma: Any = 0.5,
    score_threshold: Any = 0.001, groups: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Boxes best first, whose scores sink with what better ones cover of them (Bodla et al. 2017, Soft-NMS).

    boxes: [n, 4], corners (x1, y1, x2, y2); scores: [n], of the same element. method "linear" multiplies scores by
    1 - iou where iou is above iou_threshold, "gaussian" by exp(-iou² / sigma). groups: [n], int64 or int32, as
    classes: boxes of different ones leave each other alone. Returns keep [n], int64, in the order in which boxes are
    chosen, of equal scores the lowest index first, with -1 behind the last; their scores then [n]; and count, 0-d int64
    on the device. Boxes whose score sinks below score_threshold are dropped. Scores kept have no gradient: operands
    that require one are refused; give their .detach().
    """
    return _soft_nms(
        boxes, scores, groups=groups, method=method, iou_threshold=iou_threshold, sigma=sigma,
        score_threshold=score_threshold, out=out, stream=stream, preference=preference,
    )  # fmt: skip
