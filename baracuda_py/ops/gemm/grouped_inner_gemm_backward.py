"""grouped_inner_gemm_backward: da[:, r] = dy[g] b[r]ᵀ and db[r] = a[:, r]ᵀ dy[g] for the rows r of each group g."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Forward,
    Geometry,
    Guarantee,
    Plan,
    Problem,
    Variant,
    extent,
    functional,
    operand,
    output,
)
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.grouped import GROUPED, launches, rows_step
from .grouped_gemm import even_offsets
from .groups import INDEX, Grouped, GroupedDescriptor, grouped_case, random_offsets, slices


@dataclass(frozen=True, kw_only=True)
class GroupedInnerGemmBackwardDescriptor(GroupedDescriptor):
    """As the forward's."""

    m: int = extent()


@dataclass(slots=True, kw_only=True)
class GroupedInnerGemmBackwardArgs(Args):
    """a, b and offsets are the forward's; a None gradient costs nothing."""

    dy: Array = operand("groups m n")
    a: Array = operand("m total")
    b: Array = operand("total n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    da: Array | None = output("m total", optional=True)
    db: Array | None = output("total n", optional=True)


def reference(
    desc: GroupedInnerGemmBackwardDescriptor, *, dy: Any, a: Any, b: Any, offsets: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in, group by group."""
    made = {"da": np.zeros_like(a), "db": np.zeros_like(b)}
    for group, rows in enumerate(slices(desc, offsets)):
        made["da"][:, rows] = dy[group] @ b[rows].T
        made["db"][rows] = a[:, rows].T @ dy[group]
    return {name: made[name] for name in wanted}


def _simt(p: Problem) -> Geometry | str:
    steps = []
    if p.da is not None:  # daᵀ[r] = b[r] dyᵀ[g]
        steps.append(rows_step(p, {"a": "b", "b": "dy", "y": "da"}, turn=("b", "y")))
    if p.db is not None:
        steps.append(rows_step(p, {"a": "a", "b": "dy", "y": "db"}, turn=("a",)))
    return launches(p, *steps)


class GroupedInnerGemmBackwardPlan(Grouped, Plan):
    """The gradients of `GroupedInnerGemmPlan`: da[:, r] = dy[g] @ b[r]ᵀ, db[r] = a[:, r]ᵀ @ dy[g].

    r are the rows of group g. Rows of no group give zeros. Accumulation in float32 (float64 for float64).
    """

    op = "gemm.grouped_inner_gemm_backward"
    direction = "backward"
    descriptor = GroupedInnerGemmBackwardDescriptor
    args = GroupedInnerGemmBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(GROUPED,),
            guarantee=Guarantee(Forward(128), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "64 groups of 256 x [2048, 4096] bf16", total=16384, groups=64, m=2048, n=4096, element="bfloat16",
            make=even_offsets, also=("da", "db"), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedInnerGemmBackwardDescriptor:
        return GroupedInnerGemmBackwardDescriptor(**grouped_case(draw), m=draw.sizes(0, 1, 16, 67, 128))

    @classmethod
    def flops(cls, desc: GroupedInnerGemmBackwardDescriptor) -> int:
        return 4 * desc.total * desc.n * desc.m


grouped_inner_gemm_backward = functional(GroupedInnerGemmBackwardPlan)
