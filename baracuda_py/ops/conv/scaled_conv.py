"""scaled_conv: convolutions of fp8 with scales, as torch.nn.functional.scaled_mm is a product of fp8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, ElementKind, Forward, Guarantee, Plan, Variant, derived, element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import FP8
from ...schedules import conv_codes as schedule
from .conv import ConvDescriptor, ConvPlan, conv_case, terms
from .layers import PROBLEMS
from .conv import in_torch as conv_in_torch
from .conv import reference as conv_reference
from .quantized_conv import codes_laid, over_filter

E = ElementKind
OUTPUTS = (E.BF16, E.F16, E.F32, *FP8)


@dataclass(frozen=True, kw_only=True)
class ScaledConvDescriptor(ConvDescriptor):
    """As `ConvDescriptor`: x has `element`, w `w_element`, float8_e4m3fn or float8_e5m2 each, y `out_element`."""

    out_element: ElementKind = element(OUTPUTS, E.BF16)
    w_element: ElementKind = element(FP8, derived(lambda desc: desc.element))
    element: ElementKind = element(FP8)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.w_element


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite ones: infinity times a sum that is 0 is NaN on a kernel."""
    return rng.uniform(0.25, 2.0, shape)


@dataclass(slots=True, kw_only=True)
class ScaledConvArgs(Args):
    """Any strides; fp8 travels as uint8, or in a dtype of fp8. Scales and bias are float32.

    scale_x, one number, and scale_w, one or one for each output, are what stored numbers of x and w are multiplied by;
    scale_y, one number, what y is multiplied by before it is stored.
    """

    x: Array = operand("*shape")
    w: Array = operand("*filter_shape", element="w_element")
    scale_x: Array | None = operand("", element=E.F32, optional=True, values=_scales)
    scale_w: Array | None = operand("out_channels", element=E.F32, optional=True, broadcast=True, values=_scales)
    bias: Array | None = operand("out_channels", element=E.F32, optional=True)
    scale_y: Array | None = operand("", element=E.F32, optional=True, values=_scales)
    y: Array = output("*out_shape", element="out_element")


def _scaled(desc: ScaledConvDescriptor, w: Any, scale_x: Any, scale_w: Any) -> Any:
    """w times both scales."""
    w = w if scale_w is None else w * over_filter(desc, scale_w)
    return w if scale_x is None else w * scale_x


def reference(
    desc: ScaledConvDescriptor, *, x: Any, w: Any, scale_x: Any, scale_w: Any, bias: Any, scale_y: Any,
    apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in; an fp8 result is clipped to the range."""
    with np.errstate(all="ignore"):
        scaled = _scaled(desc, w, scale_x, scale_w)
        y = conv_reference(desc, x=x, w=scaled, bias=bias, z=None, wanted={"y"}, apart=apart)["y"]
        y = y if scale_y is None else y * scale_y
        largest = desc.out_element.limits.max
        return {"y": np.clip(y, -largest, largest) if desc.out_element in FP8 else y}


def in_torch(
    torch: Any, desc: ScaledConvDescriptor, *, x: Any, w: Any, scale_x: Any, scale_w: Any, bias: Any, scale_y: Any
) -> Any:
    """torch's convolution of what is stored times its scales; torch promotes no fp8."""
    x, w = (one.float() if one.element_size() == 1 else one for one in (x, w))
    scaled = _scaled(desc, w, scale_x, scale_w)
    found = conv_in_torch(torch, desc, x=x, w=scaled, bias=bias, z=None, wanted={"y"})
    if found is NotImplemented:
        return found
    y = found["y"] if scale_y is None else found["y"] * scale_y
    largest = desc.out_element.limits.max
    return y.clamp(-largest, largest) if desc.out_element in FP8 else y


def _mixed(desc: ScaledConvDescriptor) -> str | None:
    """Why a row whose tensor cores multiply one element does not serve a descriptor, or None."""
    return None if desc.w_element is desc.element else f"multiplies {desc.element} by itself, w is {desc.w_element}"


_STRICT = Guarantee(Forward(128), batch_invariant=True, roundings=terms)
# Of 128 terms the tensor cores keep 13 bits below the largest, as in `Fp8GemmPlan`.
_NATIVE = replace(_STRICT, error=Forward(2.0**17), math="fp8", order="mma")


class ScaledConvPlan(Plan):
    """y = scale_y · act(scale_x · scale_w[o] · Σ x̂ w + bias[o]) of fp8, what `Fp8GemmPlan` is of matrices.

    x [*batch, in_channels, *spatial], w [out_channels, in_channels / groups, *kernel], windows and transposed filters
    as `ConvPlan` has them, float8_e4m3fn or float8_e5m2, one of each too; y is bfloat16, float16, float32 or fp8, where
    too large a number becomes the largest finite one. Sums of 128 terms are added in float32, in the order of (window,
    channels). From sm_89 on tensor cores multiply fp8 where x and w have one element; before, and of two elements, as
    f16, which has all its values. There is no gradient: take `ConvPlan`'s.
    """

    op = "conv.scaled_conv"
    descriptor = ScaledConvDescriptor
    args = ScaledConvArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant("wgmma", schedule.forward(True, warpgroups=True), source="conv/quantized_conv_wgmma.cu",
                kernels=schedule.FP8_WARPGROUPS, elements=FP8, design=ArchSku.SM90A,
                guarantee=replace(_NATIVE, order="wgmma")),
        Variant("mma_fp8", schedule.forward(True, True), source="conv/scaled_conv.cu", kernels=schedule.FP8_MMA_NATIVE,
                elements=FP8, design=ArchSku.SM89, guarantee=_NATIVE, refuses=_mixed),
        Variant("mma", schedule.forward(True), source="conv/scaled_conv.cu", kernels=schedule.FP8_MMA, elements=FP8,
                guarantee=replace(_STRICT, order="mma")),
        Variant("simt", schedule.forward(False), source="conv/scaled_conv.cu", kernels=(schedule.FP8_EACH,),
                elements=FP8, guarantee=_STRICT),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{name} e4m3", element="float8_e4m3fn", also=("scale_x", "scale_w", "bias"), work=FLOPS, target=None,
            peers=(), make=codes_laid, **facts,
        )
        for name, facts in PROBLEMS[:2]
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ScaledConvDescriptor:
        facts = {"out_element": draw.choice(OUTPUTS), "w_element": draw.choice(FP8)}
        return conv_case(draw, ScaledConvDescriptor, slices=128, **facts)  # type: ignore[no-any-return]

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Where bytes are said to hold an element, those of w hold it too."""
        if facts.get("w_element") is None and facts.get("element") is not None:
            facts["w_element"] = facts["element"]

    @classmethod
    def flops(cls, desc: ScaledConvDescriptor) -> int:
        return ConvPlan.flops(desc)


scaled_conv = functional(ScaledConvPlan, follows="x")
