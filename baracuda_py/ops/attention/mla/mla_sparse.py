"""mla_sparse: multi-head latent attention of queries that each list the cells they see (DeepSeek sparse attention).

Layouts are those of `mla_decode`; decoding and prefill are one op: a row of q is one query token, whatever its
sequence. What lists the cells is `indexer_topk`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, InvalidProblemError, Plan, Problem, Variant, element, extent, integer, number,
    operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import FLOPS, Benchmark
from ....core.element import unrounded
from ....schedules.attention.mla import LIST_SPLIT, PARTS, Rows, Sizes
from ..in_torch import attention
from ..paged.page_tables import INDEX
from .lists import cells_at, check_lists, list_fields, list_params, random_pages, random_sequences, settle_lists


@dataclass(frozen=True, kw_only=True)
class MlaSparseDescriptor(Descriptor):
    """num_queries queries, each with a list of top_k cells, of num_pages pages of page_size cells of `width` columns.

    scale and d_rope are those of `MlaDecodeDescriptor`. batch_size, max_pages: of the page table.
    """

    num_queries: int = extent()
    num_heads: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    width: int = extent()
    top_k: int = extent()
    scale: float = number()
    d_rope: int = integer(64, minimum=0)
    batch_size: int = extent(0)
    max_pages: int = extent(0)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.d_rope > self.width:
            raise InvalidProblemError(f"d_rope must be <= width, got {self.d_rope} and {self.width}")

    @property
    def d_latent(self) -> int:
        """Columns of a latent."""
        return self.width - self.d_rope


def _numbers(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Cells or positions, and some that are none."""
    room = desc.page_size * (desc.max_pages or desc.num_pages)
    numbers = rng.integers(-1, room + 1, shape)
    return np.where(rng.random(shape) < 0.1, rng.choice([-(2**31), -7, 2**31 - 1], shape), numbers)


def _lengths(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(-1, desc.top_k + 2, shape)


@dataclass(slots=True, kw_only=True)
class MlaSparseArgs(Args):
    """indices[t]: the cells that query t sees, number page · page_size + cell in the cache (FlashMLA).

    With `page_table` and `batch_indices` they are positions of tokens of sequence batch_indices[t], whose pages the
    table has. `lengths[t]`: only so many of the list count, all without it (topk_length). sinks: a logit a head that
    takes part in the sum and has no value (attn_sink), float32, or float64 for float64 operands; `lse`, natural-log,
    in the accumulator's element, has its part.
    """

    q: Array = operand("num_queries num_heads width", layout="inner")
    cache: Array = operand("num_pages page_size width", layout="inner")
    indices: Array = operand("num_queries top_k", element=ElementKind.I32, layout="inner", values=_numbers)
    lengths: Array | None = operand("num_queries", element=INDEX, optional=True, values=_lengths)
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_pages)
    batch_indices: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_sequences)
    sinks: Array | None = operand("num_heads", element="acc", optional=True)
    y: Array = output("num_queries num_heads d_latent", layout="inner")
    lse: Array | None = output("num_queries num_heads", element="acc", optional=True, layout="dense")


def listed(
    desc: Any, t: int, *, indices: Any, lengths: Any = None, page_table: Any = None, batch_indices: Any = None
) -> tuple[Any, Any]:
    """The pages and cells of query t's list, in its order; what is no cell is left out."""
    count = desc.top_k if lengths is None else min(max(int(lengths[t]), 0), desc.top_k)
    numbers = np.asarray(indices[t][:count]).astype(np.int64)
    page, cell, there = cells_at(desc, t, numbers, page_table, batch_indices)
    return page[there], cell[there]


def reference(
    desc: Any, *, q: Any, cache: Any, sinks: Any = None, wanted: set[str], store: Any = unrounded, **lists: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in; only cells that are seen are read."""
    y = np.zeros((*q.shape[:2], desc.d_latent), q.dtype)
    lse = np.full(q.shape[:2], -np.inf, q.dtype)
    sink = np.full((desc.num_heads, 1), -np.inf, q.dtype) if sinks is None else np.asarray(sinks, q.dtype)[:, None]
    for t in range(len(q)):
        page, cell = listed(desc, t, **lists)
        c = cache[page, cell]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            s = (q[t] * q.dtype.type(desc.scale)) @ c.T
            top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
            top[top == -np.inf] = 0
            p = np.exp(s - top)
            total = p.sum(axis=-1, keepdims=True) + np.exp(sink - top)
            some = total != 0  # where no cell has a weight, whatever the values
            y[t] = np.where(some, store(p) @ c[:, : desc.d_latent] / np.where(some, total, 1), 0)
            lse[t] = (top + np.log(total))[:, 0]
    return {"y": y, "lse": lse}


def in_torch(torch: Any, desc: Any, *, q: Any, cache: Any, sinks: Any, wanted: set[str], **lists: Any) -> Any:
    """Attention of each query over its cells, gathered."""
    made = {"y": q.new_zeros(*q.shape[:2], desc.d_latent)}
    if "lse" in wanted:
        made["lse"] = q.new_full(q.shape[:2], -torch.inf)
    found = {name: None if one is None else one.cpu().numpy() for name, one in lists.items()}
    for t in range(desc.num_queries):
        page, cell = (torch.from_numpy(at).to(q.device) for at in listed(desc, t, **found))
        k = cache[page, cell][None, None]
        facts = {"scale": desc.scale, "sinks": sinks, "only_y": "lse" not in wanted}
        one = attention(torch, q[t][None, :, None], k, k[..., : desc.d_latent], **facts)
        for name, value in made.items():
            value[t] = one[name][0, :, 0]
    return made


def lists_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """Lists of different cells, in the order of the cache, as an indexer's are."""
    cells = desc.num_pages * desc.page_size
    lists = [torch.randperm(cells)[: desc.top_k].sort().values for _ in range(desc.num_queries)]
    return {"indices": torch.stack(lists).int()}


FIELDS = {
    **list_fields("lengths"), "indices": "ptr", "sinks": "ptr", "index_stride": "i64", "sink_stride": "i64",
    "first_query": "i64",
}  # fmt: skip


def values(p: Problem, first: int) -> dict[str, Any]:
    """What the source of keys reads of the Params."""
    sink = 0 if p.sinks is None else p.sinks.strides[0]
    return {
        **list_params(p, "lengths"), "index_stride": p.indices.strides[0], "sink_stride": sink, "first_query": first
    }  # fmt: skip


def sizes(p: Problem) -> Sizes:
    """What the kernels read of a problem."""
    desc = p.desc
    splits = -(-desc.top_k // LIST_SPLIT)
    query = max(desc.num_heads * splits * desc.d_latent * desc.element.acc.itemsize, 1)
    return Sizes(desc.num_queries, 1, desc.top_k, each=min(max(PARTS // query, 1), desc.num_queries))


ROWS = Rows("MlaSparse", "InList", FIELDS, values, sizes, LIST_SPLIT)


def _benchmark(heads: int, queries: int, pages: int = 2048, top_k: int = 2048) -> Benchmark:
    return Benchmark(
        f"{heads} heads, {queries} queries of {top_k} of {64 * pages} cells bf16", num_queries=queries, num_heads=heads,
        num_pages=pages, page_size=64, width=576, top_k=top_k, scale=192**-0.5, element="bfloat16",
        make=lists_in_torch, work=FLOPS, target=0.6, peers=(),
    )  # fmt: skip


class MlaSparsePlan(Plan):
    """y[t, h] = softmax(scale · q[t, h] cᵀ) c[:, : d_latent] over the cells c that indices[t] lists.

    The order of the list is that of sums; a cell that it has twice counts twice. A query without cells gives zeros and,
    without a sink, lse -inf. What a query gives has the same bits with any other queries and pages.
    """

    op = "attention.mla_sparse"
    descriptor = MlaSparseDescriptor
    args = MlaSparseArgs
    reference: ClassVar[Callable[..., Mapping[str, Any]]] = staticmethod(reference)
    value_policy = (
        "a number that is no cell of the cache, or no position of a page of the table that is in [0, num_pages), is "
        "left out (-1 by convention), and so are all where batch_indices is not in [0, batch_size); lengths are "
        "clamped to [0, top_k]; cells that no query lists are never read"
    )
    variants: ClassVar[tuple[Variant, ...]] = (ROWS.wgmma(), ROWS.mma(), ROWS.simt())
    torch = staticmethod(in_torch)
    benchmarks: ClassVar[tuple[Benchmark, ...]] = (
        _benchmark(128, 4096), _benchmark(128, 128), _benchmark(16, 128), _benchmark(128, 1)
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lists(views)

    @staticmethod
    def case(draw: Any) -> MlaSparseDescriptor:
        paged, rope, page = draw.flag(), draw.choice((8, 0, 1, 64)), draw.sizes(4, 1, 3, 16, 64)
        top_k = draw.sizes(20, 0, 1, 61, 130, rare=(1100,))
        pages = draw.choice((0, 1, 5))
        return MlaSparseDescriptor(
            num_queries=draw.sizes(3, 0, 1, 5), num_heads=draw.sizes(4, 0, 1, 16, 20, 70), num_pages=pages,
            page_size=page, d_rope=rope, width=rope + draw.sizes(64, 0, 7, 128, rare=(200, 512)), top_k=top_k,
            scale=draw.choice((0.3, 0.0721, -0.5)), batch_size=draw.integer(1, 3) if paged else 0,
            max_pages=draw.integer(1, 6) if paged else 0, element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_lists(desc, arrays)

    @classmethod
    def flops(cls, desc: MlaSparseDescriptor) -> int:
        return 2 * desc.num_queries * desc.num_heads * desc.top_k * (desc.width + desc.d_latent)


mla_sparse = functional(MlaSparsePlan)
