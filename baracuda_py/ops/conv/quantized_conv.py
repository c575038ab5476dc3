"""quantized_conv: convolutions of integers of 8 bits with zero points and scales."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, ElementKind, Exact, Guarantee, InvalidProblemError, Plan, Ulp, Variant, choice, derived,
    element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import Everywhere
from ...core.benchmark import FLOPS, Benchmark
from ...schedules import conv_codes as schedule
from ...schedules.conv_codes import BYTES, FLOATS
from .conv import ConvDescriptor, ConvPlan, channels_last, conv_case, in_torch_sums, sums, terms, torch_serves
from .layers import PROBLEMS

E = ElementKind


class QuantizedConvKind(enum.Enum):
    """What y is of the sums."""

    SUMS = "sums"
    SCALED = "scaled"
    REQUANTIZED = "requantized"

    @property
    def outputs(self) -> tuple[ElementKind, ...]:
        """The elements that y may have."""
        return {K.SUMS: (E.I32,), K.REQUANTIZED: BYTES}.get(self, FLOATS)


K = QuantizedConvKind
_SCALED = (K.SCALED, K.REQUANTIZED)


@dataclass(frozen=True, kw_only=True)
class QuantizedConvDescriptor(ConvDescriptor):
    """As `ConvDescriptor`: x has `element`, w `w_element`, int8 or uint8 each; activation: none or relu.

    y is int32 of sums, float32, float16 or bfloat16 of scaled convolutions, int8 or uint8 of requantized ones, whose
    default is `element`. bias_element: int32, in units of scale_x · scale_w, or float32.
    """

    kind: QuantizedConvKind = choice(QuantizedConvKind)
    activation: str = choice(("none", "relu"), "none")
    out_element: ElementKind = element(
        (*FLOATS, *BYTES, E.I32),
        derived(lambda desc: desc.element if desc.kind is K.REQUANTIZED else desc.kind.outputs[0]),
    )
    bias_element: ElementKind = element((E.I32, E.F32), derived(lambda desc: E.I32))
    w_element: ElementKind = element(BYTES, derived(lambda desc: desc.element))
    element: ElementKind = element(BYTES)

    def validate(self) -> None:
        super().validate()
        if self.out_element not in self.kind.outputs:
            known = " or ".join(map(str, self.kind.outputs))
            raise InvalidProblemError(
                f"out_element must be {known} of {self.kind.value} convolutions, got {self.out_element}"
            )
        if self.kind is K.SUMS and self.activation != "none":
            raise InvalidProblemError("sums have no activation; ask for a scaled or a requantized convolution")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.w_element


_SCALES = (0.25, 2.0)


@dataclass(slots=True, kw_only=True)
class QuantizedConvArgs(Args):
    """Any strides. scale_x, zero_x, scale_y and zero_y are 0-d; scale_w and zero_w one number, or one for each output.

    Scales are float32, 1 where absent; zero points have the elements of what they are of, 0 where absent. bias: int32,
    which is added to the sums, or float32, which is added to the scaled ones.
    """

    x: Array = operand("*shape", values=Everywhere())
    w: Array = operand("*filter_shape", element="w_element", values=Everywhere())
    scale_x: Array | None = operand("", element=E.F32, optional=True, kinds=_SCALED, values=_SCALES)
    scale_w: Array | None = operand(
        "out_channels", element=E.F32, optional=True, broadcast=True, kinds=_SCALED, values=_SCALES
    )
    zero_x: Array | None = operand("", optional=True, values=Everywhere())
    zero_w: Array | None = operand(
        "out_channels", element="w_element", optional=True, broadcast=True, values=Everywhere()
    )
    bias: Array | None = operand("out_channels", element="bias_element", optional=True, kinds=_SCALED)
    scale_y: Array | None = operand("", element=E.F32, kinds=(K.REQUANTIZED,), values=(64.0, 4096.0))
    zero_y: Array | None = operand("", element="out_element", optional=True, kinds=(K.REQUANTIZED,))
    y: Array = output("*out_shape", element="out_element")


def _channels(x: Any, desc: Any) -> Any:
    """A number, or one for each output, as it broadcasts to y."""
    return x if x.ndim == 0 else x.reshape(-1, *(1,) * len(desc.kernel_size))


def _centred(x: Any, zero: Any) -> Any:
    return x.astype(np.float64) if zero is None else x.astype(np.float64) - zero.astype(np.float64)


def over_filter(desc: Any, values: Any) -> Any:
    """One number, or one for each output, as it broadcasts to the filter; of NumPy and torch."""
    if values.shape in ((), (1,)):
        return values.reshape(())
    place = np.arange(desc.out_channels)[:, None]
    if desc.transposed:
        each = desc.out_channels // desc.groups
        of = np.arange(desc.groups).repeat(desc.in_channels // desc.groups)
        place = of[:, None] * each + np.arange(each)
    return values[place].reshape(*place.shape, *(1,) * len(desc.kernel_size))


def reference(
    desc: QuantizedConvDescriptor, *, x: Any, w: Any, scale_x: Any, scale_w: Any, zero_x: Any, zero_w: Any, bias: Any,
    scale_y: Any, zero_y: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: sums exact, scaled in the dtype of the scales, or wider."""
    batched = x.reshape(-1 if 0 not in x.shape else int(np.prod(desc.batch_shape)), *x.shape[len(desc.batch_shape) :])
    centre = None if zero_w is None else over_filter(desc, zero_w)
    s = sums(desc, _centred(batched, zero_x), _centred(w, centre)).reshape(desc.out_shape)
    if desc.kind is K.SUMS:
        return {"y": s.astype(np.int64)}
    single = any(v is not None and v.dtype == np.float32 for v in (scale_x, scale_w, scale_y))
    y: Any = s.astype(np.float32 if single else np.longdouble)
    with np.errstate(all="ignore"):
        if bias is not None and desc.bias_element is E.I32:
            y = (s + _channels(bias.astype(np.float64), desc)).astype(y.dtype)
        y = y if scale_x is None else y * scale_x
        y = y if scale_w is None else y * _channels(scale_w, desc)
        if bias is not None and desc.bias_element is E.F32:
            y = y + _channels(bias, desc)
        y = np.maximum(y, 0) if desc.activation == "relu" else y
        if desc.kind is K.REQUANTIZED:
            y = np.rint(y / scale_y)
            y = y if zero_y is None else y + zero_y
            y = np.clip(np.where(np.isnan(y), 0, y), desc.out_element.limits.min, desc.out_element.limits.max)
    return {"y": y}


def in_torch(
    torch: Any, desc: QuantizedConvDescriptor, *, x: Any, w: Any, scale_x: Any, scale_w: Any, zero_x: Any, zero_w: Any,
    bias: Any, scale_y: Any, zero_y: Any,
) -> Any:  # fmt: skip
    """The definition: operands less their zero points, torch's convolution in float64, then the scales."""
    if not torch_serves(desc):
        return NotImplemented

    def channels(v: Any) -> Any:
        return v.double() if v.ndim == 0 or v.numel() == 1 else v.double().reshape(-1, *(1,) * len(desc.kernel_size))

    left = x.double() if zero_x is None else x.double() - zero_x.double()
    right = w.double() if zero_w is None else w.double() - over_filter(desc, zero_w.double())
    y = in_torch_sums(torch, desc, left, right)
    if desc.kind is K.SUMS:
        return y.long().int()
    whole = bias is not None and desc.bias_element is E.I32
    y = y + channels(bias) if whole else y
    y = y if scale_x is None else y * scale_x.double()
    y = y if scale_w is None else y * channels(scale_w)
    y = y if bias is None or whole else y + channels(bias)
    y = torch.relu(y) if desc.activation == "relu" else y
    if desc.kind is not K.REQUANTIZED:
        return y
    y = torch.round(y / scale_y.double())
    y = y if zero_y is None else y + zero_y.double()
    limits = desc.out_element.limits
    return y.nan_to_num(0.0, float("inf"), float("-inf")).clamp(limits.min, limits.max).to(torch.int32)


def _bound(_: Any, kind: Any) -> Any:
    return Ulp(0.51) if kind is K.SCALED else Exact()


_GUARANTEE = Guarantee(_bound, math="int8", batch_invariant=True)


def _too_long(desc: QuantizedConvDescriptor) -> str | None:
    """Why sums of 32 bits do not serve a descriptor."""
    if desc.kind is K.SUMS or terms(desc) <= (most := schedule.longest(desc)):
        return None
    return f"sums of {terms(desc)} products may pass 32 bits, which hold those of {most}"


def codes_laid(torch: Any, desc: Any) -> dict[str, Any]:
    """Operands of a benchmark, channels last; of integers scales that bring most results into the range of codes."""
    dtype = getattr(torch, str(desc.element))

    def made(shape: Any) -> Any:
        if desc.element.is_integer:
            return torch.randint(-127, 128, shape, dtype=dtype)
        return torch.randn(shape).to(dtype)

    out = torch.empty(desc.out_shape, dtype=getattr(torch, str(desc.out_element)))
    laid = {"x": channels_last(torch, made(desc.shape)), "w": channels_last(torch, made(desc.filter_shape)),
            "y": channels_last(torch, out)}  # fmt: skip
    if desc.element.is_integer:
        spread = 73.0**2 * terms(desc) ** 0.5  # of the sums
        laid["scale_x"], laid["scale_y"] = torch.tensor(0.05), torch.tensor(0.05 * spread / 40)
        laid["scale_w"] = torch.rand(desc.out_channels) + 0.5
    return laid


class QuantizedConvPlan(Plan):
    """y = act(scale_x · scale_w[o] · (Σ (x̂ - zero_x) (w - zero_w[o]) + bias[o])) of int8 and uint8 (ONNX QLinearConv).

    x [*batch, in_channels, *spatial], w [out_channels, in_channels / groups, *kernel], windows and transposed filters
    as `ConvPlan` has them; what lies outside of x counts 0, as a zero point does. `sums` are int32, modulo 2³²
    (ConvInteger). `scaled` results are the exact number rounded to double and then to y; a float32 bias is added to
    them. `requantized` ones are divided by scale_y, rounded to nearest, ties to even, moved by zero_y and saturate.
    Integers have no order of sums: bits depend on neither batch nor design. Tensor cores take w without zero points,
    channels in packed pieces of 16; a zero point of x takes a launch more, which sums the filters. There is no
    gradient: take that of `fake_quantize` and `conv_nd`.
    """

    op = "conv.quantized_conv"
    kinds = QuantizedConvKind
    descriptor = QuantizedConvDescriptor
    args = QuantizedConvArgs
    reference = staticmethod(reference)
    variants = (
        Variant("wgmma", schedule.forward(True, warpgroups=True), source="conv/quantized_conv_wgmma.cu",
                kernels=schedule.INTEGER_WARPGROUPS, elements=BYTES, design=ArchSku.SM90A,
                guarantee=_GUARANTEE, refuses=_too_long),
        Variant("mma", schedule.forward(True), source="conv/quantized_conv.cu", kernels=schedule.INTEGER_MMA,
                elements=BYTES, guarantee=_GUARANTEE, refuses=_too_long),
        Variant("simt", schedule.forward(False), source="conv/quantized_conv.cu", kernels=(schedule.INTEGERS,),
                elements=BYTES, guarantee=_GUARANTEE),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{name} int8", kind="requantized", element="int8", also=("scale_x", "scale_w", "bias"), work=FLOPS,
            target=None, peers=(), make=codes_laid, **facts,
        )
        for name, facts in PROBLEMS[:2]
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QuantizedConvDescriptor:
        facts: dict[str, Any] = {
            "kind": draw.kind, "out_element": draw.choice(draw.kind.outputs), "w_element": draw.choice(BYTES),
            "bias_element": draw.choice((E.I32, E.F32)),
        }  # fmt: skip

        def made(**given: Any) -> QuantizedConvDescriptor:
            given["activation"] = "none" if draw.kind is K.SUMS or given["activation"] == "none" else "relu"
            return QuantizedConvDescriptor(**given)

        return conv_case(draw, made, slices=128, **facts)  # type: ignore[no-any-return]

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.kind in _SCALED and arrays["scale_x"] is None:  # whose dtype says what the reference computes in
            arrays["scale_x"] = np.ones((), np.float32)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """What is asked for says what kind of convolution it is."""
        if facts.get("kind") is None:
            given = {name for name, shape in shapes.items() if shape is not None}
            scaled = given & {"scale_x", "scale_w", "bias"}
            facts["kind"] = K.REQUANTIZED if "scale_y" in given else K.SCALED if scaled else K.SUMS

    @classmethod
    def flops(cls, desc: QuantizedConvDescriptor) -> int:
        return ConvPlan.flops(desc)


quantized_conv = functional(QuantizedConvPlan, follows="x")
