"""block_select_attention_backward: dq, dk, dv of `block_select_attention`, scores recomputed in the chosen blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import Args, Array, Plan, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.sparse.selected import BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW
from ..dense.flash_sdpa_backward import reference as gradients
from ..layouts import Layouts
from ..score_terms import finite, give_forward
from .block_select_attention import (
    BLOCKS, INDEX, BlockSelectAttentionDescriptor, block_select_benchmarks, block_select_case, random_blocks, seen,
)  # fmt: skip
from .block_select_attention import reference as forward

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"


@dataclass(frozen=True, kw_only=True)
class BlockSelectAttentionBackwardDescriptor(BlockSelectAttentionDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class BlockSelectAttentionBackwardArgs(Args):
    """`y` and `lse` are the forward's, dlse is the gradient that reaches lse; a gradient left None costs nothing.

    In a row that sees no key dlse counts as 0.

    What is not finite makes gradients NaN that its block, or a neighbour in its tile of scores, reaches.
    """

    q: Array = operand(_Q, layout="inner", values=finite)
    k: Array = operand(_K, layout="inner", values=finite)
    v: Array = operand(_V, layout="inner", values=finite)
    block_indices: Array = operand(BLOCKS, element=INDEX, values=random_blocks)
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
    desc: BlockSelectAttentionBackwardDescriptor, *, q: Any, k: Any, v: Any, block_indices: Any, y: Any, lse: Any,
    dy: Any, dlse: Any = None, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, as `FlashSdpaBackwardPlan`'s."""
    mask = seen(desc, block_indices)
    given = {"q": q, "k": k, "v": v, "y": y, "lse": lse, "dy": dy, "dlse": dlse, "mask": mask}
    return gradients(desc, **given, wanted=wanted, store=store)  # type: ignore[arg-type]


class BlockSelectAttentionBackwardPlan(Plan):
    """The gradients of `BlockSelectAttentionPlan`; dk and dv are summed over the query heads that share a key head.

    dq by queries; dk and dv by blocks of keys, whose queries a stable counting sort finds. The order of every sum is
    fixed.
    """

    op = "attention.block_select_attention_backward"
    direction = "backward"
    descriptor = BlockSelectAttentionBackwardDescriptor
    args = BlockSelectAttentionBackwardArgs
    reference = staticmethod(reference)
    value_policy = "block_indices: a block named again counts once, one that is not in [0, key blocks) is left out"
    variants = (BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW)
    benchmarks = block_select_benchmarks("dq", "dk", "dv")

    @staticmethod
    def case(draw: Any) -> BlockSelectAttentionBackwardDescriptor:
        return BlockSelectAttentionBackwardDescriptor(**block_select_case(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        give_forward(desc, forward, arrays, ("q", "k", "v", "block_indices"))

    @classmethod
    def flops(cls, desc: BlockSelectAttentionDescriptor) -> int:
        """With every block chosen whole."""
        keys = min(desc.selected * desc.block_size, desc.key_len)
        return 2 * desc.batch_size * desc.num_heads * desc.query_len * keys * (3 * desc.d_k + 2 * desc.d_v)


_TURNED = Layouts(("q", "k", "v", "block_indices", "y", "dy", "dq", "dk", "dv"))
_call = functional(BlockSelectAttentionBackwardPlan, layouts=_TURNED)


@entry(BlockSelectAttentionBackwardPlan)
def block_select_attention_backward(
    q: Any, k: Any, v: Any, block_indices: Any, y: Any, lse: Any, dy: Any, dlse: Any = None, *, block_size: int = 64,
    scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd",
    return_dq: bool = True, return_dk: bool = True, return_dv: bool = True, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for, of `block_select_attention`; query i stands at key i (top left) by default.

    Arrays as there, lse [batch, heads, queries] in any layout, and as it dlse, the gradient that reaches it.
    """
    flags = {"dq": return_dq, "dk": return_dk, "dv": return_dv}
    facts = {"block_size": block_size, "scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment}
    facts |= {f"return_{name}": flag for name, flag in flags.items()}
    return _call(
        q, k, v, block_indices, y, lse, dy, dlse, **facts, layout=layout, out=out, stream=stream, preference=preference
    )
