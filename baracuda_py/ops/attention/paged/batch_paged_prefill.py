"""batch_paged_prefill: packed queries of any lengths over keys and values in pages (chunked prefill, speculation).

A cache is [num_pages, num_kv_heads, page_size, d] with any outer strides: "NHD" pages are the view with axes 1 and 2
swapped. The new keys are in the cache already: causal, a sequence's last query stands at its last token and sees all of
them. flashinfer.BatchPrefillWithPagedKVCacheWrapper; its log-sum-exp is of base 2, this one natural.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any


from ....core import Args, Array, ElementKind, Plan, Scalar, Problem, extent, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.dense.forward import simt_row, sm80_row, sm89_row, sm90a_row
from ....schedules.attention.extend import FAMILY
from ....schedules.attention.packed import paged_form
from ....schedules.attention.same_bits import paged, same_bits_rows
from ..dense.flash_sdpa import reference as dense
from ..dense.flash_sdpa import refuse_apart
from ..layouts import PAGE_LAYOUTS, Layouts
from .page_tables import (
    CACHE, INDEX, READ_TABLES, cache_len, cells_of, check_lengths, random_ints, settle_cells, table_fields,
    table_params,
)  # fmt: skip
from ..packed.ragged import (
    BITS_POLICY, RaggedDescriptor, check_mask, heads_first, infer_batch, mask_starts, ragged_case, random_bounds,
    settle_mask, settled, terms_of, unseeing, wrong_bounds,
)  # fmt: skip
from ....core.benchmark import Benchmark, FLOPS
from ..fp8_output import asked, fp8_output
from ..in_torch import bits, cached, packed
from .batch_paged_decode import table_in_torch


def _values(p: Problem) -> Mapping[str, Any]:
    return table_params(p, READ_TABLES)


_FORM = paged_form("qo_indptr", table_fields(READ_TABLES), _values)


@dataclass(frozen=True, kw_only=True)
class PagedQueriesDescriptor(RaggedDescriptor):
    """Keys and values are in num_pages pages of page_size tokens.

    max_pages: columns of a padded page table. num_indices: length of the page list of a compressed one. max_cache_len:
    tokens a sequence has at most, None what the table has room for.
    """

    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    max_pages: int = extent(0)
    num_indices: int = extent(0)
    max_cache_len: int = cache_len()

    @property
    def key_len(self) -> int:
        return self.max_cache_len

    @property
    def max_seqlen_k(self) -> int:
        """The most keys of a sequence."""
        return self.max_cache_len

    @property
    def total_k(self) -> int:
        """No more keys than that."""
        return self.batch_size * self.max_cache_len


@dataclass(frozen=True, kw_only=True)
class BatchPagedPrefillDescriptor(PagedQueriesDescriptor):
    """As PagedQueriesDescriptor. mask_bytes: length of a mask of bits."""

    mask_bytes: int = extent(0)


@dataclass(slots=True, kw_only=True)
class BatchPagedPrefillArgs(Args):
    """Sequence b has the rows qo_indptr[b] : qo_indptr[b + 1] of q and y.

    The table is padded, `page_table`, or compressed (FlashInfer): pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]].
    Sequence b has `lengths[b]` tokens, the new ones included, or with `kv_last_page_len` (of a compressed table) all
    pages but the last are full and the last holds that many. slopes: ALiBi's, [heads] or [batch, heads]. sinks: a logit
    a head that takes part in the sum and has no value. Both are float32, for float64 operands float64. mask_bits: bit
    i tokens + j from byte mask_indptr[b] on, of a byte the lowest first, says whether query i of sequence b sees token
    j. `lse` [num_heads, total_q] = log Σ exp(s) over the keys and the sink, natural, in the accumulator's element.
    """

    q: Array = operand("total_q num_heads d_k", layout="inner")
    k_cache: Array = operand(f"{CACHE} d_k", layout="inner")
    v_cache: Array = operand(f"{CACHE} d_v", layout="inner")
    qo_indptr: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    lengths: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    mask_bits: Array | None = operand(
        "mask_bytes", element=ElementKind.U8, optional=True, layout="dense", values=(0, 256)
    )
    mask_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=mask_starts)
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    y: Array = output("total_q num_heads d_v", layout="inner")
    lse: Array | None = output("num_heads total_q", element="acc", optional=True, layout="dense")


def dense_of_each(
    desc: Any, terms: Callable[[int, slice, Any], dict[str, Any]], *, q: Any, k_cache: Any, v_cache: Any,
    qo_indptr: Any, sinks: Any, wanted: set[str], store: Any, apart: bool, tables: Mapping[str, Any],
) -> Mapping[str, Any]:  # fmt: skip
    """`flash_sdpa` of each sequence over its pages, in the dtype q comes in; only cells that are seen are read.

    terms: of a sequence, its rows of q, and its dense problem, the operands of the score terms.
    """
    y, lse = unseeing(desc, sinks, q.dtype)
    ends = settled(qo_indptr, desc.total_q)
    for b in range(desc.batch_size):
        rows = slice(ends[b], ends[b + 1])
        page, cell, _ = cells_of(desc, b, **tables, gaps=False)
        one = desc.alone(rows.stop - rows.start, len(page))
        if one.query_len:
            k, v = (cache[page, :, cell].swapaxes(0, 1)[None] for cache in (k_cache, v_cache))
            operands = {"q": heads_first(q, rows), "k": k, "v": v, **terms(b, rows, one)}
            made = dense(one, **operands, wanted=wanted, store=store, apart=apart)
            y[rows] = made["y"][0].swapaxes(0, 1)
            lse[:, rows] = made["lse"][0]
    return {"y": y, "lse": lse}


def reference(
    desc: Any, *, q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, slopes: Any = None, sinks: Any = None,
    mask_bits: Any = None, mask_indptr: Any = None, wanted: set[str], store: Any = unrounded, apart: bool = False,
    **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: `dense_of_each`."""

    def terms(b: int, rows: slice, one: Any) -> dict[str, Any]:
        bits = {"mask_bits": mask_bits, "mask_indptr": mask_indptr}
        return terms_of(desc, b, one, slopes=slopes, sinks=sinks, **bits)

    return dense_of_each(
        desc, terms, q=q, k_cache=k_cache, v_cache=v_cache, qo_indptr=qo_indptr, sinks=sinks, wanted=wanted,
        store=store, apart=apart, tables=tables,
    )  # fmt: skip


def in_torch(
    torch: Any, desc: Any, *, q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, slopes: Any, sinks: Any,
    mask_bits: Any, mask_indptr: Any, wanted: set[str], **tables: Any,
) -> Any:  # fmt: skip
    """Attention of each sequence over its tokens, gathered."""

    def keys(b: int) -> tuple[Any, ...]:
        return tuple(cached(torch, desc, b, cache, tables) for cache in (k_cache, v_cache))

    mask = bits(torch, mask_bits, mask_indptr)
    return packed(torch, desc, q, keys, qo_indptr, wanted, slopes, sinks, mask)


def _tables(torch: Any, desc: Any) -> dict[str, Any]:
    bounds = torch.arange(desc.num_bounds, dtype=torch.int32) * desc.max_seqlen_q
    return table_in_torch(torch, desc) | {"qo_indptr": bounds}


class PagedQueries:
    """What the plans of packed queries over pages share."""

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lengths(views)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_cells(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_batch(shapes, facts, "qo_indptr")

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        found = wrong_bounds(arrays["qo_indptr"], desc.total_q, desc.max_seqlen_q, "qo_indptr")
        tables: dict[str, Any] = {name: arrays.get(name) for name in READ_TABLES}
        return found or next(
            (w for b in range(desc.batch_size) if (w := cells_of(desc, b, **tables, gaps=False)[2])), None
        )

    @classmethod
    def flops(cls, desc: PagedQueriesDescriptor) -> int:
        return 2 * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def paged_case(draw: Any) -> dict[str, Any]:
    """Fields of a PagedQueriesDescriptor for tests."""
    facts = ragged_case(draw)
    batch, page = facts["batch_size"], draw.sizes(4, 1, 3, 16, 64, 256)
    each = -(-facts.pop("total_k") // page)
    padded = draw.flag()
    return facts | {
        "num_pages": batch * each + draw.integer(0, 2), "page_size": page, "max_pages": each if padded else 0,
        "num_indices": 0 if padded else batch * each + draw.integer(0, 2),
        "max_cache_len": draw.choice((None, each * page)),
    }  # fmt: skip


class BatchPagedPrefillPlan(PagedQueries, Plan):
    """`FlashSdpaPlan` of each sequence's queries over the tokens that its pages hold, bit for bit.

    Rows of no sequence, and those of one without tokens, get zeros and lse -inf, or the sink's.
    """

    op = "attention.batch_paged_prefill"
    same_bits = FAMILY
    apart = True
    refuse_apart = staticmethod(refuse_apart)
    descriptor = BatchPagedPrefillDescriptor
    args = BatchPagedPrefillArgs
    reference = staticmethod(reference)
    value_policy = (
        "qo_indptr is clamped to [0, total_q] and to the largest bound before it; rows outside belong to no sequence; "
        "a length is clamped to [0, max_cache_len] and to the sequence's pages before the first that is not in "
        "[0, num_pages)" + BITS_POLICY
    )
    variants = (
        sm90a_row(_FORM), sm80_row(_FORM), sm89_row(_FORM), simt_row(_FORM),
        *same_bits_rows(table_fields(READ_TABLES), paged(_values)),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "causal 16 x [2048, 16, 128], pages of 16, bf16", batch_size=16, total_q=32768, max_seqlen_q=2048,
            num_heads=16, d_k=128, d_v=128, is_causal=True, num_pages=2048, page_size=16, max_pages=128,
            element="bfloat16", make=_tables, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lengths(views)
        check_mask(views)

    @staticmethod
    def case(draw: Any) -> BatchPagedPrefillDescriptor:
        return BatchPagedPrefillDescriptor(**paged_case(draw), mask_bytes=draw.choice((0, 30, 2000)))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_cells(desc, arrays)
        settle_mask(arrays)


_call = functional(BatchPagedPrefillPlan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))


@entry(BatchPagedPrefillPlan)
def batch_paged_prefill(
    q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, *, page_table: Any = None, lengths: Any = None,
    kv_indices: Any = None, kv_indptr: Any = None, kv_last_page_len: Any = None, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "bottom_right", window_left: int | None = None,
    window_right: int | None = None, softcap: float = 0.0, slopes: Any = None, sinks: Any = None, mask_bits: Any = None,
    mask_indptr: Any = None, max_seqlen_q: int | None = None, max_cache_len: int | None = None, layout: str = "hnd",
    out_element: Any = None, out_scale: Scalar = 1.0, return_lse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(s) v, s = scale · q kᵀ, of packed queries over pages, last query at last token (bottom right).

    q is [total_q, heads, d]. Query i of a sequence stands at position i + tokens - queries: causal it sees the tokens
    up to there, and windows count from there. causal_alignment="top_left": at i. softcap, slopes ([heads] or [batch,
    heads]; distances count from that position) and sinks [heads] as in `flash_sdpa`. mask_bits and
    mask_indptr [batch + 1] (FlashInfer's packed custom mask): whether query i of sequence b sees token j is bit
    i tokens + j of the bytes from mask_indptr[b] on, of a byte the lowest first, np.packbits(mask, bitorder="little");
    causality and windows hide tokens besides.
    layout "hnd": the caches are [pages, kv_heads, page_size, d]; "nhd": [pages, page_size, kv_heads, d], read without a
    copy. qo_indptr holds batch + 1 bounds of the queries. Give page_table [batch, max_pages] and lengths [batch], or
    FlashInfer's kv_indices, kv_indptr [batch + 1] and kv_last_page_len [batch], all int32 or int64 on the device. With
    return_lse also log Σ exp(s), [heads, total_q].
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if asked(out_element, out_scale):
        attend = partial(
            batch_paged_prefill, q, k_cache, v_cache, qo_indptr, page_table=page_table, lengths=lengths,
            kv_indices=kv_indices, kv_indptr=kv_indptr, kv_last_page_len=kv_last_page_len, scale=scale,
            is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left, window_right=window_right,
            softcap=softcap, slopes=slopes, sinks=sinks, mask_bits=mask_bits, mask_indptr=mask_indptr,
            max_seqlen_q=max_seqlen_q, max_cache_len=max_cache_len, layout=layout,
        )  # fmt: skip
        return fp8_output(
            attend, (q, k_cache, v_cache), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    return _call(
        q, k_cache, v_cache, qo_indptr, page_table, lengths, kv_indices, kv_indptr, kv_last_page_len, mask_bits,
        mask_indptr, slopes, sinks, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment,
        window_left=window_left, window_right=window_right, softcap=softcap, max_seqlen_q=max_seqlen_q,
        max_cache_len=max_cache_len, layout=layout, return_lse=return_lse, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
