"""segment_reduce: rows combined segment by segment (jax.ops.segment_sum, torch.segment_reduce)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, Vjp,
    choice, element, extent, extents, flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, IN_ORDER, Benchmark
from ...core.element import REALS
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...core.numbers import taken
from ...core.params import exactly
from ...schedules.segments import By, Columns, Segments, combine_kernels, place_kernels, segment_params, together
from .segment_kinds import (
    ELEMENTS, Segmented, SegmentKind, combined, count_segments, each, expand, index_trouble, random_segments,
    segment_ids_of,
)  # fmt: skip

TAKEN = (*REALS, ElementKind.BOOL)
EXTREMES = (SegmentKind.MAX, SegmentKind.MIN)
OF_FLOATS = (SegmentKind.MEAN, SegmentKind.LOGSUMEXP)
_UFUNC = {
    SegmentKind.SUM: np.add, SegmentKind.MEAN: np.add, SegmentKind.PROD: np.multiply, SegmentKind.MAX: np.maximum,
    SegmentKind.MIN: np.minimum, SegmentKind.LOGSUMEXP: np.logaddexp,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SegmentReduceDescriptor(Segmented):
    """x is [tokens, *row_shape], y [num_segments, *row_shape]; see `Segmented` for `by`.

    with_initial: every segment begins with `initial` beside its tokens. with_empty: one without tokens gets `empty`.
    """

    kind: SegmentKind = choice(SegmentKind)
    tokens: int = extent()
    row_shape: tuple[int, ...] = extents()
    with_initial: bool = flag(False)
    with_empty: bool = flag(False)
    element: ElementKind = element(TAKEN)

    def validate(self) -> None:
        Segmented.validate(self)
        if self.kind in OF_FLOATS and not self.element.is_float:
            raise InvalidProblemError(f"{self.kind.value} takes floats, got {self.element}")

    @property
    def count(self) -> int:
        return self.tokens


@dataclass(slots=True, kw_only=True)
class SegmentReduceArgs(Args):
    """Any strides; the index is int64 or int32."""

    x: Array = operand("tokens *row_shape")
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    y: Array = output("num_segments *row_shape")
    initial: Scalar = scalar(0, meets="element")
    empty: Scalar = scalar(0, meets="element")


def identity(kind: SegmentKind, element: ElementKind) -> Any:
    """What a segment without tokens comes to: combining with it changes nothing."""
    if kind in (SegmentKind.MAX, SegmentKind.LOGSUMEXP):
        return -np.inf if element.is_float else element.limits.min
    if kind is SegmentKind.MIN:
        return np.inf if element.is_float else element.limits.max
    return int(kind is SegmentKind.PROD)


def reference(
    desc: SegmentReduceDescriptor, *, x: Any, index: Any, initial: Any, empty: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in."""
    kind, ids = desc.kind, segment_ids_of(desc, index)
    with np.errstate(all="ignore"):
        if kind is SegmentKind.LOGSUMEXP:
            y, n = _logsumexp(desc, x, ids)
        else:
            y, n = combined(_UFUNC[kind].reduceat, x, ids, desc.num_segments, identity(kind, desc.element))
        if desc.with_initial:
            y = _UFUNC[kind](taken(initial, desc.element).astype(x.dtype), y)
        if kind is SegmentKind.MEAN:
            y = y / expand(np.maximum(n, 1), x.ndim - 1).astype(x.dtype)
    if desc.with_empty:
        y[n == 0] = taken(empty, desc.element).astype(x.dtype)
    return {"y": y}


def _logsumexp(desc: SegmentReduceDescriptor, x: Any, ids: Any) -> tuple[Any, Any]:
    """log Σ exp of every segment, under its largest."""
    y = np.full((desc.num_segments, *desc.row_shape), -np.inf, x.dtype)
    n = np.zeros(desc.num_segments, np.int64)
    for segment, tokens in each(ids, desc.num_segments):
        n[segment] = tokens.size
        if tokens.size:
            top = np.maximum.reduce(x[tokens], axis=0)
            finite = np.where(np.isfinite(top), top, 0)
            y[segment] = np.log(np.exp(x[tokens] - finite).sum(axis=0)) + finite
    return y, n


PARAMS = segment_params("SegmentReduceParams", initial_whole="iscalar", empty_whole="iscalar")


def tokens_of(p: Problem) -> Segments:
    """The tokens of a problem, and what tells their segments."""
    desc = p.desc
    return Segments(p, By(desc.by), desc.count, desc.num_segments, p.index)


def _geometry(p: Problem) -> Geometry | str:
    desc, segments = p.desc, tokens_of(p)
    columns = Columns.of(desc.row_shape, {"x": p.x, "y": p.y}, desc.element)
    if isinstance(columns, str):
        return columns
    if refusal := segments.refusal():
        return refusal
    steps = segments.places()
    if isinstance(steps, str):
        return steps
    last = segments.combined(
        columns, 1 + (desc.kind is SegmentKind.LOGSUMEXP), desc.acc.itemsize, x="x", y="y", initial=1, empty=1,
        mean=desc.kind is SegmentKind.MEAN, begins=desc.with_initial, fills=desc.with_empty,
    )  # fmt: skip
    if isinstance(last, str):
        return last
    numbers = exactly(not desc.element.is_float, "initial", "empty")
    none = exactly(False, "initial", "empty")  # of the launches before; those of a radix sort know no such numbers
    before = [_with(step, none) if "initial_value" in step.params else step for step in steps]
    return together([*before, *(_with(step, numbers) for step in last)], segments.workspace, columns, (p.x, p.y))


def _with(step: Any, params: Mapping[str, Any]) -> Any:
    return replace(step, params={**step.params, **params})


def _bound(kind_of: ElementKind, kind: Any) -> ErrorBound:
    return Relative(2) if kind_of.is_float and kind not in EXTREMES else Exact()


def in_torch(
    torch: Any, desc: SegmentReduceDescriptor, *, x: Any, index: Any, initial: Any, empty: Any
) -> Any:  # fmt: skip
    """scatter_reduce of rows, whose out of range ids go to a row of their own."""
    if desc.with_initial or desc.with_empty:
        return NotImplemented
    ids = ids_in_torch(torch, desc, index)
    ids = ids.reshape(-1, *(1,) * (x.dim() - 1)).expand(x.shape)
    shape = (desc.num_segments + 1, *desc.row_shape)
    if desc.kind is SegmentKind.LOGSUMEXP:
        top = x.new_full(shape, -torch.inf).scatter_reduce(0, ids, x, "amax")
        top = torch.where(torch.isfinite(top), top, 0).detach()
        return (torch.log(x.new_zeros(shape).scatter_add(0, ids, torch.exp(x - top.gather(0, ids)))) + top)[:-1]
    base = x.new_full(shape, identity(desc.kind, desc.element))
    if desc.kind is SegmentKind.SUM:
        return base.scatter_add(0, ids, x)[:-1]
    name = {SegmentKind.MEAN: "mean", SegmentKind.PROD: "prod", SegmentKind.MAX: "amax", SegmentKind.MIN: "amin"}
    return base.scatter_reduce(0, ids, x, name[desc.kind], include_self=False)[:-1]


def ids_in_torch(torch: Any, desc: Segmented, index: Any) -> Any:
    """The segment of every token; num_segments for those of none."""
    segments, tokens = desc.num_segments, desc.count
    if desc.evenly:
        return torch.arange(tokens) // max(tokens // max(segments, 1), 1)
    index = index.long()
    if desc.by in (By.IDS.value, By.SORTED.value):
        return torch.where((index >= 0) & (index < segments), index, segments)
    edges = index
    if desc.by == By.STARTS.value:
        edges = torch.cat([index, index.new_full((1,), tokens)])
    if desc.by == By.ENDS.value:
        edges = torch.cat([index.new_zeros(1), index])
    found = torch.searchsorted(edges, torch.arange(tokens, device=edges.device), right=True) - 1
    return torch.where((found >= 0) & (found < segments), found, segments)


class SegmentReducePlan(Plan):
    """y[s, …] = the rows x[t, …] of the tokens t of segment s combined (jax.ops.segment_sum, torch.segment_reduce).

    sum, mean, prod, max, min (NaN wins), or logsumexp. A segment without tokens comes to what combining with changes
    nothing, as in JAX (0, 1, -inf or inf, or the limit of an integer), a mean to 0. Integers are combined in 64 bits
    and wrap; of truths a sum is whether any holds, a product whether all do. The tokens of a segment are combined in
    their order, 32 at a time, then what those come to in eight stripes: the same bits in every run, which depend on the
    segment's tokens alone.
    """

    op = "segment.segment_reduce"
    kinds = SegmentKind
    descriptor = SegmentReduceDescriptor
    args = SegmentReduceArgs
    reference = staticmethod(reference)
    vjp = Vjp("SegmentReduceBackwardPlan", grads={"x": "dx"})
    value_policy = (
        "a token whose id lies outside [0, num_segments), or that no offsets enclose, is of no segment; offsets that "
        "decrease, or unsorted ids said to be sorted, leave the rows undefined, and nothing else is touched"
    )
    variants = (
        Variant(
            "slots", _geometry, source="segment/segment_reduce.cu", guarantee=Guarantee(_bound),
            elements=lambda kind: FLOATS if kind in OF_FLOATS else TAKEN,
            kernels=(*place_kernels(PARAMS), *combine_kernels(PARAMS, "Reduce{KIND}<{T}>")),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"sum of [1048576, 128] bf16 by {by}, {segments} segments", kind=SegmentKind.SUM, tokens=1 << 20,
            num_segments=segments, row_shape=(128,), by=by, element="bfloat16", target=target,
            peers=(EAGER, IN_ORDER), make=lambda torch, desc: {"index": known_index(torch, desc)},
        )
        for by, segments, target in (("sorted", 65536, 0.85), ("offsets", 65536, 0.85), ("ids", 65536, None))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SegmentReduceDescriptor:
        return SegmentReduceDescriptor(
            kind=draw.kind,
            with_initial=draw.integer(0, 3) == 3,
            with_empty=draw.integer(0, 3) == 3,
            **segment_case(draw),
        )

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return index_trouble(desc, arrays["index"])


def known_index(torch: Any, desc: Segmented) -> Any:
    """A benchmark's index: random ids in range, or the bounds that they make."""
    ids = torch.randint(0, max(desc.num_segments, 1), (desc.count,))
    if desc.by == By.IDS.value:
        return ids
    ids = torch.sort(ids).values
    if desc.by == By.SORTED.value:
        return ids
    edges = torch.searchsorted(ids, torch.arange(desc.num_segments + 1))
    return edges[desc.by == By.ENDS.value : desc.num_segments + (desc.by != By.STARTS.value)]


def segment_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields but the kind."""
    by, tokens = draw.choice([by.value for by in reversed(By)]), draw.sizes(0, 1, 7, 40, 300)
    segments = draw.sizes(1, 3, 0, 20, rare=(1100,) if by == By.IDS.value else ())
    if by == By.EVENLY.value:
        tokens = segments * draw.sizes(0, 1, 5, 70)
    row = draw.choice(((), (16,), (3,), (2, 5), (24,)))
    return {"tokens": tokens, "num_segments": segments, "row_shape": row, "by": by, "element": draw.element}


segment_sum = functional(SegmentReducePlan, "segment_sum", kind=SegmentKind.SUM)
segment_mean = functional(SegmentReducePlan, "segment_mean", kind=SegmentKind.MEAN)
segment_prod = functional(SegmentReducePlan, "segment_prod", kind=SegmentKind.PROD)
segment_max = functional(SegmentReducePlan, "segment_max", kind=SegmentKind.MAX)
segment_min = functional(SegmentReducePlan, "segment_min", kind=SegmentKind.MIN)
segment_logsumexp = functional(SegmentReducePlan, "segment_logsumexp", kind=SegmentKind.LOGSUMEXP)
