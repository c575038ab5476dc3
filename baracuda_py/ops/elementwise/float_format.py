"""float_format: functions of a float that depend on its format: the gap to its neighbour, and fewer bits."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan, Problem, Variant,
    choice, element, extents, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.map import map_geometry, map_kernels, map_params


class FloatFormatKind(enum.Enum):
    """y = f(x), by the names of NumPy and JAX."""

    SPACING = "spacing"
    REDUCE_PRECISION = "reduce_precision"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/elementwise/float_format.cu."""
        return "Spacing" if self is FloatFormatKind.SPACING else "ReducePrecision"


@dataclass(frozen=True, kw_only=True)
class FloatFormatDescriptor(Descriptor):
    """x and y have shape `shape`. exponent_bits, mantissa_bits: of reduce_precision; 0 of spacing."""

    kind: FloatFormatKind = choice(FloatFormatKind)
    shape: tuple[int, ...] = extents()
    exponent_bits: int = integer(0, minimum=0, maximum=62)
    mantissa_bits: int = integer(0, minimum=0, maximum=62)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind is FloatFormatKind.SPACING and (self.exponent_bits or self.mantissa_bits):
            raise InvalidProblemError("spacing has no exponent_bits and mantissa_bits; leave them 0")
        if self.kind is FloatFormatKind.REDUCE_PRECISION and not self.exponent_bits:
            raise InvalidProblemError("exponent_bits of reduce_precision must be at least 1, got 0")

    @property
    def fraction_bits(self) -> int:
        """The bits of the element's own fraction."""
        return int(self.element.limits.digits)

    @property
    def exponents(self) -> tuple[int, int]:
        """(least, largest) exponents of normal numbers of the format that x is rounded to, within the element's."""
        largest = 2 ** (self.element.bits - self.fraction_bits - 2) - 1
        asked = 2 ** (max(self.exponent_bits, 1) - 1) - 1
        return (1 - asked, asked) if asked < largest else (1 - largest, largest)

    @property
    def narrower(self) -> bool:
        """Whether the exponent has fewer bits than the element's, so that some numbers are out of its range."""
        return self.exponent_bits < self.element.bits - self.fraction_bits - 1


def _points(desc: FloatFormatDescriptor) -> tuple[float, ...]:
    """Ends of the format's range, and ties."""
    if desc.kind is FloatFormatKind.SPACING:
        return (1, 2)
    least, largest = (max(min(e, 1000), -1000) for e in desc.exponents)
    step = 2.0 ** -min(desc.mantissa_bits + 1, 52)
    return (2.0**least, 2.0 ** (least - 1), 2.0**largest * (2 - step), 1 + step, 1 + 3 * step)


@dataclass(slots=True, kw_only=True)
class FloatFormatArgs(Args):
    """Any strides; y may be x itself."""

    x: Array = operand("*shape", values=Everywhere(_points))
    y: Array = output("*shape", inplace=("x",))


def _exponent(desc: FloatFormatDescriptor, x: Any) -> Any:
    """That of |x| in the element: floor(log2 |x|), and of a subnormal number that of the least normal one."""
    own = np.frexp(np.where(np.isfinite(x) & (x != 0), x, 1))[1] - 1
    least = 2 - 2 ** (desc.element.bits - desc.fraction_bits - 2)
    return np.where(x == 0, least, np.maximum(own, least))


def _spacing(desc: FloatFormatDescriptor, x: Any) -> Any:
    gap = np.ldexp(x.dtype.type(1), _exponent(desc, x) - desc.fraction_bits)
    gap = np.where(np.abs(x) == desc.element.limits.max, np.inf, gap)
    return np.where(np.isfinite(x), np.where(x < 0, -gap, gap), np.nan)


def _reduced(desc: FloatFormatDescriptor, x: Any) -> Any:
    """x as a multiple of 2^(e - mantissa_bits), ties to even; then what is out of the range of exponents."""
    unit = _exponent(desc, x) - min(desc.mantissa_bits, desc.fraction_bits)
    y = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    least, largest = desc.exponents
    if desc.narrower:
        size = np.abs(y)
        y = np.where(size < np.ldexp(x.dtype.type(1), least), 0, y)
        y = np.where(size >= np.ldexp(x.dtype.type(2), largest), np.inf, y)
    return np.where(np.isfinite(x), np.copysign(y, x), x)


def reference(desc: FloatFormatDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; the results are numbers of the element."""
    with np.errstate(all="ignore"):
        found = _spacing(desc, x) if desc.kind is FloatFormatKind.SPACING else _reduced(desc, x)
    return {"y": np.asarray(found, x.dtype)}


PARAMS = Params(
    "FloatFormatParams", y="ptr", x="ptr", least="i32", largest="i32", mantissa_bits="i32", narrower="i32",
    **map_params(2),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    least, largest = desc.exponents
    kept = min(desc.mantissa_bits, desc.fraction_bits)
    values = {"least": least, "largest": largest, "mantissa_bits": kept, "narrower": desc.narrower}
    return map_geometry(p, (p.y, p.x), values)


def in_torch(torch: Any, desc: FloatFormatDescriptor, *, x: Any) -> Any:
    """The gap to the next number away from 0; torch has no reduce_precision, but the exponents that it takes."""
    if desc.kind is FloatFormatKind.REDUCE_PRECISION:
        return _reduced_in_torch(torch, desc, x)
    away = torch.where(x < 0, -torch.inf, torch.inf).to(x.dtype)
    return torch.nextafter(x, away) - x


def _reduced_in_torch(torch: Any, desc: FloatFormatDescriptor, x: Any) -> Any:
    """The fraction of frexp, in [1/2, 1), rounded to mantissa_bits + 1 places; of numbers that are not subnormal."""
    if bool(((x != 0) & (x.abs() < desc.element.limits.tiny)).any()):
        return NotImplemented
    fraction, exponent = torch.frexp(x)
    places = 2.0 ** min(desc.mantissa_bits + 1, 60)
    y = torch.ldexp(torch.round(fraction * places) / places, exponent)
    if desc.narrower:
        least, largest = desc.exponents
        y = torch.where(y.abs() >= 2.0 * 2.0**largest, torch.inf * y, torch.where(y.abs() < 2.0**least, 0 * y, y))
    return torch.where(x.isfinite(), y, x)


class FloatFormatPlan(Plan):
    """Functions of the format of x, exact.

    spacing: the distance from x to the next number of the element away from 0, with the sign of x (numpy.spacing);
    the least number of 0, ±∞ of the largest, NaN of infinities and NaN. reduce_precision: x rounded to nearest, ties
    to even, as a float of `exponent_bits` and `mantissa_bits` (jax.lax.reduce_precision): with fewer exponent bits than
    the element's an overflow is infinite, and what would be subnormal is 0; more bits than its own change nothing. NaN
    stays NaN. It is linear almost everywhere: its gradient is reduce_precision of dy, as in JAX.
    """

    op = "elementwise.float_format"
    kinds = FloatFormatKind
    descriptor = FloatFormatDescriptor
    args = FloatFormatArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/float_format.cu",
            kernels=map_kernels("float_format<float_formats::{KIND}<{T}>, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(Exact(signed_zero=True), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("reduce_precision 134M f32", shape=1 << 27, kind="reduce_precision", exponent_bits=5,
                  mantissa_bits=10, element="float32", peers=()),
        Benchmark("spacing 134M f32", shape=1 << 27, kind="spacing", element="float32", peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FloatFormatDescriptor:
        bits = {}
        if draw.kind is FloatFormatKind.REDUCE_PRECISION:
            exponent, mantissa = draw.choice(((5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (11, 52), (1, 0), (6, 30)))
            bits = {"exponent_bits": exponent, "mantissa_bits": mantissa}
        return FloatFormatDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element, **bits)


spacing = functional(
    FloatFormatPlan, "spacing", "The distance from x to the next number away from 0; see `FloatFormatPlan`.",
    kind=FloatFormatKind.SPACING, exponent_bits=0, mantissa_bits=0,
)  # fmt: skip
reduce_precision = functional(
    FloatFormatPlan, "reduce_precision", "x rounded as a float of fewer bits; see `FloatFormatPlan`.",
    kind=FloatFormatKind.REDUCE_PRECISION,
)  # fmt: skip
