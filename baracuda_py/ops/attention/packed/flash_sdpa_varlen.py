"""flash_sdpa_varlen: attention over sequences of any lengths, packed one after the other (flash_attn_varlen_func)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Args, Array, Plan, Vjp, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.dense.forward import simt_row, sm80_row, sm89_row, sm90a_row
from ....schedules.attention.packed import packed_form
from ..dense.flash_sdpa import reference as dense
from .ragged import (
    INDEX, Packed, PackedDescriptor, heads_first, packed_benchmarks, ragged_case, random_bounds, sequences,
)  # fmt: skip
from ..in_torch import packed

BOUNDS = ("cu_seqlens_q", "cu_seqlens_k")


@dataclass(frozen=True, kw_only=True)
class FlashSdpaVarlenDescriptor(PackedDescriptor):
    """As `PackedDescriptor`."""


@dataclass(slots=True, kw_only=True)
class FlashSdpaVarlenArgs(Args):
    """Sequence b has the rows cu_seqlens_q[b] : cu_seqlens_q[b + 1] of q and y, and cu_seqlens_k likewise of k and v.

    `lse` [num_heads, total_q] (FlashAttention's) = log Σ exp(scale · q kᵀ), in the accumulator's element.
    """

    q: Array = operand("total_q num_heads d_k", layout="inner")
    k: Array = operand("total_k num_kv_heads d_k", layout="inner")
    v: Array = operand("total_k num_kv_heads d_v", layout="inner")
    cu_seqlens_q: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    cu_seqlens_k: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_k"))
    y: Array = output("total_q num_heads d_v", layout="inner")
    lse: Array | None = output("num_heads total_q", element="acc", optional=True, layout="dense")


def reference(
    desc: PackedDescriptor, *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: `flash_sdpa` of each sequence; zeros and lse -inf where there is none."""
    y = np.zeros((*q.shape[:2], desc.d_v), q.dtype)
    lse = np.full((desc.num_heads, desc.total_q), -np.inf, q.dtype)
    for rows, keys in sequences(cu_seqlens_q, cu_seqlens_k, desc.total_q, desc.total_k):
        one = desc.alone(rows.stop - rows.start, keys.stop - keys.start)
        if one.query_len:
            operands = {"q": heads_first(q, rows), "k": heads_first(k, keys), "v": heads_first(v, keys)}
            made = dense(one, **operands, wanted=wanted, store=store)
            y[rows] = made["y"][0].swapaxes(0, 1)
            lse[:, rows] = made["lse"][0]
    return {"y": y, "lse": lse}


_FORM = packed_form(BOUNDS)


def in_torch(
    torch: Any, desc: PackedDescriptor, *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """Attention of each sequence."""
    ends = torch.cummax(cu_seqlens_k.long().clamp(0, desc.total_k), 0)[0].tolist()
    return packed(torch, desc, q, lambda b: tuple(x[ends[b] : ends[b + 1]] for x in (k, v)), cu_seqlens_q, wanted)


class FlashSdpaVarlenPlan(Packed, Plan):
    """`FlashSdpaPlan`, "bottom_right", of each of the packed sequences; rows of no sequence get zeros and lse -inf.

    A sequence's results are bit for bit those of `FlashSdpaPlan` on it alone.
    """

    op = "attention.flash_sdpa_varlen"
    descriptor = FlashSdpaVarlenDescriptor
    args = FlashSdpaVarlenArgs
    reference = staticmethod(reference)
    bounds = BOUNDS
    variants = (sm90a_row(_FORM), sm80_row(_FORM), sm89_row(_FORM), simt_row(_FORM))
    vjp = Vjp("FlashSdpaVarlenBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})
    torch = staticmethod(in_torch)
    benchmarks = packed_benchmarks("cu_seqlens_q", "cu_seqlens_k")

    @staticmethod
    def case(draw: Any) -> FlashSdpaVarlenDescriptor:
        return FlashSdpaVarlenDescriptor(**ragged_case(draw))


_call = functional(FlashSdpaVarlenPlan)


@entry(FlashSdpaVarlenPlan)
def flash_sdpa_varlen(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *, max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None, scale: float | None = None, is_causal: bool = False,
    causal_alignment: str = "bottom_right", window_left: int | None = None, window_right: int | None = None,
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v within each sequence, last query at last key (bottom right, FlashAttention's).

    q is [total_q, heads, d], k and v [total_k, kv_heads, d]; cu_seqlens_q and cu_seqlens_k hold batch + 1 bounds on the
    device, int32 or int64, never read by the host. max_seqlen_q and max_seqlen_k only serve checks. Query i of a
    sequence stands at key position i + keys - queries: causal it sees the keys up to there (with more queries than keys
    the first see none and give zeros and lse -inf), and windows count from there. causal_alignment="top_left": at i.
    With return_lse also log Σ exp, [heads, total_q].
    """
    return _call(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, scale=scale,
        is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left, window_right=window_right,
        return_lse=return_lse, out=out, stream=stream, preference=preference,
    )  # fmt: skip
