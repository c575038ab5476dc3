"""complex_cast: y = x in a complex element, or a complex x as bool; `cast` calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem,
    Step, Variant, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX, INTS
from ...core.element import cast as cast_values
from ...core.errors import UnsupportedError
from ...schedules.map import THREADS, chunked, lay_out, map_params, strided

SOURCES = (*FLOATS, *INTS, ElementKind.BOOL, *COMPLEX)
TARGETS = (*COMPLEX, ElementKind.BOOL)
"""In the order that kernels/elementwise/complex_cast.cu counts them."""


@dataclass(frozen=True, kw_only=True)
class ComplexCastDescriptor(Descriptor):
    """x holds `element`, y holds `to_element`, one of them complex; both have shape `shape`."""

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(TARGETS)
    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        if not self.element.is_complex and not self.to_element.is_complex:
            raise UnsupportedError(f"neither {self.element} nor {self.to_element} is complex; that is CastPlan's")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element


def _points(desc: ComplexCastDescriptor) -> tuple[float, ...]:
    """The ends of the target's range, where rounding gives an infinity."""
    return (0, 1, float(desc.to_element.limits.max), 2.0**24 + 1)


@dataclass(slots=True, kw_only=True)
class ComplexCastArgs(Args):
    """Any strides. y may be x itself where both elements are the same."""

    x: Array = operand("*shape", values=Everywhere(_points))
    y: Array = output("*shape", element="to_element", inplace=("x",))


def reference(desc: ComplexCastDescriptor, *, x: Any) -> Mapping[str, Any]:
    """One rounding of each part of the stored values."""
    return {"y": np.array(cast_values(x, desc.to_element))}


PARAMS = Params("ComplexCastParams", y="ptr", x="ptr", to="i32", **map_params(2))


def _geometry(p: Problem) -> Geometry | str:
    found = lay_out((p.y, p.x))
    if isinstance(found, str):
        return found
    values = {"to": TARGETS.index(p.desc.to_element), **chunked(found, 1)}
    grid = max(1, -(-values["count"] // (THREADS * strided(1))))
    return Geometry((Step("strided", (grid, 1, 1), values, {}, THREADS),), layout=found.layout(found.inner))


def in_torch(torch: Any, desc: ComplexCastDescriptor, *, x: Any) -> Any:
    """`Tensor.to`."""
    return x.to(getattr(torch, str(desc.to_element)))


class ComplexCastPlan(Plan):
    """y = x.to(to_element), from a real or complex element to a complex one, and from a complex one to bool.

    Parts are rounded once, to nearest even; a real x is the real part. To bool: whether either part is not 0, so that
    NaN is True. A complex number has no real value: take `real`, `imag` or `abs`.
    """

    op = "elementwise.complex_cast"
    descriptor = ComplexCastDescriptor
    args = ComplexCastArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_cast.cu", elements=SOURCES,
            kernels=(Kernel("strided", "complex_cast<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("f32 to complex64 67M", shape=1 << 26, element="float32", to_element="complex64", peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ComplexCastDescriptor:
        goal = draw.choice(TARGETS if draw.element.is_complex else COMPLEX)
        return ComplexCastDescriptor(shape=draw.shape(0, 4, 0, 17), to_element=goal, element=draw.element)


_cast = functional(ComplexCastPlan, "cast")


def call_complex_cast(x: Any, held: ElementKind, goal: ElementKind, saturate: Any, **more: Any) -> Any:
    """x, which holds one element, in another, of which one is complex."""
    if not goal.is_complex and goal is not ElementKind.BOOL:
        raise UnsupportedError(f"cannot cast {held} to {goal}: take real(x), imag(x) or abs(x), and cast that")
    if held not in SOURCES:
        raise UnsupportedError(f"cannot cast {held} to {goal} at once: cast it to float32 first")
    if saturate:
        raise UnsupportedError(f"saturate is for real elements; the cast is from {held} to {goal}")
    return _cast(x, to_element=goal, element=held, **more)
