"""complex_pair: complex numbers from two real ones: polar(abs, angle), complex(real, imag)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan, Problem, Ulp, Variant,
    Vjp, choice, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import joined
from ...core.error_bound import ErrorBound
from ...calls.entries import entry
from ...schedules.map import map_geometry, map_kernels, map_params, widths
from .complex_kinds import POINTS

PARTS = (ElementKind.F32, ElementKind.F64)


class ComplexPairKind(enum.Enum):
    """z of a and b, by PyTorch's names."""

    POLAR = "polar"
    COMPLEX = "complex"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/elementwise/complex_pair.cu."""
        return self.value.capitalize()


@dataclass(frozen=True, kw_only=True)
class ComplexPairDescriptor(Descriptor):
    """a, b and z have shape `shape`; a and b hold `element`, z the complex numbers whose parts do."""

    kind: ComplexPairKind = choice(ComplexPairKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(PARTS)

    @property
    def result(self) -> ElementKind:
        """The element of z."""
        found = self.element.paired
        assert found is not None
        return found


@dataclass(slots=True, kw_only=True)
class ComplexPairArgs(Args):
    """Any strides. polar: a is |z| and b the angle; complex: a is the real, b the imaginary part."""

    a: Array = operand("*shape", values=Everywhere(lambda desc: POINTS))
    b: Array = operand("*shape", values=Everywhere(lambda desc: POINTS))
    z: Array = output("*shape", element="result")


def reference(desc: ComplexPairDescriptor, *, a: Any, b: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    with np.errstate(all="ignore"):
        return {"z": joined(a * np.cos(b), a * np.sin(b)) if desc.kind is ComplexPairKind.POLAR else joined(a, b)}


def pair_kernels(template: str, params: Params) -> Any:
    """The kernels of a map whose widest operand is complex."""
    return map_kernels(template, params, widths_of=lambda kind: widths(2 * kind.itemsize))


PARAMS = Params("ComplexPairParams", z="ptr", a="ptr", b="ptr", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.z, p.a, p.b))


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    return Ulp(3) if op is ComplexPairKind.POLAR else Exact()


def in_torch(torch: Any, desc: ComplexPairDescriptor, *, a: Any, b: Any) -> Any:
    """torch's function, and of polar, whose second derivative torch has wrong, the formula."""
    return torch.complex(a, b) if desc.kind is ComplexPairKind.COMPLEX else torch.complex(a * b.cos(), a * b.sin())


class ComplexPairPlan(Plan):
    """z = a (cos b + i sin b), or a + i b (torch.polar, torch.complex), of float32 or float64 numbers."""

    op = "elementwise.complex_pair"
    kinds = ComplexPairKind
    descriptor = ComplexPairDescriptor
    args = ComplexPairArgs
    reference = staticmethod(reference)
    vjp = Vjp("ComplexPairBackwardPlan", grads={"a": "da", "b": "db"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/complex_pair.cu",
            kernels=pair_kernels("complex_pair<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=PARTS,
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("polar 67M float32", shape=1 << 26, kind="polar", element="float32", peers=(EAGER,)),)

    @staticmethod
    def case(draw: Any) -> ComplexPairDescriptor:
        return ComplexPairDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)


_polar = functional(ComplexPairPlan, "polar", kind=ComplexPairKind.POLAR)
_complex = functional(ComplexPairPlan, "complex", kind=ComplexPairKind.COMPLEX)


@entry(ComplexPairPlan, kind=ComplexPairKind.POLAR)
def polar(abs: Array, angle: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """abs (cos(angle) + i sin(angle)) of float32 or float64 arrays of one shape; see `ComplexPairPlan`."""
    return _polar(abs, angle, out=out, stream=stream, preference=preference)


@entry(ComplexPairPlan, kind=ComplexPairKind.COMPLEX)
def complex(real: Array, imag: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """real + i imag of float32 or float64 arrays of one shape; see `ComplexPairPlan`."""
    return _complex(real, imag, out=out, stream=stream, preference=preference)
