"""batch_paged_decode: one query token a sequence over paged caches of keys and values, found by a page table.

A cache is [num_pages, num_kv_heads, page_size, d] with any outer strides: FlashInfer's and vLLM's "NHD" pages are the
view with axes 1 and 2 swapped, a joint cache of keys and values is two views. The kernels and the sums are those of
flash_decoding (Dao et al. 2023): the two agree bit for bit, and which pages hold a sequence changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Plan, Problem, Scalar, Variant, element, extent,
    integer, number, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.decoding import Walk, mma_row, row
from ....schedules.attention.dense.forward import WIDER
from ....schedules.attention.extend import FAMILY
from ..decoding.decoding_terms import TERM_FIELDS, attend, term_values, usual_slopes
from ..fp8_output import asked, fp8_output
from ..grouped_heads import GroupedHeads, kv_heads, score_scale
from ..layouts import PAGE_LAYOUTS, Layouts
from .page_tables import (
    CACHE, INDEX, READ_TABLES, cache_len, cells_of, check_lengths, random_ints, settle_cells, table_fields,
    table_params,
)  # fmt: skip
from ....core.benchmark import Benchmark
from ..in_torch import attention, cached


@dataclass(frozen=True, kw_only=True)
class BatchPagedDecodeDescriptor(GroupedHeads, Descriptor):
    """One query for each of batch_size sequences, against num_pages pages of page_size tokens.

    max_pages: columns of a padded page table. num_indices: length of the page list of a compressed one. max_cache_len:
    tokens a sequence has at most, None what the table has room for; a bound that holds for all lengths of a compressed
    table saves blocks and workspace. window_left: the query sees the last token and as many before it, None all of
    them (Beltagy et al. 2020). softcap: s = softcap · tanh(s / softcap) if not 0 (Gemma 2). `scale` None is 1 / √d_k;
    `num_kv_heads` None is `num_heads`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    d_k: int = extent()
    d_v: int = extent()
    scale: float = score_scale()
    num_kv_heads: int = kv_heads()
    max_pages: int = extent(0)
    num_indices: int = extent(0)
    max_cache_len: int = cache_len()
    window_left: int = integer(None, minimum=0)
    softcap: float = number(0.0, minimum=0.0)
    element: ElementKind = element()

    @property
    def most_keys(self) -> int:
        return self.max_cache_len if self.window_left is None else min(self.max_cache_len, self.window_left + 1)

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1


@dataclass(slots=True, kw_only=True)
class BatchPagedDecodeArgs(Args):
    """The table is padded, `page_table`, or compressed (FlashInfer): pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]].

    Sequence b has `lengths[b]` tokens, or with `kv_last_page_len` (of a compressed table) all pages but the last are
    full and the last holds that many. slopes: ALiBi's, [heads] or [batch, heads], times the distance from the last
    token. sinks: a logit a head that takes part in the sum and has no value. Both are float32, for float64 operands
    float64. `lse` is natural-log, in the accumulator's element.
    """

    q: Array = operand("batch_size num_heads d_k", layout="inner")
    k_cache: Array = operand(f"{CACHE} d_k", layout="inner")
    v_cache: Array = operand(f"{CACHE} d_v", layout="inner")
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    lengths: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    slopes: Array | None = operand(
        "batch_size num_heads", element="acc", optional=True, broadcast=True, values=usual_slopes
    )
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    y: Array = output("batch_size num_heads d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads", element="acc", optional=True, layout="dense")


def reference(
    desc: Any, *, q: Any, k_cache: Any, v_cache: Any, slopes: Any = None, sinks: Any = None, wanted: set[str],
    store: Any = unrounded, **tables: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in; only cells that are seen are read."""
    y = np.zeros((*q.shape[:2], desc.d_v), q.dtype)
    lse = np.full(q.shape[:2], -np.inf, q.dtype)
    slopes = None if slopes is None else np.broadcast_to(slopes, q.shape[:2])
    for b in range(desc.batch_size):
        page, cell, _ = cells_of(desc, b, **tables, window=desc.window_left)
        k, v = (cache[page, :, cell].swapaxes(0, 1) for cache in (k_cache, v_cache))
        y[b], lse[b], _ = attend(desc, q[b], k, v, store, None, None if slopes is None else slopes[b], sinks)
    return {"y": y, "lse": lse}


def refuse(p: Problem) -> str | None:
    """Positions and pages are numbered in 32 bits."""
    most = max(p.desc.max_cache_len, p.desc.page_size, p.desc.num_pages)
    return "2^31 - 2^20 positions or pages or more" if most >= 2**31 - 2**20 else None


def values(p: Problem) -> Mapping[str, Any]:
    """The parameters of PagedCache."""
    left = -1 if p.desc.window_left is None else min(p.desc.window_left, 2**62)
    return {**table_params(p, READ_TABLES), "window_left": left, "softcap": p.desc.softcap}


FIELDS = {**table_fields(READ_TABLES), "window_left": "i64", "softcap": "f64"}
_SOURCE = "attention/paged/batch_paged_decode.cu"
_PLAIN = Walk(
    "BatchPagedDecode", "decoding::PagedCache", (_SOURCE, _SOURCE), FIELDS, values, "k_cache", "v_cache",
    refuse, walks=True,
)  # fmt: skip


def termed(plain: Walk, name: str, scales: str = "") -> Walk:
    """The walk with its kernels for slopes and sinks."""

    def all_values(p: Problem) -> Mapping[str, Any]:
        return {**plain.values(p), **term_values(p)}

    def wraps(cache: str) -> str:
        return f"decoding::Termed<{cache}>"

    terms = plain.with_terms(name, wraps(plain.cache), TERM_FIELDS, scales and wraps(scales), values=all_values)
    return replace(plain, termed=terms, has_terms=lambda p: p.slopes is not None or p.sinks is not None)


_PAGED = termed(_PLAIN, "BatchPagedDecodeTerms")


def in_torch(
    torch: Any, desc: Any, *, q: Any, k_cache: Any, v_cache: Any, slopes: Any, sinks: Any, wanted: set[str],
    **tables: Any,
) -> Any:  # fmt: skip
    """Attention of each sequence over its tokens, gathered."""
    made = {"y": q.new_zeros(*q.shape[:2], desc.d_v)}
    if "lse" in wanted:
        made["lse"] = q.new_full(q.shape[:2], -torch.inf)
    slopes = None if slopes is None else slopes.expand(q.shape[:2])
    for b in range(desc.batch_size):
        k, v = (cached(torch, desc, b, cache, tables).transpose(0, 1)[None] for cache in (k_cache, v_cache))
        facts = {"scale": desc.scale, "softcap": desc.softcap, "shift": k.shape[2] - 1, "left": desc.window_left}
        facts |= {"slopes": None if slopes is None else slopes[b : b + 1], "sinks": sinks}
        one = attention(torch, q[b][None, :, None], k, v, **facts, only_y="lse" not in wanted)
        for name, value in made.items():
            value[b] = one[name][0, :, 0]
    return made


def table_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """A padded table whose pages are dealt out at random, as after a while of serving, every page full."""
    pages = torch.randperm(desc.num_pages).reshape(desc.batch_size, desc.max_pages).int()
    lengths = torch.full((desc.batch_size,), desc.max_pages * desc.page_size, dtype=torch.int32)
    return {"page_table": pages, "lengths": lengths}


def paged_benchmarks(*sizes: tuple[int, int, int], label: str = "", **fields: Any) -> tuple[Benchmark, ...]:
    """Grouped heads; `sizes`: sequences, their tokens, and tokens a page."""
    return tuple(
        Benchmark(
            f"64/8 heads, batch {batch}, context {length}, pages of {page} bf16{label}", batch_size=batch, num_heads=64,
            num_kv_heads=8, num_pages=batch * (length // page), page_size=page, d_k=128, d_v=128,
            max_pages=length // page, element="bfloat16", **fields, make=table_in_torch, target=0.85, peers=(),
        )
        for batch, length, page in sizes
    )  # fmt: skip


class BatchPagedDecodePlan(Plan):
    """y = softmax(scale · q kᵀ) v for one query a sequence, over the tokens that its pages hold.

    With a soft cap, ALiBi and sinks by the formulas of `ScoreTerms`' page, the query at the last token. A sequence
    without tokens gives zeros and, without a sink, lse -inf.
    """

    op = "attention.batch_paged_decode"
    same_bits = FAMILY  # which batch_paged_extend has
    descriptor = BatchPagedDecodeDescriptor
    args = BatchPagedDecodeArgs
    reference: ClassVar[Callable[..., Mapping[str, Any]]] = staticmethod(reference)
    value_policy = (
        "a length is clamped to [0, max_cache_len] and to its sequence's pages; a token whose page is not in "
        "[0, num_pages) is left out; cells that are not seen are never read"
    )
    variants: ClassVar[tuple[Variant, ...]] = (mma_row(_PAGED), row(_PAGED))
    torch = staticmethod(in_torch)
    benchmarks = paged_benchmarks(
        (64, 8192, 16), (64, 4096, 16), (8, 32768, 16), (2, 131072, 16), (64, 8192, 1), (64, 8192, 64)
    )

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lengths(views)

    @staticmethod
    def case(draw: Any) -> BatchPagedDecodeDescriptor:
        return BatchPagedDecodeDescriptor(**draw_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_cells(desc, arrays)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        given: dict[str, Any] = {name: arrays.get(name) for name in READ_TABLES} | {"window": desc.window_left}
        return next((w for b in range(desc.batch_size) if (w := cells_of(desc, b, **given)[2])), None)

    @classmethod
    def flops(cls, desc: BatchPagedDecodeDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.most_keys * (desc.d_k + desc.d_v)


def draw_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields but the elements."""
    batch, page, kv_heads = draw.integer(0, 3), draw.sizes(4, 1, 3, 16, 64, 256), draw.integer(1, 2)
    each = -(-draw.sizes(40, 1, 61, 256, 257, 521) // page)
    padded = draw.flag()
    return {
        "batch_size": batch, "num_heads": kv_heads * draw.sizes(1, 2, 3, 8, 9), "num_kv_heads": kv_heads,
        "num_pages": batch * each + draw.integer(0, 2), "page_size": page,
        "d_k": draw.sizes(8, 1, 17, 32, 64, rare=WIDER), "d_v": draw.sizes(8, 1, 19, 32, 72, rare=WIDER),
        "scale": draw.choice((None, 0.3, -0.5)),
        "max_pages": each if padded else 0, "num_indices": 0 if padded else batch * each + draw.integer(0, 2),
        "max_cache_len": draw.choice((None, each * page)), "window_left": draw.choice((None, 0, 9, 300)),
        "softcap": draw.choice((0.0, 0.7, 30.0)),
    }  # fmt: skip


_call = functional(BatchPagedDecodePlan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))


@entry(BatchPagedDecodePlan)
def batch_paged_decode(
    q: Any, k_cache: Any, v_cache: Any, *, page_table: Any = None, lengths: Any = None, kv_indices: Any = None,
    kv_indptr: Any = None, kv_last_page_len: Any = None, slopes: Any = None, sinks: Any = None,
    scale: float | None = None, max_cache_len: int | None = None, window_left: int | None = None, softcap: float = 0.0,
    layout: str = "hnd", out_element: Any = None, out_scale: Scalar = 1.0, return_lse: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v of one query token [batch, heads, d] over the tokens of each sequence's pages.

    layout "hnd": the caches are [pages, kv_heads, page_size, d]; "nhd": [pages, page_size, kv_heads, d], read without a
    copy. Give page_table [batch, max_pages] and lengths [batch], or FlashInfer's kv_indices, kv_indptr [batch + 1] and
    kv_last_page_len [batch] (flashinfer.BatchDecodeWithPagedKVCacheWrapper), all int32 or int64 on the device.
    window_left: only the last token and as many before it are seen; softcap: s = softcap tanh(s / softcap); slopes
    [heads] or [batch, heads] (ALiBi): s -= slopes · distance from the last token; sinks [heads]: logits that join the
    sum without a value.
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if asked(out_element, out_scale):
        made = partial(
            batch_paged_decode, q, k_cache, v_cache, page_table=page_table, lengths=lengths, kv_indices=kv_indices,
            kv_indptr=kv_indptr, kv_last_page_len=kv_last_page_len, slopes=slopes, sinks=sinks, scale=scale,
            max_cache_len=max_cache_len, window_left=window_left, softcap=softcap, layout=layout,
        )  # fmt: skip
        return fp8_output(
            made, (q, k_cache, v_cache), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    return _call(
        q, k_cache, v_cache, page_table, lengths, kv_indices, kv_indptr, kv_last_page_len, slopes, sinks, scale=scale,
        max_cache_len=max_cache_len, window_left=window_left, softcap=softcap, return_lse=return_lse, out=out,
        layout=layout, stream=stream, preference=preference,
    )  # fmt: skip
