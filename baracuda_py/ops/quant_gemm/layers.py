"""quantized_linear, its gradient, and smooth_quant_linear: layers of int8 weights as functions."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind, Scalar
from ...calls.functional import functional
from ...calls.composed import composed
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.views import reshaped, rows_of, shape_of, transposed, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..gemm.matmul import matmul
from .int_gemm import IntGemmKind, IntGemmPlan, int_gemm
from .quantized_linear import QuantizedLinearPlan

_call = functional(QuantizedLinearPlan)


@composed("quantized_linear_backward", "x", where=lambda held: held["x_scale"] is None)
@entry(QuantizedLinearPlan)
def quantized_linear(
    x: Array, weight: Array, scale: Array, bias: Array | None = None, *, smooth: Array | None = None,
    x_scale: Scalar | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x @ (scale · weight)ᵀ + bias of int8 weights [out, in], x [*, in] quantised to int8 on the way (W8A8, dynamic).

    Each row of x has its own scale, max |x| / 127, or all have the number x_scale (a 0-d array on the device too). x is
    float32, float16 or bfloat16, and so are bias and result; scale is float32, one number or [out]. smooth, [in],
    divides the columns of x first (SmoothQuant). See `QuantizedLinearPlan`. The gradient is straight through the
    quantisation, for x alone: weights, scales, smooth and bias are constants, and so is x where x_scale is given, whose
    codes saturate.
    """
    static = {} if x_scale is None else {"static": True, "x_scale": x_scale}
    return _call(x, weight, scale, bias, smooth, **static, out=out, stream=stream, preference=preference)


@entry(QuantizedLinearPlan)
def quantized_linear_backward(
    dy: Array, x: Array, weight: Array, scale: Array, bias: Array | None = None, *, smooth: Array | None = None,
    x_scale: Scalar | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `quantized_linear`, straight through the quantisation: dy @ (scale · weight) / smooth (QLoRA's way).

    The weights are dequantised in dy's element, rounded once, and multiplied as such: two launches. x tells its shape
    and element alone; x_scale must be None.
    """
    del bias
    if x_scale is not None:
        raise UnsupportedError("quantized_linear_backward has no gradient where x_scale is given: its codes saturate")
    element, shape = read(x, "x").element, shape_of(x, "x")
    rows, columns = shape_of(weight, "weight"), shape_of(dy, "dy")
    if len(rows) != 2 or not shape or (shape[-1], columns) != (rows[1], (*shape[:-1], rows[0])):
        raise InvalidProblemError(f"dy [*, out], x [*, in], weight [out, in] are {columns}, {shape} and {rows}")
    options = {"stream": stream, "preference": preference}
    by = with_axis(scale, -1, "scale") if shape_of(scale, "scale") else scale
    given = {"w": weight, "s": by} | ({} if smooth is None else {"m": smooth})
    real = _formula(f"{element}(float32(w) * s{'' if smooth is None else ' / m'})")(**given, **options)
    return matmul(dy, real, out=out, **options)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(IntGemmPlan, element=ElementKind.I8)
def smooth_quant_linear(
    x: Array, weight: Array, act_scale: Array, weight_scale: Array, bias: Array | None = None, *,
    out_element: Any = "float32", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """act_scale · weight_scale · (x @ weightᵀ) + bias of int8 x [*, in] and weights [out, in] (W8A8, static).

    act_scale: one number for all of x, float32; weight_scale: one, or [out]; bias [out] and the result are in
    out_element, float32, float16 or bfloat16. Smoothing (Xiao et al., SmoothQuant, 2023) was done when x was quantised:
    `quantized_linear` does it with `smooth` and `x_scale`. The result is rounded once. There is no gradient.
    """
    shape, right = shape_of(x, "x"), shape_of(weight, "weight")
    if len(right) != 2 or not shape or shape[-1] != right[1]:
        raise InvalidProblemError(f"x must be [*, in] and weight [out, in], got {shape} and {right}")
    act_scale = reshaped(act_scale, (), "act_scale")
    more = {"kind": IntGemmKind.SCALED, "out_element": out_element, "stream": stream, "preference": preference}
    to = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    wanted = (*shape[:-1], right[0])
    if to is not None and shape_of(to, "out") != wanted:
        raise InvalidProblemError(f"out must have shape {wanted}, got {shape_of(to, 'out')}")
    rows, to_rows = _as_rows(x, "x"), None if to is None else _as_rows(to, "out")
    made = int_gemm(
        rows, transposed(weight, "weight"), scale_a=act_scale, scale_b=weight_scale, bias=bias, out=to_rows, **more
    )
    return to if to is not None else reshaped(made, wanted, "y")


def _as_rows(x: Array, name: str) -> Array:
    """x as one matrix."""
    rows = rows_of(with_axis(x, 0, name) if len(shape_of(x, name)) == 1 else x, name)
    if rows is None:
        raise UnsupportedError(f"smooth_quant_linear needs rows of {name} in even steps; make it contiguous first")
    return rows
