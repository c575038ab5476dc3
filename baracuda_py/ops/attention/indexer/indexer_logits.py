"""indexer_logits: how much each query of DeepSeek's sparse attention wants each key (the lightning indexer's scores).

DeepGEMM's fp8_mqa_logits and, with a page table, fp8_paged_mqa_logits. Keys and their scales are operands of any stride
between cells, so that pages of bytes are views of both: records of 128 + 4 bytes, or all codes of a page and then its
scales (DeepGEMM, vLLM).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Geometry,
    Params,
    Plan,
    Problem,
    element,
    extent,
    operand,
    output,
)
from ....calls.functional import functional
from ....core.benchmark import FLOPS, Benchmark
from ....schedules.attention import indexer
from ....schedules.attention.dense.forward import SINGLES
from ..mla.lists import (
    cells_at, check_lists, list_fields, list_params, random_pages, random_sequences, settle_lists,
)  # fmt: skip
from ..paged.page_tables import INDEX


@dataclass(frozen=True, kw_only=True)
class IndexerLogitsDescriptor(Descriptor):
    """num_queries queries of num_heads heads of d columns, against num_pages pages of page_size keys.

    batch_size, max_pages: of the page table.
    """

    num_queries: int = extent()
    num_heads: int = extent()
    d: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    batch_size: int = extent(0)
    max_pages: int = extent(0)
    element: ElementKind = element((*indexer.CODED, *SINGLES))

    @property
    def num_keys(self) -> int:
        """Numbers that a key may have."""
        return self.page_size * (self.max_pages if self.batch_size else self.num_pages)


def random_bounds(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: some beyond both ends."""
    return rng.integers(-2, desc.num_keys + 3, shape)


def random_scales(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: powers of two, as quantisation makes them."""
    return np.exp2(rng.integers(-2, 3, shape))


@dataclass(slots=True, kw_only=True)
class IndexerLogitsArgs(Args):
    """Query t sees keys starts[t] … ends[t] - 1, from 0 and to the last without them.

    A key's number is its place, page · page_size + cell, or with `page_table` and `batch_indices` its position in
    sequence batch_indices[t]. w: weights of heads, and k_scale: what a key's codes are multiplied by, both float32 (w
    float64 for float64 operands). logits are float32, or float64.
    """

    q: Array = operand("num_queries num_heads d", layout="inner")
    k: Array = operand("num_pages page_size d", layout="inner")
    w: Array = operand("num_queries num_heads", element="acc")
    k_scale: Array | None = operand("num_pages page_size", element=ElementKind.F32, optional=True, values=random_scales)
    starts: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_bounds)
    ends: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_bounds)
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_pages)
    batch_indices: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_sequences)
    logits: Array = output("num_queries num_keys", element="acc", layout="inner")


def reference(
    desc: Any, *, q: Any, k: Any, w: Any, k_scale: Any = None, starts: Any = None, ends: Any = None,
    page_table: Any = None, batch_indices: Any = None,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype w comes in; only keys that are seen are read."""
    logits = np.full((desc.num_queries, desc.num_keys), -np.inf, w.dtype)
    for t in range(desc.num_queries):
        first = 0 if starts is None else max(0, int(starts[t]))
        last = desc.num_keys if ends is None else min(desc.num_keys, int(ends[t]))
        numbers = np.arange(first, max(first, last))
        page, cell, there = cells_at(desc, t, numbers, page_table, batch_indices)
        numbers, page, cell = numbers[there], page[there], cell[there]
        with np.errstate(all="ignore"):
            s = np.maximum(q[t].astype(w.dtype) @ k[page, cell].astype(w.dtype).T, 0)
            found = (w[t][:, None] * s).sum(0)
            logits[t, numbers] = found if k_scale is None else found * k_scale[page, cell].astype(w.dtype)
    return {"logits": logits}


def in_torch(
    torch: Any, desc: Any, *, q: Any, k: Any, w: Any, k_scale: Any, starts: Any, ends: Any, **lists: Any
) -> Any:
    """A product for each query."""
    tables = {name: None if one is None else one.cpu().numpy() for name, one in lists.items()}
    logits = w.new_full((desc.num_queries, desc.num_keys), -torch.inf)
    for t in range(desc.num_queries):
        first = 0 if starts is None else max(0, int(starts[t]))
        last = desc.num_keys if ends is None else min(desc.num_keys, int(ends[t]))
        numbers = np.arange(first, max(first, last))
        page, cell, there = cells_at(desc, t, numbers, tables["page_table"], tables["batch_indices"])
        at = [torch.from_numpy(one[there]).to(q.device) for one in (page, cell, numbers)]
        s = torch.relu(q[t].to(w.dtype) @ k[at[0], at[1]].to(w.dtype).T)
        found = (w[t][:, None] * s).sum(0)
        logits[t, at[2]] = found if k_scale is None else found * k_scale[at[0], at[1]].to(w.dtype)
    return {"logits": logits}


OWN = ("starts", "ends")
PARAMS = Params("IndexerLogitsParams", **indexer.fields(**list_fields(*OWN), logits="ptr"))


def _make(p: Problem, kernel: str) -> Geometry | str:
    desc = p.desc
    if why := indexer.bounds(desc):
        return why
    step = indexer.logits_step(
        p, kernel, list_params(p, *OWN), 0, desc.num_queries, p.logits.strides[0], fill=True
    )  # fmt: skip
    steps = (step,) if step.grid[0] else ()
    return indexer.launchable(step) or Geometry(steps, layout=indexer.layout_of(p))


def draw_case(draw: Any) -> dict[str, Any]:
    """A small problem; pages of keys, or sequences of pages."""
    paged = draw.flag()
    return {
        "num_queries": draw.sizes(3, 0, 1, 40), "num_heads": draw.sizes(4, 0, 1, 64, 70),
        "d": draw.sizes(16, 0, 7, 128), "num_pages": draw.choice((0, 1, 5)), "page_size": draw.sizes(4, 1, 16, 64, 300),
        "batch_size": draw.integer(1, 3) if paged else 0, "max_pages": draw.integer(0, 6) if paged else 0,
    }  # fmt: skip


class IndexerLogitsPlan(Plan):
    """logits[t, s] = k_scale[s] Σ_h w[t, h] max(q[t, h] · k[s], 0) for the keys that query t sees, else -inf.

    Codes of fp8 are multiplied as float16, which holds them exactly, and sums are of float32. A key of a page that is
    not in [0, num_pages) is not seen. What a query gives has the same bits with any other queries and pages.
    """

    op = "attention.indexer_logits"
    descriptor = IndexerLogitsDescriptor
    args = IndexerLogitsArgs
    reference = staticmethod(reference)
    value_policy = (
        "bounds are clamped to the keys that there are; a query sees nothing where batch_indices is not in "
        "[0, batch_size), and no key of a page that is not in [0, num_pages); keys that no query sees are never read"
    )
    variants = (
        indexer.mma(_make, PARAMS, lambda logits: (), None), indexer.simt(_make, PARAMS, lambda logits: (), None)
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 heads, 2048 queries of 16384 keys, e4m3", num_queries=2048, num_heads=64, d=128, num_pages=256,
            page_size=64, element="float8_e4m3fn", also=("k_scale",), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lists(views)

    @staticmethod
    def case(draw: Any) -> IndexerLogitsDescriptor:
        return IndexerLogitsDescriptor(**draw_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_lists(desc, arrays)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.num_queries * desc.num_heads * desc.d * desc.num_keys)


indexer_logits = functional(IndexerLogitsPlan)
