"""global_norm: the 2-norm of a list of tensors taken as one vector, and the factor that clips it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Forward,
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Plan,
    Problem,
    Scalar,
    Step,
    Ulp,
    Variant,
    element,
    operand,
    output,
    scalar,
    shapes,
)
from ...calls.functional import functional
from ...core.variant import aligned
from ...schedules.geometry import Merged
from ...schedules.multi_tensor import chunk_counts, groups
from ...core.benchmark import EAGER, Benchmark

CHUNK = 32768  # elements a block sums; a constant, so that the order of the sum depends on the shapes alone
CAPACITY = 160  # tensors a launch; 24 bytes each in the parameter struct
THREADS = 256
LAST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class GlobalNormDescriptor(Descriptor):
    """A list of tensors of the given shapes."""

    shapes: tuple[tuple[int, ...], ...] = shapes()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class GlobalNormArgs(Args):
    """`clip_factor` = min(1, max_norm / (norm + 1e-6)) goes to `adam_step` as `grad_scale`, without a host sync."""

    tensors: list[Array] = operand(many="shapes")
    norm: Array = output(element="acc")
    clip_factor: Array | None = output(element="acc", optional=True)
    max_norm: Scalar = scalar(1.0)


def _norm(tensors: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        return np.sqrt(sum((np.sum(np.square(t), dtype=dtype) for t in tensors), dtype(0)))


def reference(desc: GlobalNormDescriptor, *, tensors: Any, max_norm: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype the tensors come in."""
    dtype = tensors[0].dtype.type if tensors else np.float64
    norm = _norm(tensors, dtype)
    limits = np.finfo(dtype)
    if (
        not np.sqrt(limits.tiny) / limits.eps < norm < np.sqrt(limits.max)
    ):  # squares left the range, or nothing is there
        largest = max((np.max(np.abs(t), initial=0) for t in tensors), default=0)
        if 0 < largest < np.inf:
            scale = dtype(2) ** (np.frexp(largest)[1] - 1)
            norm = _norm([t / scale for t in tensors], dtype) * scale
    factor = np.minimum(dtype(max_norm) / (norm + dtype(1e-6)), dtype(1))
    return {"norm": norm, "clip_factor": factor}


PARAMS = Params(
    "GlobalNormParams", tensors=f"ptr[{CAPACITY}]", partials="workspace", sizes=f"i64[{CAPACITY}]",
    first=f"i32[{CAPACITY}]", slot=f"i32[{CAPACITY}]", count="i32",
)  # fmt: skip
STRIDED = Params(
    "GlobalNormStridedParams", tensors="ptr[1]", partials="workspace", size="i64", shape="i64[8]", strides="i64[1][8]",
    slot="i64", rank="i32",
)  # fmt: skip
FINISH = Params(
    "GlobalNormFinishParams", partials="workspace", norm="ptr", clip_factor="ptr", count="i64", max_norm="scalar"
)


def _bound(kind: ElementKind, _: Any) -> Ulp | Forward:
    # Squares and sums of one 16-byte vector in the accumulator (1 + log2 of its elements roundings, halved by the
    # root), then float64, rounded once. A float64 sum has 64 terms a thread, 8 tree steps and the second pass.
    return Forward(128) if kind is ElementKind.F64 else Ulp(3)


def _geometry(p: Problem) -> Geometry | str:
    counts = chunk_counts([view.size for view in p.tensors], CHUNK)
    slots = list(itertools.accumulate(counts, initial=0))
    total = slots.pop()
    partial = 24 if p.desc.element is ElementKind.F64 else 8  # bytes a chunk
    if total >= 2**31:
        return f"{total} chunks of {CHUNK} elements; a launch holds 2^31 - 1"
    steps, strided = [], []
    layout = "contiguous"
    for i, view in enumerate(p.tensors):
        merged = Merged.of((view,), (range(len(view.shape)),))
        if isinstance(merged, str):
            return f"tensors[{i}]: {merged}"
        if view.size and not merged.run:
            layout = "strided"
            axes = merged.groups[0].params()
            params = {"tensors": ("tensors", i, i + 1), "size": view.size, "slot": slots[i], **axes}
            strided.append(Step("global_norm_strided", (counts[i], 1, 1), params, {}, THREADS))
            counts[i] = 0
    for group in groups(counts, CAPACITY):
        at = slice(group.start, group.stop)
        params = {
            "tensors": ("tensors", group.start, group.stop), "sizes": [v.size for v in p.tensors[at]],
            "first": group.first, "slot": slots[at], "count": group.stop - group.start,
        }  # fmt: skip
        steps.append(Step("global_norm_chunks", (group.blocks, 1, 1), params, {}, THREADS))
    finish = Step("global_norm_finish", (1, 1, 1), {"count": total}, {}, LAST_THREADS)
    return Geometry((*steps, *strided, finish), workspace=aligned(total * partial), layout=layout)


def in_torch(
    torch: Any, desc: GlobalNormDescriptor, *, tensors: Any, max_norm: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """torch.nn.utils.get_total_norm, and the factor of clip_grad_norm_."""
    norm = torch.nn.utils.get_total_norm(tensors)
    made = {"norm": norm}
    if "clip_factor" in wanted:
        made["clip_factor"] = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return made


class GlobalNormPlan(Plan):
    """norm = sqrt(Σ over all tensors of x²); clip_factor = min(1, max_norm / (norm + 1e-6)).

    torch.nn.utils.clip_grad_norm_ without the scaling pass and without a host sync: give `clip_factor` to
    `AdamStepPlan` as `grad_scale`. tensors: any strides. norm, clip_factor: [] float32, float64 for float64.

    A 16-byte vector of squares is summed in the accumulator, everything after it in float64, in an order that depends
    on the shapes alone. Squares that leave the accumulator's range are summed again in a wider one, so a norm that
    the output can hold neither overflows nor vanishes. NaN gives NaN, an infinity norm inf and factor 0, as torch does.
    No tensors, or empty ones, have norm 0 and factor min(1, max_norm / 1e-6).
    """

    op = "optimizer.global_norm"
    descriptor = GlobalNormDescriptor
    args = GlobalNormArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "two_pass", _geometry, source="optimizer/global_norm.cu",
            kernels=(
                Kernel("global_norm_chunks", f"global_norm_chunks<{{T}}, {THREADS}, {CHUNK}>", PARAMS, {}, THREADS),
                Kernel("global_norm_strided", f"global_norm_strided<{{T}}, {THREADS}, {CHUNK}>", STRIDED, {}, THREADS),
                Kernel("global_norm_finish", f"global_norm_finish<{{A}}, {LAST_THREADS}>", FINISH, {}, LAST_THREADS),
            ),
            guarantee=Guarantee(_bound),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("64 x 4M f32", shapes=((1 << 22,),) * 64, element="float32", peers=(EAGER,)),)

    @staticmethod
    def case(draw: Any) -> GlobalNormDescriptor:
        count = draw.integer(1, 5)
        return GlobalNormDescriptor(shapes=tuple(draw.shape(0, 3, 0, 33) for _ in range(count)), element=draw.element)

    @classmethod
    def flops(cls, desc: GlobalNormDescriptor) -> int:
        return 2 * sum(math.prod(shape) for shape in desc.shapes)


global_norm = functional(GlobalNormPlan)
