"""segment_reduce_backward: dx of the reductions of segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, choice, element,
    flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...schedules.segments import By, Columns, combine_kernels, place_kernels, segment_params, together, tokens_kernel
from .segment_kinds import (
    ELEMENTS,
    SegmentKind,
    count_segments,
    each,
    expand,
    index_trouble,
    random_segments,
    segment_ids_of,
)
from .segment_reduce import (
    EXTREMES, SegmentReduceDescriptor, SegmentReducePlan, known_index, segment_case, tokens_of,
)  # fmt: skip

DIRECT = (SegmentKind.SUM, SegmentKind.MEAN)  # whose gradient the forward's operands give
COMBINING = (*EXTREMES, SegmentKind.PROD, SegmentKind.LOGSUMEXP)
_PLANES = {SegmentKind.PROD: 3, SegmentKind.LOGSUMEXP: 2}  # numbers of a segment; of the others one


@dataclass(frozen=True, kw_only=True)
class SegmentReduceBackwardDescriptor(SegmentReduceDescriptor):
    """As of the forward; what a segment without tokens got has no gradient."""

    kind: SegmentKind = choice(SegmentKind)
    with_initial: bool = flag(False)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class SegmentReduceBackwardArgs(Args):
    """Any strides. x where the gradient depends on it (not of sum and mean), y (the forward's result) likewise."""

    dy: Array = operand("num_segments *row_shape")
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    x: Array | None = operand("tokens *row_shape", kinds=COMBINING)
    y: Array | None = operand("num_segments *row_shape", kinds=EXTREMES)
    dx: Array = output("tokens *row_shape")
    initial: Scalar = scalar(0.0)


def reference(
    desc: SegmentReduceBackwardDescriptor, *, dy: Any, index: Any, x: Any, y: Any, initial: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in."""
    kind, ids = desc.kind, segment_ids_of(desc, index)
    known, rows = ids >= 0, np.maximum(ids, 0)
    if not desc.num_segments:
        return {"dx": np.zeros((desc.tokens, *desc.row_shape), dy.dtype)}
    with np.errstate(all="ignore"):
        if kind in DIRECT:
            n = np.maximum(np.bincount(ids[known], minlength=desc.num_segments), 1).astype(dy.dtype)
            dx = dy[rows]
            if kind is SegmentKind.MEAN:
                dx = dx / expand(n[rows], len(desc.row_shape))
        elif kind is SegmentKind.LOGSUMEXP:
            dx = np.zeros(x.shape, dy.dtype)
            for segment, tokens in each(ids, desc.num_segments):
                dx[tokens] = dy[segment] * _shares(x[tokens], initial if desc.with_initial else -np.inf)
        elif kind in EXTREMES:
            same = (x == y[rows]) | (x != x) & (y[rows] != y[rows])
            ties = np.zeros(y.shape, dy.dtype)
            np.add.at(ties, ids[known], same[known].astype(dy.dtype))
            dx = np.where(same, dy[rows] / np.maximum(ties[rows], 1), 0)
        else:
            dx = np.zeros(x.shape, dy.dtype)
            for segment, tokens in each(ids, desc.num_segments):
                first = np.asarray(initial, np.float64).astype(x.dtype) if desc.with_initial else x.dtype.type(1)
                dx[tokens] = dy[segment] * _others(x[tokens], first)
    dx[~known] = 0
    return {"dx": dx}


def _shares(x: Any, first: Any) -> Any:
    """The part of every row in the sum of their exponentials and that of `first`."""
    every = np.concatenate([np.full((1, *x.shape[1:]), first, x.dtype), x])
    top = every.max(0)
    return np.exp(x - top) / np.exp(every - np.where(np.isfinite(top), top, 0)).sum(0)


def _others(x: Any, first: Any) -> Any:
    """For every row the product of the others, and of `first`: those before it times those after it."""
    before, after = np.empty_like(x), np.empty_like(x)
    product = np.full(x.shape[1:], first, x.dtype)
    for i in range(len(x)):
        before[i] = product
        product = product * x[i]
    product = np.ones(x.shape[1:], x.dtype)
    for i in reversed(range(len(x))):
        after[i] = product
        product = product * x[i]
    return before * after


PARAMS = segment_params("SegmentReduceBackwardParams")


def _geometry(p: Problem) -> Geometry | str:
    desc, segments, acc = p.desc, tokens_of(p), p.desc.acc.itemsize
    kind = desc.kind
    names = {"x": "x", "h": "y", "g": "dy", "y": "dx"}
    views = {"x": p.x, "h": p.views["y"], "g": p.dy, "y": p.dx}
    found = _columns(desc, views)
    if isinstance(found, str):
        return found
    columns, combining = found
    if refusal := segments.refusal():
        return refusal
    given = {name: operand for name, operand in names.items() if views[name] is not None}
    placed = kind in COMBINING or kind is SegmentKind.MEAN
    steps = segments.places(slots=kind in COMBINING) if placed else []
    if isinstance(steps, str):
        return steps
    if kind in COMBINING:
        facts = {"initial": 1} if kind in _PLANES else {}
        planes = _PLANES.get(kind, 1)
        begins = desc.with_initial and kind in _PLANES
        operands = {name: operand for name, operand in given.items() if name in "xh"}
        more = segments.combined(combining, planes, acc, kept=True, begins=begins, **operands, **facts)
        if isinstance(more, str):
            return more
        steps += more
    if By(desc.by).bounds:
        owners, at = segments.owners()
        steps.append(owners)
        given["owners"] = ("@workspace", at)  # type: ignore[assignment]
    last = segments.per_token(columns, **given)
    if isinstance(last, str):
        return last
    return together([*steps, last], segments.workspace, columns, tuple(views.values()))


def _columns(desc: Any, views: Mapping[str, Any]) -> tuple[Columns, Columns] | str:
    """The columns of all operands, and of those that are combined, a thread taking as many of both."""
    columns = Columns.of(desc.row_shape, views, desc.element)
    combining = Columns.of(desc.row_shape, {n: v for n, v in views.items() if n in "xh"}, desc.element)
    if isinstance(columns, str):
        return columns
    return combining if isinstance(combining, str) else (columns, combining)


def _kernels(kinds: tuple[SegmentKind, ...]) -> tuple[Any, ...]:
    combining = combine_kernels(PARAMS, "NeedOf{KIND}") if kinds is COMBINING else ()
    return (*place_kernels(PARAMS, owners=True), *combining, tokens_kernel(PARAMS, "SlopeOf{KIND}"))


class SegmentReduceBackwardPlan(Plan):
    """dx[t, …] of `SegmentReducePlan`: dy of t's segment, for mean divided by its tokens, for logsumexp times the part
    of exp(x) in the sum of exponentials, which is found anew: the forward's result is rounded.

    max and min divide dy evenly among the tokens that are the extreme (NaN among NaN), as JAX and PyTorch do. prod
    multiplies dy by the product of the other tokens, zeros or not: the product of a segment is held as a fraction and
    an exponent, from which a token is divided out. A token of no segment has the gradient 0.
    """

    op = "segment.segment_reduce_backward"
    direction = "backward"
    kinds = SegmentKind
    descriptor = SegmentReduceBackwardDescriptor
    args = SegmentReduceBackwardArgs
    reference = staticmethod(reference)
    value_policy = SegmentReducePlan.value_policy
    variants = tuple(
        Variant(
            name, _geometry, source="segment/segment_reduce_backward.cu", elements=FLOATS, kinds=kinds,
            kernels=_kernels(kinds), guarantee=Guarantee(Relative(2)),
        )
        for name, kinds in (("tokens", DIRECT), ("slots", COMBINING))
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(
            f"{kind.value} of [1048576, 128] bf16, 65536 sorted segments", kind=kind, tokens=1 << 20,
            num_segments=65536, row_shape=(128,), by="sorted", element="bfloat16", peers=(EAGER,), target=None,
            make=lambda torch, desc: {"index": known_index(torch, desc)},
        )
        for kind in (SegmentKind.SUM, SegmentKind.MAX, SegmentKind.PROD)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SegmentReduceBackwardDescriptor:
        return SegmentReduceBackwardDescriptor(
            kind=draw.kind, with_initial=draw.integer(0, 3) == 3, **segment_case(draw)
        )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """y is what the forward makes of x."""
        if arrays.get("y") is not None and arrays.get("x") is not None:
            arrays["y"] = forward_result(desc, arrays["x"], arrays["index"], arrays["initial"])

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return index_trouble(desc, arrays["index"])


def forward_result(desc: Any, x: Any, index: Any, initial: Any) -> Any:
    """What the forward makes of x as stored, on the CPU."""
    forward = SegmentReduceDescriptor(
        kind=desc.kind, tokens=desc.tokens, num_segments=desc.num_segments, row_shape=desc.row_shape, by=desc.by,
        with_initial=desc.with_initial, element=desc.element,
    )  # fmt: skip
    y = np.empty((desc.num_segments, *desc.row_shape), x.dtype)
    SegmentReducePlan.select(forward, device="cpu")(x=x, index=index, y=y, initial=initial)
    return y


segment_reduce_backward = functional(SegmentReduceBackwardPlan)
