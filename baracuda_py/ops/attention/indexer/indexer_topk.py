"""indexer_topk: the keys that each query of DeepSeek's sparse attention sees: the best by `indexer_logits`, listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, element, extent,
    integer, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.args import finite_only
from ....core.benchmark import FLOPS, Benchmark
from ....schedules.attention import indexer
from ....schedules.attention.dense.forward import SINGLES
from ..mla.lists import check_lists, list_fields, list_params, random_pages, random_sequences, settle_lists
from ..paged.page_tables import INDEX
from . import indexer_logits
from .indexer_logits import OWN, IndexerLogitsDescriptor, draw_case, random_bounds


@dataclass(frozen=True, kw_only=True)
class IndexerTopkDescriptor(IndexerLogitsDescriptor):
    """As IndexerLogitsDescriptor; top_k: the length of lists, of which a query may see fewer keys."""

    num_queries: int = extent()
    top_k: int = integer(2048, minimum=0)
    element: ElementKind = element((*indexer.CODED, *SINGLES))


@finite_only
def _small(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Integers whose sums are exact, so that every kernel has the same order of keys, with many equals."""
    return rng.integers(-2, 3, shape)


@finite_only
def _scales(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Powers of two, for the same reason."""
    return np.exp2(rng.integers(-1, 2, shape))


@dataclass(slots=True, kw_only=True)
class IndexerTopkArgs(Args):
    """Operands are those of `IndexerLogitsArgs`. indices: numbers of keys in ascending order, then -1."""

    q: Array = operand("num_queries num_heads d", layout="inner", values=_small)
    k: Array = operand("num_pages page_size d", layout="inner", values=_small)
    w: Array = operand("num_queries num_heads", element="acc", values=_small)
    k_scale: Array | None = operand("num_pages page_size", element=ElementKind.F32, optional=True, values=_scales)
    starts: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_bounds)
    ends: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_bounds)
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_pages)
    batch_indices: Array | None = operand("num_queries", element=INDEX, optional=True, values=random_sequences)
    indices: Array = output("num_queries top_k", element=ElementKind.I32, layout="inner")


def reference(desc: Any, **operands: Any) -> Mapping[str, Any]:
    """A stable sort of the logits; zeros of either sign are equal, and NaN is above every number."""
    logits = indexer_logits.reference(desc, **operands)["logits"]
    indices = np.full((desc.num_queries, desc.top_k), -1, np.int32)
    for t, row in enumerate(logits):
        seen = np.flatnonzero(row != -np.inf)
        best = np.argsort(np.where(np.isnan(row[seen]), -np.inf, -row[seen]), kind="stable")
        nan_first = np.argsort(~np.isnan(row[seen][best]), kind="stable")
        chosen = np.sort(seen[best[nan_first]][: desc.top_k])
        indices[t, : len(chosen)] = chosen
    return {"indices": indices}


def in_torch(torch: Any, desc: Any, **operands: Any) -> Any:
    """torch's stable sort of the logits."""
    logits = indexer_logits.in_torch(torch, desc, **operands)["logits"]
    count = min(desc.top_k, desc.num_keys)
    values, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    order = torch.where(values[:, :count] == -torch.inf, desc.num_keys, order[:, :count]).sort(-1).values
    indices = logits.new_full((desc.num_queries, desc.top_k), -1, dtype=torch.int32)
    indices[:, :count] = torch.where(order == desc.num_keys, -1, order).int()
    return {"indices": indices}


PARAMS = Params("IndexerTopkParams", **indexer.fields(**list_fields(*OWN), logits="workspace"))
SELECT = Params(
    "IndexerSelectParams", **list_fields(*OWN), logits="workspace", indices="ptr", logits_stride="i64",
    index_stride="i64", keys="i64", first_query="i64", top_k="i64",
)  # fmt: skip


def _make(p: Problem, kernel: str) -> Geometry | str:
    desc = p.desc
    if why := indexer.bounds(desc):
        return why
    size, lists = desc.element.acc.itemsize, {**list_params(p, *OWN), "logits": 0}
    pitch, each = indexer.chunks(desc, size)
    steps: list[Step] = []
    for first in range(0, desc.num_queries, max(each, 1)):
        queries = min(each, desc.num_queries - first)
        step = indexer.logits_step(p, kernel, lists, first, queries, pitch, fill=False)
        if why := indexer.launchable(step):
            return why
        select = {
            **lists, "logits_stride": pitch, "index_stride": p.indices.strides[0], "keys": desc.num_keys,
            "first_query": first, "top_k": desc.top_k,
        }  # fmt: skip
        steps += [step] if step.grid[0] else []
        steps.append(Step("select", (queries, 1, 1), select, {}, indexer.SELECT_THREADS))
    return Geometry(tuple(steps), indexer.workspace(pitch, each, size), indexer.layout_of(p))


def _select(logits: str) -> tuple[Kernel, ...]:
    source = "attention/indexer/indexer.cu"
    return (Kernel("select", f"indexer_select<{logits}>", SELECT, threads=indexer.SELECT_THREADS, source=source),)


class IndexerTopkPlan(Plan):
    """indices[t] = the top_k keys of the largest logits that query t sees, in ascending order, then -1.

    Logits are those of `IndexerLogitsPlan`, rounded as there. Of equal ones the lowest numbers are taken; NaN is above
    every number, zeros are equal, and a key whose logit is -inf is not listed. What a query gives is the same with any
    other queries and pages. Logits of some queries at a time are in a workspace of up to 256 MiB, or of one query.
    """

    op = "attention.indexer_topk"
    descriptor = IndexerTopkDescriptor
    args = IndexerTopkArgs
    reference = staticmethod(reference)
    value_policy = indexer_logits.IndexerLogitsPlan.value_policy
    variants = (
        indexer.mma(_make, PARAMS, _select, Guarantee(Exact(), batch_invariant=True, order="mma")),
        indexer.simt(_make, PARAMS, _select, Guarantee(Exact(), batch_invariant=True)),
    )
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64 heads, 2048 queries of 16384 keys, e4m3", num_queries=2048, num_heads=64, d=128, num_pages=256,
            page_size=64, top_k=2048, element="float8_e4m3fn", also=("k_scale",), work=FLOPS, target=None, peers=(),
        ),
        Benchmark(
            "64 heads, 128 queries of 131072 keys, e4m3", num_queries=128, num_heads=64, d=128, num_pages=2048,
            page_size=64, top_k=2048, element="float8_e4m3fn", also=("k_scale",), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_lists(views)

    @staticmethod
    def case(draw: Any) -> IndexerTopkDescriptor:
        return IndexerTopkDescriptor(**draw_case(draw), top_k=draw.sizes(5, 0, 1, 64, 300), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_lists(desc, arrays)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.num_queries * desc.num_heads * desc.d * desc.num_keys)


indexer_topk = functional(IndexerTopkPlan)
