"""frexp: x = mantissa 2^exponent with a mantissa in [1/2, 1), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan,
    Problem, Ulp, Variant, View, Vjp, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.checked import require_some
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...schedules.map import map_geometry, map_kernels, map_params

I32 = ElementKind.I32


@dataclass(frozen=True, kw_only=True)
class FrexpDescriptor(Descriptor):
    """Every operand has shape `shape`."""

    shape: tuple[int, ...] = extents()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class FrexpArgs(Args):
    """Any strides; mantissa may be x itself, and either output None."""

    x: Array = operand("*shape", values=Everywhere(lambda desc: (0.5, 1, 2)))
    mantissa: Array | None = output("*shape", optional=True, inplace=("x",))
    exponent: Array | None = output("*shape", element=I32, optional=True)


def reference(desc: FrexpDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy's frexp; what is not finite has exponent 0."""
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(x)
    return {"mantissa": mantissa, "exponent": np.where(np.isfinite(x), exponent, 0).astype(np.int32)}


def _widest(element: ElementKind) -> tuple[int, int]:
    """Elements of a chunk: 16 bytes of the wider of x and an exponent."""
    return 16 // max(element.itemsize, I32.itemsize), 1


PARAMS = Params("FrexpParams", mantissa="ptr", exponent="ptr", x="ptr", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    exponent = p.exponent or View(0, p.x.shape, p.x.strides, I32)  # an absent one does not make chunks wider
    return map_geometry(p, (p.mantissa, exponent, p.x))


def in_torch(torch: Any, desc: FrexpDescriptor, *, x: Any, wanted: set[str]) -> Any:
    """torch.frexp, whose exponents of infinities and NaN say nothing."""
    mantissa, exponent = torch.frexp(x)
    return {"mantissa": mantissa, "exponent": torch.where(x.isfinite(), exponent, 0).to(torch.int32)}


class FrexpPlan(Plan):
    """x = mantissa 2^exponent with 1/2 <= |mantissa| < 1, of x's sign, and an int32 exponent (torch.frexp).

    Exact, also of subnormal numbers. 0, infinities and NaN are their own mantissa, with exponent 0.
    """

    op = "elementwise.frexp"
    descriptor = FrexpDescriptor
    args = FrexpArgs
    reference = staticmethod(reference)
    vjp = Vjp("FrexpBackwardPlan", saves={"exponent": "exponent"}, grads={"x": "dx"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/frexp.cu",
            kernels=map_kernels("frexp<{T}, {LAYOUT}>", PARAMS, widths_of=_widest),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("67M f32", shape=1 << 26, element="float32", also=("mantissa", "exponent"), peers=(EAGER,)),
    )

    @staticmethod
    def case(draw: Any) -> FrexpDescriptor:
        return FrexpDescriptor(shape=draw.shape(0, 4, 0, 17), element=draw.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "mantissa", "exponent")


@dataclass(slots=True, kw_only=True)
class FrexpBackwardArgs(Args):
    """Any strides; dx may be dmantissa itself. exponent is that of the forward call, and may have any value."""

    dmantissa: Array = operand("*shape", values=Everywhere())
    exponent: Array = operand("*shape", element=I32, values=Everywhere())
    dx: Array = output("*shape", inplace=("dmantissa",))


def backward_reference(desc: FrexpDescriptor, *, dmantissa: Any, exponent: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dmantissa comes in."""
    with np.errstate(all="ignore"):
        return {"dx": np.ldexp(dmantissa, -np.clip(exponent, -40000, 40000).astype(np.int32))}


BACKWARD_PARAMS = Params("FrexpBackwardParams", dx="ptr", dmantissa="ptr", exponent="ptr", **map_params(3))


def _backward_geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.dx, p.dmantissa, p.exponent))


def _bound(kind: ElementKind, _: Any) -> ErrorBound:
    """Rounded where dx is subnormal; bfloat16 by way of float, whose subnormal numbers are its own."""
    return Ulp(0.51 if kind in HALVES else 0.501)


def backward_in_torch(torch: Any, desc: FrexpDescriptor, *, dmantissa: Any, exponent: Any) -> Any:
    """torch's own formula, the power as two factors, of which none overflows alone."""
    first = -exponent.to(torch.int64).clamp(-4000, 4000) // 4
    rest = -exponent.to(torch.int64).clamp(-4000, 4000) - 3 * first
    y = dmantissa.double()
    for part in (first, first, first, rest):
        y = torch.ldexp(y, part)
    return y.to(dmantissa.dtype)


class FrexpBackwardPlan(Plan):
    """dx = dmantissa 2^-exponent; the exponent is a step function and has none."""

    op = "elementwise.frexp_backward"
    direction = "backward"
    descriptor = FrexpDescriptor
    args = FrexpBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "map", _backward_geometry, source="elementwise/frexp_backward.cu",
            kernels=map_kernels("frexp_backward<{T}, {LAYOUT}>", BACKWARD_PARAMS, widths_of=_widest),
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (Benchmark("67M f32", shape=1 << 26, element="float32", peers=()),)

    @staticmethod
    def case(draw: Any) -> FrexpDescriptor:
        return FrexpDescriptor(shape=draw.shape(0, 4, 0, 17), element=draw.element)


frexp = functional(FrexpPlan, returns=("mantissa", "exponent"))
frexp_backward = functional(FrexpBackwardPlan)
