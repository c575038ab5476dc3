"""nearest_points: the k nearest points of a cloud for each query, in one pass over the cloud (torch_cluster.knn)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, ElementKind, Exact, Forward, Geometry, Guarantee, Kernel, Params, PerOutput, Plan,
    Problem, Step, Variant, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from .distances import I32, I64, CloudQueriesDescriptor, accumulator, cloud_lengths, ends, random_points, squared

THREADS, TILE = 128, 128  # queries of a block; points of a tile
MOST, WIDE = 128, 4  # neighbours; coordinates that are in registers


@dataclass(frozen=True, kw_only=True)
class NearestPointsDescriptor(CloudQueriesDescriptor):
    """As `CloudQueriesDescriptor`, of k up to 128."""

    def validate(self) -> None:
        if self.k > MOST:
            raise InvalidProblemError(f"k must be at most {MOST}, got {self.k}; take topk of the distances")


@dataclass(slots=True, kw_only=True)
class NearestPointsArgs(Args):
    """Any strides; lengths are int64 or int32."""

    points: Array = operand("batch_size point_count dims", values=random_points)
    queries: Array = operand("batch_size query_count dims", values=random_points)
    lengths: Array | None = cloud_lengths()
    index: Array = output("batch_size query_count k", element="index_element")
    squares: Array | None = output("batch_size query_count k", element="acc", optional=True)


def reference(
    desc: NearestPointsDescriptor, *, points: Any, queries: Any, lengths: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    kind = accumulator(desc.element)
    x, y = (np.array(np.asarray(v, np.float64), kind) for v in (points, queries))
    shape = (desc.batch_size, desc.query_count, desc.k)
    index, squares = np.full(shape, -1, np.int64), np.full(shape, np.inf, kind)
    for b, end in enumerate(ends(lengths, desc.batch_size, desc.point_count)):
        for q in range(desc.query_count):
            distance = squared(x[b, :end], y[b, q])
            best = np.argsort(distance, kind="stable")[: desc.k]
            best = best[~np.isnan(distance[best])]
            index[b, q, : len(best)], squares[b, q, : len(best)] = best, distance[best]
    return {"index": index, "squares": squares}


PARAMS = Params(
    "NearestParams", points="ptr", queries="ptr", lengths="ptr", index="ptr", squares="ptr", kept="workspace",
    places="workspace", count="i64", queries_count="i64", dims="i64", point_steps="i64[3]", query_steps="i64[3]",
    index_steps="i64[3]", square_steps="i64[3]", share="i64", parts="i32", k="i32", wide_lengths="i32", wide="i32",
    near_threads=THREADS, near_tile=TILE, near_dims=WIDE,
)  # fmt: skip
_LISTS = (1, 8, 16, 32, 64, 128)  # neighbours that a thread keeps


def _geometry(p: Problem) -> Geometry | str:
    """Parts of the cloud enough for four blocks a multiprocessor, each with lists of its own, which are merged."""
    desc = p.desc
    blocks = -(-desc.query_count // THREADS)
    if desc.batch_size > 65535:
        return f"{desc.batch_size} clouds; a launch has 65535"
    if desc.point_count >= 2**31:
        return f"{desc.point_count} points; a cloud has at most 2^31 - 1"
    most = max(1, 4 * p.device.sms // max(blocks * desc.batch_size, 1))
    parts = max(1, min(most, desc.point_count // (8 * max(TILE, desc.k)), 64))
    share = -(-max(desc.point_count, 1) // (parts * TILE)) * TILE
    parts = -(-max(desc.point_count, 1) // share)
    held = desc.batch_size * desc.query_count * parts * desc.k
    kept = aligned(held * desc.element.acc.itemsize)
    params = {
        "kept": 0, "places": kept, "count": desc.point_count, "queries_count": desc.query_count, "dims": desc.dims,
        "point_steps": p.points.strides, "query_steps": p.queries.strides, "index_steps": p.index.strides,
        "square_steps": (0, 0, 0) if p.squares is None else p.squares.strides, "share": share, "parts": parts,
        "k": desc.k, "wide_lengths": p.lengths is not None and p.lengths.element is I64,
        "wide": desc.index_element is I64,
    }  # fmt: skip
    axes = {"LIST": next(n for n in _LISTS if desc.k <= n)}
    steps = (
        Step("near", (blocks, desc.batch_size, parts), params, {**axes, "FEW": desc.dims <= WIDE}, THREADS),
        Step("merge", (blocks, desc.batch_size, 1), params, axes, THREADS),
    )
    dense = p.points.dense and p.queries.dense and p.index.dense
    return Geometry(steps, kept + aligned(4 * held), layout="contiguous" if dense else "strided")


class NearestPointsPlan(Plan):
    """index [B, M, k]: the nearest points of each query, nearest first, of equally near ones the lowest index first.

    squares: their squared distances, added from the first coordinate to the last in float32, or in float64 of float64.
    Where a cloud has fewer points, and for distances that are NaN, index has -1 and squares inf. There is no matrix of
    distances; parts of a cloud have lists of their own, and merging them changes nothing.
    """

    op = "points.nearest_points"
    descriptor = NearestPointsDescriptor
    args = NearestPointsArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a distance that is NaN is that of no neighbour"
    variants = (
        Variant(
            "lists", _geometry, source="points/nearest_points.cu", elements=FLOATS, may_spill=True,
            guarantee=Guarantee(PerOutput((("index", Exact()), ("squares", Forward(2)))), batch_invariant=True),
            kernels=(
                Kernel("near", "nearest_lists<{T}, {LIST}, {FEW}>", PARAMS, {"LIST": _LISTS, "FEW": (True, False)},
                       threads=THREADS),
                Kernel("merge", "nearest_merge<{T}, {LIST}>", PARAMS, {"LIST": _LISTS}, threads=THREADS),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("16 of [8, 8192, 3] f32", batch_size=8, point_count=8192, query_count=8192, dims=3, k=16,
                  element="float32", peers=("torch",)),
    )  # fmt: skip

    @staticmethod
    def torch(torch: Any, desc: Any, *, points: Any, queries: Any, lengths: Any, wanted: set[str]) -> Any:
        """topk of a matrix of distances, where no cloud is short and none are equal."""
        if lengths is not None or desc.k > desc.point_count:
            return NotImplemented
        kind = torch.float64 if desc.element is ElementKind.F64 else torch.float32
        distance = torch.cdist(queries.to(kind), points.to(kind), compute_mode="donot_use_mm_for_euclid_dist").square()
        if 0 < distance.numel() < 10**6:  # not of a benchmark
            ordered = distance.sort(-1).values
            if (ordered.diff(dim=-1) < (1e-9 if kind is torch.float64 else 1e-6)).any():
                return NotImplemented
        squares, index = distance.topk(desc.k, largest=False)
        return {"index": index.to(getattr(torch, str(desc.index_element))), "squares": squares}

    @staticmethod
    def case(draw: Any) -> NearestPointsDescriptor:
        return NearestPointsDescriptor(
            batch_size=draw.integer(0, 3), point_count=draw.sizes(0, 1, 5, 40, 300), query_count=draw.sizes(0, 1, 3, 9),
            dims=draw.choice((1, 2, 3, 5)), k=draw.choice((1, 3, 9, 17)), index_element=draw.choice((I32, I64)),
            element=draw.element,
        )  # fmt: skip


_nearest = functional(NearestPointsPlan, "nearest_points", returns=("index",))


@entry(NearestPointsPlan)
def nearest_points(
    points: Array, queries: Any = None, k: int = 1, *, lengths: Any = None, return_squares: bool = False,
    index_element: Any = "int64", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Indices [B, M, k] of the k nearest of points [B, N, D] for queries [B, M, D] (torch_cluster.knn, PyTorch3D).

    queries: by default the points themselves, each its own nearest. lengths: [B], int64 or int32, of which clouds are
    the first points. return_squares: also the squared distances [B, M, k]. Missing neighbours are -1, at inf. k up to
    128. Distances have no gradient here: gather the neighbours with `index` and subtract. See `NearestPointsPlan`.
    """
    return _nearest(
        points, points if queries is None else queries, lengths=lengths, k=k, return_squares=return_squares,
        index_element=index_element, out=out, stream=stream, preference=preference,
    )  # fmt: skip
