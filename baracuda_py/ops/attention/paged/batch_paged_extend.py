"""batch_paged_extend: the newest queries of each sequence over its pages: decoding, speculation, trees, chunks.

As `batch_paged_prefill`, but keys are summed in blocks that their positions alone decide, shared out between thread
blocks. So a token's bits are the same whether its query comes alone, with other drafts or in a chunk of any size,
whatever the batch, the pages and the company; and a few queries of a long sequence take about the time of one. SGLang's
"extend", flashinfer.BatchPrefillWithPagedKVCacheWrapper with a custom mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ....core import Args, Array, ElementKind, Plan, Scalar, Problem, Variant, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....core.benchmark import Benchmark
from ....schedules.attention.extend import FAMILY, Extend, extend_rows
from ....schedules.attention.same_bits import paged
from ..decoding.decoding_terms import usual_slopes
from ..dense.flash_sdpa import refuse_apart
from ..fp8_output import asked, fp8_output
from ..in_torch import cached, packed
from ..layouts import PAGE_LAYOUTS, Layouts
from ..packed.ragged import random_bounds, terms_of
from .batch_paged_decode import table_in_torch
from .batch_paged_prefill import PagedQueries, PagedQueriesDescriptor, dense_of_each, paged_case
from .page_tables import CACHE, INDEX, READ_TABLES, random_ints, table_fields, table_params


def _values(p: Problem) -> Mapping[str, Any]:
    return table_params(p, READ_TABLES)


@dataclass(frozen=True, kw_only=True)
class BatchPagedExtendDescriptor(PagedQueriesDescriptor):
    """As PagedQueriesDescriptor. A tree mask has max_seqlen_q columns."""


@dataclass(slots=True, kw_only=True)
class BatchPagedExtendArgs(Args):
    """Tables, bounds and `lse` as in BatchPagedPrefillArgs.

    tree_mask: row t says which of its sequence's own queries the query in row t sees: column j is the query j, whose
    key is at position tokens - queries + j. Older tokens all are seen; causality and windows hide what they hide.
    slopes: ALiBi's, [heads] or [batch, heads]; sinks: a logit a head that takes part in the sum and has no value; both
    float32, for float64 operands float64.
    """

    q: Array = operand("total_q num_heads d_k", layout="inner")
    k_cache: Array = operand(f"{CACHE} d_k", layout="inner")
    v_cache: Array = operand(f"{CACHE} d_v", layout="inner")
    qo_indptr: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    tree_mask: Array | None = operand("total_q max_seqlen_q", element=(ElementKind.BOOL,), optional=True)
    slopes: Array | None = operand(
        "batch_size num_heads", element="acc", optional=True, broadcast=True, values=usual_slopes
    )
    sinks: Array | None = operand("num_heads", element="acc", optional=True)
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    lengths: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    y: Array = output("total_q num_heads d_v", layout="inner")
    lse: Array | None = output("num_heads total_q", element="acc", optional=True, layout="dense")


def tree_rows(tree: Any, queries: int, keys: int) -> Any:
    """[queries, keys] of bool, True where a tree lets a query see a key: tree [queries, columns]."""
    seen = np.ones((queries, keys), np.bool_)
    own = np.arange(keys) - (keys - queries)
    inside = (own >= 0) & (own < tree.shape[1])
    seen[:, inside] = tree[:, own[inside]]
    seen[:, own >= tree.shape[1]] = False
    return seen


def reference(
    desc: Any, *, q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, tree_mask: Any = None, slopes: Any = None,
    sinks: Any = None, wanted: set[str], store: Any = unrounded, apart: bool = False, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: `dense_of_each`, with the tree as a mask."""

    def terms(b: int, rows: slice, one: Any) -> dict[str, Any]:
        found = terms_of(desc, b, one, slopes=slopes, sinks=sinks)
        mask = None if tree_mask is None else tree_rows(tree_mask[rows], one.query_len, one.key_len)
        return found if mask is None else found | {"mask": mask}

    return dense_of_each(
        desc, terms, q=q, k_cache=k_cache, v_cache=v_cache, qo_indptr=qo_indptr, sinks=sinks, wanted=wanted,
        store=store, apart=apart, tables=tables,
    )  # fmt: skip


def in_torch(
    torch: Any, desc: Any, *, q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, tree_mask: Any = None,
    slopes: Any = None, sinks: Any = None, wanted: set[str], **tables: Any,
) -> Any:  # fmt: skip
    """Attention of each sequence over its tokens, gathered."""

    def keys(b: int) -> tuple[Any, ...]:
        return tuple(cached(torch, desc, b, cache, tables) for cache in (k_cache, v_cache))

    ends = torch.cummax(qo_indptr.long().clamp(0, q.shape[0]), 0)[0].tolist()

    def mask(b: int, queries: int, keys: int) -> Any:
        rows = tree_mask[ends[b] : ends[b] + queries]
        own = torch.arange(keys, device=q.device) - (keys - queries)
        there = torch.cat([rows, rows.new_zeros(queries, 1)], 1)[:, own.clamp(0, rows.shape[1])]
        return there | (own < 0)

    return packed(torch, desc, q, keys, qo_indptr, wanted, slopes, sinks, None if tree_mask is None else mask)


def tables_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """For benchmarks: full pages, and as many queries for each sequence."""
    bounds = torch.arange(desc.num_bounds, dtype=torch.int32) * desc.max_seqlen_q
    return table_in_torch(torch, desc) | {"qo_indptr": bounds}


def _benchmarks(*sizes: tuple[int, int, int]) -> tuple[Benchmark, ...]:
    """64/8 heads; `sizes`: sequences, their tokens, and their queries."""
    return tuple(
        Benchmark(
            f"{queries} queries, 64/8 heads, batch {batch}, context {length}, pages of 16 bf16", batch_size=batch,
            total_q=batch * queries, max_seqlen_q=queries, num_heads=64, num_kv_heads=8, num_pages=batch * length // 16,
            page_size=16, d_k=128, d_v=128, is_causal=True, max_pages=length // 16, element="bfloat16",
            make=tables_in_torch, target=0.85, peers=(),
        )
        for batch, length, queries in sizes
    )  # fmt: skip


def _beside_chunks(torch: Any, desc: Any) -> dict[str, Any]:
    """A query for each of the first sequences, and a chunk of the same length for each of the others."""
    chunk = desc.max_seqlen_q
    chunks = (desc.total_q - desc.batch_size) // (chunk - 1)
    counts = torch.tensor([0] + [1] * (desc.batch_size - chunks) + [chunk] * chunks)
    return table_in_torch(torch, desc) | {"qo_indptr": counts.cumsum(0).int()}


def _mixed(chunks: int, chunk: int = 2048, decodes: int = 128, length: int = 8192) -> Benchmark:
    """64/8 heads: decoding and chunks of prompts in one launch."""
    return Benchmark(
        f"{decodes} decodes beside {chunks} x {chunk}, 64/8 heads, context {length}, pages of 16 bf16",
        batch_size=decodes + chunks, total_q=decodes + chunks * chunk, max_seqlen_q=chunk, num_heads=64,
        num_kv_heads=8, num_pages=(decodes + chunks) * length // 16, page_size=16, d_k=128, d_v=128, is_causal=True,
        max_pages=length // 16, element="bfloat16", make=_beside_chunks, target=None, peers=(),
    )  # fmt: skip


class BatchPagedExtendPlan(PagedQueries, Plan):
    """y = softmax(s) v of each sequence's newest queries over the tokens of its pages; s: scale · q kᵀ with its terms.

    A query's bits follow from its own position, its sequence and the row: not from the other queries, sequences or
    pages. A weight that rounds to 0 makes NaN of an infinite value of its key. Rows of no sequence, and those without
    keys, get zeros and, without a sink, lse -inf.
    """

    op = "attention.batch_paged_extend"
    same_bits = FAMILY
    apart = True
    refuse_apart = staticmethod(refuse_apart)
    descriptor = BatchPagedExtendDescriptor
    args = BatchPagedExtendArgs
    reference = staticmethod(reference)
    value_policy = (
        "bounds are clamped to [0, total_q] and to the largest bound before them; a length is clamped to "
        "[0, max_cache_len] and to its sequence's pages, which end before the first that is not in [0, num_pages); "
        "columns that a tree mask does not have count as hidden"
    )
    variants: ClassVar[tuple[Variant, ...]] = extend_rows(Extend(table_fields(READ_TABLES), paged(_values)))
    torch = staticmethod(in_torch)
    benchmarks = (
        *_benchmarks((32, 8192, 1), (32, 8192, 8), (32, 8192, 16), (1, 131072, 8), (1, 2048, 1)), _mixed(1), _mixed(2),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BatchPagedExtendDescriptor:
        return BatchPagedExtendDescriptor(**draw_case(draw))


def draw_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields for tests."""
    facts = paged_case(draw) | {"max_seqlen_q": draw.choice((None, 5))}
    facts["num_heads"] = facts["num_kv_heads"] * draw.choice((1, 2, 8, 9))
    if draw.flag():  # rows of whole pieces, as models have
        facts["d_k"] = facts["d_v"] = draw.choice((64, 128, 192, 256))
    return facts


_call = functional(BatchPagedExtendPlan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))


@entry(BatchPagedExtendPlan)
def batch_paged_extend(
    q: Any, k_cache: Any, v_cache: Any, qo_indptr: Any, tree_mask: Any = None, *, page_table: Any = None,
    lengths: Any = None, kv_indices: Any = None, kv_indptr: Any = None, kv_last_page_len: Any = None,
    slopes: Any = None, sinks: Any = None, scale: float | None = None, is_causal: bool = True,
    causal_alignment: str = "bottom_right", window_left: int | None = None, window_right: int | None = None,
    softcap: float = 0.0, max_seqlen_q: int | None = None, max_cache_len: int | None = None, layout: str = "hnd",
    out_element: Any = None, out_scale: Scalar = 1.0, return_lse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v of each sequence's newest queries over its pages, bottom right; bits are free of company.

    q is [total_q, heads, d]; sequence b has the rows qo_indptr[b] : qo_indptr[b + 1] (one each: decoding), and its last
    query stands at its last token: the keys and values of the new tokens are in the cache already. Causal by default.
    tree_mask [total_q, max_seqlen_q], bool: which of its sequence's own queries a query sees (speculation by trees,
    parents before children); all older tokens are seen. Its columns are max_seqlen_q.
    layout "hnd": the caches are [pages, kv_heads, page_size, d]; "nhd": [pages, page_size, kv_heads, d], read without a
    copy. Give page_table [batch, max_pages] and lengths [batch], or FlashInfer's kv_indices, kv_indptr [batch + 1] and
    kv_last_page_len [batch], all int32 or int64 on the device. slopes (ALiBi), sinks and softcap are as in flash_sdpa.
    Give max_seqlen_q, the most queries of a sequence, where it is known: it decides how many blocks are launched. With
    return_lse also log Σ exp, [heads, total_q].
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if asked(out_element, out_scale):
        attend = partial(
            batch_paged_extend, q, k_cache, v_cache, qo_indptr, tree_mask, page_table=page_table, lengths=lengths,
            kv_indices=kv_indices, kv_indptr=kv_indptr, kv_last_page_len=kv_last_page_len, slopes=slopes, sinks=sinks,
            scale=scale, is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left,
            window_right=window_right, softcap=softcap, max_seqlen_q=max_seqlen_q, max_cache_len=max_cache_len,
            layout=layout,
        )  # fmt: skip
        return fp8_output(
            attend, (q, k_cache, v_cache), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    return _call(
        q, k_cache, v_cache, qo_indptr, tree_mask, slopes, sinks, page_table, lengths, kv_indices, kv_indptr,
        kv_last_page_len, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment, window_left=window_left,
        window_right=window_right, softcap=softcap, max_seqlen_q=max_seqlen_q, max_cache_len=max_cache_len,
        return_lse=return_lse, out=out, stream=stream, layout=layout, preference=preference,
    )  # fmt: skip
