"""complex_binary: y = f(a, b) of complex numbers, f one of `ComplexBinaryKind`; `add`, `mul`, … call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Scalar, Variant,
    Vjp, choice, element, extents, flag, number, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX
from ...core.element import cast as cast_values
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...core.tensor import View, broadcast_shape
from ...schedules.map import map_geometry, map_kernels, map_params
from .binary import binary_case
from .complex_binary_kinds import ComplexBinaryKind
from .complex_kinds import POINTS


TOLERANCES = 1e-5, 1e-8, False


@dataclass(frozen=True, kw_only=True)
class ComplexBinaryDescriptor(Descriptor):
    """y has shape `shape`; a and b have shapes that broadcast to it.

    with_number: b is no array but a number of Args. reverse: y = f(b, a), so that the number stands before the array.
    rtol, atol, equal_nan: of isclose.
    """

    kind: ComplexBinaryKind = choice(ComplexBinaryKind)
    shape: tuple[int, ...] = extents()
    with_number: bool = flag(False)
    reverse: bool = flag(False)
    rtol: float = number(1e-5, minimum=0)
    atol: float = number(1e-8, minimum=0)
    equal_nan: bool = flag(False)
    element: ElementKind = element(COMPLEX)

    def validate(self) -> None:
        if not self.kind.row.coefficients and (self.rtol, self.atol, self.equal_nan) != TOLERANCES:
            raise InvalidProblemError(f"{self.kind.value} has no rtol, atol and equal_nan; leave them as they are")

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return self.kind.row.result(self.element)


def _points(desc: Any) -> tuple[float, ...] | None:
    return POINTS if desc.kind.row.everywhere else None


@dataclass(slots=True, kw_only=True)
class ComplexBinaryArgs(Args):
    """Any strides; y may be a or b itself where that has y's shape and element.

    Where b is a number, it is number + i imag, rounded to the element.
    """

    a: Array = operand("*shape", broadcast=True, values=Everywhere(_points))
    b: Array | None = operand("*shape", broadcast=True, instead="with_number", values=Everywhere(_points))
    y: Array = output("*shape", element="result", inplace=("a", "b"))
    number: Scalar = scalar(0.0)
    imag: Scalar = scalar(0.0)


def ordered(desc: Any, a: Any, b: Any, number: Any, imag: Any) -> tuple[Any, Any]:
    """The operands of f in its order, in a's dtype; a number as the kernels have it."""
    if desc.with_number:
        held = cast_values(np.asarray(complex(float(number), float(imag))), desc.element)
        b = np.broadcast_to(held.astype(a.dtype), a.shape)
    return (b, a) if desc.reverse else (a, b)


def reference(desc: ComplexBinaryDescriptor, *, a: Any, b: Any, number: Any, imag: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    left, right = ordered(desc, a, b, number, imag)
    with np.errstate(all="ignore"):
        y = desc.kind.row.formula(left, right, *(getattr(desc, name) for name in desc.kind.row.coefficients))
    return {"y": np.broadcast_to(np.asarray(y), desc.shape)}


PARAMS = Params(
    "ComplexBinaryParams", y="ptr", left="ptr", right="ptr", number="scalar", imag="scalar", rtol="f64", atol="f64",
    equal_nan="i32", **map_params(3),
)  # fmt: skip


def sides(desc: Any) -> dict[str, str]:
    """The operands that the kernels' left and right are."""
    other = "@null" if desc.with_number else "b"
    return {"left": other, "right": "a"} if desc.reverse else {"left": "a", "right": other}


def _geometry(p: Problem) -> Geometry | str:
    shown: list[View | None] = [p.y]
    for name in sides(p.desc).values():
        shown.append(None if name == "@null" else p.views[name].broadcast_to(p.y.shape))
    values = {"rtol": p.desc.rtol, "atol": p.desc.atol, "equal_nan": p.desc.equal_nan}
    return map_geometry(p, shown, {**sides(p.desc), **values})


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    found: ErrorBound = op.row.bound
    return found


def in_torch(torch: Any, desc: ComplexBinaryDescriptor, *, a: Any, b: Any, number: Any, imag: Any) -> Any:
    """torch's function of the kind."""
    if desc.with_number:
        b = torch.full_like(a, complex(number, imag))
    left, right = (b, a) if desc.reverse else (a, b)
    more = {name: getattr(desc, name) for name in desc.kind.row.coefficients}
    return torch.broadcast_to(getattr(torch, desc.kind.value)(left, right, **more), desc.shape)


class ComplexBinaryPlan(Plan):
    """y = f(a, b) for the kinds of `ComplexBinaryKind` (torch.add, torch.mul, … of complex tensors), a and b broadcast.

    A product or quotient of finite numbers is finite wherever the result is, also where its terms overflow. A quotient
    by zero is the parts of a over +0, that of a number by one infinite part 0, as in NumPy. pow is exp(b log(a)), 1
    where b is 0; 0 to a power with a positive real part is 0, to any other NaN. isclose compares |a - b| with
    atol + |rtol b| in float64. Errors are relative to |y|.
    """

    op = "elementwise.complex_binary"
    kinds = ComplexBinaryKind
    descriptor = ComplexBinaryDescriptor
    args = ComplexBinaryArgs
    reference = staticmethod(reference)
    vjp = Vjp("ComplexBinaryBackwardPlan", grads={"a": "da", "b": "db"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_binary.cu",
            kernels=map_kernels("complex_binary<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=COMPLEX,
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("mul 67M complex64", shape=1 << 26, kind="mul", element="complex64", peers=(EAGER,)),
        Benchmark("div 67M complex64", shape=1 << 26, kind="div", element="complex64", peers=(EAGER,)),
    )

    @staticmethod
    def case(draw: Any) -> ComplexBinaryDescriptor:
        more = {}
        if draw.kind.row.coefficients and draw.flag():
            # No drawn pair has just this distance, where rounding decides.
            more = {"rtol": draw.choice((0.47, 0.0)), "atol": draw.choice((0.23, 0.0)), "equal_nan": draw.flag()}
        return ComplexBinaryDescriptor(**binary_case(draw), **more)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("a", "b")))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_numbers(desc, arrays)


def complete_numbers(desc: Any, arrays: dict[str, Any]) -> None:
    """A number in b's place that is one of the values of a."""
    a = arrays["a"]
    if desc.with_number and a.size:
        value = a.reshape(-1)[a.size // 2]
        arrays["number"], arrays["imag"] = float(value.real), float(value.imag)


_made: dict[Any, Any] = {}


def call_with_number(kind: ComplexBinaryKind, array: Any, value: Any, reverse: bool, **more: Any) -> Any:
    """f(array, value), or f(value, array) if `reverse`."""
    made = _made.get((kind, reverse))
    if made is None:
        own = zip(("rtol", "atol", "equal_nan"), TOLERANCES, strict=True)
        fixed: dict[str, Any] = {} if kind.row.coefficients else dict(own)
        made = functional(ComplexBinaryPlan, kind.value, kind=kind, with_number=True, reverse=reverse, **fixed)
        made = _made.setdefault((kind, reverse), made)
    value = complex(value)
    return made(array, number=value.real, imag=value.imag, **more)
