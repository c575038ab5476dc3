"""ball_query: the first k points of a cloud within a radius of each query (PointNet++; torch_cluster.radius)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    Step, Variant, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...schedules.geometry import MOST_BLOCKS
from .distances import I32, I64, CloudQueriesDescriptor, accumulator, cloud_lengths, ends, random_points, squared

WARPS = 8  # queries of a block


@dataclass(frozen=True, kw_only=True)
class BallQueryDescriptor(CloudQueriesDescriptor):
    """As `CloudQueriesDescriptor`."""


@dataclass(slots=True, kw_only=True)
class BallQueryArgs(Args):
    """Any strides; lengths are int64 or int32."""

    points: Array = operand("batch_size point_count dims", values=random_points)
    queries: Array = operand("batch_size query_count dims", values=random_points)
    lengths: Array | None = cloud_lengths()
    index: Array = output("batch_size query_count k", element="index_element")
    counts: Array | None = output("batch_size query_count", element=I32, optional=True)
    radius: Scalar = scalar(1.0, values=(0.0, 0.25, 0.5, 1.0, 10.0))


def reference(
    desc: BallQueryDescriptor, *, points: Any, queries: Any, lengths: Any, radius: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    kind = accumulator(desc.element)
    x, y = (np.array(np.asarray(v, np.float64), kind) for v in (points, queries))
    most = kind(radius) * kind(radius)
    index = np.full((desc.batch_size, desc.query_count, desc.k), -1, np.int64)
    counts = np.zeros((desc.batch_size, desc.query_count), np.int32)
    for b, end in enumerate(ends(lengths, desc.batch_size, desc.point_count)):
        for q in range(desc.query_count):
            near = np.flatnonzero(squared(x[b, :end], y[b, q]) <= most)
            counts[b, q] = min(len(near), desc.k)
            index[b, q, : counts[b, q]] = near[: desc.k]
    return {"index": index, "counts": counts}


PARAMS = Params(
    "BallParams", points="ptr", queries="ptr", lengths="ptr", index="ptr", counts="ptr", radius="scalar", count="i64",
    queries_count="i64", dims="i64", point_steps="i64[3]", query_steps="i64[3]", index_steps="i64[3]",
    counts_steps="i64[2]", k="i64", wide_lengths="i32", wide="i32", ball_warps=WARPS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    blocks = -(-desc.query_count // WARPS)
    if blocks > MOST_BLOCKS or desc.batch_size > 65535:
        return f"{desc.batch_size} clouds of {desc.query_count} queries; a launch has 65535 of 2^34"
    params = {
        "count": desc.point_count, "queries_count": desc.query_count, "dims": desc.dims,
        "point_steps": p.points.strides, "query_steps": p.queries.strides, "index_steps": p.index.strides,
        "counts_steps": (0, 0) if p.counts is None else p.counts.strides, "k": desc.k,
        "wide_lengths": p.lengths is not None and p.lengths.element is I64, "wide": desc.index_element is I64,
    }  # fmt: skip
    step = Step("ball", (blocks, desc.batch_size, 1), params, {}, 32 * WARPS)
    dense = p.points.dense and p.queries.dense and p.index.dense
    return Geometry((step,), layout="contiguous" if dense else "strided")


class BallQueryPlan(Plan):
    """index [B, M, k]: the points within the radius of each query, the lowest indices first, up to k, then -1.

    counts [B, M]: how many they are. A point is within the radius where its squared distance, added from the first
    coordinate to the last in float32, or in float64 of float64, is at most radius² of that type; NaN is not.
    """

    op = "points.ball_query"
    descriptor = BallQueryDescriptor
    args = BallQueryArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a distance that is NaN is within no radius"
    variants = (
        Variant(
            "warps", _geometry, source="points/ball_query.cu", elements=FLOATS,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(Kernel("ball", "ball_query<{T}>", PARAMS, threads=32 * WARPS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("32 of [8, 8192, 3] f32", batch_size=8, point_count=8192, query_count=1024, dims=3, k=32,
                  element="float32", make=lambda torch, desc: {"radius": 0.2}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BallQueryDescriptor:
        return BallQueryDescriptor(
            batch_size=draw.integer(0, 3), point_count=draw.sizes(0, 1, 5, 40, 300), query_count=draw.sizes(0, 1, 3, 9),
            dims=draw.choice((1, 2, 3, 5)), k=draw.choice((1, 3, 40)), index_element=draw.choice((I32, I64)),
            element=draw.element,
        )  # fmt: skip


_ball = functional(BallQueryPlan, "ball_query", returns=("index",))


@entry(BallQueryPlan)
def ball_query(
    points: Array, queries: Any = None, radius: Scalar = 1.0, k: int = 32, *, lengths: Any = None,
    return_counts: bool = False, index_element: Any = "int64", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Indices [B, M, k] of the first k of points [B, N, D] within `radius` of queries [B, M, D], then -1.

    queries: by default the points themselves. radius is a number or a 0-d device array; lengths: [B], int64 or int32,
    of which clouds are the first points. return_counts: also how many were found, [B, M] int32. As PyTorch3D's
    ball_query and torch_cluster.radius, always in the order of indices. See `BallQueryPlan`.
    """
    return _ball(
        points, points if queries is None else queries, lengths=lengths, radius=radius, k=k,
        return_counts=return_counts, index_element=index_element, out=out, stream=stream, preference=preference,
    )  # fmt: skip
