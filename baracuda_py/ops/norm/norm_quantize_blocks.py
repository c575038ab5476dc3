"""norm_quantize_blocks: `norm_quantize` with a scale for each block of columns: NVFP4, MXFP4, MXFP8 and their kin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, PerOutput, Plan, Problem, Relative,
    Scalar, Ulp, Variant, View, choice, extents, integer, number, operand, output, scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast as cast_values
from ...core.element import decode, encode
from ...schedules.norms import affine_element, affine_elements, infer_normalized_shape
from ..elementwise.cast import carrier_shape
from .norm_quantize import (
    LEAST_SCALE, SOURCES, NormQuantizeKind, NormQuantizePlan, normalized, row_geometry, row_kernels, without_offset,
)  # fmt: skip

E, K = ElementKind, NormQuantizeKind
TARGETS = (E.FP8E4M3, E.FP8E5M2, E.I8, E.FP4E2M1)
SCALES = (E.F32, E.E8M0, E.FP8E4M3)
BLOCKS = (16, 32, 64, 128)
_X = "*batch_shape *normalized_shape"


@dataclass(frozen=True, kw_only=True)
class NormQuantizeBlocksDescriptor(Descriptor):
    """x has shape (*batch_shape, *normalized_shape); y holds `to_element`, two float4 a byte along the last axis.

    block: columns of the last axis that have one scale, 16, 32, 64 or 128. scale_element: what a scale is held in.
    eps, weight_offset and weight_element are as in `NormQuantizeDescriptor`.
    """

    kind: NormQuantizeKind = choice(NormQuantizeKind)
    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    block: int = integer(16)
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    scale_element: ElementKind = element_field(SCALES, E.FP8E4M3)
    to_element: ElementKind = element_field(TARGETS, E.FP4E2M1)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        without_offset(self)
        if self.block not in BLOCKS:
            raise InvalidProblemError(f"block must be one of {', '.join(map(str, BLOCKS))}, got {self.block}")
        if not self.normalized_shape or self.normalized_shape[-1] % self.block:
            raise InvalidProblemError(
                f"the last extent of normalized_shape must be blocks of {self.block}, got {self.normalized_shape}"
            )

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def shape(self) -> tuple[int, ...]:
        """That of x."""
        return (*self.batch_shape, *self.normalized_shape)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds y."""
        return carrier_shape(self.shape, self.to_element)

    @property
    def scales_shape(self) -> tuple[int, ...]:
        """One for each block."""
        return (*self.shape[:-1], self.shape[-1] // self.block)


@dataclass(slots=True, kw_only=True)
class NormQuantizeBlocksArgs(Args):
    """Any strides of x, residual, h, weight, bias and y, but that the last axis of a y of float4 is contiguous.

    y travels as uint8, unless it is int8, and so do scales of 8 bits, which are dense. scale is a number beside all
    scales of float8_e4m3fn; others have none.
    """

    x: Array = operand(_X)
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    bias: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    residual: Array | None = operand(_X, optional=True)
    y: Array = output("*y_shape", element="to_element")
    scales: Array = output("*scales_shape", element="scale_element", layout="dense")
    h: Array | None = output(_X, optional=True, inplace=("x", "residual"), needs="residual")
    scale: Scalar = scalar(1.0)


def _single(value: Any) -> Any:
    return np.asarray(value, np.float32).astype(np.float64)


def block_scale(kind: ElementKind, most: Any, largest: float, scale: float) -> tuple[Any, Any]:
    """What a block is divided by, and what is stored of it, in float64; every step is rounded to float32."""
    if kind is E.FP8E4M3:
        held = cast_values(_single(_single(most / largest) / _single(scale)), E.FP8E4M3, True).astype(np.float64)
        return _single(held * _single(scale)), held
    if kind is E.E8M0:
        exponent = np.frexp(most)[1] - np.frexp(largest)[1]
        power = np.ldexp(1.0, np.where(most == 0, -127, np.maximum(exponent, -127)))
        power = np.where(np.isfinite(most), power, np.nan)
        return power, power
    factor = _single(np.where(most / largest < LEAST_SCALE, LEAST_SCALE, most / largest))
    return factor, factor


def over_scales(u: Any, scales: Any) -> Any:
    """u / scales as float32 numbers; a scale of 0 gives 0 with the sign of the quotient."""
    return np.where(scales == 0, np.copysign(0.0, u) * np.copysign(1.0, scales), _single(u / scales))


def reference(
    desc: NormQuantizeBlocksDescriptor, *, x: Any, weight: Any, bias: Any, residual: Any, scale: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in float64; h is rounded to the element, u, scales and quotients are float32 numbers."""
    x, residual, weight, bias = (
        None if v is None else decode(v, e).astype(np.float64)
        for v, e in ((x, desc.element), (residual, desc.element), (weight, desc.weight_element),
                     (bias, desc.weight_element))
    )  # fmt: skip
    h = x if residual is None else cast_values(x + residual, desc.element).astype(np.float64)
    largest = float(desc.to_element.limits.max)
    with np.errstate(all="ignore"):
        u = _single(normalized(desc, h, weight, None if desc.kind is K.RMS_NORM else bias))
        u = u.reshape(*desc.scales_shape, desc.block)
        most = np.max(np.abs(u), axis=-1, initial=0)
        factor, stored = block_scale(desc.scale_element, most, largest, float(scale))
        y = over_scales(u, factor[..., None]).reshape(desc.shape)
        y = np.where(np.isnan(y), 0, np.rint(y)) if desc.to_element is E.I8 else y
    made = {
        "y": (y, desc.to_element, True),
        "scales": (stored, desc.scale_element, True),
        "h": (h, desc.element, False),
    }
    return {name: np.array(encode(cast_values(v, e, saturate), e)) for name, (v, e, saturate) in made.items()}


def _in_halves(y: View, shape: tuple[int, ...]) -> View | None:
    """Pairs of a byte as elements, with strides in halves of bytes; None where pairs are not side by side."""
    if y.shape[-1] > 1 and y.strides[-1] != 1:
        return None
    return View(y.ptr, shape, (*(2 * step for step in y.strides[:-1]), 1), E.U8)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    y = _in_halves(p.y, p.x.shape) if desc.to_element is E.FP4E2M1 else p.y
    if y is None:
        return f"y holds pairs of {desc.to_element}, and its last axis must be contiguous"
    codes = {"code": TARGETS.index(desc.to_element), "scale_code": SCALES.index(desc.scale_element)}
    return row_geometry(p, y, {**codes, "block": desc.block, "is_static": 0})


class NormQuantizeBlocksPlan(Plan):
    """y = u / scale in 8 or 4 bits, u = rms_norm or layer_norm of h = x + residual, by blocks of columns; one launch.

    u is in float32 and never rounded to the element. Of the largest |u| of a block and the largest number of
    to_element (6 of float4_e2m1fn, 448, 57344, 127), scales of float32 are the quotient, at least 2⁻¹²⁶. Those of
    float8_e8m0fnu (MXFP4 and MXFP8, with blocks of 32) are the power of two that brings the one to the exponent of the
    other, NaN where it is not finite (OCP Microscaling Formats 1.0). Those of float8_e4m3fn (NVFP4, with blocks of 16)
    are the quotient over `scale`, which is a number for the whole tensor, rounded; y is u / (scales · scale), or 0
    where that is 0. y is rounded to nearest, ties to even, and saturates; a NaN is NaN as float8, 0 as int8, and 6 as
    float4, which has none. There is no gradient: take that of the norm.
    """

    op = "norm.norm_quantize_blocks"
    kinds = NormQuantizeKind
    descriptor = NormQuantizeBlocksDescriptor
    args = NormQuantizeBlocksArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "rows", _geometry, source="norm/norm_quantize.cu", elements=SOURCES, kernels=row_kernels(True),
            guarantee=Guarantee(
                PerOutput((("y", Relative(2)), ("scales", Ulp(8)), ("h", Relative(2)))), batch_invariant=True
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("rms [32768, 4096] bf16 to NVFP4", kind="rms_norm", batch_shape=32768, normalized_shape=4096,
                  element="bfloat16", also=("weight", "residual", "h"), peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NormQuantizeBlocksDescriptor:
        rms, block = draw.kind is K.RMS_NORM, draw.choice(BLOCKS)
        normalized = draw.choice(((block * draw.sizes(1, 2, 3, 17, 0, rare=(33, 150)),), (3, block)))
        return NormQuantizeBlocksDescriptor(
            kind=draw.kind, batch_shape=draw.shape(0, 3, 0, 3), normalized_shape=normalized, block=block,
            eps=draw.number(1e-8, 1e-2), to_element=draw.choice(TARGETS), scale_element=draw.choice(SCALES),
            weight_offset=draw.choice((0.0, 1.0)) if rms else 0.0, element=draw.element,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.03125
        if desc.kind is K.RMS_NORM:
            arrays["bias"] = None

    check = NormQuantizePlan.check

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)
