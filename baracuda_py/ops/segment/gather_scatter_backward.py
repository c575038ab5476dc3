"""gather_scatter_backward: dx is a gather_scatter with the indices' roles exchanged, dweight a dot product a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Plan, Problem, Relative, Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...schedules.segments import (
    NOTHING, THREADS, By, Columns, Segments, combine_kernels, place_kernels, segment_params, together, widths,
)  # fmt: skip
from .gather_scatter import (
    EXTREMES, MEANS, GatherScatterDescriptor, GatherScatterKind, GatherScatterPlan, random_graph, random_rows,
    steps_of, trouble,
)  # fmt: skip
from .segment_kinds import ELEMENTS, I64, count_segments, expand, random_segments, segment_ids_of
from .segment_reduce import tokens_of

WARP = 32
SUMS = (GatherScatterKind.SUM, GatherScatterKind.MEAN)


@dataclass(frozen=True, kw_only=True)
class GatherScatterBackwardDescriptor(GatherScatterDescriptor):
    """As of the forward."""


@dataclass(slots=True, kw_only=True)
class GatherScatterBackwardArgs(Args):
    """Any strides. arg and count are the forward's. A None gradient costs nothing."""

    dy: Array = operand("num_segments *row_shape")
    x: Array = operand("rows *row_shape")
    src: Array = operand("tokens", element=ELEMENTS, values=random_rows)
    index: Array | None = operand("index_length", element=ELEMENTS, values=random_segments, instead="evenly")
    weight: Array | None = operand("tokens", element="weight_elements", optional=True)
    arg: Array | None = operand("num_segments *row_shape", element=I64, kinds=EXTREMES)
    count: Array | None = operand("num_segments", element=I64, kinds=MEANS)
    dx: Array | None = output("rows *row_shape", optional=True)
    dweight: Array | None = output("tokens", element="weight_elements", optional=True, like="weight")


def reference(
    desc: GatherScatterBackwardDescriptor, *, dy: Any, x: Any, src: Any, index: Any, weight: Any, arg: Any, count: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in."""
    rank, grads = len(desc.row_shape), {}
    ids = segment_ids_of(desc, index)
    known = (src >= 0) & (src < desc.rows) & (src != desc.padding_row) & (ids >= 0)
    tokens = np.flatnonzero(known)
    ids, rows = ids[tokens], src[tokens]
    brought = dy[ids]
    with np.errstate(all="ignore"):
        if desc.kind in MEANS:
            brought = brought / expand(np.maximum(count[ids], 1), rank).astype(dy.dtype)
        if desc.kind in EXTREMES:
            brought = np.where(arg[ids] == expand(tokens, rank), brought, 0)
        if "dweight" in wanted:
            dweight = np.zeros(desc.tokens, dy.dtype)
            dweight[tokens] = (brought * x[rows]).reshape(len(tokens), -1).sum(axis=1) if tokens.size else 0
            grads["dweight"] = dweight
        if "dx" in wanted:
            dx = np.zeros((desc.rows, *desc.row_shape), dy.dtype)
            np.add.at(dx, rows, brought if weight is None else brought * expand(weight[tokens], rank))
            if desc.by_frequency:
                n = np.maximum(np.bincount(rows, minlength=desc.rows), 1)
                dx = dx / expand(n, rank).astype(dy.dtype)
            grads["dx"] = dx
    return grads


PARAMS = segment_params("GatherScatterBackwardParams")


def _geometry(p: Problem) -> Geometry | str:
    desc, told = p.desc, tokens_of(p)
    by_row = Segments(p, By.IDS, desc.tokens, desc.rows, p.src, told.workspace, desc.padding_row, "src")
    views = {"x": p.dy, "y": p.dx, "arg": p.arg}
    columns = Columns.of(desc.row_shape, views, desc.element)
    if isinstance(columns, str):
        return columns
    if refusal := told.refusal() or by_row.refusal():
        return refusal
    owners, at = told.owners()
    steps: list[Step] = [owners]
    facts: dict[str, Any] = {name: name for name in ("weight", "arg") if p.views[name] is not None}
    facts["weight_wide"] = p.weight is not None and p.weight.element is desc.acc
    shares: dict[str, Any] = {"shares": "count", "shares_step": p.count.strides[0]} if p.count is not None else {}
    if p.dx is not None and p.dx.size:
        places = by_row.places()
        if isinstance(places, str):
            return places
        more = by_row.combined(
            columns, 1, desc.acc.itemsize, x="dy", y="dx", src=("@workspace", at), src_step=1, rows=desc.num_segments,
            mean=desc.by_frequency, **facts, **shares, **steps_of(p, "weight"),
        )  # fmt: skip
        if isinstance(more, str):
            return more
        steps += [*places, *more]
    if p.dweight is not None and p.dweight.size:
        dots = _dots(p, at, {**shares, **({"arg": "arg"} if p.arg is not None else {})})
        if isinstance(dots, str):
            return dots
        steps.append(dots)
    return together(steps, told.workspace, columns, (p.dy, p.x, p.dx))


def _dots(p: Problem, owners: int, facts: Mapping[str, Any]) -> Step | str:
    """The launch that makes dweight."""
    desc = p.desc
    columns = Columns.of(desc.row_shape, {"x": p.x, "h": p.dy, "arg": p.arg}, desc.element)
    if isinstance(columns, str):
        return columns
    blocks = -(-desc.tokens * WARP // THREADS)
    if blocks >= 2**31:
        return "more than 2^31 blocks"
    params = {
        **NOTHING, **columns.params, "tokens": desc.tokens, "rows": desc.rows, "padding": desc.padding_row, "x": "x",
        "h": "dy", "y": "dweight", "y_row": p.dweight.strides[0], "src": "src", "src_step": p.src.strides[0],
        "src_wide": p.src.element is I64, "owners": ("@workspace", owners),
        "weight_wide": p.dweight.element is desc.acc, **facts,
    }  # fmt: skip
    return Step("dots", (blocks, 1, 1), params, {"VEC": columns.vec}, THREADS)


def _kernels(masked: bool) -> tuple[Kernel, ...]:
    dots = f"segment_dots<{{T}}, {{VEC}}, {'true' if masked else 'false'}>"
    combining = combine_kernels(PARAMS, "GatheredMasked" if masked else "GatheredSum")
    return (*place_kernels(PARAMS, owners=True), *combining, Kernel("dots", dots, PARAMS, widths, threads=THREADS))


class GatherScatterBackwardPlan(Plan):
    """dx[r, …] = Σ weight[t] dy[s, …] over the tokens t of r (src[t] = r), of segments s; dweight[t] = dy[s] · x[r].

    For mean dy is divided by the tokens of s; of max and min only the token that gave the extreme counts. Sums are
    those of `SegmentReducePlan`, after a stable sort of src: the same bits in every run.
    """

    op = "segment.gather_scatter_backward"
    direction = "backward"
    kinds = GatherScatterKind
    descriptor = GatherScatterBackwardDescriptor
    args = GatherScatterBackwardArgs
    reference = staticmethod(reference)
    value_policy = GatherScatterPlan.value_policy
    variants = tuple(
        Variant(
            name, _geometry, source="segment/gather_scatter.cu", guarantee=Guarantee(Relative(2)), kinds=kinds,
            kernels=_kernels(kinds is EXTREMES),
        )
        for name, kinds in (("sorted", SUMS), ("chosen", EXTREMES))
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "1048576 weighted edges by target, [131072, 128] bf16", kind=GatherScatterKind.SUM, rows=131072,
            tokens=1 << 20, num_segments=131072, row_shape=(128,), by="sorted", element="bfloat16", target=None,
            peers=(EAGER,), work=BYTES, also=("weight", "dx", "dweight"), make=random_graph,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatherScatterBackwardDescriptor:
        found = GatherScatterPlan.case(draw)
        return GatherScatterBackwardDescriptor(
            kind=found.kind, rows=found.rows, tokens=found.tokens, num_segments=found.num_segments,
            row_shape=found.row_shape, by=found.by, padding_idx=found.padding_idx, by_frequency=draw.flag(),
            element=found.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """arg and count are those of the forward."""
        wanted = "arg" if desc.kind in EXTREMES else "count" if desc.kind in MEANS else ""
        if not wanted or arrays.get(wanted) is None:
            return
        facts = {name: getattr(desc, name) for name in ("kind", "rows", "tokens", "num_segments", "row_shape", "by",
                                                        "padding_idx", "element")}  # fmt: skip
        names = ("x", "src", "index", "weight")
        made = np.empty(arrays[wanted].shape, np.int64)
        y = np.empty((desc.num_segments, *desc.row_shape), arrays["x"].dtype)
        forward = GatherScatterPlan.select(GatherScatterDescriptor(**facts), device="cpu")
        forward(**{n: arrays[n] for n in names}, y=y, **{wanted: made})
        arrays[wanted] = made

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return trouble(desc, arrays)

    @classmethod
    def bytes(cls, desc: GatherScatterBackwardDescriptor) -> int:
        return 2 * GatherScatterPlan.bytes(desc) if desc.tokens else 0


gather_scatter_backward = functional(GatherScatterBackwardPlan)
