"""triangle: the part of matrices on and above, or below, a diagonal (torch.triu, torch.tril), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element,
    extents, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...schedules.triangle import KERNELS, triangle_geometry
from ..indexing.indexed import MOVED


@dataclass(frozen=True, kw_only=True)
class TriangleDescriptor(Descriptor):
    """x and y have shape `shape`, of which the last two axes are rows and columns.

    upper: kept is what lies on or above diagonal number `diagonal`, else on or below it; the main one is 0, those above
    it are 1, 2, ….
    """

    shape: tuple[int, ...] = extents()
    upper: bool = flag()
    diagonal: int = integer(0)
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """A matrix at least."""
        if len(self.shape) < 2:
            raise InvalidProblemError(f"shape must have two axes at least, got {self.shape}")


@dataclass(slots=True, kw_only=True)
class TriangleArgs(Args):
    """Any strides; y may be x itself."""

    x: Array = operand("*shape")
    y: Array = output("*shape", inplace=("x",))


def _kept(desc: TriangleDescriptor, x: Any) -> Any:
    number = np.arange(desc.shape[-1]) - np.arange(desc.shape[-2])[:, None]
    kept = number >= desc.diagonal if desc.upper else number <= desc.diagonal
    return np.where(kept, x, np.zeros((), x.dtype))


def reference(desc: TriangleDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    return {"y": _kept(desc, x)}


def _geometry(p: Problem) -> Geometry | str:
    return triangle_geometry(p.y, p.x, {"y": "y", "x": "x"}, p.desc.upper, p.desc.diagonal)


def in_torch(torch: Any, desc: TriangleDescriptor, *, x: Any) -> Any:
    """torch's triu or tril, whose diagonals have 64 bits only in sums that wrap."""
    if abs(desc.diagonal) > 2**31:
        return NotImplemented
    return (torch.triu if desc.upper else torch.tril)(x, desc.diagonal)


class TrianglePlan(Plan):
    """y = x on and above (`upper`), or on and below, a diagonal of its last two axes, else 0 (torch.triu, tril)."""

    op = "layout.triangle"
    descriptor = TriangleDescriptor
    args = TriangleArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("TriangleBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "map", _geometry, "layout/triangle.cu", KERNELS, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[64, 2048, 2048] bf16", shape=(64, 2048, 2048), upper=False, element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> TriangleDescriptor:
        return TriangleDescriptor(**drawn(draw), element=draw.element)


def drawn(draw: Any) -> dict[str, Any]:
    """A few matrices, and a diagonal in them or outside."""
    shape = (*draw.shape(0, 2, 0, 3), draw.integer(0, 9), draw.sizes(5, 16, 32, 1, 0))
    return {"shape": shape, "upper": draw.flag(), "diagonal": draw.choice((0, 1, -2, 7, -40, 2**62, -(2**62)))}


@dataclass(frozen=True, kw_only=True)
class TriangleBackwardDescriptor(TriangleDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class TriangleBackwardArgs(Args):
    """Any strides; dx may be dy itself."""

    dy: Array = operand("*shape")
    dx: Array = output("*shape", inplace=("dy",))


def backward_reference(desc: TriangleBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    return {"dx": _kept(desc, dy)}


def _backward_geometry(p: Problem) -> Geometry | str:
    return triangle_geometry(p.dx, p.dy, {"y": "dx", "x": "dy"}, p.desc.upper, p.desc.diagonal)


class TriangleBackwardPlan(Plan):
    """dx = dy where the forward kept x, 0 elsewhere."""

    op = "layout.triangle_backward"
    direction = "backward"
    descriptor = TriangleBackwardDescriptor
    args = TriangleBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "map", _backward_geometry, "layout/triangle.cu", KERNELS, elements=(*FLOATS, *COMPLEX),
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = TrianglePlan.benchmarks

    @staticmethod
    def case(draw: Any) -> TriangleBackwardDescriptor:
        return TriangleBackwardDescriptor(**drawn(draw), element=draw.element)


_triangle = functional(TrianglePlan, "triangle")
triangle_backward = functional(TriangleBackwardPlan)


@entry(TrianglePlan, upper=True)
def triu(x: Array, diagonal: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x on and above a diagonal of its last two axes, 0 elsewhere (torch.triu, numpy.triu); 1 is above the main one."""
    return _triangle(x, upper=True, diagonal=diagonal, out=out, stream=stream, preference=preference)


@entry(TrianglePlan, upper=False)
def tril(x: Array, diagonal: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x on and below a diagonal of its last two axes, 0 elsewhere (torch.tril, numpy.tril)."""
    return _triangle(x, upper=False, diagonal=diagonal, out=out, stream=stream, preference=preference)
