"""segment_index: numbers that lead from tokens to segments and to rows of one length, and back."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Step, Variant, choice, element, extent,
    integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...schedules.segments import NOTHING, THREADS, By, segment_params
from .segment_kinds import (
    ELEMENTS, I64, Segmented, count_segments, index_trouble, random_segments, refuse_absent, segment_ids_of,
)  # fmt: skip
from .segment_reduce import ids_in_torch, known_index, tokens_of


class SegmentIndexKind(enum.Enum):
    """What the numbers are of."""

    IDS = "ids"
    PADDED = "padded"
    SPREAD = "spread"

    @property
    def cpp(self) -> str:
        """The end of the kernel's name in kernels/segment/segment_index.cu."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class SegmentIndexDescriptor(Segmented):
    """Tokens in segments one after the other; see `Segmented` for `by`, offsets where not given.

    length: of a row. absent: the number where there is none, below 0.
    """

    kind: SegmentIndexKind = choice(SegmentIndexKind)
    tokens: int = extent()
    length: int = extent(0)
    absent: int = integer(-1, maximum=-1)
    by: str = choice(tuple(by.value for by in By), By.OFFSETS.value)
    element: ElementKind = element(INDICES, I64)

    def validate(self) -> None:
        Segmented.validate(self)
        refuse_absent(self.absent, self.element)
        if self.by in (By.IDS.value, By.EVENLY.value):
            raise InvalidProblemError(f"by must be offsets, starts, ends or sorted, got {self.by}")

    @property
    def count(self) -> int:
        return self.tokens

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        return (self.num_segments, self.length) if self.kind is SegmentIndexKind.PADDED else (self.tokens,)


@dataclass(slots=True, kw_only=True)
class SegmentIndexArgs(Args):
    """Any strides; the index is int64 or int32, y int64 or, where asked for, int32."""

    index: Array = operand("index_length", element=ELEMENTS, values=random_segments)
    y: Array = output("*out_shape")


def reference(desc: SegmentIndexDescriptor, *, index: Any) -> Mapping[str, Any]:
    """NumPy."""
    ids = segment_ids_of(desc, index)
    if desc.kind is SegmentIndexKind.IDS:
        return {"y": np.where(ids < 0, desc.absent, ids)}
    tokens = np.flatnonzero(ids >= 0)
    found, first = np.unique(ids[tokens], return_index=True)
    begins = np.zeros(max(desc.num_segments, 1), np.int64)
    begins[found] = tokens[first]
    rank = tokens - begins[ids[tokens]]
    tokens, rank = tokens[rank < desc.length], rank[rank < desc.length]
    y = np.full(desc.out_shape, desc.absent, np.int64)
    if desc.kind is SegmentIndexKind.PADDED:
        y[ids[tokens], rank] = tokens
    else:
        y[tokens] = ids[tokens] * desc.length + rank
    return {"y": y}


PARAMS = segment_params("SegmentIndexParams", length="i64", y_column="i64", absent="i64")


def _geometry(p: Problem) -> Geometry | str:
    desc, segments = p.desc, tokens_of(p)
    if refusal := segments.refusal():
        return refusal
    blocks = -(-p.y.size // THREADS)
    if blocks >= 2**31:
        return "more than 2^31 blocks"
    params = {
        **NOTHING, **segments.told(), "y": "y", "y_row": p.y.strides[0], "y_column": p.y.strides[-1],
        "length": desc.length, "absent": desc.absent,
    }  # fmt: skip
    step = Step("index", (max(1, blocks), 1, 1), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.y.dense else "strided")


def in_torch(torch: Any, desc: SegmentIndexDescriptor, *, index: Any) -> Any:
    """The segment of every token, and what is left of its number without the first of the segment."""
    ids = ids_in_torch(torch, desc, index)
    known = ids < desc.num_segments
    if desc.kind is SegmentIndexKind.IDS:
        return torch.where(known, ids, desc.absent)
    tokens = torch.arange(desc.tokens, device=ids.device)
    first = torch.full((desc.num_segments + 1,), desc.tokens, device=ids.device).scatter_reduce(0, ids, tokens, "amin")
    known = known & (tokens - first[ids] < desc.length)
    ids, tokens = ids[known], tokens[known]
    y = torch.full(desc.out_shape, desc.absent, device=ids.device)
    if desc.kind is SegmentIndexKind.PADDED:
        y[ids, tokens - first[ids]] = tokens
    else:
        y[tokens] = ids * desc.length + tokens - first[ids]
    return y


class SegmentIndexPlan(Plan):
    """ids: y[t] = the segment of token t. padded: y[s, l] = token l of segment s. spread: y[t] = s · length + l of it.

    `absent` where there is none: a token of no segment, a place behind the end of a segment, a token at l ≥ length.
    """

    op = "segment.segment_index"
    kinds = SegmentIndexKind
    descriptor = SegmentIndexDescriptor
    args = SegmentIndexArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "offsets that decrease, or unsorted ids said to be sorted, leave the numbers undefined"
    variants = (
        Variant(
            "tokens", _geometry, source="segment/segment_index.cu", guarantee=Guarantee(native=True), elements=INDICES,
            kernels=(Kernel("index", "segment_{KIND}<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "ids of 16777216 tokens, 262144 segments", kind=SegmentIndexKind.IDS, tokens=1 << 24,
            num_segments=1 << 18, by="offsets", target=None, peers=(),
            make=lambda torch, desc: {"index": known_index(torch, desc)},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SegmentIndexDescriptor:
        return SegmentIndexDescriptor(
            kind=draw.kind, tokens=draw.sizes(7, 0, 1, 40, 300), num_segments=draw.sizes(3, 1, 0, 20),
            by=draw.choice([by.value for by in (By.OFFSETS, By.STARTS, By.ENDS, By.SORTED)]),
            length=draw.sizes(4, 1, 0, 30), absent=draw.choice((-1, -(2**31))), element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        count_segments(shapes, facts, By.OFFSETS.value)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return index_trouble(desc, arrays["index"])


segment_ids = functional(SegmentIndexPlan, "segment_ids", kind=SegmentIndexKind.IDS)
segment_padded = functional(SegmentIndexPlan, "segment_padded", kind=SegmentIndexKind.PADDED)
segment_spread = functional(SegmentIndexPlan, "segment_spread", kind=SegmentIndexKind.SPREAD)
