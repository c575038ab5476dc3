"""sdpa_block_sparse_backward: dq, dk, dv of `sdpa_block_sparse`, the scores recomputed in the set blocks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


from ....core import Args, Array, ElementKind, Plan, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.sparse.backward import MMA_ROW, SIMT_ROW
from ..dense.flash_sdpa_backward import reference as gradients
from ..layouts import Layouts
from ..score_terms import finite, give_forward
from .sdpa_block_sparse import (
    PATTERN, SdpaBlockSparseDescriptor, block_sparse_benchmarks, block_sparse_case, random_pattern, seen,
)  # fmt: skip
from .sdpa_block_sparse import reference as forward

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"


@dataclass(frozen=True, kw_only=True)
class SdpaBlockSparseBackwardDescriptor(SdpaBlockSparseDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class SdpaBlockSparseBackwardArgs(Args):
    """`y` and `lse` are the forward's, dlse is the gradient that reaches lse; a gradient left None costs nothing.

    In a row that sees no key dlse counts as 0.

    What is not finite makes gradients NaN that its block, or a neighbour in its tile of scores, reaches.
    """

    q: Array = operand(_Q, layout="inner", values=finite)
    k: Array = operand(_K, layout="inner", values=finite)
    v: Array = operand(_V, layout="inner", values=finite)
    pattern: Array = operand(PATTERN, element=(ElementKind.BOOL, ElementKind.U8), broadcast=True, values=random_pattern)
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
    desc: SdpaBlockSparseBackwardDescriptor, *, q: Any, k: Any, v: Any, pattern: Any, y: Any, lse: Any, dy: Any,
    dlse: Any = None, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, as `FlashSdpaBackwardPlan`'s."""
    mask = seen(desc, pattern)
    given = {"q": q, "k": k, "v": v, "y": y, "lse": lse, "dy": dy, "dlse": dlse, "mask": mask}
    return gradients(desc, **given, wanted=wanted, store=store)  # type: ignore[arg-type]


class SdpaBlockSparseBackwardPlan(Plan):
    """The gradients of `SdpaBlockSparsePlan`; dk and dv are summed over the query heads that share a key head.

    rowsum(dy y) first, then blocks of keys for dk and dv and blocks of queries for dq, each walking the tiles of scores
    that have a set block. The order of every sum is fixed.
    """

    op = "attention.sdpa_block_sparse_backward"
    direction = "backward"
    descriptor = SdpaBlockSparseBackwardDescriptor
    args = SdpaBlockSparseBackwardArgs
    reference = staticmethod(reference)
    value_policy = "pattern: any byte but 0 is set"
    variants = (MMA_ROW, SIMT_ROW)
    benchmarks = block_sparse_benchmarks("dq", "dk", "dv", target=None, blocks=(64, 32))

    @staticmethod
    def case(draw: Any) -> SdpaBlockSparseBackwardDescriptor:
        return SdpaBlockSparseBackwardDescriptor(**block_sparse_case(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        give_forward(desc, forward, arrays, ("q", "k", "v", "pattern"))

    @classmethod
    def flops(cls, desc: SdpaBlockSparseDescriptor) -> int:
        """With every block set."""
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (3 * desc.d_k + 2 * desc.d_v)


_call = functional(SdpaBlockSparseBackwardPlan, layouts=Layouts(("q", "k", "v", "y", "dy", "dq", "dk", "dv")))


@entry(SdpaBlockSparseBackwardPlan)
def sdpa_block_sparse_backward(
    q: Any, k: Any, v: Any, pattern: Any, y: Any, lse: Any, dy: Any, dlse: Any = None, *, query_block: int = 64,
    key_block: int = 64, scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left",
    layout: str = "bhsd", return_dq: bool = True, return_dk: bool = True, return_dv: bool = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for, of `sdpa_block_sparse`; query i at key i (top left) by default.

    Arrays as there, lse [batch, heads, queries] in any layout, and as it dlse, the gradient that reaches it.
    """
    flags = {"dq": return_dq, "dk": return_dk, "dv": return_dv}
    facts = {
        "query_block": query_block, "key_block": key_block, "scale": scale, "is_causal": is_causal,
        "causal_alignment": causal_alignment,
    }  # fmt: skip
    facts |= {f"return_{name}": flag for name, flag in flags.items()}
    return _call(
        q, k, v, pattern, y, lse, dy, dlse, **facts, layout=layout, out=out, stream=stream, preference=preference
    )
