"""trace: the sum of a diagonal of two axes (torch.trace, numpy.trace), and its gradient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Variant, Vjp, axis, element,
    extents, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.error_bound import ErrorBound, Exact
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, View
from ...core.variant import Kernel, Step
from ...schedules.map import THREADS, chunked, lay_out, map_params, takes, widths
from ...schedules.reduce import over, reduce_kernels, reduce_launches, reduce_params
from .reduce_kinds import EVERY, sum_bound, total


@dataclass(frozen=True, kw_only=True)
class TraceDescriptor(Descriptor):
    """x has shape `shape`; a diagonal of axis1 and axis2 begins `offset` columns to the right (below 0: rows down)."""

    shape: Shape = extents()
    offset: int = integer(0, minimum=-(2**53), maximum=2**53)
    axis1: int = axis(0)
    axis2: int = axis(1)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        if self.axis1 == self.axis2:
            raise InvalidProblemError(f"axis1 and axis2 must be two axes, got {self.axis1} twice")

    @property
    def result_shape(self) -> Shape:
        """The shape of y: the other axes."""
        return tuple(n for a, n in enumerate(self.shape) if a not in (self.axis1, self.axis2))

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return total(self.element)

    @property
    def start(self) -> tuple[int, int]:
        """Row and column of the diagonal's first element."""
        return max(-self.offset, 0), max(self.offset, 0)

    @property
    def length(self) -> int:
        """Elements on the diagonal."""
        row, column = self.start
        return max(0, min(self.shape[self.axis1] - row, self.shape[self.axis2] - column))


@dataclass(slots=True, kw_only=True)
class TraceArgs(Args):
    """Any strides: the diagonal is read where it is. y has x's element; int64 (uint64 of uint64) of integers."""

    x: Array = operand("*shape")
    y: Array = output("*result_shape", element="result")


def reference(desc: TraceDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    dtype = x.dtype if x.dtype.kind == "f" else desc.result.dtype
    with np.errstate(all="ignore"):
        return {"y": np.asarray(np.trace(x, desc.offset, desc.axis1, desc.axis2, dtype=dtype))}


PARAMS = reduce_params("TraceParams")
_WIDTH = 2  # elements of a chunk: on a diagonal they are far apart, and few


def _geometry(p: Problem) -> Geometry | str:
    desc, x = p.desc, p.x
    first = sum(n * x.strides[a] for n, a in zip(desc.start, (desc.axis1, desc.axis2), strict=True))
    others = [a for a in range(len(x.shape)) if a not in (desc.axis1, desc.axis2)]
    start = first * x.element.itemsize if desc.length else 0
    diagonal = View(
        x.ptr + start, (*(x.shape[a] for a in others), desc.length),
        (*(x.strides[a] for a in others), x.strides[desc.axis1] + x.strides[desc.axis2]), x.element,
    )  # fmt: skip
    found = reduce_launches(
        p.device, (diagonal,), (p.y,), (len(others),), ordered=desc.element.is_float,
        values={"x": ("x", start)}, width=_WIDTH,
    )  # fmt: skip
    if isinstance(found, str):
        return found
    return Geometry(found.steps, found.used, "inner_contiguous" if found.coalesced else "strided")


def _bound(element: ElementKind, _: Any) -> ErrorBound:
    return sum_bound if element.is_float else Exact()


def in_torch(torch: Any, desc: TraceDescriptor, *, x: Any) -> Any:
    """torch.trace of a matrix; the sum of torch.diagonal otherwise."""
    if len(desc.shape) == 2 and desc.offset == 0 and desc.axis1 < desc.axis2:
        return torch.trace(x) if x.dtype is not torch.bool else torch.diagonal(x).sum()
    return torch.diagonal(x, desc.offset, desc.axis1, desc.axis2).sum(-1)


class TracePlan(Plan):
    """y = the sum of the elements x[…, i, …, i + offset, …] of axis1 and axis2 (numpy.trace; torch.trace of a matrix).

    Integers are totalled in int64 (uint64 of uint64) and wrap. A diagonal without elements sums to 0. Floats of 16 bits
    are summed in float32, in an order that the diagonal's length alone fixes.
    """

    op = "reduce.trace"
    descriptor = TraceDescriptor
    args = TraceArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/trace.cu", elements=EVERY,
            kernels=reduce_kernels("kinds::Sum<{T}>", PARAMS, source=f"Elements<{{T}}, {_WIDTH}>",
                                   width=lambda element: _WIDTH),
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("TraceBackwardPlan", grads={"x": "dx"})
    benchmarks = (Benchmark("[64, 4096, 4096] f32", shape=(64, 4096, 4096), axis1=1, axis2=2, element="float32"),)

    @staticmethod
    def case(draw: Any) -> TraceDescriptor:
        return TraceDescriptor(**drawn(draw), element=draw.element)


def drawn(draw: Any) -> dict[str, Any]:
    """Matrices, among other axes too, and a diagonal of them, which may have no elements."""
    many = draw.sizes(40, rare=(540,))  # several segments
    shape = draw.choice((draw.shape(2, 4, 0, 7), (draw.sizes(9, 131, 1030), draw.sizes(40, 700)), (many, many, 9)))
    axis1 = draw.integer(0, len(shape) - 1)
    axis2 = (axis1 + draw.integer(1, len(shape) - 1)) % len(shape)
    return {"shape": shape, "offset": draw.choice((0, 1, -2, 9)), "axis1": axis1, "axis2": axis2}


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TraceBackwardDescriptor(Descriptor):
    """As `TraceDescriptor`; `shape` is that of dx."""

    shape: Shape = extents()
    offset: int = integer(0, minimum=-(2**53), maximum=2**53)
    axis1: int = axis(0)
    axis2: int = axis(1)
    element: ElementKind = element()

    def validate(self) -> None:
        TraceDescriptor.validate(self)  # type: ignore[arg-type]

    @property
    def result_shape(self) -> Shape:
        """The shape of dy."""
        return tuple(n for a, n in enumerate(self.shape) if a not in (self.axis1, self.axis2))


@dataclass(slots=True, kw_only=True)
class TraceBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("*result_shape")
    dx: Array = output("*shape")


def backward_reference(desc: TraceBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    pair = (desc.axis1, desc.axis2)
    eye = np.eye(desc.shape[desc.axis1], desc.shape[desc.axis2], desc.offset, dy.dtype) != 0
    eye = np.expand_dims(
        eye if desc.axis1 < desc.axis2 else eye.T, [a for a in range(len(desc.shape)) if a not in pair]
    )
    dx = np.where(eye, np.expand_dims(dy, pair), dy.dtype.type(0))
    return {"dx": np.broadcast_to(dx, desc.shape)}


_ZEROS = Params("TraceBackwardParams", dx="ptr", dy="ptr", diagonal="i64", **map_params(3))
_CHUNKS = 4  # a thread


def _backward_geometry(p: Problem) -> Geometry | str:
    desc, shape = p.desc, p.dx.shape
    column_less_row = [0] * len(shape)
    column_less_row[desc.axis1], column_less_row[desc.axis2] = -1, 1
    places = View(0, shape, tuple(column_less_row), ElementKind.BOOL)
    merged = lay_out((p.dx, over(p.dy, shape, (desc.axis1, desc.axis2)), places))
    if isinstance(merged, str):
        return merged
    read = dataclasses.replace(merged, views=(*merged.views[:2], None))  # places are no memory: any step will do
    vec = next(w for w in widths(p.dx.element.itemsize) if takes(read, w))
    constants = {**chunked(merged, vec), "diagonal": desc.offset}
    blocks = max(1, -(-(math.prod(shape) // vec) // (THREADS * _CHUNKS)))
    return Geometry((Step("zeros", (blocks, 1, 1), constants, {"VEC": vec}, THREADS),), layout=read.layout(read.inner))


class TraceBackwardPlan(Plan):
    """dx = dy on the diagonal of axis1 and axis2, 0 elsewhere."""

    op = "reduce.trace_backward"
    direction = "backward"
    descriptor = TraceBackwardDescriptor
    args = TraceBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "map", _backward_geometry, source="reduce/trace_backward.cu",
            kernels=(Kernel("zeros", f"trace_backward<{{T}}, Strided<{{VEC}}, {_CHUNKS}>>", _ZEROS,
                            lambda element: {"VEC": widths(element.itemsize)}, threads=THREADS),),
            guarantee=Guarantee(batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[64, 4096, 4096] f32", shape=(64, 4096, 4096), axis1=1, axis2=2, element="float32"),)

    @staticmethod
    def case(draw: Any) -> TraceBackwardDescriptor:
        return TraceBackwardDescriptor(**drawn(draw), element=draw.element)


trace = functional(TracePlan)
trace_backward = functional(TraceBackwardPlan)
