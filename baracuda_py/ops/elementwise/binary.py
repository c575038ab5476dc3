"""binary: y = f(a, b) with broadcasting, f one of `BinaryKind`, by PyTorch's names; and one function per kind."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan,
    Problem, Ulp, Variant, choice, element, extents, functional, operand, output,
)  # fmt: skip
from ...core.element import HALVES, SIGNED
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.map import map_geometry, map_kernels, map_params
from .unary_formulas import fmax, fmin, maximum, minimum
from ...core.benchmark import Benchmark, EAGER

INTEGERS = (*SIGNED, ElementKind.U8)


class BinaryKind(enum.Enum):
    """y = f(a, b)."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    POW = "pow"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    FMAX = "fmax"
    FMIN = "fmin"
    FLOOR_DIVIDE = "floor_divide"
    REMAINDER = "remainder"
    FMOD = "fmod"
    ATAN2 = "atan2"
    HYPOT = "hypot"
    COPYSIGN = "copysign"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/elementwise/binary.cu."""
        return "".join(part.capitalize() for part in self.value.split("_"))


K = BinaryKind
WITH_INTEGERS = (K.ADD, K.SUB, K.MUL, K.MAXIMUM, K.MINIMUM, K.FLOOR_DIVIDE, K.REMAINDER, K.FMOD)


def binary_elements(kind: Any) -> tuple[ElementKind, ...]:
    """Floats, and integers where the result is one."""
    return (*FLOATS, *INTEGERS) if kind in WITH_INTEGERS else FLOATS


@dataclass(frozen=True, kw_only=True)
class BinaryDescriptor(Descriptor):
    """y has shape `shape`; a and b have shapes that broadcast to it."""

    kind: BinaryKind = choice(BinaryKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element((*FLOATS, *INTEGERS))

    def validate(self) -> None:
        if self.element not in binary_elements(self.kind):
            why = "floor_divide is the integer division" if self.kind is K.DIV else "cast both to a float first"
            raise UnsupportedError(f"{self.kind.value} of {self.element} is not an integer in general; {why}")


def _points(_: Any) -> tuple[float, ...]:
    return (0, 0.5, 1, 2, 3, 10, 127, 128, 2.0**24, 2.0**53)


@dataclass(slots=True, kw_only=True)
class BinaryArgs(Args):
    """Any strides; y may be a or b itself where that has y's shape."""

    a: Array = operand("*shape", broadcast=True, values=Everywhere(_points))
    b: Array = operand("*shape", broadcast=True, values=Everywhere(_points))
    y: Array = output("*shape", inplace=("a", "b"))


_FORMULAS: Mapping[BinaryKind, Any] = {
    K.ADD: np.add, K.SUB: np.subtract, K.MUL: np.multiply, K.DIV: np.divide, K.POW: np.power, K.MAXIMUM: maximum,
    K.MINIMUM: minimum, K.FMAX: fmax, K.FMIN: fmin, K.FLOOR_DIVIDE: np.floor_divide,
    K.REMAINDER: np.remainder, K.FMOD: np.fmod, K.ATAN2: np.arctan2, K.HYPOT: np.hypot, K.COPYSIGN: np.copysign,
}  # fmt: skip


def reference(desc: BinaryDescriptor, *, a: Any, b: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    with np.errstate(all="ignore"):
        y = _FORMULAS[desc.kind](a, b)
    return {"y": np.broadcast_to(np.asarray(y, a.dtype), desc.shape)}


_EXACT = (K.MAXIMUM, K.MINIMUM, K.FMAX, K.FMIN, K.FMOD, K.COPYSIGN)
# The CUDA math library's documented maximum and half an ulp; floor_divide and remainder round twice at most.
_ULPS = {K.POW: (4.5, 2.5), K.ATAN2: (3.5, 2.5), K.HYPOT: (3.5, 2.5), K.FLOOR_DIVIDE: (2, 2), K.REMAINDER: (1, 1)}


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    if kind in INTEGERS or op in _EXACT:
        return Exact(signed_zero=kind not in INTEGERS)
    if op in _ULPS:
        return Ulp(0.51) if kind in HALVES else Ulp(_ULPS[op][kind is ElementKind.F64])
    # Rounded once; a subnormal bf16 product or quotient in float first. The truth for double has 64 bits itself.
    if kind is ElementKind.F64:
        return Ulp(0.501)
    return Ulp(0.51) if kind is ElementKind.BF16 and op in (K.MUL, K.DIV) else Exact()


PARAMS = Params("BinaryParams", y="ptr", a="ptr", b="ptr", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.a.broadcast_to(p.y.shape), p.b.broadcast_to(p.y.shape)))


def in_torch(torch: Any, desc: BinaryDescriptor, *, a: Any, b: Any) -> Any:
    """torch's function of the kind; integers in 64 bits, where nothing overflows, and their quotients by 0 are 0."""
    function = getattr(torch, desc.kind.value)
    if desc.element not in INTEGERS:
        return function(a, b)
    x, y = a.to(torch.int64), b.to(torch.int64)
    if desc.kind not in (K.FLOOR_DIVIDE, K.REMAINDER, K.FMOD):
        return function(x, y).to(a.dtype)
    return torch.where(y == 0, 0, function(x, torch.where(y == 0, 1, y))).to(a.dtype)


class BinaryPlan(Plan):
    """y = f(a, b) for the kinds of `BinaryKind` (torch.add, torch.maximum, …), a and b broadcast.

    maximum and minimum propagate NaN, fmax and fmin drop it; for all four +0 is above -0 (IEEE 754-2019). floor_divide
    and remainder round the quotient down (remainder has b's sign, as in Python), fmod rounds it to zero. Integers wrap;
    with b = 0 their floor_divide, remainder and fmod are 0, as in NumPy.
    """

    op = "elementwise.binary"
    kinds = BinaryKind
    descriptor = BinaryDescriptor
    args = BinaryArgs
    reference = staticmethod(reference)
    value_policy = "an integer divided by 0 gives 0"
    variants = (
        Variant(
            "map", _geometry, source="elementwise/binary.cu",
            kernels=map_kernels("binary<baracuda::{KIND}, {T}, {LAYOUT}>", PARAMS), elements=binary_elements,
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("add 134M bf16", shape=1 << 27, kind="add", element="bfloat16", peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BinaryDescriptor:
        return BinaryDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        try:
            facts.setdefault("shape", np.broadcast_shapes(shapes["a"], shapes["b"]))
        except ValueError:
            a, b = tuple(shapes["a"]), tuple(shapes["b"])
            raise InvalidProblemError(f"a {a} and b {b} do not broadcast together") from None


def _function(kind: BinaryKind) -> Any:
    return functional(BinaryPlan, kind.value, f"y = {kind.value}(a, b) with broadcasting; see `BinaryPlan`.", kind=kind)


add = _function(BinaryKind.ADD)
sub = _function(BinaryKind.SUB)
mul = _function(BinaryKind.MUL)
div = _function(BinaryKind.DIV)
pow = _function(BinaryKind.POW)
maximum = _function(BinaryKind.MAXIMUM)
minimum = _function(BinaryKind.MINIMUM)
fmax = _function(BinaryKind.FMAX)
fmin = _function(BinaryKind.FMIN)
floor_divide = _function(BinaryKind.FLOOR_DIVIDE)
remainder = _function(BinaryKind.REMAINDER)
fmod = _function(BinaryKind.FMOD)
atan2 = _function(BinaryKind.ATAN2)
hypot = _function(BinaryKind.HYPOT)
copysign = _function(BinaryKind.COPYSIGN)
