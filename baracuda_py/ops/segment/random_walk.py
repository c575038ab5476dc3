"""random_walk: walks over a graph, uniform or with node2vec's return and in-out parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Step,
    Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...schedules.geometry import MOST_BLOCKS
from ..random.draws import streams
from ..random.words import Tries
from .graph_rows import GraphDescriptor, random_ends, random_indptr, random_nodes, row_of
from .neighbor_sample import bench_graph

THREADS, TRIES = 128, 32


@dataclass(frozen=True, kw_only=True)
class RandomWalkDescriptor(GraphDescriptor):
    """On a graph `walks` walks of `length` steps."""

    walks: int = extent()
    length: int = extent()
    element: ElementKind = element(INDICES, ElementKind.I64)

    @property
    def places(self) -> int:
        """Nodes of a walk: one more than steps."""
        return self.length + 1


@dataclass(slots=True, kw_only=True)
class RandomWalkArgs(Args):
    """All of one element, int64 or int32, any strides; p and q are above 0."""

    indptr: Array = operand("offsets", values=random_indptr)
    indices: Array = operand("edges", values=random_ends)
    starts: Array = operand("walks", values=random_nodes)
    path: Array = output("walks places")
    edge_ids: Array | None = output("walks length", optional=True)
    p: Scalar = scalar(1.0, values=(1.0, 0.5, 4.0, 1e4))
    q: Scalar = scalar(1.0, values=(1.0, 2.0, 0.25, 1e4))
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: RandomWalkDescriptor, *, indptr: Any, indices: Any, starts: Any, p: Any, q: Any, seed: Any, offset: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy, walk by walk and step by step."""
    path = np.zeros((desc.walks, desc.places), np.int64)
    edge_ids = np.full((desc.walks, desc.length), -1, np.int64)
    with np.errstate(all="ignore"):
        back, away = (float(np.divide(1.0, float(weight))) for weight in (p, q))

    def ends(node: int) -> Any:
        return indices[slice(*row_of(indptr, node, desc.nodes, desc.edges))]

    for w in range(desc.walks):
        node, before = int(starts[w]), None
        path[w, 0] = node
        for t in range(desc.length):
            begin, end = row_of(indptr, node, desc.nodes, desc.edges)
            if end > begin:
                to, weights = ends(node), np.ones(end - begin)
                if before is not None:
                    weights = np.where(to == before, back, np.where(np.isin(to, ends(before)), 1.0, away))
                draw = Tries(seed, offset, np.array([w * desc.length + t]))
                edge_ids[w, t] = begin + _chosen(draw, weights, max(1.0, back, away))
                before, node = node, int(indices[edge_ids[w, t]])
            path[w, t + 1] = node
    return {"path": path, "edge_ids": edge_ids}


def _chosen(draw: Tries, weights: Any, most: float) -> int:
    """A place by its weight: by tries, and where none is taken by the sums of all weights, from the first on."""
    u = 0.0
    for j in range(TRIES):
        low, high, third, fourth = (int(word) for word in draw.block(j)[0])
        place = (high << 32 | low) * len(weights) >> 64
        u = ((fourth << 32 | third) >> 11) * 2.0**-53
        if u * most < weights[place]:
            return place
    with np.errstate(all="ignore"):
        sums = np.cumsum(weights)
        past = sums > u * sums[-1]
    return int(np.argmax(past)) if past.any() else len(weights) - 1


PARAMS = Params(
    "WalkParams", indptr="ptr", indices="ptr", starts="ptr", path="ptr", edge_ids="ptr", p="scalar", q="scalar",
    seed="iscalar", offset="iscalar", nodes="i64", edges="i64", walks="i64", length="i64", indptr_step="i64",
    indices_step="i64", starts_step="i64", path_steps="i64[2]", edge_steps="i64[2]", walk_threads=THREADS,
    walk_tries=TRIES,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    blocks = -(-desc.walks // THREADS)
    if blocks > MOST_BLOCKS:
        return f"{desc.walks} walks; a launch has 2^38"
    params = {
        "nodes": desc.nodes, "edges": desc.edges, "walks": desc.walks, "length": desc.length,
        "indptr_step": p.indptr.strides[0], "indices_step": p.indices.strides[0], "starts_step": p.starts.strides[0],
        "path_steps": p.path.strides, "edge_steps": (0, 0) if p.edge_ids is None else p.edge_ids.strides,
    }  # fmt: skip
    dense = p.indptr.dense and p.indices.dense and p.path.dense
    step = Step("walk", (blocks, 1, 1), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if dense else "strided")


class RandomWalkPlan(Plan):
    """path [W, L + 1]: the start, then the node after each step; edge_ids [W, L]: the steps' places in indices, or -1.

    A step takes an edge of the node it is at. The first is uniform; of later ones an edge back to the node before
    weighs 1 / p, one to a neighbour of that node 1, any other 1 / q (node2vec, Grover and Leskovec 2016), by up to 32
    tries and then by the sums of all weights. Without edges a walk stays. Step t of walk w draws blocks of its own of
    the Philox stream, those of element w L + t.
    """

    op = "segment.random_walk"
    descriptor = RandomWalkDescriptor
    args = RandomWalkArgs
    reference = staticmethod(reference)
    value_policy = "what is no node has no edges; offsets are cut to the edges that there are"
    variants = (
        Variant(
            "threads", _geometry, source="segment/random_walk.cu", guarantee=Guarantee(Exact()), elements=INDICES,
            kernels=(Kernel("walk", "random_walk<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("20 steps of 1M walks, 32 edges a node", offsets=(1 << 20) + 1, edges=1 << 25, walks=1 << 20,
                  length=20, make=lambda torch, desc: bench_graph(torch, desc) | {
                      "starts": torch.arange(desc.walks), "p": 1.0, "q": 1.0}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RandomWalkDescriptor:
        return RandomWalkDescriptor(
            offsets=1 + draw.sizes(0, 1, 3, 20), edges=draw.sizes(0, 1, 9, 90), walks=draw.sizes(0, 1, 7, 150),
            length=draw.integer(0, 6), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.walks, desc.length), arrays)


random_walk = functional(
    RandomWalkPlan, "random_walk", returns=("path",),
    doc="""Walks over a graph by offsets, uniform or node2vec's (torch_cluster.random_walk).

    indptr [N + 1], indices [E], starts [W], all int64 or all int32; length: the number of steps. p, q: return and
    in-out parameters, numbers above 0 or 0-d device arrays. Returns path [W, length + 1] and, where asked for, edge_ids
    [W, length]. See `RandomWalkPlan`.
    """,
)  # fmt: skip
