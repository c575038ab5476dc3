"""grouped_gemm_epilogue: `grouped_gemm` with the epilogue of `gemm`: activation, gate, residual, a factor for each row.

The experts of a mixture in two launches: silu(x w[g]) (x up[g]), and the way back times the weights of the router.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, ElementKind, Forward, Geometry, Guarantee, Plan, Problem, Variant, choice, extent,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.gemm import ACTIVATIONS
from ...schedules.grouped import GROUPED_EPILOGUE, launches, rows_step
from ...schedules.grouped_wgmma import EPILOGUE_WGMMA, rows_wgmma_step
from . import gemm
from .grouped_gemm import even_offsets
from .grouped_mma import ELEMENTS, EPILOGUE_MMA, rows_mma_step
from .groups import INDEX, Grouped, GroupedDescriptor, grouped_case, random_offsets, slices, torch_slices


@dataclass(frozen=True, kw_only=True)
class GroupedGemmEpilogueDescriptor(GroupedDescriptor):
    """As `GroupedGemmDescriptor`; activation: none, relu, gelu, gelu_tanh or silu; with `up` it is that of the gate."""

    k: int = extent()
    activation: str = choice(ACTIVATIONS, "none")

    def of_group(self, rows: slice) -> gemm.GemmDescriptor:
        """The product of a group."""
        return gemm.GemmDescriptor(
            m=rows.stop - rows.start, n=self.n, k=self.k, activation=self.activation, element=self.element
        )


@dataclass(slots=True, kw_only=True)
class GroupedGemmEpilogueArgs(Args):
    """Any strides; offsets as in `GroupedGemmArgs`, the rest as in `GemmArgs`.

    up, with up_bias: the weights of a second product, which the activated first one gates. scale_a: a factor for each
    row of both products. pre and up_pre: what the products are before the activation, rounded.
    """

    a: Array = operand("total k")
    b: Array = operand("groups k n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    bias: Array | None = operand("groups n", optional=True)
    up: Array | None = operand("groups k n", optional=True)
    up_bias: Array | None = operand("groups n", optional=True)
    scale_a: Array | None = operand("total", element=ElementKind.F32, optional=True)
    residual: Array | None = operand("total n", optional=True)
    y: Array = output("total n", inplace=("residual",))
    pre: Array | None = output("total n", optional=True)
    up_pre: Array | None = output("total n", optional=True, needs="up")


def _of_group(given: Mapping[str, Any], group: int, rows: slice) -> dict[str, Any]:
    """The operands of one group, as `gemm` has them."""
    made = {name: None if given[name] is None else given[name][group] for name in ("b", "up", "bias", "up_bias")}
    made |= {name: None if given[name] is None else given[name][rows] for name in ("a", "scale_a", "residual")}
    return {**made, "c": None, "row_bias": None, "scale_b": None, "alpha": 1.0, "beta": 1.0}


def reference(
    desc: GroupedGemmEpilogueDescriptor, *, a: Any, b: Any, offsets: Any, bias: Any, up: Any, up_bias: Any,
    scale_a: Any, residual: Any, wanted: set[str], apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype a comes in: `gemm` of each group."""
    given = {
        "a": a, "b": b, "bias": bias, "up": up, "up_bias": up_bias, "scale_a": scale_a, "residual": residual,
    }  # fmt: skip
    made = {name: np.zeros((desc.total, desc.n), a.dtype) for name in ("y", "pre", "up_pre")}
    for group, rows in enumerate(slices(desc, offsets)):
        own = desc.of_group(rows)
        found = gemm.reference(own, **_of_group(given, group, rows), wanted=wanted, apart=apart)
        for name, value in found.items():
            made[name][rows] = value
    return {name: made[name] for name in wanted}


_OPERANDS = {
    n: n for n in ("a", "b", "up", "bias", "up_bias", "scale_a", "residual", "y", "pre", "up_pre")
}  # fmt: skip


def _warpgroups(p: Problem) -> Geometry | str:
    return launches(p, rows_wgmma_step(p, _OPERANDS, axes={"GATED": p.up is not None}))


def _tensor_cores(p: Problem) -> Geometry | str:
    return launches(p, rows_mma_step(p, _OPERANDS, axes={"GATED": p.up is not None}))


def _simt(p: Problem) -> Geometry | str:
    return launches(p, rows_step(p, _OPERANDS, axes={"GATED": p.up is not None}))


def in_torch(torch: Any, desc: Any, *, a: Any, offsets: Any, wanted: set[str], **given: Any) -> Any:
    """`gemm`'s formula of slices; rows of no group are zeros."""
    made = {name: a.new_zeros(desc.total, desc.n) for name in wanted}
    for group, rows in enumerate(torch_slices(torch, desc, offsets)):
        found = gemm.in_torch(torch, desc, **_of_group({**given, "a": a}, group, rows))
        for name in wanted:
            made[name][rows] = found[name]
    return made


class GroupedGemmEpiloguePlan(Grouped, Plan):
    """y[r] = act(s[r] a[r] @ b[g] + bias[g]) (s[r] a[r] @ up[g] + up_bias[g]) + residual[r], rows r in groups g.

    `GroupedGemmPlan` with `GemmPlan`'s epilogue, rounded once; s is scale_a; without up there is no second factor.
    Rows of no group give zeros, whatever their residual. It has no gradient: train with `grouped_gemm` and an
    activation.
    """

    op = "gemm.grouped_gemm_epilogue"
    descriptor = GroupedGemmEpilogueDescriptor
    args = GroupedGemmEpilogueArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "wgmma", _warpgroups, source="gemm/grouped_wgmma.cu", kernels=(EPILOGUE_WGMMA,), elements=ELEMENTS,
            design=ArchSku.SM90A,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="wgmma", roundings=lambda desc: desc.k // 8,
            ),
        ),
        Variant(
            "mma", _tensor_cores, source="gemm/grouped_mma.cu", kernels=(EPILOGUE_MMA,), elements=ELEMENTS,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="mma", roundings=lambda desc: desc.k // 8,
            ), may_spill=True,
        ),
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(GROUPED_EPILOGUE,),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.k),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 groups of 256 x [2048, 4096] silu, gated, bf16", total=16384, groups=64, k=2048, n=4096,
            activation="silu", element="bfloat16", make=even_offsets, also=("up",), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip
    check = gemm.GemmPlan.check
    complete = gemm.GemmPlan.complete

    @staticmethod
    def case(draw: Any) -> GroupedGemmEpilogueDescriptor:
        return GroupedGemmEpilogueDescriptor(
            **grouped_case(draw), k=draw.sizes(0, 1, 16, 67, 128), activation=draw.choice(ACTIVATIONS)
        )

    @classmethod
    def flops(cls, desc: GroupedGemmEpilogueDescriptor) -> int:
        return 2 * desc.total * desc.n * desc.k


grouped_gemm_epilogue = functional(GroupedGemmEpiloguePlan)
