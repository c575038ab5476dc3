"""mla_decode: multi-head latent attention of a few queries a sequence over a paged cache of latents (DeepSeek-V2).

With the projections of keys and values absorbed into those of queries and outputs, all heads share one cell a token: a
latent of d_latent columns, which is key and value, and d_rope rotated columns, which are key only. Layouts are
FlashMLA's: queries [batch, queries, heads, d_latent + d_rope], pages [pages, page_size, d_latent + d_rope].
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
from ....core.benchmark import FLOPS, OPERANDS, Benchmark
from ....core.element import unrounded
from ....schedules.attention.mla import Rows, Sizes
from ..in_torch import attention, cached
from ..paged.page_tables import (
    INDEX, READ_TABLES, cache_len, cells_of, check_lengths, random_ints, settle_cells, table_fields, table_params,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MlaDecodeDescriptor(Descriptor):
    """num_queries queries of each of batch_size sequences, against num_pages pages of page_size cells of `width`.

    The last d_rope columns are of keys only. scale: of scores; a model takes it from the head_dim of its queries before
    absorption (1 / √192 in DeepSeek-V3, times what its stretched positions ask for), which the operands do not show, so
    there is no default. max_pages, num_indices, max_cache_len: as in `BatchPagedDecodeDescriptor`.
    """

    batch_size: int = extent()
    num_queries: int = extent()
    num_heads: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    width: int = extent()
    scale: float = number()
    d_rope: int = integer(64, minimum=0)
    max_pages: int = extent(0)
    num_indices: int = extent(0)
    max_cache_len: int = cache_len()
    element: ElementKind = element()

    def validate(self) -> None:
        if self.d_rope > self.width:
            raise InvalidProblemError(f"d_rope must be <= width, got {self.d_rope} and {self.width}")

    @property
    def d_latent(self) -> int:
        """Columns of a latent."""
        return self.width - self.d_rope

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1


@dataclass(slots=True, kw_only=True)
class MlaDecodeArgs(Args):
    """The table is padded, `page_table`, or compressed (FlashInfer): pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]].

    Sequence b has `lengths[b]` tokens, those of its queries among them, or with `kv_last_page_len` (of a compressed
    table) all pages but the last are full and the last holds that many. `lse` is natural-log, in the accumulator's
    element.
    """

    q: Array = operand("batch_size num_queries num_heads width", layout="inner")
    cache: Array = operand("num_pages page_size width", layout="inner")
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    lengths: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    y: Array = output("batch_size num_queries num_heads d_latent", layout="inner")
    lse: Array | None = output("batch_size num_queries num_heads", element="acc", optional=True, layout="dense")


def reference(
    desc: Any, *, q: Any, cache: Any, wanted: set[str], store: Any = unrounded, **tables: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in; only cells that are seen are read."""
    y = np.zeros((*q.shape[:3], desc.d_latent), q.dtype)
    lse = np.full(q.shape[:3], -np.inf, q.dtype)
    for b, i in np.ndindex(q.shape[:2]):
        page, cell, _ = cells_of(desc, b, **tables, spared=desc.num_queries - 1 - i)
        c = cache[page, cell]
        if not len(c):
            continue
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            s = (q[b, i] * q.dtype.type(desc.scale)) @ c.T
            top = s.max(axis=-1, keepdims=True)
            top[top == -np.inf] = 0
            p = np.exp(s - top)
            total = p.sum(axis=-1, keepdims=True)
            some = total != 0  # where no cell has a weight, whatever the values
            y[b, i] = np.where(some, store(p) @ c[:, : desc.d_latent] / np.where(some, total, 1), 0)
            lse[b, i] = (top + np.log(total))[:, 0]
    return {"y": y, "lse": lse}


def in_torch(torch: Any, desc: Any, *, q: Any, cache: Any, wanted: set[str], **tables: Any) -> Any:
    """Attention of each sequence over its tokens, gathered."""
    made = {"y": q.new_zeros(*q.shape[:3], desc.d_latent)}
    if "lse" in wanted:
        made["lse"] = q.new_full(q.shape[:3], -torch.inf)
    for b in range(desc.batch_size):
        k = cached(torch, desc, b, cache[:, None], tables).transpose(0, 1)[None]
        facts = {"scale": desc.scale, "causal": desc.num_queries > 1, "shift": k.shape[2] - desc.num_queries}
        queries = q[b].transpose(0, 1)[None]
        one = attention(torch, queries, k, k[..., : desc.d_latent], **facts, only_y="lse" not in wanted)
        for name, value in made.items():
            value[b] = one[name][0].transpose(0, 1)
    return made


def table_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """A padded table whose pages are dealt out at random, as after a while of serving, every page full."""
    pages = torch.randperm(desc.num_pages).reshape(desc.batch_size, desc.max_pages).int()
    lengths = torch.full((desc.batch_size,), desc.max_pages * desc.page_size, dtype=torch.int32)
    return {"page_table": pages, "lengths": lengths}


def _benchmark(heads: int, batch: int, queries: int, length: int, page: int = 64) -> Benchmark:
    products = heads * queries >= 128  # which bound, not bytes
    return Benchmark(
        f"{heads} heads, batch {batch}, {queries} queries, context {length}, pages of {page} bf16", batch_size=batch,
        num_queries=queries, num_heads=heads, num_pages=batch * (length // page), page_size=page, width=576,
        scale=192**-0.5, max_pages=length // page, element="bfloat16", make=table_in_torch,
        work=FLOPS if products else OPERANDS, target=0.75 if products else 0.85, peers=(),
    )  # fmt: skip


def sizes(p: Problem) -> Sizes:
    """What the kernels read of a problem."""
    return Sizes(p.desc.batch_size, p.desc.num_queries, p.desc.max_cache_len, each=p.desc.batch_size)


ROWS = Rows("MlaDecode", "InPages", table_fields(READ_TABLES), lambda p, first: table_params(p, READ_TABLES), sizes)


class MlaDecodePlan(Plan):
    """y = softmax(scale · q cᵀ) c[:, : d_latent] for a sequence's last tokens, over the cells c that its pages hold.

    Query i of n sees the first length - n + i + 1 tokens. A query that sees none gives zeros and lse -inf. What a query
    gives has the same bits with any other queries, batch, and pages.
    """

    op = "attention.mla_decode"
    descriptor = MlaDecodeDescriptor
    args = MlaDecodeArgs
    reference: ClassVar[Callable[..., Mapping[str, Any]]] = staticmethod(reference)
    value_policy = (
        "a length is clamped to [0, max_cache_len] and to its sequence's pages; a token whose page is not in "
        "[0, num_pages) is left out; cells that no query sees are never read"
    )
    variants: ClassVar[tuple[Variant, ...]] = (ROWS.wgmma(), ROWS.mma(), ROWS.simt())
    torch = staticmethod(in_torch)
    benchmarks: ClassVar[tuple[Benchmark, ...]] = (
        _benchmark(16, 128, 1, 4096),
        _benchmark(128, 128, 1, 4096),
        _benchmark(16, 128, 4, 4096),
        _benchmark(16, 1, 1, 4096),
        _benchmark(16, 128, 1, 4096, page=1),
    )

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lengths(views)

    @staticmethod
    def case(draw: Any) -> MlaDecodeDescriptor:
        batch, page = draw.integer(0, 3), draw.sizes(4, 1, 3, 16, 64)
        each = -(-draw.sizes(40, 1, 61, 130, rare=(1100,)) // page)
        padded = draw.flag()
        rope = draw.choice((8, 0, 1, 64))
        return MlaDecodeDescriptor(
            batch_size=batch, num_queries=draw.sizes(1, 0, 2, 5), num_heads=draw.sizes(4, 0, 1, 16, 20),
            num_pages=batch * each + draw.integer(0, 2), page_size=page, d_rope=rope,
            width=rope + draw.sizes(64, 0, 7, 128, rare=(200, 512)), scale=draw.choice((0.3, 0.0721, -0.5)),
            max_pages=each if padded else 0, num_indices=0 if padded else batch * each + draw.integer(0, 2),
            max_cache_len=draw.choice((None, each * page)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_cells(desc, arrays)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        given: dict[str, Any] = {name: arrays.get(name) for name in READ_TABLES}
        return next((w for b in range(desc.batch_size) if (w := cells_of(desc, b, **given)[2])), None)

    @classmethod
    def flops(cls, desc: MlaDecodeDescriptor) -> int:
        rows = desc.batch_size * desc.num_queries * desc.num_heads
        return 2 * rows * desc.max_cache_len * (desc.width + desc.d_latent)


mla_decode = functional(MlaDecodePlan)
