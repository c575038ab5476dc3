"""grouped_inner_gemm: y[g] = a[:, r] b[r] over the rows r of b, and columns of a, of each group g.

What a weight gradient of grouped rows is: torch's grouped_mm of two matrices, jax.lax.ragged_dot_general with a ragged
contracting axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Forward, Geometry, Guarantee, Plan, Problem, Variant, Vjp, extent, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.grouped import PRODUCT, launches, product_step
from ...schedules.grouped_wgmma import PRODUCT_WGMMA, product_wgmma_step
from .grouped_gemm import even_offsets
from .grouped_mma import ELEMENTS, PRODUCT_MMA, product_mma_step
from .groups import INDEX, Grouped, GroupedDescriptor, grouped_case, random_offsets, slices, torch_slices


@dataclass(frozen=True, kw_only=True)
class GroupedInnerGemmDescriptor(GroupedDescriptor):
    """a is [m, total], b [total, n], y [groups, m, n].

    num_offsets: `groups`, where each group ends, or one more, from where to where.
    """

    m: int = extent()


@dataclass(slots=True, kw_only=True)
class GroupedInnerGemmArgs(Args):
    """Any strides: a may be the transposed view of rows. offsets: as in `GroupedGemmArgs`."""

    a: Array = operand("m total")
    b: Array = operand("total n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    y: Array = output("groups m n")


def reference(desc: GroupedInnerGemmDescriptor, *, a: Any, b: Any, offsets: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a comes in, group by group."""
    y = np.zeros((desc.groups, desc.m, desc.n), a.dtype)
    for group, rows in enumerate(slices(desc, offsets)):
        y[group] = a[:, rows] @ b[rows]
    return {"y": y}


_OPERANDS = {name: name for name in ("a", "b", "y")}


def _warpgroups(p: Problem) -> Geometry | str:
    return launches(p, product_wgmma_step(p, _OPERANDS))


def _tensor_cores(p: Problem) -> Geometry | str:
    return launches(p, product_mma_step(p, _OPERANDS))


def _simt(p: Problem) -> Geometry | str:
    return launches(p, product_step(p, _OPERANDS))


def in_torch(torch: Any, desc: Any, *, a: Any, b: Any, offsets: Any) -> Any:
    """Products of slices."""
    made = [a[:, rows] @ b[rows] for rows in torch_slices(torch, desc, offsets)]
    return torch.stack(made) if made else a.new_zeros(0, desc.m, desc.n) + 0 * (a.sum() + b.sum())


class GroupedInnerGemmPlan(Grouped, Plan):
    """y[g] = a[:, r] @ b[r] over the rows r of each group g: the products that a ragged axis is summed in.

    a [m, total], b [total, n], y [groups, m, n]; f16, bf16, f32, f64, accumulation in float32 (float64 for float64), in
    the order of the rows. Offsets as in `GroupedGemmPlan`; rows of no group are in no sum, a group without rows gives
    zeros. A group gives the same bits alone.
    """

    op = "gemm.grouped_inner_gemm"
    descriptor = GroupedInnerGemmDescriptor
    args = GroupedInnerGemmArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "wgmma", _warpgroups, source="gemm/grouped_wgmma.cu", kernels=(PRODUCT_WGMMA,), elements=ELEMENTS,
            design=ArchSku.SM90A,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="wgmma", roundings=lambda desc: desc.total // 8,
            ),
        ),
        Variant(
            "mma", _tensor_cores, source="gemm/grouped_mma.cu", kernels=(PRODUCT_MMA,), elements=ELEMENTS,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="mma", roundings=lambda desc: desc.total // 8,
            ),
        ),
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(PRODUCT,),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.total),
        ),
    )  # fmt: skip
    vjp = Vjp("GroupedInnerGemmBackwardPlan", grads={"a": "da", "b": "db"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 groups of 256 x [2048, 4096] bf16", total=16384, groups=64, m=2048, n=4096, element="bfloat16",
            make=even_offsets, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedInnerGemmDescriptor:
        return GroupedInnerGemmDescriptor(**grouped_case(draw), m=draw.sizes(0, 1, 16, 67, 128))

    @classmethod
    def flops(cls, desc: GroupedInnerGemmDescriptor) -> int:
        return 2 * desc.total * desc.n * desc.m


grouped_inner_gemm = functional(GroupedInnerGemmPlan)
