"""farthest_point_sample: points of a cloud, each the farthest from those before it (Eldar et al. 1997; PointNet++)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    Step, Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.variant import aligned
from ..random.draws import by_row
from .distances import I32, I64, accumulator, cloud_lengths, ends, random_points, squared

THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class FarthestPointSampleDescriptor(Descriptor):
    """points are [batch_size, point_count, dims]; `samples` of each cloud are chosen."""

    batch_size: int = extent()
    point_count: int = extent()
    dims: int = extent(minimum=1)
    samples: int = extent()
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class FarthestPointSampleArgs(Args):
    """Any strides. start is a number, or `starts` the dense array [B]; lengths and starts are int64 or int32."""

    points: Array = operand("batch_size point_count dims", values=random_points)
    lengths: Array | None = cloud_lengths()
    starts: Array | None = operand("batch_size", element=INDICES[::-1], optional=True, layout="dense",
                                   values=(-2, "point_count"))  # fmt: skip
    index: Array = output("batch_size samples", element="index_element")
    start: Scalar = scalar(0, integer=True)


def reference(
    desc: FarthestPointSampleDescriptor, *, points: Any, lengths: Any, starts: Any, start: Any
) -> Mapping[str, Any]:
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    x = np.array(np.asarray(points, np.float64), accumulator(desc.element))
    found = np.full((desc.batch_size, desc.samples), -1, np.int64)
    for b, end in enumerate(ends(lengths, desc.batch_size, desc.point_count)):
        if end == 0:
            continue
        own = int(start if starts is None else starts[b])
        last = own if 0 <= own < end else 0
        far = np.full(end, np.inf, x.dtype)
        for n in range(desc.samples):
            found[b, n] = last
            distance = squared(x[b, :end], x[b, last])
            far = np.where(distance < far, distance, far)
            far = np.where(np.isnan(distance), x.dtype.type(-1), far)
            last = int(np.argmax(far))
    return {"index": found}


PARAMS = Params(
    "FarthestParams", points="ptr", lengths="ptr", starts="ptr", index="ptr", far="workspace", start="iscalar",
    count="i64", samples="i64", dims="i64", steps="i64[3]", index_steps="i64[2]", wide_lengths="i32",
    wide_starts="i32", wide="i32", far_threads=THREADS,
)  # fmt: skip


def _values(p: Problem) -> tuple[dict[str, Any], str]:
    """What the kernels know, and the layout."""
    params = {
        "far": 0, "count": p.desc.point_count, "samples": p.desc.samples, "dims": p.desc.dims,
        "steps": p.points.strides, "index_steps": p.index.strides,
        "wide_lengths": p.lengths is not None and p.lengths.element is I64,
        "wide_starts": p.starts is not None and p.starts.element is I64, "wide": p.desc.index_element is I64,
    }  # fmt: skip
    return params, "contiguous" if p.points.dense and p.index.dense else "strided"


def _each(kind: ElementKind) -> dict[str, tuple[int, ...]]:
    """Points of a thread, whose coordinates and distances are in registers, and their axes."""
    return {"DIMS": (2, 3), "EACH": (2, 4) if kind is ElementKind.F64 else (2, 8, 16)}


def _held(p: Problem) -> Geometry | str:
    desc, each = p.desc, _each(p.desc.element)["EACH"]
    if desc.dims not in (2, 3) or not 0 < desc.point_count <= THREADS * each[-1]:
        return f"a block holds up to {THREADS * each[-1]} points of 2 or 3 coordinates"
    params, layout = _values(p)
    own = next(n for n in each if desc.point_count <= THREADS * n)
    step = Step("far_held", (desc.batch_size, 1, 1), params, {"DIMS": desc.dims, "EACH": own}, THREADS)
    return Geometry((step,), 0, layout)


def _block(p: Problem) -> Geometry | str:
    params, layout = _values(p)
    size = aligned(max(p.desc.batch_size * p.desc.point_count, 1) * p.desc.element.acc.itemsize)
    return Geometry((Step("far", (p.desc.batch_size, 1, 1), params, {}, THREADS),), size, layout)


class FarthestPointSamplePlan(Plan):
    """index [B, samples]: the start, then each time the point farthest from its nearest among those before.

    Of equally far ones the lowest index is taken, so that past the last distinct point it repeats the lowest of those
    left at distance 0. A start outside the cloud is point 0. A point with a NaN coordinate comes after all others. A
    cloud without points has -1. Distances are squared, added from the first coordinate to the last in float32, or in
    float64 of float64.
    """

    op = "points.farthest_point_sample"
    descriptor = FarthestPointSampleDescriptor
    args = FarthestPointSampleArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a point with a NaN coordinate comes last; a start outside the cloud is point 0"
    variants = (
        Variant(
            "held", _held, source="points/farthest_point_sample.cu", elements=FLOATS,
            guarantee=Guarantee(Exact(), batch_invariant=True), may_spill=True,
            kernels=(Kernel("far_held", "farthest_held<{T}, {DIMS}, {EACH}>", PARAMS, _each, threads=THREADS),),
        ),
        Variant(
            "block", _block, source="points/farthest_point_sample.cu", elements=FLOATS,
            guarantee=Guarantee(Exact(), batch_invariant=True), may_spill=True,
            kernels=(Kernel("far", "farthest<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("1024 of [32, 8192, 3] f32", batch_size=32, point_count=8192, dims=3, samples=1024,
                  element="float32", make=lambda torch, desc: {"start": 0}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FarthestPointSampleDescriptor:
        return FarthestPointSampleDescriptor(
            batch_size=draw.integer(0, 3), point_count=draw.sizes(0, 1, 5, 40, 1100), dims=draw.choice((1, 2, 3, 5)),
            samples=draw.integer(0, 9), index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip


_farthest = functional(FarthestPointSamplePlan, "farthest_point_sample")


@entry(FarthestPointSamplePlan)
def farthest_point_sample(
    points: Array, samples: int, *, start: Any = 0, lengths: Any = None, index_element: Any = "int64", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Indices [B, samples] of points [B, N, D], each the farthest from those before it (PointNet++; torch_cluster.fps).

    start: the first of each cloud, a number or an array [B] (int64 or int32); lengths: [B], of which clouds are the
    first points. Of equally far ones the lowest index is taken. See `FarthestPointSamplePlan`.
    """
    return _farthest(
        points, samples=samples, lengths=lengths, **by_row({"start": start}, {"start": "starts"}),
        index_element=index_element, out=out, stream=stream, preference=preference,
    )  # fmt: skip
