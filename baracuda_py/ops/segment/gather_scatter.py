"""gather_scatter: rows picked by one index, weighted, and combined by another: y[s] = Σ w[t] x[src[t]]."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, Vjp, choice, element,
    extent, extents, flag, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.segments import Columns, combine_kernels, place_kernels, segment_params, together
from .segment_kinds import (
    ELEMENTS, I64, Segmented, combined, count_segments, each, expand, index_trouble, random_segments, segment_ids_of,
)  # fmt: skip
from .segment_reduce import ids_in_torch, known_index, segment_case, tokens_of


class GatherScatterKind(enum.Enum):
    """What the rows of a segment are combined to."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"

    @property
    def cpp(self) -> str:
        """The end of functors' names in kernels/segment/functors.cuh."""
        return self.name.title()


EXTREMES = (GatherScatterKind.MAX, GatherScatterKind.MIN)
MEANS = (GatherScatterKind.MEAN,)


@dataclass(frozen=True, kw_only=True)
class GatherScatterDescriptor(Segmented):
    """x is [rows, *row_shape], src and weight [tokens], y [num_segments, *row_shape]; see `Segmented` for `by`.

    padding_idx, negative counting from the end: tokens of that row have no part, and it has no gradient. by_frequency:
    the gradient of a row is divided by the number of its tokens that have a part. with_empty: a segment of which no
    token has a part gets `empty`.
    """

    kind: GatherScatterKind = choice(GatherScatterKind)
    rows: int = extent()
    tokens: int = extent()
    row_shape: tuple[int, ...] = extents()
    padding_idx: int | None = integer(None)
    by_frequency: bool = flag(False)
    with_empty: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        Segmented.validate(self)
        if self.padding_idx is not None and not -self.rows <= self.padding_idx < self.rows:
            raise InvalidProblemError(f"padding_idx must lie in [-{self.rows}, {self.rows}), got {self.padding_idx}")

    @property
    def count(self) -> int:
        return self.tokens

    @property
    def weight_elements(self) -> tuple[ElementKind, ...]:
        """Those of weights: x's, or its accumulator's."""
        return tuple(dict.fromkeys((self.element, self.acc)))

    @property
    def padding_row(self) -> int:
        """The row that has no part; -1 for none."""
        if self.padding_idx is None:
            return -1
        return self.padding_idx + (self.rows if self.padding_idx < 0 else 0)


def random_rows(rng: Any, desc: GatherScatterDescriptor, shape: tuple[int, ...]) -> Any:
    """Rows of x, at times some that it has not."""
    far = rng.choice((-1, desc.rows, -(2**31), 2**31 - 1), shape)
    rows = rng.integers(0, max(desc.rows, 1), shape)
    rows = np.where(rng.random(shape) < rng.choice((0.0, 0.6)), desc.rows // 2, rows)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.1)), far, rows)


@dataclass(slots=True, kw_only=True)
class GatherScatterArgs(Args):
    """Any strides; src and index are int64 or int32, weight of x's element or its accumulator's.

    arg is the token of each extreme, the first of several; -1 where a segment has none. count is how many tokens of a
    segment have a part.
    """

    x: Array = operand("rows *row_shape")
    src: Array = operand("tokens", element=ELEMENTS, values=random_rows)
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    weight: Array | None = operand("tokens", element="weight_elements", optional=True)
    y: Array = output("num_segments *row_shape")
    arg: Array | None = output("num_segments *row_shape", element=I64, optional=True, kinds=EXTREMES)
    count: Array | None = output("num_segments", element=I64, optional=True, kinds=MEANS)
    empty: Scalar = scalar(0.0)


def messages(desc: GatherScatterDescriptor, x: Any, src: Any, index: Any, weight: Any) -> tuple[Any, Any]:
    """What every token brings, and its segment, -1 for none (NumPy)."""
    known = (src >= 0) & (src < desc.rows) & (src != desc.padding_row)
    ids = np.where(known, segment_ids_of(desc, index), -1)
    if not desc.rows:
        return np.zeros((desc.tokens, *desc.row_shape), x.dtype), ids
    brought = x[np.where(known, src, 0)]
    return brought if weight is None else brought * expand(weight, len(desc.row_shape)), ids


def reference(
    desc: GatherScatterDescriptor, *, x: Any, src: Any, index: Any, weight: Any, empty: Any, wanted: set[str]
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        brought, ids = messages(desc, x, src, index, weight)
        if desc.kind in EXTREMES:
            y, arg = _extremes(desc, brought, ids)
            if desc.with_empty:
                y[np.bincount(ids[ids >= 0], minlength=desc.num_segments) == 0] = float(empty)
            return {"y": y, "arg": arg} if "arg" in wanted else {"y": y}
        y, n = combined(np.add.reduceat, brought, ids, desc.num_segments, 0)
        if desc.kind is GatherScatterKind.MEAN:
            y = y / expand(np.maximum(n, 1), x.ndim - 1).astype(x.dtype)
    if desc.with_empty:
        y[n == 0] = float(empty)
    return {"y": y, "count": n} if "count" in wanted else {"y": y}


def _extremes(desc: GatherScatterDescriptor, brought: Any, ids: Any) -> tuple[Any, Any]:
    """Of every segment the extremes, NaN before all others, and the first token that has each."""
    largest = desc.kind is GatherScatterKind.MAX
    y = np.full((desc.num_segments, *desc.row_shape), -np.inf if largest else np.inf, brought.dtype)
    arg = np.full(y.shape, -1, np.int64)
    for segment, tokens in each(ids, desc.num_segments):
        if tokens.size:
            first = (np.argmax if largest else np.argmin)(brought[tokens], axis=0)
            arg[segment] = tokens[first]
            y[segment] = np.take_along_axis(brought[tokens], first[None], axis=0)[0]
    return y, arg


PARAMS = segment_params("GatherScatterParams")


def _geometry(p: Problem) -> Geometry | str:
    desc, segments = p.desc, tokens_of(p)
    views = {"x": p.x, "y": p.y, "arg": p.arg}
    columns = Columns.of(desc.row_shape, views, desc.element)
    if isinstance(columns, str):
        return columns
    if refusal := segments.refusal():
        return refusal
    given: dict[str, Any] = {name: name for name, view in p.views.items() if view is not None and name != "index"}
    steps = segments.places()
    if isinstance(steps, str):
        return steps
    last = segments.combined(
        columns, 1 + (desc.kind in EXTREMES), desc.acc.itemsize, **given, mean=desc.kind in MEANS, rows=desc.rows,
        padding=desc.padding_row, fills=desc.with_empty, empty=1, src_wide=p.src.element is I64,
        weight_wide=p.weight is not None and p.weight.element is desc.acc,
        **steps_of(p, "src", "weight", "count"),
    )  # fmt: skip
    return last if isinstance(last, str) else together([*steps, *last], segments.workspace, columns, (p.x, p.y))


def steps_of(p: Problem, *names: str) -> dict[str, Any]:
    """The strides of operands of one axis."""
    return {f"{name}_step": p.views[name].strides[0] for name in names if p.views[name] is not None}


def in_torch(
    torch: Any, desc: GatherScatterDescriptor, *, x: Any, src: Any, index: Any, weight: Any, empty: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """A gather, a product, and a scatter to one row more than there are segments."""
    if wanted != {"y"} or not desc.rows or desc.with_empty or desc.by_frequency:
        return NotImplemented
    ids, src = ids_in_torch(torch, desc, index), src.long()
    known = (src >= 0) & (src < desc.rows) & (src != desc.padding_row)
    ids = torch.where(known, ids, desc.num_segments)
    brought = x[torch.where(known, src, 0)]
    if weight is not None:
        brought = brought * weight.reshape(-1, *(1,) * (x.dim() - 1))
    ids = ids.reshape(-1, *(1,) * (x.dim() - 1)).expand(brought.shape)
    shape = (desc.num_segments + 1, *desc.row_shape)
    if desc.kind is GatherScatterKind.SUM:
        return x.new_zeros(shape).scatter_add(0, ids, brought)[:-1]
    first = {GatherScatterKind.MEAN: 0.0, GatherScatterKind.MAX: -torch.inf, GatherScatterKind.MIN: torch.inf}
    name = "mean" if desc.kind in MEANS else f"a{desc.kind.value}"
    base = x.new_full(shape, first[desc.kind])
    return base.scatter_reduce(0, ids, brought, name, include_self=False)[:-1]


class GatherScatterPlan(Plan):
    """y[s, …] = weight[t] x[src[t], …] combined over the tokens t of segment s: sum, mean, max or min (NaN wins).

    Messages along the edges of a graph (t an edge, src its source, the id its target), the bags of
    torch.nn.functional.embedding_bag (t a place in a bag), the experts' results of a token: nothing between is written.
    A segment without tokens is 0, of max -inf, of min inf. Sums are those of `SegmentReducePlan`.
    """

    op = "segment.gather_scatter"
    kinds = GatherScatterKind
    descriptor = GatherScatterDescriptor
    args = GatherScatterArgs
    reference = staticmethod(reference)
    vjp = Vjp("GatherScatterBackwardPlan", grads={"x": "dx", "weight": "dweight"})
    value_policy = (
        "a token whose row lies outside [0, rows) or whose id lies outside [0, num_segments) has no part (on purpose "
        "where there is no padding_idx and the row is -1); offsets that decrease, or unsorted ids said to be sorted, "
        "leave the rows undefined, and nothing else is touched"
    )
    variants = (
        Variant(
            "slots", _geometry, source="segment/gather_scatter.cu", guarantee=Guarantee(Relative(2)),
            kernels=(*place_kernels(PARAMS), *combine_kernels(PARAMS, "Gathered{KIND}")), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{label} of [131072, 128] bf16", kind=kind, rows=131072, tokens=1 << 20, num_segments=segments,
            row_shape=(128,), by=by, element="bfloat16", target=None, peers=(EAGER,), work=BYTES, also=also,
            make=lambda torch, desc: random_graph(torch, desc),
        )
        for label, kind, segments, by, also in (
            ("1048576 weighted edges by target", GatherScatterKind.SUM, 131072, "sorted", ("weight",)),
            ("1048576 edges in any order", GatherScatterKind.SUM, 131072, "ids", ()),
            ("32768 bags of 32, mean", GatherScatterKind.MEAN, 32768, "evenly", ()),
        )
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatherScatterDescriptor:
        rows = draw.sizes(1, 4, 30, rare=(1100,))
        padding = draw.integer(-rows, rows - 1) if draw.integer(0, 3) == 3 else None
        return GatherScatterDescriptor(
            kind=draw.kind, rows=rows, padding_idx=padding, with_empty=draw.integer(0, 3) == 3, **segment_case(draw)
        )

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return trouble(desc, arrays)

    @classmethod
    def bytes(cls, desc: GatherScatterDescriptor) -> int:
        row = int(np.prod(desc.row_shape, dtype=object)) * desc.element.itemsize
        return (min(desc.tokens, desc.rows) + desc.num_segments) * row + 8 * (desc.tokens + desc.index_length)


def trouble(desc: GatherScatterDescriptor, arrays: Mapping[str, Any]) -> str | None:
    """What is wrong with the indices, or None."""
    src = np.asarray(arrays["src"])
    if (((src < 0) | (src >= desc.rows)) & (src != desc.padding_row)).any():
        return f"src must lie in [0, {desc.rows})"
    return index_trouble(desc, arrays["index"])


def random_graph(torch: Any, desc: GatherScatterDescriptor) -> dict[str, Any]:
    """A benchmark's indices."""
    made = {"src": torch.randint(0, desc.rows, (desc.tokens,))}
    return made if desc.evenly else made | {"index": known_index(torch, desc)}


gather_scatter_sum = functional(GatherScatterPlan, "gather_scatter_sum", kind=GatherScatterKind.SUM)
gather_scatter_mean = functional(GatherScatterPlan, "gather_scatter_mean", kind=GatherScatterKind.MEAN)
gather_scatter_max = functional(GatherScatterPlan, "gather_scatter_max", kind=GatherScatterKind.MAX)
gather_scatter_min = functional(GatherScatterPlan, "gather_scatter_min", kind=GatherScatterKind.MIN)
