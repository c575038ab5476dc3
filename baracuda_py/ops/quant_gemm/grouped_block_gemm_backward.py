"""grouped_block_gemm_backward: dx[r] = dy[r] W[e] through the stored weights of experts, which have no gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import Array, Geometry, Plan, Problem, Variant, operand, output
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ..gemm.gemm import rows_apart
from ..gemm.grouped_gemm import GroupedGemmArgs, GroupedGemmPlan, even_offsets
from ..gemm.groups import INDEX, Grouped, random_offsets, slices
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import StoredArgs, format_header
from .block_gemm import ELEMENTS, GUARANTEE, weights
from .grouped_block_gemm import GroupedBlockGemmDescriptor, GroupedBlockGemmPlan, given_operands, infer_experts
from .grouped_block_gemm import product_of
from .unpacked import dense_kernels, unpacked


@dataclass(frozen=True, kw_only=True)
class GroupedBlockGemmBackwardDescriptor(GroupedBlockGemmDescriptor):
    """The fields of `GroupedBlockGemmDescriptor`."""


@dataclass(slots=True, kw_only=True)
class GroupedBlockGemmBackwardArgs(StoredArgs):
    """Any strides of dy and dx; the parts of W and offsets are the forward's."""

    dy: Array = operand("total n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    dx: Array = output("total k")


def reference(
    desc: GroupedBlockGemmBackwardDescriptor, *, dy: Any, offsets: Any, apart: bool = False, **parts: Any
) -> Mapping[str, Any]:
    """NumPy matmul in the dtype dy comes in, expert by expert."""
    dx = np.zeros((desc.total, desc.k), dy.dtype)
    with np.errstate(all="ignore"):
        w = weights(desc, dy.dtype, **parts)
        for expert, rows in enumerate(slices(desc, offsets)):
            dx[rows] = rows_apart(dy[rows], w[expert]) if apart else dy[rows] @ w[expert]
    return {"dx": dx}


def _geometry(row: Variant) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        given = given_operands(p, {"a": "dy", "offsets": "offsets", "y": "dx"})
        product = product_of(p.desc, p.desc.k, p.desc.n)
        return unpacked(p, GroupedBlockGemmBackwardArgs, row, given, "n", product, gemm=GroupedGemmArgs)

    return geometry


class GroupedBlockGemmBackwardPlan(Grouped, Plan):
    """dx[r] = dy[r] @ W[e] of `GroupedBlockGemmPlan`, all of W unpacked into the workspace and rounded to x's element.

    dy [total, n] is the gradient of y, dx [total, k] that of x; sums are in float32, dx rounded once. Rows of no expert
    give zeros. The stored weights are constants: they have no gradient, nor has bias.
    """

    op = "quant_gemm.grouped_block_gemm_backward"
    direction = "backward"
    kinds = FormatKind
    descriptor = GroupedBlockGemmBackwardDescriptor
    args = GroupedBlockGemmBackwardArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = GroupedBlockGemmPlan.value_policy
    variants = tuple(
        Variant(
            row.name, _geometry(row), source="quantize/block_dequantize.cu", kernels=dense_kernels(row),
            elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design,
            prelude=format_header,
            guarantee=replace(GUARANTEE, batch_invariant=True, order=row.guarantee.order),
        )
        for row in GroupedGemmPlan.variants
    )  # fmt: skip
    benchmarks = (
        Benchmark("nf4 [8192, 14336] by 8 of [14336, 4096] bf16", kind="nf4", total=8192, experts=8, n=14336, k=4096,
                  group=64, element="bfloat16", make=even_offsets, work=FLOPS, target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedBlockGemmBackwardDescriptor:
        desc = GroupedBlockGemmPlan.case(draw)
        return GroupedBlockGemmBackwardDescriptor(**{name: getattr(desc, name) for name in desc.__dataclass_fields__})

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        GroupedBlockGemmPlan.complete(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_experts(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return GroupedBlockGemmPlan.flops(desc)


grouped_block_gemm_backward = functional(GroupedBlockGemmBackwardPlan)
