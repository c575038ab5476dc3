"""grouped_gemm: y[r] = a[r] b[g] + bias[g] for the rows r of each group g, whose bounds stand on the device.

The products of a mixture of experts: rows sorted by expert, one launch, no wait of the host (torch's grouped_mm,
jax.lax.ragged_dot).
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
from ...schedules.grouped import GROUPED, launches, rows_step
from ...schedules.grouped_wgmma import ROWS_WGMMA, rows_wgmma_step
from .gemm import rows_apart
from .grouped_mma import ELEMENTS, ROWS_MMA, rows_mma_step
from .groups import INDEX, Grouped, GroupedDescriptor, grouped_case, random_offsets, slices, torch_slices


@dataclass(frozen=True, kw_only=True)
class GroupedGemmDescriptor(GroupedDescriptor):
    """a is [total, k], b [groups, k, n], y [total, n].

    num_offsets: `groups`, where each group ends, or one more, from where to where.
    """

    k: int = extent()


@dataclass(slots=True, kw_only=True)
class GroupedGemmArgs(Args):
    """Any strides: the matrices of b may be transposed views. offsets: int32 or int64, on the device, never read by
    the host; where each group ends, the first beginning at row 0 (torch's offs), or with one item more also where the
    first begins (cu_seqlens)."""

    a: Array = operand("total k")
    b: Array = operand("groups k n")
    offsets: Array = operand("num_offsets", element=INDEX, values=random_offsets)
    bias: Array | None = operand("groups n", optional=True)
    y: Array = output("total n")


def reference(
    desc: GroupedGemmDescriptor, *, a: Any, b: Any, offsets: Any, bias: Any, apart: bool = False
) -> Mapping[str, Any]:
    """NumPy in the dtype a comes in, group by group."""
    y = np.zeros((desc.total, desc.n), a.dtype)
    for group, rows in enumerate(slices(desc, offsets)):
        y[rows] = rows_apart(a[rows], b[group]) if apart else a[rows] @ b[group]
        if bias is not None:
            y[rows] += bias[group]
    return {"y": y}


_OPERANDS = {name: name for name in ("a", "b", "bias", "y")}


def _warpgroups(p: Problem) -> Geometry | str:
    return launches(p, rows_wgmma_step(p, _OPERANDS))


def _tensor_cores(p: Problem) -> Geometry | str:
    return launches(p, rows_mma_step(p, _OPERANDS))


def _simt(p: Problem) -> Geometry | str:
    return launches(p, rows_step(p, _OPERANDS))


def in_torch(torch: Any, desc: Any, *, a: Any, b: Any, offsets: Any, bias: Any) -> Any:
    """Products of slices; rows of no group are zeros."""
    parts = torch_slices(torch, desc, offsets)
    if not parts:
        return a.new_zeros(desc.total, desc.n) + 0 * a.sum()
    made = [a[rows] @ b[g] if bias is None else a[rows] @ b[g] + bias[g] for g, rows in enumerate(parts)]
    before, after = a.new_zeros(parts[0].start, desc.n), a.new_zeros(desc.total - parts[-1].stop, desc.n)
    return torch.cat([before, *made, after])


def even_offsets(torch: Any, desc: Any) -> dict[str, Any]:
    """Groups of as many rows, for benchmarks."""
    each = torch.arange(1, desc.groups + 1, dtype=torch.int32)
    return {"offsets": each * (desc.total // desc.groups)}


class GroupedGemmPlan(Grouped, Plan):
    """y[r] = a[r] @ b[g] + bias[g] for the rows r of each group g (torch.nn.functional.grouped_mm, jax.lax.ragged_dot).

    a [total, k] holds the rows of all groups, one group after the other; b [groups, k, n], bias [groups, n], y
    [total, n]; f16, bf16, f32, f64, accumulation in float32 (float64 for float64). Offsets that decrease or leave
    [0, total] are clamped, to the largest before them and to that range; rows of no group give zeros. A row gives the
    same bits in a group of any size.
    """

    op = "gemm.grouped_gemm"
    descriptor = GroupedGemmDescriptor
    args = GroupedGemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "wgmma", _warpgroups, source="gemm/grouped_wgmma.cu", kernels=(ROWS_WGMMA,), elements=ELEMENTS,
            design=ArchSku.SM90A,
            guarantee=Guarantee(
                Forward(128), batch_invariant=True, order="wgmma", roundings=lambda desc: desc.k // 8,
            ),
        ),
        Variant(
            "mma", _tensor_cores, source="gemm/grouped_mma.cu", kernels=(ROWS_MMA,), elements=ELEMENTS,
            guarantee=Guarantee(Forward(128), batch_invariant=True, order="mma", roundings=lambda desc: desc.k // 8),
        ),
        Variant(
            "simt", _simt, source="gemm/grouped_gemm.cu", kernels=(GROUPED,),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.k),
        ),
    )  # fmt: skip
    vjp = Vjp("GroupedGemmBackwardPlan", grads={"a": "da", "b": "db", "bias": "dbias"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 groups of 256 x [2048, 4096] bf16", total=16384, groups=64, k=2048, n=4096, element="bfloat16",
            make=even_offsets, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GroupedGemmDescriptor:
        return GroupedGemmDescriptor(**grouped_case(draw), k=draw.sizes(0, 1, 16, 67, 128))

    @classmethod
    def flops(cls, desc: GroupedGemmDescriptor) -> int:
        return 2 * desc.total * desc.n * desc.k


grouped_gemm = functional(GroupedGemmPlan)
