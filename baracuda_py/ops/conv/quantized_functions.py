"""conv_integer and qlinear_conv: convolutions of integers of 8 bits by ONNX's names."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of
from ...schedules.conv_codes import BYTES
from ..elementwise.cast import cast
from .quantized_conv import QuantizedConvKind, QuantizedConvPlan, quantized_conv

E, K = ElementKind, QuantizedConvKind


@entry(QuantizedConvPlan, element=E.U8)
def conv_integer(
    x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None, *, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The convolution of x - x_zero_point and w - w_zero_point in int32, modulo 2³² (ONNX ConvInteger).

    x [batch, channels, *spatial], one to three spatial axes, int8 or uint8; w [outputs, channels / groups, *kernel],
    int8 or uint8. Zero points have the elements of x and w: x_zero_point is one number, w_zero_point one or [outputs];
    what lies outside of x counts 0. padding: an integer, or of each axis a number or a pair (before, after).
    """
    _bytes("conv_integer", x, w)
    return quantized_conv(
        x, w, kind=K.SUMS, zero_x=_one(x_zero_point, "x_zero_point"), zero_w=_some(w_zero_point, "w_zero_point"),
        stride=stride, padding=padding, dilation=dilation, groups=groups, out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(QuantizedConvPlan, element=E.U8)
def qlinear_conv(
    x: Array, x_scale: Array, x_zero_point: Array | None, w: Array, w_scale: Array, w_zero_point: Array | None,
    y_scale: Array, y_zero_point: Array | None, bias: Array | None = None, *, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, activation: str | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """A convolution of numbers scale · (integer - zero point), in 8 bits again (ONNX QLinearConv).

    y = act(x_scale w_scale (Σ (x - x_zero_point) (w - w_zero_point) + bias)) / y_scale, rounded to nearest, ties to
    even, plus y_zero_point, and clipped to the range; no sum is rounded before. Shapes as in `conv_integer`; scales are
    float32, float16 or bfloat16, and those of w, as its zero points, one number or [outputs]. bias: int32 [outputs], in
    units of x_scale w_scale, or float32, which is added as it is. y has the element of y_zero_point, or that of x.
    activation: None or "relu".
    """
    _bytes("qlinear_conv", x, w)
    more: dict[str, Any] = {} if y_zero_point is None else {"out_element": read(y_zero_point, "y_zero_point").element}
    return quantized_conv(
        x, w, kind=K.REQUANTIZED, scale_x=_single(_one(x_scale, "x_scale"), "x_scale", stream),
        scale_w=_single(_some(w_scale, "w_scale"), "w_scale", stream), zero_x=_one(x_zero_point, "x_zero_point"),
        zero_w=_some(w_zero_point, "w_zero_point"), bias=bias,
        scale_y=_single(_one(y_scale, "y_scale"), "y_scale", stream), zero_y=_one(y_zero_point, "y_zero_point"),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
        activation="none" if activation is None else activation, **more, out=out, stream=stream, preference=preference,
    )  # fmt: skip


def _bytes(name: str, x: Any, w: Any) -> None:
    for operand, array in (("x", x), ("w", w)):
        if (got := read(array, operand).element) not in BYTES:
            raise UnsupportedError(f"{name} takes {operand} in int8 or uint8, got {got}")


def _one(x: Array | None, name: str) -> Array | None:
    """One number, of no axis or one, without axes."""
    if x is None or not (shape := shape_of(x, name)):
        return x
    if shape != (1,):
        raise InvalidProblemError(f"{name} must be one number, of shape () or (1,), got shape {shape}")
    return reshaped(x, (), name)


def _some(x: Array | None, name: str) -> Array | None:
    """One number, or one for each output."""
    return x if x is None or shape_of(x, name) != (1,) else reshaped(x, (), name)


def _single(x: Any, name: str, stream: Any) -> Any:
    """A scale in float32, which holds those of 16 bits exactly."""
    return cast(x, E.F32, stream=stream) if read(x, name).element in (E.F16, E.BF16) else x
