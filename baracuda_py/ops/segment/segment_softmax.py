"""segment_softmax: softmax over the tokens of every segment, column by column, and its gradient."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Variant, View, Vjp, choice, element, extent,
    extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...schedules.segments import By, Columns, combine_kernels, place_kernels, segment_params, together, tokens_kernel
from .segment_kinds import ELEMENTS, Segmented, count_segments, each, index_trouble, random_segments, segment_ids_of
from .segment_reduce import SegmentReducePlan, ids_in_torch, known_index, segment_case, tokens_of


class SegmentSoftmaxKind(enum.Enum):
    """Shares, or their logarithms."""

    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log_softmax"

    @property
    def cpp(self) -> str:
        """The end of functors' names in kernels/segment/segment_softmax.cu."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, kw_only=True)
class SegmentSoftmaxDescriptor(Segmented):
    """x and y are [tokens, *row_shape]; see `Segmented` for `by`."""

    kind: SegmentSoftmaxKind = choice(SegmentSoftmaxKind)
    tokens: int = extent()
    row_shape: tuple[int, ...] = extents()
    element: ElementKind = element()

    @property
    def count(self) -> int:
        return self.tokens


@dataclass(slots=True, kw_only=True)
class SegmentSoftmaxArgs(Args):
    """Any strides; the index is int64 or int32. y may be x."""

    x: Array = operand("tokens *row_shape")
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    y: Array = output("tokens *row_shape", inplace=("x",))


def reference(desc: SegmentSoftmaxDescriptor, *, x: Any, index: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    y = np.zeros(x.shape, x.dtype)
    with np.errstate(all="ignore"):
        for _, tokens in each(segment_ids_of(desc, index), desc.num_segments):
            if tokens.size:
                apart = x[tokens] - np.maximum.reduce(x[tokens], axis=0)
                total = np.exp(apart).sum(axis=0)
                shares = desc.kind is SegmentSoftmaxKind.SOFTMAX
                y[tokens] = np.exp(apart) / total if shares else apart - np.log(total)
    return {"y": y}


PARAMS = segment_params("SegmentSoftmaxParams")


def _launches(p: Problem, views: Mapping[str, View], names: Mapping[str, str], planes: int) -> Geometry | str:
    """The launches: what of the tokens' operands x and z a segment comes to, then y of every token."""
    desc, segments = p.desc, tokens_of(p)
    combining = Columns.of(desc.row_shape, {n: v for n, v in views.items() if n != "y"}, desc.element)
    columns = Columns.of(desc.row_shape, views, desc.element)
    if isinstance(columns, str):
        return columns
    if isinstance(combining, str):
        return combining
    if refusal := segments.refusal():
        return refusal
    steps = segments.places()
    if isinstance(steps, str):
        return steps
    operands = {name: operand for name, operand in names.items() if name != "y"}
    more = segments.combined(combining, planes, desc.acc.itemsize, kept=True, **operands)
    if isinstance(more, str):
        return more
    facts: dict[str, Any] = dict(names)
    if By(desc.by).bounds:
        owners, at = segments.owners()
        more.append(owners)
        facts["owners"] = ("@workspace", at)
    last = segments.per_token(columns, **facts)
    if isinstance(last, str):
        return last
    return together([*steps, *more, last], segments.workspace, columns, tuple(views.values()))


def _geometry(p: Problem) -> Geometry | str:
    return _launches(p, {"x": p.x, "y": p.y}, {"x": "x", "y": "y"}, planes=2)


def in_torch(torch: Any, desc: SegmentSoftmaxDescriptor, *, x: Any, index: Any) -> Any:
    """exp of what is left of the segment's largest, over their sum."""
    ids = ids_in_torch(torch, desc, index)
    rows = ids.reshape(-1, *(1,) * (x.dim() - 1)).expand(x.shape)
    shape = (desc.num_segments + 1, *desc.row_shape)
    apart = x - x.new_full(shape, -torch.inf).scatter_reduce(0, rows, x, "amax").gather(0, rows)
    total = x.new_zeros(shape).scatter_add(0, rows, torch.exp(apart)).gather(0, rows)
    shares = desc.kind is SegmentSoftmaxKind.SOFTMAX
    y = torch.exp(apart) / total if shares else apart - torch.log(total)
    return torch.where(rows < desc.num_segments, y, 0)


class SegmentSoftmaxPlan(Plan):
    """y[t, …] = exp(x[t, …]) / Σ exp(x[u, …]) over the tokens u of t's segment; log_softmax its logarithm.

    The attention of a node over its edges. A token of no segment gets 0. Sums are those of `SegmentReducePlan`.
    """

    op = "segment.segment_softmax"
    kinds = SegmentSoftmaxKind
    descriptor = SegmentSoftmaxDescriptor
    args = SegmentSoftmaxArgs
    reference = staticmethod(reference)
    vjp = Vjp("SegmentSoftmaxBackwardPlan", grads={"x": "dx"})
    value_policy = SegmentReducePlan.value_policy
    variants = (
        Variant(
            "slots", _geometry, source="segment/segment_softmax.cu", guarantee=Guarantee(Relative(2)),
            kernels=(
                *place_kernels(PARAMS, owners=True), *combine_kernels(PARAMS, "SegmentExpKept"),
                tokens_kernel(PARAMS, "Token{KIND}"),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[4194304, 8] f32 by sorted ids, 262144 segments", kind=SegmentSoftmaxKind.SOFTMAX, tokens=1 << 22,
            num_segments=1 << 18, row_shape=(8,), by="sorted", element="float32", target=None, peers=(EAGER,),
            make=lambda torch, desc: {"index": known_index(torch, desc)},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SegmentSoftmaxDescriptor:
        return SegmentSoftmaxDescriptor(kind=draw.kind, **segment_case(draw))

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return index_trouble(desc, arrays["index"])


segment_softmax = functional(SegmentSoftmaxPlan, "segment_softmax", kind=SegmentSoftmaxKind.SOFTMAX)
segment_log_softmax = functional(SegmentSoftmaxPlan, "segment_log_softmax", kind=SegmentSoftmaxKind.LOG_SOFTMAX)


@dataclass(frozen=True, kw_only=True)
class SegmentSoftmaxBackwardDescriptor(SegmentSoftmaxDescriptor):
    """As of the forward."""


@dataclass(slots=True, kw_only=True)
class SegmentSoftmaxBackwardArgs(Args):
    """Any strides; y is the forward's result. dx may be dy or y."""

    dy: Array = operand("tokens *row_shape")
    y: Array = operand("tokens *row_shape")
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    dx: Array = output("tokens *row_shape", inplace=("dy", "y"))


def backward_reference(desc: SegmentSoftmaxBackwardDescriptor, *, dy: Any, y: Any, index: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    dx = np.zeros(dy.shape, dy.dtype)
    with np.errstate(all="ignore"):
        for _, tokens in each(segment_ids_of(desc, index), desc.num_segments):
            g, s = dy[tokens], y[tokens]
            if desc.kind is SegmentSoftmaxKind.SOFTMAX:
                dx[tokens] = s * (g - (g * s).sum(axis=0))
            else:
                dx[tokens] = g - np.exp(s) * g.sum(axis=0)
    return {"dx": dx}


BACKWARD_PARAMS = segment_params("SegmentSoftmaxBackwardParams")


def _backward_geometry(p: Problem) -> Geometry | str:
    return _launches(p, {"x": p.dy, "z": p.y, "y": p.dx}, {"x": "dy", "z": "y", "y": "dx"}, planes=1)


def backward_in_torch(torch: Any, desc: SegmentSoftmaxBackwardDescriptor, *, dy: Any, y: Any, index: Any) -> Any:
    """The formula, with sums of a segment by scatter_add."""
    ids = ids_in_torch(torch, desc, index)
    rows = ids.reshape(-1, *(1,) * (y.dim() - 1)).expand(y.shape)
    shares = desc.kind is SegmentSoftmaxKind.SOFTMAX
    base = y.new_zeros((desc.num_segments + 1, *desc.row_shape))
    total = base.scatter_add(0, rows, dy * y if shares else dy).gather(0, rows)
    dx = y * (dy - total) if shares else dy - torch.exp(y) * total
    return torch.where(rows < desc.num_segments, dx, 0)


class SegmentSoftmaxBackwardPlan(Plan):
    """dx = y (dy - Σ dy y) over the tokens of a segment; of log_softmax dy - exp(y) Σ dy. A token of none gets 0."""

    op = "segment.segment_softmax_backward"
    direction = "backward"
    kinds = SegmentSoftmaxKind
    descriptor = SegmentSoftmaxBackwardDescriptor
    args = SegmentSoftmaxBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = SegmentReducePlan.value_policy
    variants = (
        Variant(
            "slots", _backward_geometry, source="segment/segment_softmax.cu", guarantee=Guarantee(Relative(2)),
            kernels=(
                *place_kernels(BACKWARD_PARAMS, owners=True), *combine_kernels(BACKWARD_PARAMS, "SumOf{KIND}"),
                tokens_kernel(BACKWARD_PARAMS, "SlopeOf{KIND}"),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = SegmentSoftmaxPlan.benchmarks

    @staticmethod
    def case(draw: Any) -> SegmentSoftmaxBackwardDescriptor:
        return SegmentSoftmaxBackwardDescriptor(kind=draw.kind, **segment_case(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """y are shares: what the forward makes of the numbers drawn."""
        forward = SegmentSoftmaxDescriptor(
            kind=desc.kind, tokens=desc.tokens, num_segments=desc.num_segments, row_shape=desc.row_shape, by=desc.by,
            element=desc.element,
        )  # fmt: skip
        x, arrays["y"] = arrays["y"], np.empty(arrays["y"].shape, arrays["y"].dtype)
        SegmentSoftmaxPlan.select(forward, device="cpu")(x=x, index=arrays["index"], y=arrays["y"])

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return index_trouble(desc, arrays["index"])


segment_softmax_backward = functional(
    SegmentSoftmaxBackwardPlan, "segment_softmax_backward", kind=SegmentSoftmaxKind.SOFTMAX
)
segment_log_softmax_backward = functional(
    SegmentSoftmaxBackwardPlan, "segment_log_softmax_backward", kind=SegmentSoftmaxKind.LOG_SOFTMAX
)
