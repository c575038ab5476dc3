"""fp8_cast and fp8_dequantize: numbers times a scale as fp8, with their largest size, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan, Problem, Scalar,
    Variant, extents, inout, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8
from ...core.element import cast as cast_values
from ...calls.entries import entry
from ...core.arrays import read
from ...schedules.map import map_geometry, map_kernels, map_params

E = ElementKind
WIDE = (E.F32, E.F16, E.BF16)
"""What is cast, and what comes back."""


def single(value: Any, dtype: Any) -> Any:
    """float32 numbers, as numbers of `dtype`."""
    return cast_values(np.asarray(value), E.F32).astype(dtype)


def _points(desc: Any) -> tuple[float, ...]:
    """Where a product with a scale of 1 saturates, and where it becomes 0."""
    limits = desc.to_element.limits
    return (0, float(limits.max), float(limits.max) * 1.0625, limits.tiny)


@dataclass(frozen=True, kw_only=True)
class Fp8CastDescriptor(Descriptor):
    """x and y have shape `shape`; y holds `to_element`, float8_e4m3fn or float8_e5m2."""

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field(WIDE)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element


@dataclass(slots=True, kw_only=True)
class Fp8CastArgs(Args):
    """Any strides; y travels as uint8, or in a dtype of fp8.

    amax, 0-d float32 and not negative, becomes the larger of itself and of all |x|: 0 before the first of several casts
    makes it theirs. scale: a number or a 0-d array.
    """

    x: Array = operand("*shape", values=Everywhere(_points))
    amax: Array | None = inout("", element=E.F32, optional=True, values=(0.0, 4.0))
    y: Array = output("*shape", element="to_element")
    scale: Scalar = scalar(1.0)


def scaled(desc: Any, x: Any, scale: Any) -> Any:
    """x · scale within the range of fp8."""
    largest = desc.to_element.limits.max
    with np.errstate(all="ignore"):
        return np.clip(single(x * single(float(scale), x.dtype), x.dtype), -largest, largest)


def raised(amax: Any, x: Any) -> dict[str, Any]:
    """amax where it is given: the larger of itself and of all |x|, NaN where there is one."""
    return {} if amax is None else {"amax": np.asarray(np.maximum(amax, np.max(np.abs(x), initial=0)), x.dtype)}


def reference(desc: Fp8CastDescriptor, *, x: Any, amax: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; the product is a float32 number."""
    return {"y": scaled(desc, x, scale), **raised(amax, x)}


CAST = Params("Fp8CastParams", y="ptr", x="ptr", amax="ptr", scale="scalar", code="i32", **map_params(2))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x), {"code": FP8.index(p.desc.to_element)})


def cast_in_torch(torch: Any, desc: Any, x: Any, amax: Any, scale: Any) -> dict[str, Any]:
    """The formula; y before it is rounded."""
    largest = desc.to_element.limits.max
    y = (x * float(np.float32(float(scale)))).float().to(x.dtype).clamp(-largest, largest)
    most = x.abs().amax() if x.numel() else x.new_zeros(())
    return {"y": y} if amax is None else {"y": y, "amax": torch.maximum(amax.to(x.dtype), most)}


def in_torch(torch: Any, desc: Fp8CastDescriptor, *, x: Any, amax: Any, scale: Any) -> Any:
    """As `cast_in_torch`."""
    return cast_in_torch(torch, desc, x, amax, scale)


class Fp8CastPlan(Plan):
    """y = x · scale as fp8, rounded to nearest, ties to even, and saturating; amax = max(amax, |x|): one launch.

    Products are rounded to float32 and then to fp8: infinities and what is too large become the largest number, 448 of
    float8_e4m3fn and 57344 of float8_e5m2, NaN stays NaN. As in NVIDIA's Transformer Engine, amax is of x before the
    scale, and gives the scale of a later step (`Fp8Recipe`). y / scale is x but for rounding, and `scaled_mm` takes
    1 / scale beside y. There is no gradient: a cast is seen as x itself, and gradients are cast by their own scale.
    """

    op = "quantize.fp8_cast"
    descriptor = Fp8CastDescriptor
    args = Fp8CastArgs
    reference = staticmethod(reference)
    variants = (
        Variant("map", _geometry, source="quantize/fp8_cast.cu", elements=WIDE, guarantee=Guarantee(Exact()),
                kernels=map_kernels("fp8_cast<{T}, {LAYOUT}>", CAST)),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("134M bf16 to e4m3, amax", shape=1 << 27, element="bfloat16", also=("amax",), peers=()),
        Benchmark("134M bf16 to e4m3", shape=1 << 27, element="bfloat16", peers=()),
    )

    @staticmethod
    def case(draw: Any) -> Fp8CastDescriptor:
        return Fp8CastDescriptor(
            shape=draw.shape(0, 4, 0, 17), to_element=draw.choice(FP8), element=draw.element
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75


fp8_cast = functional(Fp8CastPlan)


# ---- back ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fp8DequantizeDescriptor(Descriptor):
    """x, which holds `from_element`, and y have shape `shape`."""

    shape: tuple[int, ...] = extents()
    from_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field(WIDE)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.from_element


@dataclass(slots=True, kw_only=True)
class Fp8DequantizeArgs(Args):
    """Any strides; x travels as uint8, or in a dtype of fp8. scale: a number or a 0-d array."""

    x: Array = operand("*shape", element="from_element")
    y: Array = output("*shape")
    scale: Scalar = scalar(1.0)


def dequantized(desc: Fp8DequantizeDescriptor, *, x: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; the product is a float32 number."""
    with np.errstate(all="ignore"):
        return {"y": single(x * single(float(scale), x.dtype), x.dtype)}


def dequantized_in_torch(torch: Any, desc: Fp8DequantizeDescriptor, *, x: Any, scale: Any) -> Any:
    """The formula."""
    return (x * float(np.float32(float(scale)))).float().to(x.dtype)


BACK = Params("Fp8DequantizeParams", y="ptr", x="ptr", scale="scalar", code="i32", **map_params(2))


def _back(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x), {"code": FP8.index(p.desc.from_element)})


class Fp8DequantizePlan(Plan):
    """y = x · scale of fp8, the product rounded to float32 and then to y's element: scale is 1 over the cast's."""

    op = "quantize.fp8_dequantize"
    descriptor = Fp8DequantizeDescriptor
    args = Fp8DequantizeArgs
    reference = staticmethod(dequantized)
    variants = (
        Variant("map", _back, source="quantize/fp8_dequantize.cu", elements=WIDE, guarantee=Guarantee(Exact()),
                kernels=map_kernels("fp8_dequantize<{T}, {LAYOUT}>", BACK)),
    )  # fmt: skip
    torch = staticmethod(dequantized_in_torch)
    benchmarks = (Benchmark("134M e4m3 to bf16", shape=1 << 27, element="bfloat16", peers=()),)

    @staticmethod
    def case(draw: Any) -> Fp8DequantizeDescriptor:
        return Fp8DequantizeDescriptor(
            shape=draw.shape(0, 4, 0, 17), from_element=draw.choice(FP8), element=draw.element
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75


_dequantize = functional(Fp8DequantizePlan)


@entry(Fp8DequantizePlan)
def fp8_dequantize(
    x: Array, scale: Scalar = 1.0, *, to_element: Any = "float32", from_element: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x · scale of fp8 as float32, float16 or bfloat16; scale is 1 over that of `fp8_cast` (its `scale_inv`).

    from_element: what a uint8 x holds, float8_e4m3fn by default.
    """
    held = E.of(from_element) if from_element is not None else read(x, "x").element
    return _dequantize(
        x, from_element=E.FP8E4M3 if held is E.U8 else held, element=E.of(to_element), scale=scale, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
