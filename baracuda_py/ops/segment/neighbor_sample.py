"""neighbor_sample: k neighbours of each seed of a graph, drawn with or without replacement (GraphSAGE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Step,
    Variant, element, extent, flag, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.variant import aligned
from ...schedules.geometry import MOST_BLOCKS
from ..random.draws import streams
from ..random.words import words64
from .graph_rows import GraphDescriptor, random_ends, random_indptr, random_nodes, row_of

THREADS = 128
I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class NeighborSampleDescriptor(GraphDescriptor):
    """Of a graph up to k neighbours of each of `seeds_count` seeds."""

    seeds_count: int = extent()
    k: int = extent(minimum=1)
    replace: bool = flag(False)
    element: ElementKind = element(INDICES, I64)


@dataclass(slots=True, kw_only=True)
class NeighborSampleArgs(Args):
    """All of one element, int64 or int32, any strides; indptr[v] to indptr[v + 1] are the edges of node v."""

    indptr: Array = operand("offsets", values=random_indptr)
    indices: Array = operand("edges", values=random_ends)
    seeds: Array = operand("seeds_count", values=random_nodes)
    neighbors: Array = output("seeds_count k")
    edge_ids: Array | None = output("seeds_count k", optional=True)
    counts: Array | None = output("seeds_count", element=I32, optional=True)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: NeighborSampleDescriptor, *, indptr: Any, indices: Any, seeds: Any, seed: Any, offset: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy, seed by seed."""
    count, k = desc.seeds_count, desc.k
    words = words64(seed, offset, count * k).reshape(count, k)
    edge_ids, counts = np.full((count, k), -1, np.int64), np.zeros(count, np.int32)
    for s in range(count):
        begin, end = row_of(indptr, int(seeds[s]), desc.nodes, desc.edges)
        degree = end - begin
        if degree == 0:
            continue
        if desc.replace:
            chosen = [int(word) * degree >> 64 for word in words[s]]
        elif degree <= k:
            chosen = list(range(degree))
        else:  # Floyd's: the j-th draw is among the first degree - k + j + 1, and the last of these where it is there
            chosen = []
            for j in range(k):
                last = degree - k + j
                drawn = int(words[s, j]) * (last + 1) >> 64
                chosen.append(last if drawn in chosen else drawn)
        counts[s] = len(chosen)
        edge_ids[s, : len(chosen)] = begin + np.array(chosen)
    neighbors = np.where(edge_ids < 0, -1, indices[np.maximum(edge_ids, 0)] if desc.edges else -1)
    return {"neighbors": neighbors, "edge_ids": edge_ids, "counts": counts}


PARAMS = Params(
    "NeighborParams", indptr="ptr", indices="ptr", seeds="ptr", neighbors="ptr", edge_ids="ptr", counts="ptr",
    chosen="workspace", seed="iscalar", offset="iscalar", nodes="i64", edges="i64", count="i64", k="i64",
    indptr_step="i64", indices_step="i64", seeds_step="i64", neighbor_steps="i64[2]", edge_steps="i64[2]",
    counts_step="i64", replace="i32", neighbor_threads=THREADS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    blocks = -(-desc.seeds_count // THREADS)
    if blocks > MOST_BLOCKS:
        return f"{desc.seeds_count} seeds; a launch has 2^38"
    params = {
        "chosen": 0, "nodes": desc.nodes, "edges": desc.edges, "count": desc.seeds_count, "k": desc.k,
        "indptr_step": p.indptr.strides[0], "indices_step": p.indices.strides[0], "seeds_step": p.seeds.strides[0],
        "neighbor_steps": p.neighbors.strides, "edge_steps": (0, 0) if p.edge_ids is None else p.edge_ids.strides,
        "counts_step": 0 if p.counts is None else p.counts.strides[0], "replace": desc.replace,
    }  # fmt: skip
    size = 0 if desc.replace else aligned(8 * desc.seeds_count * desc.k)
    dense = p.indptr.dense and p.indices.dense and p.neighbors.dense
    step = Step("neighbors", (blocks, 1, 1), params, {}, THREADS)
    return Geometry((step,), size, "contiguous" if dense else "strided")


def bench_graph(torch: Any, desc: Any) -> dict[str, Any]:
    """A benchmark's graph: every node has the same number of edges."""
    degree = desc.edges // desc.nodes
    return {
        "indptr": torch.arange(desc.nodes + 1) * degree, "indices": torch.randint(0, desc.nodes, (desc.edges,)),
        "seed": 1, "offset": 0,
    }  # fmt: skip


class NeighborSamplePlan(Plan):
    """neighbors [S, k]: ends of k edges of each seed, then -1; edge_ids: their places in indices; counts: how many.

    Without replacement each set of k edges is as likely (Floyd's algorithm; Bentley and Floyd 1987), and a node with at
    most k edges has all, in their order; with replacement k edges are drawn of any that has one. Draw j of seed s is
    word s k + j of 64 bits of the Philox stream. What is no node has no edges; offsets are cut to [0, edges].
    """

    op = "segment.neighbor_sample"
    descriptor = NeighborSampleDescriptor
    args = NeighborSampleArgs
    reference = staticmethod(reference)
    value_policy = "what is no node has no edges; offsets are cut to the edges that there are"
    variants = (
        Variant(
            "threads", _geometry, source="segment/neighbor_sample.cu", guarantee=Guarantee(Exact()),
            elements=INDICES,
            kernels=(Kernel("neighbors", "neighbor_sample<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("10 of 32 edges of 1M seeds", offsets=(1 << 20) + 1, edges=1 << 25, seeds_count=1 << 20, k=10,
                  make=lambda torch, desc: bench_graph(torch, desc) | {
                      "seeds": torch.randint(0, desc.nodes, (desc.seeds_count,))}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NeighborSampleDescriptor:
        return NeighborSampleDescriptor(
            offsets=1 + draw.sizes(0, 1, 3, 20), edges=draw.sizes(0, 1, 9, 90), seeds_count=draw.sizes(0, 1, 7, 150),
            k=draw.choice((1, 3, 8)), replace=draw.flag(), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.seeds_count, desc.k), arrays)


neighbor_sample = functional(
    NeighborSamplePlan, "neighbor_sample", returns=("neighbors",),
    doc="""k neighbours of each seed of a graph by offsets (torch_sparse.sample_adj, pyg-lib's and GraphSAGE's hop).

    indptr [N + 1], indices [E], seeds [S], all int64 or all int32: the edges of node v are indptr[v] to indptr[v + 1].
    Returns neighbors [S, k], -1 behind the last, and, where asked for, edge_ids [S, k] and counts [S] int32. See
    `NeighborSamplePlan`.
    """,
)  # fmt: skip
