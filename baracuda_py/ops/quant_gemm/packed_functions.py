"""Signs, ternary weights and int4 as functions: packing, and products over any leading axes."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import broadcast, reshaped, shape_of, with_axis
from ...expressions.elementwise import Expression, elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..elementwise.binary_functions import less
from ..elementwise.cast import CastPlan
from ..layout.bits import packbits, unpackbits
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.view_copy import ViewCopyPlan
from ..layout.views import part, reshape
from ..reduce.reduce import ReducePlan
from .lines import columns_of, last_of, over_rows
from .packed_gemm import PackedGemmKind, PackedGemmPlan, packed_gemm

E = ElementKind
K = PackedGemmKind


@cache
def _formula(text: str) -> Expression:
    return elementwise(text)


@cache
def _mean_size(element: ElementKind, axis: int | None) -> Any:
    return reduction(f"{element.acc}(abs(w))", "mean", axis=axis, keepdims=axis is not None)


# ---- signs ----------------------------------------------------------------------------------------------------------


@entry(CastPlan)
def pack_signs(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Whether elements are below 0, eight along the last axis in a byte, the first in the lowest bit, beyond the end 0.

    0 and NaN count as 1. What `binary_matmul` multiplies; several launches.
    """
    options = {"stream": stream, "preference": preference}
    last_of(x, "x")
    return packbits(less(x, 0, **options), -1, "little", out=out, **options)


@entry(ViewCopyPlan)
def unpack_signs(
    x: Array, k: int | None = None, *, element: Any = "float32", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The signs of packed bytes as 1 and -1 in `element`, k of them, by default all that the bytes have."""
    options = {"stream": stream, "preference": preference}
    bits = unpackbits(x, -1, _count(k, 8 * last_of(x, "x")), "little", **options)
    return _formula(f"{_number(element)}(1 - 2 * int8(b))")(b=bits, out=out, **options)


def _count(k: Any, most: int) -> int:
    return most if k is None else whole("k", k, 0, most)


def _number(element: Any) -> ElementKind:
    kind = ElementKind.of(element)
    if kind not in (E.I8, E.F16, E.BF16, E.F32, E.F64):
        raise UnsupportedError(f"element must be int8, float16, bfloat16, float32 or float64, got {kind}")
    return kind


@entry(PackedGemmPlan, kind=K.BINARY)
def binary_matmul(
    a: Array, b: Array, scale_a: Array | None = None, scale_b: Array | None = None, *, k: int | None = None,
    bias: Array | None = None, element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a @ bᵀ of signs that `pack_signs` packed, k - 2 · popcount(a xor b): a [*, bytes], b [n, bytes].

    k: how many signs a line has, by default all of its bits. int32, or with scales (scale_a one number or one for each
    row, scale_b one or one for each column of the result) or a bias float32; `element` says which float. See
    `PackedGemmPlan`.
    """
    facts = {"kind": K.BINARY, "k": _count(k, 8 * last_of(a, "a")), "element": element}
    return _product(a, "a", b, "b", scale_a, scale_b, bias, facts, out, stream, preference)


# ---- ternary weights ------------------------------------------------------------------------------------------------


@entry(ReducePlan)
def ternary_quantize(
    weight: Array, *, axis: int | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(packed, scale): weight / scale rounded to -1, 0 or 1, ties to 0, four in a byte along the last axis.

    scale is the mean of |weight|, of the whole, or of each line with axis=-1 (BitNet b1.58, Ma et al. 2024); it is
    float32, of float64 float64, and alone has a gradient.
    packed [*, k / 4 rounded up], uint8: the first of four in the lowest two bits, code c being c - 1, beyond the end 0
    (code 1); NaN is 0, and where the scale is 0 so are all numbers. Several launches.
    """
    options, to = {"stream": stream, "preference": preference}, each_of(out, 2)
    shape, found = shape_of(weight, "weight"), read(weight, "weight").element
    if not shape or not found.is_float or found.bits < 16:
        raise InvalidProblemError(f"weight must have an axis at least and hold floats, got {found} of shape {shape}")
    if axis is not None:
        whole("axis", axis, -1, len(shape) - 1)
        if axis % len(shape) != len(shape) - 1:
            raise InvalidProblemError(f"axis must be None, or -1 for a scale of each line, got {axis}")
    kept = _mean_size(found, None if axis is None else len(shape) - 1)(w=weight, **options)
    codes = _formula("uint8(where(2 * w > s, 2, where(2 * w < -s, 0, 1)))")(w=weight, s=kept, **options)
    if left := -shape[-1] % 4:
        codes = pad(codes, [*[(0, 0)] * (len(shape) - 1), (0, left)], value=1, **options)
    lines = {f"c{j}": part(codes, len(shape) - 1, j, shape[-1] + left, 4) for j in range(4)}
    packed = _formula("c0 + 4 * c1 + 16 * c2 + 64 * c3")(**lines, out=to[0], **options)
    flat = kept if axis is None else reshaped(kept, shape[:-1], "scale")
    return packed, flat if to[1] is None else copy(flat, out=to[1], **options)


@entry(ViewCopyPlan)
def ternary_unpack(
    packed: Array, k: int | None = None, *, element: Any = "int8", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The numbers of packed ternary weights in `element`, k of each line, by default all that the bytes have."""
    if (found := read(packed, "packed").element) is not E.U8:
        raise UnsupportedError(f"packed must be uint8, got {found}")
    options, kind = {"stream": stream, "preference": preference}, _number(element)
    shape = shape_of(packed, "packed")
    count = _count(k, 4 * last_of(packed, "packed"))
    with beside(packed, stream):
        shifts = arange(0, 8, 2, element=E.U8, like=packed)
    fields = _formula(f"{kind}(int8(bitwise_and(right_shift(x, s), 3)) - 1)")(
        x=with_axis(packed, -1, "packed"), s=shifts, **options
    )
    made = reshape(fields, (*shape[:-1], 4 * shape[-1]))
    cuts = [*[(0, 0)] * (len(shape) - 1), (0, count - 4 * shape[-1])]
    return pad(made, cuts, out=out, **options)


@entry(PackedGemmPlan, kind=K.TERNARY)
def ternary_matmul(
    x: Array, weight: Array, x_scale: Array | None = None, weight_scale: Array | None = None, *,
    bias: Array | None = None, element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x @ Wᵀ of int8 x [*, k] by ternary weights [n, k / 4 rounded up] as `ternary_quantize` packs them.

    int32, or with scales float32: x_scale one number or one for each row of x, weight_scale one or one for each line of
    W, both multiplying; `element` says float16 or bfloat16. See `PackedGemmPlan`.
    """
    facts = {"kind": K.TERNARY, "k": last_of(x, "x"), "element": element}
    return _product(x, "x", weight, "weight", x_scale, weight_scale, bias, facts, out, stream, preference)


# ---- int4 -----------------------------------------------------------------------------------------------------------


@entry(PackedGemmPlan, kind=K.INT4)
def int4_matmul(
    a: Array, b: Array, scale_a: Array | None = None, scale_b: Array | None = None, *, k: int | None = None,
    signed: bool = True, bias: Array | None = None, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """a @ bᵀ of numbers of four bits, two in a byte, the first in the low half: a [*, bytes], b [n, bytes].

    `cast(x, "int4")` or "uint4" packs them. signed: of [-8, 7], else of [0, 15]. k, scales, bias and element are as in
    `binary_matmul`.
    """
    kind = K.INT4 if truth("signed", signed) else K.UINT4
    facts = {"kind": kind, "k": _count(k, 2 * last_of(a, "a")), "element": element}
    return _product(a, "a", b, "b", scale_a, scale_b, bias, facts, out, stream, preference)


def _product(
    a: Array, name: str, b: Array, right: str, scale_a: Any, scale_b: Any, bias: Any, facts: dict[str, Any], out: Any,
    stream: Any, preference: Any,
) -> Any:  # fmt: skip
    """The product over the rows of a, its scales spread over rows and columns."""
    columns = columns_of(b, right)
    if facts["element"] is None:
        del facts["element"]

    def call(rows: Any, to: Any) -> Any:
        count = shape_of(rows, name)[0]
        scales = [
            None if scale is None else _spread(scale, n, which)
            for scale, n, which in ((scale_a, count, "scale_a"), (scale_b, columns, "scale_b"))
        ]
        return packed_gemm(rows, b, *scales, bias, **facts, out=to, stream=stream, preference=preference)

    return over_rows(call, a, name, columns, out)


def _spread(scale: Any, count: int, name: str) -> Any:
    """One number for each of `count`, from as many in any axes, or one for all."""
    shape = shape_of(scale, name)
    size = 1
    for n in shape:
        size *= n
    if size == count and shape:
        flat = reshaped(scale, (count,), name) if len(shape) > 1 else scale
        if flat is not None:
            return flat
    if size != 1:
        raise InvalidProblemError(f"{name} must be one number, or {count} evenly spaced ones, got shape {shape}")
    return broadcast(reshaped(scale, (), name), (count,), name)
