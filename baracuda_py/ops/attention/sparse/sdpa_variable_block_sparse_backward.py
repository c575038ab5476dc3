"""sdpa_variable_block_sparse_backward: dq, dk, dv of `sdpa_variable_block_sparse`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import Args, Array, Plan, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.sparse.variable import BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW
from ..dense.flash_sdpa_backward import reference as gradients
from ..layouts import Layouts
from ..score_terms import finite, give_forward
from .sdpa_block_sparse import random_pattern
from .sdpa_variable_block_sparse import (
    INDEX, MASK, PATTERN_ELEMENTS, POLICY, SdpaVariableBlockSparseDescriptor, random_sizes, seen, variable_benchmarks,
    variable_case,
)  # fmt: skip
from .sdpa_variable_block_sparse import reference as forward

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"


@dataclass(frozen=True, kw_only=True)
class SdpaVariableBlockSparseBackwardDescriptor(SdpaVariableBlockSparseDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class SdpaVariableBlockSparseBackwardArgs(Args):
    """`y` and `lse` are the forward's, dlse is the gradient that reaches lse; a gradient left None costs nothing.

    In a row that sees no key dlse counts as 0.

    What is not finite makes gradients NaN that its block, or a neighbour in its tile of scores, reaches.
    """

    q: Array = operand(_Q, layout="inner", values=finite)
    k: Array = operand(_K, layout="inner", values=finite)
    v: Array = operand(_V, layout="inner", values=finite)
    block_mask: Array = operand(MASK, element=PATTERN_ELEMENTS, values=random_pattern)
    row_sizes: Array = operand("num_kv_heads row_blocks", element=INDEX, values=random_sizes)
    column_sizes: Array = operand("num_kv_heads column_blocks", element=INDEX, values=random_sizes)
    y: Array = operand(_Y, layout="inner")
    lse: Array = operand("batch_size num_heads query_len", element="acc", layout="dense")
    dy: Array = operand(_Y, layout="inner", values=finite)
    dlse: Array | None = operand(
        "batch_size num_heads query_len", element="acc", optional=True, layout="dense", values=finite
    )
    dq: Array | None = output(_Q, optional=True, layout="inner")
    dk: Array | None = output(_K, optional=True, layout="inner")
    dv: Array | None = output(_V, optional=True, layout="inner")


def reference(
    desc: SdpaVariableBlockSparseBackwardDescriptor, *, q: Any, k: Any, v: Any, block_mask: Any, row_sizes: Any,
    column_sizes: Any, y: Any, lse: Any, dy: Any, dlse: Any = None, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, as `FlashSdpaBackwardPlan`'s."""
    mask = seen(desc, block_mask, row_sizes, column_sizes)
    given = {"q": q, "k": k, "v": v, "y": y, "lse": lse, "dy": dy, "dlse": dlse, "mask": mask}
    return gradients(desc, **given, wanted=wanted, store=store)  # type: ignore[arg-type]


class SdpaVariableBlockSparseBackwardPlan(Plan):
    """The gradients of `SdpaVariableBlockSparsePlan`, as `SdpaBlockSparseBackwardPlan` makes them.

    The order of every sum is fixed.
    """

    op = "attention.sdpa_variable_block_sparse_backward"
    direction = "backward"
    descriptor = SdpaVariableBlockSparseBackwardDescriptor
    args = SdpaVariableBlockSparseBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW)
    benchmarks = variable_benchmarks("dq", "dk", "dv")

    @staticmethod
    def case(draw: Any) -> SdpaVariableBlockSparseBackwardDescriptor:
        return SdpaVariableBlockSparseBackwardDescriptor(**variable_case(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        give_forward(desc, forward, arrays, ("q", "k", "v", "block_mask", "row_sizes", "column_sizes"))

    @classmethod
    def flops(cls, desc: SdpaVariableBlockSparseDescriptor) -> int:
        """With every block set."""
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (3 * desc.d_k + 2 * desc.d_v)


_call = functional(SdpaVariableBlockSparseBackwardPlan, layouts=Layouts(("q", "k", "v", "y", "dy", "dq", "dk", "dv")))


@entry(SdpaVariableBlockSparseBackwardPlan)
def sdpa_variable_block_sparse_backward(
    q: Any, k: Any, v: Any, block_mask: Any, row_sizes: Any, column_sizes: Any, y: Any, lse: Any, dy: Any,
    dlse: Any = None, *, scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left",
    layout: str = "bhsd", return_dq: bool = True, return_dk: bool = True, return_dv: bool = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for, of `sdpa_variable_block_sparse`; query i at key i (top left) by default.

    Arrays as there, lse [batch, heads, queries] in any layout, and as it dlse, the gradient that reaches it.
    """
    flags = {"dq": return_dq, "dk": return_dk, "dv": return_dv}
    facts = {"scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment}
    facts |= {f"return_{name}": flag for name, flag in flags.items()}
    return _call(
        q, k, v, block_mask, row_sizes, column_sizes, y, lse, dy, dlse, **facts, layout=layout, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
