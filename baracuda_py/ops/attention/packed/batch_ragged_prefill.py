"""batch_ragged_prefill: `flash_sdpa_varlen` by FlashInfer's names.

flashinfer.BatchPrefillWithRaggedKVCacheWrapper; its log-sum-exp is of base 2, this one natural.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....core import Args, Array, ElementKind, Plan, Scalar, extent, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.dense.forward import simt_row, sm80_row, sm89_row, sm90a_row
from ....schedules.attention.extend import FAMILY
from ....schedules.attention.packed import packed_form
from ....schedules.attention.same_bits import PACKED_TABLES, packed as packed_keys, same_bits_rows
from ..dense.flash_sdpa import refuse_apart
from .flash_sdpa_varlen import reference as varlen
from .flash_sdpa_varlen import in_torch as varlen_in_torch
from ..fp8_output import asked, fp8_output
from ..in_torch import bits
from ..paged.page_tables import READ_TABLES, table_fields
from .ragged import (
    BITS_POLICY, INDEX, POLICY, Packed, PackedDescriptor, check_mask, mask_starts, packed_benchmarks, ragged_case,
    random_bounds, settle_mask,
)  # fmt: skip

BOUNDS = ("qo_indptr", "kv_indptr")
_FORM = packed_form(BOUNDS, bits=True)


@dataclass(frozen=True, kw_only=True)
class BatchRaggedPrefillDescriptor(PackedDescriptor):
    """As `PackedDescriptor`. mask_bytes: length of a mask of bits."""

    mask_bytes: int = extent(0)


@dataclass(slots=True, kw_only=True)
class BatchRaggedPrefillArgs(Args):
    """Sequence b has the rows qo_indptr[b] : qo_indptr[b + 1] of q and y, and kv_indptr likewise of k and v.

    `lse` [num_heads, total_q] is natural-log, in the accumulator's element. slopes and sinks: as `FlashSdpaVarlenArgs`
    has them. mask_bits: bit i keys + j from byte mask_indptr[b] on, of a byte the lowest first, says whether query i of
    sequence b sees key j.
    """

    q: Array = operand("total_q num_heads d_k", layout="inner")
    k: Array = operand("total_k num_kv_heads d_k", layout="inner")
    v: Array = operand("total_k num_kv_heads d_v", layout="inner")
    qo_indptr: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    kv_indptr: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_k"))
    mask_bits: Array | None = operand(
        "mask_bytes", element=ElementKind.U8, optional=True, layout="dense", values=(0, 256)
    )
    mask_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=mask_starts)
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    y: Array = output("total_q num_heads d_v", layout="inner")
    lse: Array | None = output("num_heads total_q", element="acc", optional=True, layout="dense")


def reference(
    desc: PackedDescriptor, *, q: Any, k: Any, v: Any, qo_indptr: Any, kv_indptr: Any, wanted: set[str],
    store: Any = unrounded, **terms: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """That of `flash_sdpa_varlen`."""
    bounds = {"cu_seqlens_q": qo_indptr, "cu_seqlens_k": kv_indptr}
    return varlen(desc, q=q, k=k, v=v, **bounds, **terms, wanted=wanted, store=store)


def in_torch(
    torch: Any, desc: PackedDescriptor, *, q: Any, k: Any, v: Any, qo_indptr: Any, kv_indptr: Any, mask_bits: Any,
    mask_indptr: Any, wanted: set[str], **terms: Any,
) -> Any:  # fmt: skip
    """That of `flash_sdpa_varlen`."""
    bounds = {"cu_seqlens_q": qo_indptr, "cu_seqlens_k": kv_indptr}
    mask = bits(torch, mask_bits, mask_indptr)
    return varlen_in_torch(torch, desc, q=q, k=k, v=v, **bounds, **terms, mask=mask, wanted=wanted)


class BatchRaggedPrefillPlan(Packed, Plan):
    """`FlashSdpaVarlenPlan` with the names of FlashInfer's ragged prefill."""

    op = "attention.batch_ragged_prefill"
    same_bits = FAMILY
    apart = True
    refuse_apart = staticmethod(refuse_apart)
    descriptor = BatchRaggedPrefillDescriptor
    args = BatchRaggedPrefillArgs
    reference = staticmethod(reference)
    bounds = BOUNDS
    value_policy = POLICY + BITS_POLICY
    variants = (
        sm90a_row(_FORM), sm80_row(_FORM), sm89_row(_FORM), simt_row(_FORM),
        *same_bits_rows(table_fields(READ_TABLES), packed_keys(BOUNDS), PACKED_TABLES),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = packed_benchmarks("qo_indptr", "kv_indptr")

    @staticmethod
    def case(draw: Any) -> BatchRaggedPrefillDescriptor:
        return BatchRaggedPrefillDescriptor(**ragged_case(draw), mask_bytes=draw.choice((0, 30, 2000)))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_mask(views)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_mask(arrays)


_call = functional(BatchRaggedPrefillPlan)


@entry(BatchRaggedPrefillPlan)
def batch_ragged_prefill(
    q: Any, k: Any, v: Any, qo_indptr: Any, kv_indptr: Any, *, scale: float | None = None, is_causal: bool = False,
    causal_alignment: str = "bottom_right", window_left: int | None = None, window_right: int | None = None,
    softcap: float = 0.0, slopes: Any = None, sinks: Any = None, mask_bits: Any = None, mask_indptr: Any = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, out_element: Any = None, out_scale: Scalar = 1.0,
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(s) v of s = scale · q kᵀ within each sequence, last query at last key (bottom right, FlashAttention's).

    q is [total_q, heads, d], k and v [total_k, kv_heads, d]; qo_indptr and kv_indptr hold batch + 1 bounds on the
    device, int32 or int64. Query i of a sequence stands at key position i + keys - queries: causal it sees the keys up
    to there, and windows count from there. causal_alignment="top_left": at i. softcap, slopes ([heads] or [batch,
    heads]; distances count from that position) and sinks [heads] as in `flash_sdpa`. mask_bits and mask_indptr [batch +
    1] (FlashInfer's packed custom mask): whether query i of sequence b sees key j is bit i keys + j of the bytes from
    mask_indptr[b] on, of a byte the lowest first, np.packbits(mask, bitorder="little"); causality and windows hide keys
    besides. With return_lse also log Σ exp(s), [heads, total_q].
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if asked(out_element, out_scale):
        attend = partial(
            batch_ragged_prefill, q, k, v, qo_indptr, kv_indptr, scale=scale, is_causal=is_causal,
            causal_alignment=causal_alignment, window_left=window_left, window_right=window_right, softcap=softcap,
            slopes=slopes, sinks=sinks, mask_bits=mask_bits, mask_indptr=mask_indptr, max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
        )  # fmt: skip
        return fp8_output(
            attend, (q, k, v), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    return _call(
        q, k, v, qo_indptr, kv_indptr, mask_bits, mask_indptr, slopes, sinks, scale=scale, is_causal=is_causal,
        causal_alignment=causal_alignment, window_left=window_left, window_right=window_right, softcap=softcap,
        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, return_lse=return_lse, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
