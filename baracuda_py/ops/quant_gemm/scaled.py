"""scaled_matmul and scaled_grouped_mm: products whose operands are both stored in few bits, with their scales."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.element import FP8
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import beside
from ...core.views import shape_of, transposed, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..elementwise.array_views import bitcast_convert_type
from ..elementwise.cast import cast
from ..layout.views import contiguous
from ..quantize.block_dequantize import block_dequantize
from ..quantize.format_kinds import FormatKind
from .block_gemm import BlockGemmPlan, block_gemm
from .grouped_block_gemm import GroupedBlockGemmPlan, grouped_block_gemm

E = ElementKind
_FORMATS = {E.FP8E4M3: FormatKind.FP8_E4M3, E.FP8E5M2: FormatKind.FP8_E5M2}


@entry(BlockGemmPlan, kind=FormatKind.MXFP8_E4M3, element=E.BF16, out_element=E.F32)
def scaled_matmul(
    a: Array, b: Array, scale_a: Array, scale_b: Array, *, kind: Any = "mxfp8_e4m3", out_element: Any = "float32",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A @ Bᵀ of two matrices [*, m, k] and [*, n, k] of blocks with scales (jax.nn.scaled_matmul, float32 results).

    a and b are codes and scale_a, scale_b scales as `block_quantize` makes them, both of one `kind`: mxfp8, mxfp6 and
    mxfp4 with powers of two for 32 neighbours, nvfp4 with float8 for 16. out_element: float32 or bfloat16. A is
    dequantised to bfloat16, which holds numbers of these formats exactly within its range, and meets B as it is
    stored, see `BlockGemmPlan`: two launches and 2 m k bytes. Sums are in float32. There is no gradient.
    """
    options = {"stream": stream, "preference": preference}
    x = block_dequantize(a, scale_a, kind=kind, element=E.BF16, **options)
    return block_gemm(b, x, scale_b, kind=kind, out_element=out_element, out=out, **options)


@entry(GroupedBlockGemmPlan, kind=FormatKind.FP8_E4M3, element=E.BF16)
def scaled_grouped_mm(
    a: Array, b: Array, scale_a: Array, scale_b: Array, offsets: Array, *, element: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[r] = scale_a[r] a[r] @ (scale_b[g] b[g]) in bfloat16 of fp8, rows r in groups g that end at `offsets`.

    torch.nn.functional.scaled_grouped_mm with scales of rows: a [rows, k], b [groups, k, n], scale_a [rows], scale_b
    [groups, n], float32. b is the transposed view of dense weights [groups, n, k]; others are copied to such first.
    element: what uint8 operands hold, float8_e4m3fn or float8_e5m2. Rows of no group give zeros. a is cast to bfloat16,
    which holds it exactly, a weight times its scale is rounded to bfloat16, sums are in float32, and y is rounded
    before and after scale_a. See `GroupedBlockGemmPlan`. Nothing but scale_a has a gradient.
    """
    held = _fp8(a, "a", element)
    if _fp8(b, "b", element) is not held:
        raise UnsupportedError("a and b must hold one element, float8_e4m3fn or float8_e5m2")
    rows, weights, columns = shape_of(a, "a"), shape_of(b, "b"), shape_of(scale_b, "scale_b")
    if len(rows) != 2 or len(weights) != 3 or columns != (weights[0], weights[2]):
        raise InvalidProblemError(
            f"a must be [rows, k], b [groups, k, n] and scale_b [groups, n], got {rows}, {weights} and {columns}"
        )
    if shape_of(scale_a, "scale_a") != rows[:1]:
        raise InvalidProblemError(f"scale_a must have shape {rows[:1]}, got {shape_of(scale_a, 'scale_a')}")
    options = {"stream": stream, "preference": preference}
    with beside(b, stream):
        codes = contiguous(transposed(b if read(b, "b").element is E.U8 else bitcast_convert_type(b, E.U8), "b"))
    x = cast(a, E.BF16, element=held, **options)
    made = grouped_block_gemm(codes, x, offsets, with_axis(scale_b, -1, "scale_b"), kind=_FORMATS[held], **options)
    return _by_rows()(y=made, s=with_axis(scale_a, -1, "scale_a"), out=out, **options)


@cache
def _by_rows() -> Any:
    return elementwise("bfloat16(float32(y) * s)")


def _fp8(x: Any, name: str, element: Any) -> ElementKind:
    """The float8 that an operand holds."""
    found = read(x, name).element
    if found is E.U8 and element is not None:
        found = ElementKind.of(element)
    if found not in FP8:
        raise UnsupportedError(f"{name} must hold float8_e4m3fn or float8_e5m2, got {found}; element= says it of uint8")
    return found
