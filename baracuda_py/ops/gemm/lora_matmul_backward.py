"""lora_matmul_backward: the gradients of lora_matmul by x and by base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, ElementKind, Plan, operand, output,
)  # fmt: skip
from ...core.benchmark import EAGER, Benchmark
from ...core.checked import require_some
from ...core.element import INDICES
from . import lora_rows as rows
from .lora_matmul import (
    POLICY, LoraMatmulDescriptor, adapters_of, even_segments, ids_fit, lora_case, product,
    random_bounds, random_ids, random_ranks,
    variants_of,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoraMatmulBackwardDescriptor(LoraMatmulDescriptor):
    """As `LoraMatmulDescriptor`."""


@dataclass(slots=True, kw_only=True)
class LoraMatmulBackwardArgs(Args):
    """Operands are the forward's; a gradient that is None costs nothing."""

    dy: Array = operand("tokens out_features")
    a: Array = operand("adapters max_rank in_features")
    b: Array = operand("adapters out_features max_rank")
    ids: Array = operand("num_ids", element=INDICES, values=random_ids)
    offsets: Array | None = operand("num_offsets", element=INDICES, optional=True, values=random_bounds)
    scale: Array | None = operand("adapters", element=ElementKind.F32, optional=True)
    ranks: Array | None = operand("adapters", element=INDICES, optional=True, values=random_ranks)
    dx: Array | None = output("tokens in_features", optional=True)
    dbase: Array | None = output("tokens out_features", optional=True)


def reference(
    desc: LoraMatmulBackwardDescriptor, *, dy: Any, a: Any, b: Any, ids: Any, offsets: Any, scale: Any, ranks: Any,
    wanted: set[str], apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in, adapter by adapter."""
    made = {"dbase": dy.copy()} if "dbase" in wanted else {}
    if "dx" in wanted:
        owners = adapters_of(desc, ids, offsets)
        made["dx"] = product(desc, dy, b.swapaxes(1, 2), a.swapaxes(1, 2), owners, scale, ranks, apart)
    return made


class LoraMatmulBackwardPlan(Plan):
    """dx[t] = scale[i] (dy[t] @ b[i]) @ a[i] and dbase = dy of `LoraMatmulPlan`, in the same launches.

    The rows and their orders of sums are the forward's. The function `lora_matmul_backward` has the gradients of a, b
    and scale, too.
    """

    op = "gemm.lora_matmul_backward"
    direction = "backward"
    descriptor = LoraMatmulBackwardDescriptor
    args = LoraMatmulBackwardArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = POLICY
    variants = variants_of(rows.BACKWARD)
    benchmarks = (
        Benchmark("4096 tokens, 16 adapters of rank 32, [4096, 4096] bf16", tokens=4096, in_features=4096,
                  out_features=4096, adapters=16, max_rank=32, num_ids=16, element="bfloat16", also=("dx",),
                  make=even_segments, target=None, peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LoraMatmulBackwardDescriptor:
        return LoraMatmulBackwardDescriptor(**lora_case(draw), element=draw.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        ids_fit(desc, views["offsets"])
        require_some(views, "dx", "dbase")
