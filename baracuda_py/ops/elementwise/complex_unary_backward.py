"""complex_unary_backward: the gradient of `complex_unary`, by PyTorch's convention for complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Variant, choice,
    element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX
from ...core.error_bound import ErrorBound
from ...calls.call import Overload
from ...core.errors import InvalidProblemError
from ...schedules.map import map_geometry, map_kernels, map_params
from .complex_kinds import DIFFERENTIABLE, POINTS, ComplexUnaryKind


@dataclass(frozen=True, kw_only=True)
class ComplexUnaryBackwardDescriptor(Descriptor):
    """dy, x and dx have shape `shape`; x and dx hold `element`, dy what the function's result holds."""

    kind: ComplexUnaryKind = choice(ComplexUnaryKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(COMPLEX)

    def validate(self) -> None:
        if self.kind not in DIFFERENTIABLE:
            raise InvalidProblemError(f"{self.kind.value} is a truth value and has no gradient")

    @property
    def result(self) -> ElementKind:
        """The element of dy."""
        return self.kind.row.result(self.element)


@dataclass(slots=True, kw_only=True)
class ComplexUnaryBackwardArgs(Args):
    """x is the forward input, for every kind."""

    dy: Array = operand("*shape", element="result", values=Everywhere())
    x: Array = operand("*shape", values=Everywhere(lambda desc: POINTS))
    dx: Array = output("*shape", inplace=("dy", "x"))


def reference(desc: ComplexUnaryBackwardDescriptor, *, dy: Any, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        return {"dx": np.asarray(desc.kind.row.gradient(dy, x))}  # type: ignore[misc]


PARAMS = Params("ComplexUnaryBackwardParams", dx="ptr", dy="ptr", x="ptr", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.dx, p.dy, p.x))


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    found: ErrorBound = op.row.error_of(kind, slope=True)
    return found


class ComplexUnaryBackwardPlan(Plan):
    """dx = dy conj(f'(z)) for holomorphic f: the gradient for the real part plus i times that for the imaginary part.

    For abs, angle, sgn, real and imag it is what PyTorch has: dy z / |z|, i dy z / |z|², i s Im(dy conj(s)) / |z| with
    s = z / |z|, dy and i dy; the first three are 0 at 0. dy and x may have any exponent. Errors are relative to |dx|.
    """

    op = "elementwise.complex_unary_backward"
    direction = "backward"
    kinds = DIFFERENTIABLE
    descriptor = ComplexUnaryBackwardDescriptor
    args = ComplexUnaryBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_unary_backward.cu",
            kernels=map_kernels("complex_unary_backward<gradient::{KIND}, {T}, {LAYOUT}>", PARAMS),
            elements=COMPLEX,
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("exp 67M complex64", shape=1 << 26, kind="exp", element="complex64", peers=(EAGER,)),)

    @staticmethod
    def case(draw: Any) -> ComplexUnaryBackwardDescriptor:
        return ComplexUnaryBackwardDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)


def of_complex_backward(names: tuple[str, ...]) -> tuple[Overload, ...]:
    """What the gradient of a real function of these names has as `overloads`."""
    return tuple((ComplexUnaryBackwardPlan, {"kind": kind}) for kind in DIFFERENTIABLE if kind.value in names)


def _function(kind: ComplexUnaryKind) -> Any:
    name = f"{kind.value}_backward"
    doc = f"The gradient of {kind.value} of complex numbers; see `ComplexUnaryBackwardPlan`."
    return functional(ComplexUnaryBackwardPlan, name, doc, kind=kind)


conj_backward = _function(ComplexUnaryKind.CONJ)
sgn_backward = _function(ComplexUnaryKind.SGN)
angle_backward = _function(ComplexUnaryKind.ANGLE)
real_backward = _function(ComplexUnaryKind.REAL)
imag_backward = _function(ComplexUnaryKind.IMAG)
wofz_backward = _function(ComplexUnaryKind.WOFZ)
