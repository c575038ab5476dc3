"""segment_order: tokens in the order of their ids, stably, and the bounds of each: the sort of a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Step, Variant, element, extent,
    flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import INDICES
from ...schedules.segments import NOTHING, THREADS, By, Segments, place_kernels, segment_params
from .segment_kinds import ELEMENTS, I64, refuse_absent

OUTPUTS = ("order", "offsets", "places", "rows")


def random_ids(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Ids, mostly in range, at times most of them the same."""
    ids = rng.integers(0, max(desc.num_segments, 1), shape)
    ids = np.where(rng.random(shape) < rng.choice((0.0, 0.7)), desc.num_segments // 2, ids)
    far = rng.choice((-1, desc.num_segments, -(2**31), 2**31 - 1), shape)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.1)), far, ids)


@dataclass(frozen=True, kw_only=True)
class SegmentOrderDescriptor(Descriptor):
    """ids are [tokens], fan tokens a row (the experts of one row of x). absent: what rows have behind the last.

    others: ids outside [0, num_segments) are those of others, as the experts of another device; else only -1 is there
    on purpose, and BARACUDA_CHECK=1 tells of the rest. element: of what is returned.
    """

    tokens: int = extent()
    num_segments: int = extent()
    fan: int = extent(1, minimum=1)
    absent: int = integer(-1, maximum=-1)
    others: bool = flag(False)
    element: ElementKind = element(INDICES, I64)

    def validate(self) -> None:
        """A row may be `absent`."""
        refuse_absent(self.absent, self.element)

    @property
    def bounds(self) -> int:
        """How many offsets there are."""
        return self.num_segments + 1


@dataclass(slots=True, kw_only=True)
class SegmentOrderArgs(Args):
    """Any strides; ids are int64 or int32."""

    ids: Array = operand("tokens", element=ELEMENTS, values=random_ids)
    order: Array = output("tokens")
    offsets: Array = output("bounds")
    places: Array | None = output("tokens", optional=True)
    rows: Array | None = output("tokens", optional=True)


def reference(desc: SegmentOrderDescriptor, *, ids: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy: a stable argsort of those in range."""
    known = np.flatnonzero((ids >= 0) & (ids < desc.num_segments))
    found = known[np.argsort(ids[known], kind="stable")]
    order, places = np.full(desc.tokens, -1, np.int64), np.full(desc.tokens, -1, np.int64)
    order[: found.size], places[found] = found, np.arange(found.size)
    rows = np.where(order < 0, desc.absent, order // desc.fan)
    offsets = np.append(0, np.cumsum(np.bincount(ids[known].astype(np.int64), minlength=desc.num_segments)))
    made = {"order": order, "offsets": offsets, "places": places, "rows": rows}
    return {name: made[name] for name in {"order", "offsets", *wanted}}


PARAMS = segment_params(
    "SegmentOrderParams", order_out="ptr", offsets_out="ptr", places_out="ptr", rows_out="ptr", order_step="i64",
    offsets_step="i64", places_step="i64", rows_step="i64", fan="i64", absent="i64",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    segments = Segments(p, By.IDS, desc.tokens, desc.num_segments, p.ids, left_out=-1, name="ids", others=desc.others)
    if refusal := segments.refusal():
        return refusal
    views = {name: p.views[name] for name in OUTPUTS}
    own: dict[str, Any] = {"fan": desc.fan, "absent": desc.absent}
    for name, view in views.items():
        own |= {
            f"{name}_out": "@null" if view is None else name,
            f"{name}_step": 0 if view is None else view.strides[0],
        }
    steps = segments.places(slots=False, **own) if desc.tokens else []
    if isinstance(steps, str):
        return steps
    params = {**NOTHING, **segments.told(), **segments.params, **own}
    if desc.tokens:
        steps.append(Step("fill", (-(-desc.tokens // THREADS), 1, 1), params, {}, THREADS))
    blocks = -(-max(desc.tokens, desc.bounds) // THREADS)
    steps.append(Step("emit", (blocks, 1, 1), params, {}, THREADS))
    dense = all(view.dense for view in (p.ids, *views.values()) if view is not None)
    return Geometry(tuple(steps), segments.workspace.nbytes, "contiguous" if dense else "strided")


def in_torch(torch: Any, desc: SegmentOrderDescriptor, *, ids: Any, wanted: set[str]) -> Any:
    """A stable sort, and the inverse of its order; ids out of range go behind the last segment."""
    segments, ids = desc.num_segments, ids.long()
    ids = torch.where((ids >= 0) & (ids < segments), ids, segments)
    order = torch.sort(ids, stable=True).indices
    counts = torch.bincount(ids, minlength=segments + 1)[:segments]
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    at = torch.arange(desc.tokens, device=order.device)
    places = torch.empty_like(order)
    places[order] = torch.where(at < offsets[-1], at, -1)
    rows = torch.where(at < offsets[-1], order // desc.fan, desc.absent)
    order = torch.where(at < offsets[-1], order, -1)
    made = {"order": order, "offsets": offsets, "places": places, "rows": rows}
    return {name: made[name] for name in {"order", "offsets", *wanted}}


class SegmentOrderPlan(Plan):
    """order[i] = the token at place i when tokens are sorted by id, stably; offsets[s] = the first place of segment s.

    places[order[i]] = i, and rows[i] = order[i] // fan, the row of which the token is one of fan. A token whose id lies
    outside [0, num_segments) has no place: -1 there and at the end of order, `absent`, below 0, at that of rows.
    """

    op = "segment.segment_order"
    descriptor = SegmentOrderDescriptor
    args = SegmentOrderArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a token whose id lies outside [0, num_segments) has no place; on purpose where it is -1"
    variants = (
        Variant(
            "counted", _geometry, source="segment/segment_order.cu", guarantee=Guarantee(native=True),
            elements=INDICES,
            kernels=(
                *place_kernels(PARAMS),
                Kernel("fill", "segment_order_fill<{T}>", PARAMS, threads=THREADS),
                Kernel("emit", "segment_order_emit<{T}>", PARAMS, threads=THREADS),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "131072 choices of 256 experts", tokens=131072, num_segments=256, fan=8, target=None, peers=(EAGER,),
            also=("places",),
            make=lambda torch, desc: {"ids": torch.randint(0, desc.num_segments, (desc.tokens,))},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SegmentOrderDescriptor:
        return SegmentOrderDescriptor(
            tokens=draw.sizes(0, 1, 40, 300, 1100), num_segments=draw.sizes(1, 3, 0, 20, 300, rare=(1100,)),
            fan=draw.sizes(1, 2, 8), absent=draw.choice((-1, -(2**31))),
            others=draw.flag(), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        ids = np.asarray(arrays["ids"])
        wrong = not desc.others and ((ids < -1) | (ids >= desc.num_segments)).any()
        return f"ids must lie in [0, {desc.num_segments}) or be -1" if wrong else None


segment_order = functional(SegmentOrderPlan)
