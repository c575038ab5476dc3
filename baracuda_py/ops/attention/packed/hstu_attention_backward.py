"""hstu_attention_backward: dq, dk, dv of `hstu_attention`, the scores recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Args, Array, Plan, operand, output
from ....calls.functional import functional
from ....calls.entries import entry
from ....core.element import unrounded
from ....schedules.attention.hstu import BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW
from ..score_terms import finite
from .hstu_attention import POLICY, HstuAttentionDescriptor, hstu_benchmarks, hstu_case, pairs, scores, seen, silu
from .ragged import INDEX, random_bounds

_K, _V = "total num_heads d_k", "total num_heads d_v"


@dataclass(frozen=True, kw_only=True)
class HstuAttentionBackwardDescriptor(HstuAttentionDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class HstuAttentionBackwardArgs(Args):
    """As the forward's; a gradient left None costs nothing beside the other."""

    q: Array = operand(_K, layout="inner", values=finite)
    k: Array = operand(_K, layout="inner", values=finite)
    v: Array = operand(_V, layout="inner", values=finite)
    seq_offsets: Array = operand("num_bounds", element=INDEX, values=random_bounds("total"))
    dy: Array = operand(_V, layout="inner", values=finite)
    dq: Array | None = output(_K, optional=True, layout="inner")
    dk: Array | None = output(_K, optional=True, layout="inner")
    dv: Array | None = output(_V, optional=True, layout="inner")


def reference(
    desc: HstuAttentionBackwardDescriptor, *, q: Any, k: Any, v: Any, seq_offsets: Any, dy: Any, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: ds = (dy vᵀ) silu'(s)."""
    mask, (weight, slope) = seen(desc, seq_offsets), silu(scores(desc, q, k))
    q, k, v, dy = (x.swapaxes(0, 1) for x in (q, k, v, dy))
    p = store(np.where(mask, weight, 0).astype(q.dtype))
    ds = store(np.where(mask, (dy @ v.swapaxes(-1, -2)) * slope, 0).astype(q.dtype))
    share, scale = q.dtype.type(1 / desc.max_seqlen), q.dtype.type(desc.scale / desc.max_seqlen)
    made = {"dq": ds @ k * scale, "dk": ds.swapaxes(-1, -2) @ q * scale, "dv": p.swapaxes(-1, -2) @ dy * share}
    return {name: np.ascontiguousarray(grad.swapaxes(0, 1)) for name, grad in made.items() if name in wanted}


class HstuAttentionBackwardPlan(Plan):
    """The gradients of `HstuAttentionPlan`: dq by queries, dk and dv by keys. The order of every sum is fixed."""

    op = "attention.hstu_attention_backward"
    direction = "backward"
    descriptor = HstuAttentionBackwardDescriptor
    args = HstuAttentionBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (BACKWARD_MMA_ROW, BACKWARD_SIMT_ROW)
    benchmarks = hstu_benchmarks("dq", "dk", "dv")

    @staticmethod
    def case(draw: Any) -> HstuAttentionBackwardDescriptor:
        return HstuAttentionBackwardDescriptor(**hstu_case(draw))

    @classmethod
    def flops(cls, desc: HstuAttentionDescriptor) -> int:
        """With sequences of max_seqlen tokens."""
        return 2 * desc.num_heads * pairs(desc) * (3 * desc.d_k + 2 * desc.d_v)


_call = functional(HstuAttentionBackwardPlan)


@entry(HstuAttentionBackwardPlan)
def hstu_attention_backward(
    q: Any, k: Any, v: Any, seq_offsets: Any, dy: Any, *, max_seqlen: int, is_causal: bool = True,
    window_left: int | None = None, scale: float | None = None, return_dq: bool = True, return_dk: bool = True,
    return_dv: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for, of `hstu_attention`; causal by default. Arrays as there."""
    return _call(
        q, k, v, seq_offsets, dy, max_seqlen=max_seqlen, is_causal=is_causal, window_left=window_left, scale=scale,
        return_dq=return_dq, return_dk=return_dk, return_dv=return_dv, out=out, stream=stream, preference=preference,
    )  # fmt: skip
