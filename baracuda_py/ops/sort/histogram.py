"""histogram and bin_index: how many elements are in each of some bins, and in which bin each is (torch.histogram)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan,
    Problem, Scalar, Variant, element, extent, extents, flag, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import Benchmark
from ...core.tensor import Shape
from ...core.variant import Step
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.map import THREADS, chunked, lay_out, map_params
from .order import EVERY
from .searchsorted import one_each

I64 = ElementKind.I64
_EDGES = (ElementKind.F64, ElementKind.F32)
SHARED = 8192  # bins that a block counts in shared memory
_EACH = 16  # elements of a thread, at least, where there are many
_BLOCKS = 8  # a multiprocessor


@dataclass(frozen=True, kw_only=True)
class BinsDescriptor(Descriptor):
    """x has shape `shape` and is put into `bins` bins. closed: the last bin has its upper edge, too."""

    shape: Shape = extents()
    bins: int = extent(minimum=1)
    closed: bool = flag(True)
    element: ElementKind = element(EVERY)

    @property
    def edge_count(self) -> int:
        """Edges of the bins."""
        return self.bins + 1


@finite_only  # they ascend
def _edges(rng: Any, desc: BinsDescriptor, shape: Shape) -> Any:
    return np.sort(np.round(rng.standard_normal(shape) * 4) / 2)


def _near(rng: Any, desc: BinsDescriptor, shape: Shape) -> Any:
    """Numbers on and between edges; some beyond all."""
    if not desc.element.is_float:
        low = 0 if desc.element.limits.min == 0 else -4
        return rng.integers(low, 2 if desc.element is ElementKind.BOOL else 9, shape)
    return np.where(rng.random(shape) < 0.5, np.round(rng.standard_normal(shape) * 8) / 4, rng.standard_normal(shape))


@dataclass(slots=True, kw_only=True)
class HistogramArgs(Args):
    """Any strides. edges: ascending, bins + 1 of them; without them bins are equal parts of [low, high].

    widen: where low and high are equal they are moved apart by so much each. y: counts; bin_edges: the edges, as used.
    """

    x: Array = operand("*shape", values=_near)
    edges: Array | None = operand("edge_count", element=_EDGES, optional=True, values=_edges)
    low: Scalar = scalar(0.0)
    high: Scalar = scalar(1.0)
    widen: Scalar = scalar(0.5)
    y: Array | None = output("bins", element=I64, optional=True)
    bin_edges: Array | None = output("edge_count", element=ElementKind.F64, optional=True)


def edges_of(desc: BinsDescriptor, edges: Any, low: Any, high: Any, widen: Any) -> Any:
    """The edges in float64."""
    if edges is not None:
        return edges.astype(np.float64)
    low, high = float(low), float(high)
    if low == high:
        low, high = low - float(widen), high + float(widen)
    with np.errstate(all="ignore"):
        edges = np.arange(desc.bins + 1) * ((high - low) / desc.bins) + low
    edges[-1] = high
    return edges


def bins_of(desc: BinsDescriptor, x: Any, edges: Any) -> Any:
    """The bin of every element, -1 for none."""
    values = x.astype(np.float64)
    index = np.minimum(np.searchsorted(edges[:-1], values, "right") - 1, desc.bins - 1)
    with np.errstate(all="ignore"):
        inside = (values >= edges[0]) & ((values <= edges[-1]) if desc.closed else (values < edges[-1]))
        inside &= edges[-1] - edges[0] < np.inf
        last = values == edges[-1]
    return np.where(inside, np.where(last, desc.bins - 1, index), -1)


def reference(
    desc: BinsDescriptor, *, x: Any, edges: Any, low: Any, high: Any, widen: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy, in float64."""
    edges = edges_of(desc, edges, low, high, widen)
    index = bins_of(desc, x, edges)
    counts = np.bincount(index[index >= 0].reshape(-1), minlength=desc.bins).astype(np.int64)
    return {"y": counts, "bin_edges": edges}


_FIELDS = {
    "edges": "ptr", "low": "scalar", "high": "scalar", "bins": "i64", "edges_step": "i64", "closed": "i32",
    "edges_wide": "i32",
}  # fmt: skip
PARAMS = Params(
    "HistogramParams",
    y="ptr",
    x="ptr",
    bin_edges="ptr",
    widen="scalar",
    y_step="i64",
    bin_edges_step="i64",
    shared="i32",
    **_FIELDS,
    **map_params(1),
)


def _bins(p: Problem) -> dict[str, Any]:
    edges = p.edges
    return {
        "bins": p.desc.bins, "edges_step": 0 if edges is None else edges.strides[0], "closed": p.desc.closed,
        "edges_wide": edges is not None and edges.element is ElementKind.F64,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    found = lay_out((p.x,))
    if isinstance(found, str):
        return found
    bins, count = p.desc.bins, found.groups[0].count
    cleared = -(-(bins + 1) // THREADS)
    if cleared > MOST_BLOCKS:
        return "more than 2^31 blocks"
    shared = bins <= SHARED
    values = {
        **_bins(p), "y_step": 0 if p.y is None else p.y.strides[0], "shared": shared,
        "bin_edges_step": 0 if p.bin_edges is None else p.bin_edges.strides[0], **chunked(found, 1),
    }  # fmt: skip
    blocks = max(1, min(-(-count // (THREADS * _EACH)), _BLOCKS * p.device.sms))
    steps = [Step("clear", (cleared, 1, 1), values, {}, THREADS)]
    if count and p.y is not None:
        steps.append(Step("count", (blocks, 1, 1), values, {}, THREADS, 4 * bins if shared else 0))
    return Geometry(tuple(steps), layout=found.layout(found.inner))


def in_torch(
    torch: Any, desc: BinsDescriptor, *, x: Any, edges: Any, low: Any, high: Any, widen: Any, wanted: Any
) -> Any:
    """torch's bucketize in float64, and a bincount."""
    edges = _torch_edges(torch, desc, edges, low, high, widen)
    index = _torch_bins(torch, desc, x, edges)
    return {"y": torch.bincount(index[index >= 0].reshape(-1), minlength=desc.bins), "bin_edges": edges}


def _torch_edges(torch: Any, desc: BinsDescriptor, edges: Any, low: Any, high: Any, widen: Any) -> Any:
    if edges is not None:
        return edges.double()
    low, high = float(low), float(high)
    low, high = (low - float(widen), high + float(widen)) if low == high else (low, high)
    edges = torch.arange(desc.bins + 1, dtype=torch.float64) * ((high - low) / desc.bins) + low
    edges[-1] = high
    return edges


def _torch_bins(torch: Any, desc: BinsDescriptor, x: Any, edges: Any) -> Any:
    values = x.double()
    index = torch.bucketize(values, edges[:-1], right=True).clamp(max=desc.bins) - 1
    index = torch.where(values == edges[-1], desc.bins - 1, index)
    inside = (values >= edges[0]) & ((values <= edges[-1]) if desc.closed else (values < edges[-1]))
    return torch.where(inside, index, -1)


def _infer(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """As many bins as lie between the edges."""
    edges = shapes.get("edges")
    if edges is not None and len(edges) == 1:
        facts.setdefault("bins", edges[0] - 1)


def _bins_case(draw: Any) -> dict[str, Any]:
    shape = draw.shape(0, 3, 0, 9) if draw.flag() else (draw.sizes(700, 5000),)
    return {"shape": shape, "bins": draw.sizes(5, 1, 40, 300), "closed": draw.flag()}


class HistogramPlan(Plan):
    """y[b] = how many elements of x are in bin b (numpy.histogram, torch.histogram, torch.histc).

    Bin b is [edge b, edge b + 1), the last one with its upper edge, too, if `closed`. Edges are given, ascending, or
    are low + b (high - low) / bins in float64, and high. Elements are compared in float64, which holds integers up to
    2^53; a NaN is in no bin, nor is anything where an edge is NaN or infinite.
    """

    op = "sort.histogram"
    descriptor = BinsDescriptor
    args = HistogramArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "an element beyond the edges, or NaN, is not counted"
    variants = (
        Variant(
            "shared", _geometry, source="sort/histogram.cu", elements=EVERY,
            kernels=(
                Kernel("clear", "histogram_clear", PARAMS, threads=THREADS),
                Kernel("count", f"histogram<{{T}}, {THREADS}>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Exact(), native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("64 Mi f32 into 100", shape=(1 << 26,), bins=100, element="float32", also=("y",)),)

    @staticmethod
    def case(draw: Any) -> BinsDescriptor:
        found = _bins_case(draw)
        return BinsDescriptor(**found | {"bins": draw.sizes(found["bins"], SHARED + 1)}, element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        _infer(shapes, facts)


@dataclass(frozen=True, kw_only=True)
class BinIndexDescriptor(BinsDescriptor):
    """x and y have shape `shape`. none: what y is for an element in no bin, below 0."""

    none: int = integer(-1, maximum=-1)


@dataclass(slots=True, kw_only=True)
class BinIndexArgs(Args):
    """Any strides. edges, low and high as `HistogramArgs` has them.

    outer: bins along other axes so far, of which these are the next: y becomes outer * bins + bin, `none` where one is
    below 0.
    """

    x: Array = operand("*shape", values=_near)
    edges: Array | None = operand("edge_count", element=_EDGES, optional=True, values=_edges)
    outer: Array | None = operand("*shape", element=I64, optional=True, values=(-1, 5))
    low: Scalar = scalar(0.0)
    high: Scalar = scalar(1.0)
    widen: Scalar = scalar(0.5)
    y: Array = output("*shape", element=I64, inplace=("outer",))


def index_reference(
    desc: BinIndexDescriptor, *, x: Any, edges: Any, outer: Any, low: Any, high: Any, widen: Any
) -> Mapping[str, Any]:
    """NumPy, in float64."""
    index = bins_of(desc, x, edges_of(desc, edges, low, high, widen))
    outer = 0 if outer is None else outer
    return {"y": np.where((outer < 0) | (index < 0), desc.none, outer * desc.bins + index).astype(np.int64)}


INDEX_PARAMS = Params(
    "BinIndexParams", y="ptr", x="ptr", outer="ptr", widen="scalar", none="i64", **_FIELDS, **map_params(3)
)


def _index_geometry(p: Problem) -> Geometry | str:
    return one_each("index", (p.y, p.x, p.outer), {**_bins(p), "none": p.desc.none})


def index_in_torch(
    torch: Any, desc: BinIndexDescriptor, *, x: Any, edges: Any, outer: Any, low: Any, high: Any, widen: Any
) -> Any:
    """torch's bucketize in float64."""
    index = _torch_bins(torch, desc, x, _torch_edges(torch, desc, edges, low, high, widen))
    outer = torch.zeros_like(index) if outer is None else outer
    return torch.where((outer < 0) | (index < 0), desc.none, outer * desc.bins + index)


class BinIndexPlan(Plan):
    """y[i] = the bin of x[i] as `HistogramPlan` has them, `none` of no bin; with `outer` the bin of several axes.

    Sums of weights by bin are `gather_backward` of the weights at this index, in the order of the elements.
    """

    op = "sort.bin_index"
    descriptor = BinIndexDescriptor
    args = BinIndexArgs
    raw = True
    reference = staticmethod(index_reference)
    value_policy = "an element beyond the edges, or NaN, has the bin `none`"
    variants = (
        Variant(
            "map", _index_geometry, source="sort/histogram.cu", elements=EVERY,
            kernels=(Kernel("index", "bin_index<{T}>", INDEX_PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(index_in_torch)
    benchmarks = (Benchmark("64 Mi f32 into 100", shape=(1 << 26,), bins=100, element="float32"),)

    @staticmethod
    def case(draw: Any) -> BinIndexDescriptor:
        return BinIndexDescriptor(**_bins_case(draw), none=-draw.integer(1, 2), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        _infer(shapes, facts)


histogram_counts = functional(HistogramPlan, "histogram_counts", returns=("y",))
bin_index = functional(BinIndexPlan)
