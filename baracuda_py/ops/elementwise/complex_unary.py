"""complex_unary: y = f(z), f one of `ComplexUnaryKind`, which the real functions of the same names call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Variant, Vjp, choice,
    element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...calls.call import Overload
from ...calls.entries import entry
from ...core.views import transposed
from ...schedules.map import map_geometry, map_kernels, map_params
from .array_views import iscomplexobj
from .complex_kinds import POINTS, ComplexUnaryKind


@dataclass(frozen=True, kw_only=True)
class ComplexUnaryDescriptor(Descriptor):
    """x and y have shape `shape`; x holds `element`."""

    kind: ComplexUnaryKind = choice(ComplexUnaryKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(COMPLEX)

    @property
    def result(self) -> ElementKind:
        """The element of y: that of x, of its parts, or bool."""
        return self.kind.row.result(self.element)


@dataclass(slots=True, kw_only=True)
class ComplexUnaryArgs(Args):
    """Any strides; y may be x itself where it is complex, too."""

    x: Array = operand("*shape", values=Everywhere(lambda desc: POINTS))
    y: Array = output("*shape", element="result", inplace=("x",))


def reference(desc: ComplexUnaryDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        return {"y": np.asarray(desc.kind.row.formula(x))}


PARAMS = Params("ComplexUnaryParams", y="ptr", x="ptr", **map_params(2))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x))


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    found: ErrorBound = op.row.error_of(kind)
    return found


def in_torch(torch: Any, desc: ComplexUnaryDescriptor, *, x: Any) -> Any:
    """torch's function of the kind."""
    return desc.kind.row.in_torch(torch, x)


class ComplexUnaryPlan(Plan):
    """y = f(z) for the kinds of `ComplexUnaryKind` (torch.exp, torch.angle, … of complex tensors).

    abs, angle, real and imag are real, isnan, isinf and isfinite bool. Branch cuts and special values are those of C99
    Annex G, as in NumPy: a signed zero tells the side of a cut, a complex number is infinite where either part is. sgn
    is z / |z|, 0 at 0. wofz is Faddeeva's exp(-z²) erfc(-iz) (scipy.special.wofz): on and above the real axis its real
    part keeps its digits however small it is; NaN beyond 1e154 on the diagonals below. reciprocal is 1 / z;
    of zero, its parts over +0. Errors are relative to |f(z)|.
    """

    op = "elementwise.complex_unary"
    kinds = ComplexUnaryKind
    descriptor = ComplexUnaryDescriptor
    args = ComplexUnaryArgs
    reference = staticmethod(reference)
    vjp = Vjp("ComplexUnaryBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_unary.cu",
            kernels=map_kernels("complex_unary<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=COMPLEX,
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("exp 67M complex64", shape=1 << 26, kind="exp", element="complex64", peers=(EAGER,)),
        Benchmark("abs 67M complex64", shape=1 << 26, kind="abs", element="complex64", peers=(EAGER,)),
    )

    @staticmethod
    def case(draw: Any) -> ComplexUnaryDescriptor:
        return ComplexUnaryDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)


def of_complex(names: tuple[str, ...]) -> tuple[Overload, ...]:
    """What a real function of these names has as `overloads`."""
    return tuple((ComplexUnaryPlan, {"kind": kind}) for kind in ComplexUnaryKind if kind.value in names)


def _function(kind: ComplexUnaryKind) -> Any:
    return functional(
        ComplexUnaryPlan, kind.value, f"{kind.value} of complex numbers; see `ComplexUnaryPlan`.", kind=kind
    )


conj = conjugate = conj_physical = _function(ComplexUnaryKind.CONJ)
angle = _function(ComplexUnaryKind.ANGLE)
real = _function(ComplexUnaryKind.REAL)
imag = _function(ComplexUnaryKind.IMAG)
wofz = _function(ComplexUnaryKind.WOFZ)


@entry(ComplexUnaryPlan, kind=ComplexUnaryKind.CONJ)
def adjoint(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The conjugate of x with its last two axes exchanged (torch.adjoint), in one launch; of real numbers a view."""
    if iscomplexobj(x):
        return conj(transposed(x, "x"), out=out, stream=stream, preference=preference)
    if out is not None:
        raise InvalidProblemError("the adjoint of real numbers is a view, which out= cannot be")
    return transposed(x, "x")
