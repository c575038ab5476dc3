"""quantized_matmul, and KAIO's matmul_int4: floats by weights of few bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core import Array, ElementKind, Scalar
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import reshaped, rows_of, shape_of, transposed
from ...core.arrays import read
from ..elementwise.array_views import bitcast_convert_type
from ..quantize.format_kinds import FormatKind
from .block_gemm import BlockGemmPlan, block_gemm

E = ElementKind
_CODES = 8  # of 4 bits in a word


@entry(BlockGemmPlan, kind=FormatKind.INT4)
def quantized_matmul(
    x: Array, codes: Array, scales: Array | None = None, zeros: Array | None = None, bias: Array | None = None, *,
    kind: Any, index: Array | None = None, scale: Scalar = 1.0, out_element: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x @ Wᵀ + bias by weights [n, k] stored in any format of `FormatKind`: x [*, k], the result [*, n].

    codes, scales, zeros, index and scale are the parts of W, as `block_dequantize` takes them; out_element: that of the
    result, x's or float32. x meets W as one matrix of rows. See `BlockGemmPlan`; x has a gradient, the weights none.
    """
    stored = shape_of(codes, "codes")
    if len(stored) != 2:
        raise InvalidProblemError(
            f"codes must be rows of bytes [n, bytes], got shape {stored}; block_gemm takes batches"
        )

    def product(rows: Any, outs: Sequence[Any]) -> tuple[Any]:
        return (
            block_gemm(
                codes=codes, scales=scales, zeros=zeros, index=index, scale=scale, x=rows, bias=bias, kind=kind,
                out_element=out_element, out=outs[0], stream=stream, preference=preference,
            ),
        )  # fmt: skip

    return by_rows(product, x, (stored[0],), each_of(out, 1))[0]


def by_rows(
    products: Callable[[Any, Sequence[Any]], Sequence[Any]], x: Array, widths: Sequence[int], outs: Sequence[Any]
) -> tuple[Any, ...]:
    """Products of x [*, k], each [*, width], by a function of its rows [m, k] and of outputs [m, width] or None."""
    shape = shape_of(x, "x")
    if not shape:
        raise InvalidProblemError("x must have an axis at least, got shape ()")
    rows = rows_of(x, "x")
    if rows is None:
        raise UnsupportedError(f"x of shape {shape} must have even rows; a contiguous copy has them")
    if len(shape) == 2:
        return tuple(products(rows, outs))
    seen = []
    for n, given in zip(widths, outs, strict=True):
        if given is not None and shape_of(given, "out") != (*shape[:-1], n):
            raise InvalidProblemError(f"out must have shape {(*shape[:-1], n)}, got {shape_of(given, 'out')}")
        seen.append(None if given is None else rows_of(given, "out"))
        if given is not None and seen[-1] is None:
            raise UnsupportedError(f"out of shape {shape_of(given, 'out')} must have even rows")
    return tuple(
        reshaped(y, (*shape[:-1], n), "y") if given is None else given
        for y, n, given in zip(products(rows, seen), widths, outs, strict=True)
    )


@entry(BlockGemmPlan, kind=FormatKind.INT4, element=E.F16, out_element=E.F32)
def matmul_int4(
    a: Array, packed: Array, scales: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a @ W in float32 of float16 a [m, k] and int4 weights [k, n] by KAIO's packing (its matmul_int4), any m and n.

    packed: int32 or uint32 words, each eight neighbours of a column, the lowest bits first. The words of a column lie
    one after the other, so that memory is an array [n, k / 8] of rows: say that shape, or KAIO's own [k / 8, n], which
    names the same memory and must be dense. scales: float16 [k / group, n], any strides, any group that is a multiple
    of 8. A weight is round(code · scale) in float16; sums are in float32.
    """
    return block_gemm(
        **kaio_int4("matmul_int4", a, packed, scales), x=a, kind=FormatKind.INT4, out_element=E.F32, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip


def expect(function: str, name: str, array: Array, *kinds: ElementKind) -> None:
    """Raises unless an operand has an element that a function takes it in."""
    if (got := read(array, name).element) not in kinds:
        raise UnsupportedError(f"{function} takes {name} in {' or '.join(map(str, kinds))}, got {got}")


def kaio_int4(function: str, x: Array, packed: Array, scales: Array) -> dict[str, Any]:
    """The codes and scales [n, …] that words of KAIO's packing and their scales are, for products by x [m, k]."""
    expect(function, "the left operand", x, E.F16)
    expect(function, "the words", packed, E.I32, E.U32)
    shape, of_scales, words = shape_of(x, "a"), shape_of(scales, "scales"), shape_of(packed, "packed")
    if len(shape) != 2 or len(of_scales) != 2 or len(words) != 2:
        raise InvalidProblemError(
            f"{function} takes matrices: [m, k], words [n, k / 8], scales [k / group, n]; got {shape}, {words}, "
            f"{of_scales}"
        )
    k, (groups, n) = shape[1], of_scales
    rows = (n, k // _CODES)
    if k % _CODES or words not in (rows, rows[::-1]):
        raise InvalidProblemError(
            f"{function} takes words of shape {rows}, or {rows[::-1]} of the same memory, for k = {k}, a multiple of "
            f"{_CODES}, and n = {n}, the columns of scales; got {words}"
        )
    if words != rows and (packed := reshaped(packed, rows, "packed")) is None:
        raise UnsupportedError(f"words of shape {words} must be dense")
    if k and (not groups or k % groups or k // groups % _CODES):
        raise InvalidProblemError(f"scales must have rows for groups of a multiple of 8 of k = {k}, got {of_scales}")
    codes = reshaped(bitcast_convert_type(packed, E.U8), (n, k // 2), "packed")
    if codes is None:
        raise UnsupportedError("packed words must be dense")
    return {"codes": codes, "scales": transposed(scales, "scales")}
