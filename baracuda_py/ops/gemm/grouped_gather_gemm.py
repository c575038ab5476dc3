"""grouped_gather_gemm: `grouped_gemm_epilogue` of rows that an index names, which no copy brings together first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import ArchSku, Args, Array, Forward, Guarantee, Plan, Variant, choice, extent, operand, output
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...schedules.gemm import ACTIVATIONS
from ...schedules.grouped_gather import ELEMENTS, KERNEL, SIMT_KERNEL, simt, wgmma
from . import gemm, grouped_gemm_epilogue
from .grouped_gemm import even_offsets
from .groups import INDEX, POLICY, Grouped, GroupedDescriptor, grouped_case, random_offsets


@dataclass(frozen=True, kw_only=True)
class GroupedGatherGemmDescriptor(GroupedDescriptor):
    """x is [sources, k], of which `total` rows are in groups; the rest as in `GroupedGemmEpilogueDescriptor`."""

    sources: int = extent()
    k: int = extent()
    activation: str = choice(ACTIVATIONS, "none")

    @property
    def brought(self) -> grouped_gemm_epilogue.GroupedGemmEpilogueDescriptor:
        """The product of rows that were brought together."""
        return grouped_gemm_epilogue.GroupedGemmEpilogueDescriptor(
            total=self.total, groups=self.groups, n=self.n, k=self.k, num_offsets=self.num_offsets,
            activation=self.activation, element=self.element,
        )  # fmt: skip


def random_rows(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: rows of x, at times one that is none."""
    made = rng.integers(0, max(desc.sources, 1), shape)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.2)), rng.choice((-1, desc.sources, 2**31 - 1)), made)


@dataclass(slots=True, kw_only=True)
class GroupedGatherGemmArgs(Args):
    """Any strides. rows: which row of x each row of y is of, int32 or int64 on the device; offsets as in
    `GroupedGemmArgs`; up, with up_bias: the weights of a second product, which the activated first one gates."""

    x: Array = operand("sources k")
    rows: Array = operand("total", element=INDEX, values=random_rows)
    b: Array = operand("groups k n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    bias: Array | None = operand("groups n", optional=True)
    up: Array | None = operand("groups k n", optional=True)
    up_bias: Array | None = operand("groups n", optional=True)
    y: Array = output("total n")


def reference(
    desc: GroupedGatherGemmDescriptor, *, x: Any, rows: Any, b: Any, offsets: Any, bias: Any, up: Any, up_bias: Any,
    apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in: `grouped_gemm_epilogue` of the rows."""
    there = (rows >= 0) & (rows < desc.sources)
    a = np.zeros((desc.total, desc.k), x.dtype)
    a[there] = x[rows[there]]
    return grouped_gemm_epilogue.reference(
        desc.brought, a=a, b=b, offsets=offsets, bias=bias, up=up, up_bias=up_bias, scale_a=None, residual=None,
        wanted={"y"}, apart=apart,
    )  # fmt: skip


def in_torch(torch: Any, desc: Any, *, x: Any, rows: Any, offsets: Any, **given: Any) -> Any:
    """The rows brought together, and `grouped_gemm_epilogue`'s formula."""
    there = (rows >= 0) & (rows < desc.sources)
    a = torch.where(there[:, None], x[torch.where(there, rows, 0).long()], 0) if desc.sources else x.new_zeros(
        desc.total, desc.k)  # fmt: skip
    return grouped_gemm_epilogue.in_torch(
        torch, desc.brought, a=a, offsets=offsets, wanted={"y"}, scale_a=None, residual=None, **given
    )["y"]  # fmt: skip


def even_rows(torch: Any, desc: Any) -> dict[str, Any]:
    """Groups of as many rows, of sources in any order, for benchmarks."""
    return even_offsets(torch, desc) | {"rows": torch.randint(0, desc.sources, (desc.total,), dtype=torch.int32)}


class GroupedGatherGemmPlan(Grouped, Plan):
    """y[r] = act(x[rows[r]] @ b[g] + bias[g]) (x[rows[r]] @ up[g] + up_bias[g]) for the rows r of each group g.

    `GroupedGemmEpiloguePlan` of rows where they stand: the tokens of a mixture's experts, which nothing brings together
    first. Without up there is no second factor. On sm_90a a row has the bits that it has there. A row of `rows` outside
    [0, sources) counts as zeros; rows of no group give zeros. It has no gradient: train with `take`, `grouped_gemm` and
    an activation.
    """

    op = "gemm.grouped_gather_gemm"
    value_policy = f"{POLICY}; an item of rows outside [0, sources) names a row of zeros"
    descriptor = GroupedGatherGemmDescriptor
    args = GroupedGatherGemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "wgmma", wgmma, source="gemm/grouped_gather_wgmma.cu", kernels=(KERNEL,), elements=ELEMENTS,
            design=ArchSku.SM90A,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="wgmma", roundings=lambda desc: desc.k // 8,
            ),
        ),
        Variant(
            "simt", simt, source="gemm/grouped_gather_simt.cu", kernels=(SIMT_KERNEL,), may_spill=True,
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.k),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 groups of 256 of 4096 x [2048, 4096] silu, gated, bf16", sources=4096, total=16384, groups=64, k=2048,
            n=4096, activation="silu", element="bfloat16", make=even_rows, also=("up",), work=FLOPS, target=None,
            peers=(),
        ),
    )  # fmt: skip
    check = gemm.GemmPlan.check
    complete = gemm.GemmPlan.complete

    @staticmethod
    def case(draw: Any) -> GroupedGatherGemmDescriptor:
        return GroupedGatherGemmDescriptor(
            **grouped_case(draw), sources=draw.sizes(1, 0, 9, 40), k=draw.sizes(16, 0, 1, 67, 128),
            activation=draw.choice(ACTIVATIONS),
        )  # fmt: skip

    @classmethod
    def flops(cls, desc: GroupedGatherGemmDescriptor) -> int:
        return 2 * desc.total * desc.n * desc.k


grouped_gather_gemm = functional(GroupedGatherGemmPlan)
