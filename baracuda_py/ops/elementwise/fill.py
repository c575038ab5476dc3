"""fill: every element of an array becomes one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Params, Plan, Problem,
    Scalar, Variant, element, extents, inout, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import COMPLEX, INTS, joined
from ...core.errors import UnsupportedError
from ...calls.entries import entry
from ...core.numbers import range_of, taken
from ...core.params import exactly
from ...core.arrays import read
from ...schedules.map import map_geometry, map_kernels, map_params
from ...core.benchmark import BYTES, Benchmark, EAGER

ELEMENTS = (*FLOATS, *INTS, ElementKind.BOOL, *COMPLEX)


@dataclass(frozen=True, kw_only=True)
class FillDescriptor(Descriptor):
    """x has shape `shape`."""

    shape: tuple[int, ...] = extents()
    element: ElementKind = element(ELEMENTS)


@dataclass(slots=True, kw_only=True)
class FillArgs(Args):
    """x is only written, through any strides. imag: the imaginary part of complex elements, whose real one is value."""

    x: Array = inout("*shape")
    value: Scalar = scalar(meets="element")
    imag: Scalar = scalar(0.0)


def reference(desc: FillDescriptor, *, x: Any, value: Any, imag: Any) -> Mapping[str, Any]:
    """The value in the compute dtype, or the integer."""
    if desc.element.is_complex:
        return {"x": joined(*(np.full(desc.shape, float(part), x.real.dtype) for part in (value, imag)))}
    return {"x": np.full(desc.shape, taken(value, desc.element), x.dtype)}


PARAMS = Params("FillParams", x="ptr", value="scalar", value_whole="iscalar", imag="scalar", **map_params(1))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.x,), exactly(not p.desc.element.is_inexact, "value"))


def in_torch(torch: Any, desc: FillDescriptor, *, x: Any, value: Any, imag: Any) -> Any:
    """torch.full_like."""
    return torch.full_like(x, complex(value, imag) if desc.element.is_complex else value)


class FillPlan(Plan):
    """x = value (torch.Tensor.fill_), the value being a number or a 0-d device array.

    Integers and bool take a number that they have, and refuse any other; of a 0-d array what it is modulo 2ⁿ. Floats
    take it rounded once. A complex element takes `value` + i `imag`, two such numbers; others do not look at `imag`.
    """

    op = "elementwise.fill"
    descriptor = FillDescriptor
    args = FillArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/fill.cu", kernels=map_kernels("fill<{T}, {LAYOUT}>", PARAMS),
            elements=ELEMENTS, guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "268M bf16", shape=1 << 28, element="bfloat16", make=lambda torch, desc: {"value": 1.5}, work=BYTES,
            peers=(EAGER,),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FillDescriptor:
        return FillDescriptor(shape=draw.shape(0, 4, 0, 17), element=draw.element)

    @classmethod
    def complete(cls, desc: FillDescriptor, arrays: dict[str, Any]) -> None:
        """A number that the element has."""
        if not desc.element.is_inexact:
            low, high = range_of(desc.element, "element")
            arrays["value"] = (max(low, -3), high, low)[sum(desc.shape) % 3]

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(np.prod(desc.shape, dtype=np.int64)) * desc.element.itemsize  # type: ignore[no-any-return]


_fill = functional(FillPlan, "fill")


@entry(FillPlan)
def fill(x: Array, value: Scalar, *, stream: Any = None, preference: Any = None) -> Any:
    """x with every element set to `value`, in place, so that there is no out=; see `FillPlan`."""
    if isinstance(value, (complex, np.complexfloating)):
        if not read(x, "x").element.is_complex:
            raise UnsupportedError(f"value {value!r} is complex and x is {read(x, 'x').element}; give its real part")
        return _fill(x, value=float(value.real), imag=float(value.imag), stream=stream, preference=preference)
    return _fill(x, value=value, stream=stream, preference=preference)
