"""flash_sdpa_varlen: attention over sequences of any lengths, packed one after the other (flash_attn_varlen_func)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any


from ....core import Args, Array, Plan, Scalar, Vjp, number, operand, output, scalar
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.dense.forward import simt_row, sm80_row, sm89_row, sm90a_row
from ....schedules.attention.extend import FAMILY
from ....schedules.attention.packed import packed_form
from ....schedules.attention.same_bits import PACKED_TABLES, packed as packed_keys, same_bits_rows
from ....schedules.attention.score_terms import drop_probability
from ..dense.flash_sdpa import reference as dense
from ..dense.flash_sdpa import refuse_apart
from ..paged.page_tables import READ_TABLES, table_fields
from .ragged import (
    INDEX, Packed, PackedDescriptor, heads_first, packed_benchmarks, ragged_case, random_bounds, sequences, terms_of,
    unseeing,
)  # fmt: skip
from ..fp8_output import asked, fp8_output
from ..in_torch import packed

BOUNDS = ("cu_seqlens_q", "cu_seqlens_k")
GRADS = {"q": "dq", "k": "dk", "v": "dv", "slopes": "dslopes", "sinks": "dsinks"}


@dataclass(frozen=True, kw_only=True)
class FlashSdpaVarlenDescriptor(PackedDescriptor):
    """As `PackedDescriptor`; dropout_p of the weights are dropped."""

    dropout_p: float = number(0.0, minimum=0.0, maximum=1.0)


@dataclass(slots=True, kw_only=True)
class FlashSdpaVarlenArgs(Args):
    """Sequence b has the rows cu_seqlens_q[b] : cu_seqlens_q[b + 1] of q and y, and cu_seqlens_k likewise of k and v.

    `lse` [num_heads, total_q] (FlashAttention's) = log Σ exp(s) over the keys and the sink, in the accumulator's
    element. slopes: ALiBi's, [heads] or [batch, heads]. sinks: a logit a head that takes part in the sum and has no
    value. Both are float32, for float64 operands float64. seed and offset: dropout's Philox stream; sequence b draws
    what `flash_sdpa` does of it alone at offset + b 2³². Give every call another offset below 2³².
    """

    q: Array = operand("total_q num_heads d_k", layout="inner")
    k: Array = operand("total_k num_kv_heads d_k", layout="inner")
    v: Array = operand("total_k num_kv_heads d_v", layout="inner")
    cu_seqlens_q: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    cu_seqlens_k: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_k"))
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    y: Array = output("total_q num_heads d_v", layout="inner")
    lse: Array | None = output("num_heads total_q", element="acc", optional=True, layout="dense")
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: PackedDescriptor, *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, sinks: Any = None,
    wanted: set[str], store: Any = unrounded, apart: bool = False, **terms: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: `flash_sdpa` of each sequence; zeros and the sink's lse where there is none."""
    y, lse = unseeing(desc, sinks, q.dtype)
    for b, (rows, keys) in enumerate(sequences(cu_seqlens_q, cu_seqlens_k, desc.total_q, desc.total_k)):
        one = desc.alone(rows.stop - rows.start, keys.stop - keys.start)
        if one.query_len:
            operands = {"q": heads_first(q, rows), "k": heads_first(k, keys), "v": heads_first(v, keys)}
            named = terms_of(desc, b, one, sinks=sinks, **terms)
            made = dense(one, **operands, **named, wanted=wanted, store=store, apart=apart)
            y[rows] = made["y"][0].swapaxes(0, 1)
            lse[:, rows] = made["lse"][0]
    return {"y": y, "lse": lse}


_FORM = packed_form(BOUNDS)


def in_torch(
    torch: Any, desc: PackedDescriptor, *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    slopes: Any, sinks: Any, wanted: set[str], mask: Any = None, **stream: Any,
) -> Any:  # fmt: skip
    """Attention of each sequence; torch's dropout is another stream."""
    if drop_probability(desc):
        return NotImplemented
    ends = torch.cummax(cu_seqlens_k.long().clamp(0, desc.total_k), 0)[0].tolist()

    def keys(b: int) -> tuple[Any, ...]:
        return tuple(x[ends[b] : ends[b + 1]] for x in (k, v))

    return packed(torch, desc, q, keys, cu_seqlens_q, wanted, slopes, sinks, mask)


class FlashSdpaVarlenPlan(Packed, Plan):
    """`FlashSdpaPlan`, "bottom_right", of each of the packed sequences; rows of no sequence see no key.

    They get zeros and lse -inf, or the sink's.
    A sequence's results are bit for bit those of `FlashSdpaPlan` on it alone.
    """

    op = "attention.flash_sdpa_varlen"
    same_bits = FAMILY
    apart = True
    refuse_apart = staticmethod(refuse_apart)
    descriptor = FlashSdpaVarlenDescriptor
    args = FlashSdpaVarlenArgs
    reference = staticmethod(reference)
    bounds = BOUNDS
    variants = (
        sm90a_row(_FORM), sm80_row(_FORM), sm89_row(_FORM), simt_row(_FORM),
        *same_bits_rows(table_fields(READ_TABLES), packed_keys(BOUNDS), PACKED_TABLES),
    )  # fmt: skip
    vjp = Vjp("FlashSdpaVarlenBackwardPlan", grads=GRADS)
    torch = staticmethod(in_torch)
    benchmarks = packed_benchmarks("cu_seqlens_q", "cu_seqlens_k")

    @staticmethod
    def case(draw: Any) -> FlashSdpaVarlenDescriptor:
        return FlashSdpaVarlenDescriptor(**ragged_case(draw), dropout_p=draw.choice((0.0, 0.0, 0.1, 0.75)))


_call = functional(FlashSdpaVarlenPlan)


@entry(FlashSdpaVarlenPlan)
def flash_sdpa_varlen(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *, max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None, scale: float | None = None, is_causal: bool = False,
    causal_alignment: str = "bottom_right", window_left: int | None = None, window_right: int | None = None,
    softcap: float = 0.0, slopes: Any = None, sinks: Any = None, dropout_p: float = 0.0, seed: Any = None,
    offset: Any = 0, out_element: Any = None, out_scale: Scalar = 1.0, return_lse: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(s) v of s = scale · q kᵀ within each sequence, last query at last key (bottom right, FlashAttention's).

    q is [total_q, heads, d], k and v [total_k, kv_heads, d]; cu_seqlens_q and cu_seqlens_k hold batch + 1 bounds on the
    device, int32 or int64, never read by the host. max_seqlen_q and max_seqlen_k only serve checks. Query i of a
    sequence stands at key position i + keys - queries: causal it sees the keys up to there (with more queries than keys
    the first see none and give zeros and lse -inf), and windows count from there. causal_alignment="top_left": at i.
    softcap, slopes ([heads] or [batch, heads]; distances count from that position), sinks [heads] and dropout_p as in
    `flash_sdpa`. Sequence b draws what flash_sdpa does of it alone with the same seed and offset + b 2³²; a seed is
    needed but for torch tensors. With return_lse also log Σ exp(s), [heads, total_q].
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if asked(out_element, out_scale):
        attend = partial(
            flash_sdpa_varlen, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment,
            window_left=window_left, window_right=window_right, softcap=softcap, slopes=slopes, sinks=sinks,
            dropout_p=dropout_p, seed=seed, offset=offset,
        )  # fmt: skip
        return fp8_output(
            attend, (q, k, v), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    return _call(
        q, k, v, cu_seqlens_q, cu_seqlens_k, slopes, sinks, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
        scale=scale, is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left,
        window_right=window_right, softcap=softcap, dropout_p=dropout_p, seed=seed, offset=offset,
        return_lse=return_lse, out=out, stream=stream, preference=preference,
    )  # fmt: skip
