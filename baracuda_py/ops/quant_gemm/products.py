"""int_mm, matmul_int8, matmul_integer and qlinear_matmul: products of integers of 8 bits by their users' names."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind, Scalar
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.tensor import broadcast_shape
from ...core.views import broadcast, reshaped, rows_of, shape_of, with_axis
from ...core.arrays import read
from ...schedules.int_gemm import BYTES
from ..elementwise.cast import cast
from .int_gemm import IntGemmKind, IntGemmPlan, int_gemm

E, K = ElementKind, IntGemmKind


@entry(IntGemmPlan, element=E.I8)
def int_mm(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a @ b of int8 or uint8 in int32, modulo 2³² (torch._int_mm): a [*, m, k], b [*, k, n], whose batches broadcast.

    Any m, n, k and strides; `b.T` of weights [n, k] is the view that tensor cores read fastest. A b that the whole
    batch shares meets the rows of all its items as one matrix, where a lies so.
    """
    return _product("int_mm", a, b, out, {"kind": K.SUMS, "stream": stream, "preference": preference})


int_bmm = int_mm


@entry(IntGemmPlan, element=E.I8)
def matmul_int8(
    a: Array, b: Array, scale: Scalar = 1.0, *, out_element: Any = "float32", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """scale · a @ b of int8 in float32 (KAIO's matmul_int8), float16 or bfloat16: shapes as in `int_mm`.

    scale: a number or a 0-d device array; of x ≈ s_x a and w ≈ s_w b it is s_x s_w. The sums are exact at any k, beyond
    131 071 too, where 32 bits do not hold them; the result is rounded once.
    """
    for name, array in (("a", a), ("b", b)):
        if (got := read(array, name).element) is not E.I8:
            raise UnsupportedError(f"matmul_int8 takes {name} in int8, got {got}; int_gemm takes uint8, too")
    more = {"kind": K.SCALED, "alpha": scale, "out_element": out_element, "stream": stream, "preference": preference}
    return _product("matmul_int8", a, b, out, more)


@entry(IntGemmPlan, element=E.U8)
def matmul_integer(
    a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(a - a_zero_point) @ (b - b_zero_point) in int32, modulo 2³² (ONNX MatMulInteger): shapes as in `int_mm`.

    Zero points have the elements of a and b: one number, [m] one for each row of a, [n] one for each column of b, or
    with the axes of the batch, [*, m, 1] and [*, 1, n].
    """
    more: dict[str, Any] = {"kind": K.SUMS, "stream": stream, "preference": preference}
    more |= {"zero_a": _of_rows(a_zero_point, "a_zero_point"), "zero_b": _of_columns(b_zero_point, "b_zero_point")}
    return _product("matmul_integer", a, b, out, more)


@entry(IntGemmPlan, element=E.U8)
def qlinear_matmul(
    a: Array, a_scale: Array, a_zero_point: Array | None, b: Array, b_scale: Array, b_zero_point: Array | None,
    y_scale: Array, y_zero_point: Array | None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y ≈ a @ b of numbers scale · (integer - zero point), in 8 bits again (ONNX QLinearMatMul): shapes as in `int_mm`.

    y = a_scale b_scale / y_scale · (a - a_zero_point) @ (b - b_zero_point), rounded to nearest, ties to even, plus
    y_zero_point, and clipped to the range; no sum is rounded before. Scales are float32, float16 or bfloat16. They and
    zero points are one number, [m] of rows (of a and y) or [n] of columns (of b), or have the axes of the batch,
    [*, m, 1] and [*, 1, n]. y has the element of y_zero_point, or that of a.
    """
    more: dict[str, Any] = {"kind": K.REQUANTIZED, "stream": stream, "preference": preference}
    given = {"scale_a": (a_scale, "a_scale"), "scale_y": (y_scale, "y_scale"), "zero_a": (a_zero_point, "a_zero_point")}
    given["zero_y"] = (y_zero_point, "y_zero_point")
    more |= {field: _of_rows(x, name) for field, (x, name) in given.items()}
    more |= {"scale_b": _of_columns(b_scale, "b_scale"), "zero_b": _of_columns(b_zero_point, "b_zero_point")}
    for field in ("scale_a", "scale_b", "scale_y"):
        more[field] = _single(more[field], field, stream)
    if y_zero_point is not None:
        more["out_element"] = read(y_zero_point, "y_zero_point").element
    return _product("qlinear_matmul", a, b, out, more)


def _product(name: str, a: Array, b: Array, out: Any, more: dict[str, Any]) -> Any:
    """The product of operands whose batches broadcast."""
    shapes = {}
    for operand, array in (("a", a), ("b", b)):
        found = read(array, operand)
        shapes[operand] = found.shape
        if found.element not in BYTES:
            raise UnsupportedError(f"{name} takes {operand} in int8 or uint8, got {found.element}")
        if len(found.shape) < 2:
            raise InvalidProblemError(f"{operand} must have rows and columns, got shape {found.shape}")
    left, right = shapes["a"], shapes["b"]
    if left[-1] != right[-2]:
        raise InvalidProblemError(f"a has {left[-1]} columns and b {right[-2]} rows: {left} @ {right}")
    given = {field: value for field, value in more.items() if value is not None or field in ("stream", "preference")}
    batch = broadcast_shape({"a": left[:-2], "b": right[:-2]}, ("a", "b"))
    to = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    if to is not None and shape_of(to, "out") != (*batch, left[-2], right[-1]):
        raise InvalidProblemError(f"out must have shape {(*batch, left[-2], right[-1])}, got {shape_of(to, 'out')}")
    if batch and len(right) == 2 and not any(field.startswith(("scale", "zero")) for field in given):
        rows, flat = rows_of(a, "a"), None if to is None else rows_of(to, "out")
        if rows is not None and (to is None) == (flat is None):
            made = int_gemm(rows, b, **given, out=flat)
            return to if to is not None else reshaped(made, (*batch, left[-2], right[-1]), "y")
    a, b = broadcast(a, (*batch, *left[-2:]), "a"), broadcast(b, (*batch, *right[-2:]), "b")
    return int_gemm(a, b, **given, out=to)


def _of_rows(x: Array | None, name: str) -> Array | None:
    """One number, or one for each row, as a column."""
    if x is None or len(shape_of(x, name)) != 1:
        return x
    return reshaped(x, (), name) if shape_of(x, name) == (1,) else with_axis(x, -1, name)


def _of_columns(x: Array | None, name: str) -> Array | None:
    """One number, or one for each column, which broadcasts as it is."""
    return x if x is None or shape_of(x, name) != (1,) else reshaped(x, (), name)


def _single(x: Any, name: str, stream: Any) -> Any:
    """A scale in float32, which holds those of 16 bits exactly."""
    kind = read(x, name).element
    return cast(x, E.F32, stream=stream) if kind in (E.F16, E.BF16) else x
