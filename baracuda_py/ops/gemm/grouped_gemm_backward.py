"""grouped_gemm_backward: da[r] = dy[r] b[g]ᵀ, db[g] = a[r]ᵀ dy[r] and dbias[g] = Σ dy[r] over the rows r of group g."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Forward, Geometry, Guarantee, Plan, Problem, Step, Variant, extent, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.grouped import GROUPED, PRODUCT, SUMS, launches, product_step, rows_step, sums_step
from ...schedules.grouped_wgmma import PRODUCT_WGMMA, ROWS_WGMMA, product_wgmma_step, rows_wgmma_step
from .gemm import rows_apart
from .grouped_gemm import even_offsets
from .grouped_mma import ELEMENTS, PRODUCT_MMA, ROWS_MMA, product_mma_step, rows_mma_step
from .groups import INDEX, Grouped, GroupedDescriptor, grouped_case, random_offsets, slices


@dataclass(frozen=True, kw_only=True)
class GroupedGemmBackwardDescriptor(GroupedDescriptor):
    """As the forward's."""

    k: int = extent()


@dataclass(slots=True, kw_only=True)
class GroupedGemmBackwardArgs(Args):
    """a, b and offsets are the forward's; a None gradient costs nothing."""

    dy: Array = operand("total n")
    a: Array = operand("total k")
    b: Array = operand("groups k n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    da: Array | None = output("total k", optional=True)
    db: Array | None = output("groups k n", optional=True)
    dbias: Array | None = output("groups n", optional=True)


def reference(
    desc: GroupedGemmBackwardDescriptor, *, dy: Any, a: Any, b: Any, offsets: Any, wanted: set[str], apart: bool = False
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in, group by group."""
    made = {"da": np.zeros_like(a), "db": np.zeros_like(b), "dbias": np.zeros((desc.groups, desc.n), dy.dtype)}
    for group, rows in enumerate(slices(desc, offsets)):
        made["da"][rows] = rows_apart(dy[rows], b[group].T) if apart else dy[rows] @ b[group].T
        made["db"][group] = a[rows].T @ dy[rows]
        made["dbias"][group] = dy[rows].sum(0)
    return {name: made[name] for name in wanted}


def _steps(p: Problem, rows: Callable[..., Step | str], product: Callable[..., Step | str]) -> Geometry | str:
    """The products by the kernels of `rows` and `product`."""
    steps: list[Step | str] = []
    if p.da is not None:
        steps.append(rows(p, {"a": "dy", "b": "b", "y": "da"}, ("b",)))
    if p.db is not None:
        steps.append(product(p, {"a": "a", "b": "dy", "y": "db"}, ("a",)))
    if p.dbias is not None:
        steps.append(sums_step(p, {"b": "dy", "y": "dbias"}))
    return launches(p, *steps)


def _warpgroups(p: Problem) -> Geometry | str:
    return _steps(p, rows_wgmma_step, product_wgmma_step)


def _tensor_cores(p: Problem) -> Geometry | str:
    return _steps(p, rows_mma_step, product_mma_step)


def _simt(p: Problem) -> Geometry | str:
    return _steps(p, rows_step, product_step)


class GroupedGemmBackwardPlan(Grouped, Plan):
    """The gradients of `GroupedGemmPlan`: da[r] = dy[r] @ b[g]ᵀ, db[g] = a[r]ᵀ @ dy[r], dbias[g] = Σ dy[r].

    r are the rows of group g. Rows of no group give da 0; a group without rows gives db and dbias 0. Sums over rows go
    in the order of the rows of the group, accumulated in float32 (float64 for float64).
    """

    op = "gemm.grouped_gemm_backward"
    direction = "backward"
    descriptor = GroupedGemmBackwardDescriptor
    args = GroupedGemmBackwardArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "wgmma", _warpgroups, source="gemm/grouped_gemm.cu", kernels=(ROWS_WGMMA, PRODUCT_WGMMA, SUMS),
            elements=ELEMENTS, design=ArchSku.SM90A,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="wgmma", roundings=lambda desc: max(desc.n, desc.total) // 8,
            ),
        ),
        Variant(
            "mma", _tensor_cores, source="gemm/grouped_gemm.cu", kernels=(ROWS_MMA, PRODUCT_MMA, SUMS),
            elements=ELEMENTS,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="mma", roundings=lambda desc: max(desc.n, desc.total) // 8,
            ),
        ),
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(GROUPED, PRODUCT, SUMS),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: max(desc.n, desc.total)),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "64 groups of 256 x [2048, 4096] bf16", total=16384, groups=64, k=2048, n=4096, element="bfloat16",
            make=even_offsets, also=("da", "db"), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedGemmBackwardDescriptor:
        return GroupedGemmBackwardDescriptor(**grouped_case(draw), k=draw.sizes(0, 1, 16, 67, 128))

    @classmethod
    def flops(cls, desc: GroupedGemmBackwardDescriptor) -> int:
        return 4 * desc.total * desc.n * desc.k


grouped_gemm_backward = functional(GroupedGemmBackwardPlan)
