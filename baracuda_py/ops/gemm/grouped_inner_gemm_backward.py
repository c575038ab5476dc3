"""grouped_inner_gemm_backward: da[:, r] = dy[g] b[r]ᵀ and db[r] = a[:, r]ᵀ dy[g] for the rows r of each group g."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Forward, Geometry, Guarantee, Plan, Problem, Step, Variant, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.grouped import GROUPED, launches, rows_step
from .gemm import rows_apart
from .grouped_gemm import even_offsets
from .grouped_mma import ELEMENTS, TURNED_MMA, rows_mma_step
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
    desc: GroupedInnerGemmBackwardDescriptor,
    *,
    dy: Any,
    a: Any,
    b: Any,
    offsets: Any,
    wanted: set[str],
    apart: bool = False,
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in, group by group."""
    product = rows_apart if apart else np.matmul
    made = {"da": np.zeros_like(a), "db": np.zeros_like(b)}
    for group, rows in enumerate(slices(desc, offsets)):
        made["da"][:, rows] = product(b[rows], dy[group].T).T
        made["db"][rows] = product(a[:, rows].T, dy[group])
    return {name: made[name] for name in wanted}


def _steps(p: Problem, rows: Callable[..., Step | str]) -> Geometry | str:
    """The products by the kernels of `rows`."""
    steps = []
    if p.da is not None:  # daᵀ[r] = b[r] dyᵀ[g]
        steps.append(rows(p, {"a": "b", "b": "dy", "y": "da"}, ("b", "y")))
    if p.db is not None:
        steps.append(rows(p, {"a": "a", "b": "dy", "y": "db"}, ("a",)))
    return launches(p, *steps)


def _tensor_cores(p: Problem) -> Geometry | str:
    return _steps(p, partial(rows_mma_step, turned=True))


def _simt(p: Problem) -> Geometry | str:
    return _steps(p, rows_step)


class GroupedInnerGemmBackwardPlan(Grouped, Plan):
    """The gradients of `GroupedInnerGemmPlan`: da[:, r] = dy[g] @ b[r]ᵀ, db[r] = a[:, r]ᵀ @ dy[g].

    r are the rows of group g. Rows of no group give zeros. Accumulation in float32 (float64 for float64).
    """

    op = "gemm.grouped_inner_gemm_backward"
    direction = "backward"
    descriptor = GroupedInnerGemmBackwardDescriptor
    args = GroupedInnerGemmBackwardArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "mma", _tensor_cores, source="gemm/grouped_mma.cu", kernels=(TURNED_MMA,), elements=ELEMENTS,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="mma", roundings=lambda desc: max(desc.m, desc.n) // 8,
            ), may_spill=True,
        ),
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(GROUPED,),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: max(desc.m, desc.n)),
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
