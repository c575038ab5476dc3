"""split_matmul and ozaki_matmul: products of wide floats as exact products of narrow parts on the tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.memo import memo
from ...core.outputs import each_of
from ...core.tensor import broadcast_shape
from ...core.views import reshaped, shape_of, transposed, with_axis, without_axes
from ...expressions.elementwise import Expression, elementwise
from ...expressions.reduce import reduce as reduction
from ..elementwise.binary_functions import add
from ..elementwise.frexp import frexp
from ..layout.concat import concat, stack
from ..quant_gemm.products import int_mm
from ..reduce.norm import sum_to_size
from .gemm import GemmPlan
from .matmul import matmul

F32, F64 = ElementKind.F32, ElementKind.F64

# The parts that are multiplied, the smallest products first, so that they are not lost beside the largest. Only the
# first parts of the last product have the infinities and NaN: with them it is what IEEE 754 says, and others add 0.
_ORDER = ((3, 3), (3, 2), (2, 3), (3, 1), (2, 2), (1, 3), (2, 1), (1, 2), (0, 0))
PRODUCTS = {"bf16x9": _ORDER, "bf16x6": _ORDER[3:], "bf16x3": _ORDER[6:]}

_PARTS = elementwise(  # `most` is the largest bfloat16, to which larger floats would be rounded up
    "first = bfloat16(x if isinf(x) else clamp(x, -most, most)); "
    "finite = bfloat16(float32(first) if isfinite(x) else 0); _rest = x - float32(first) if isfinite(x) else 0; "
    "second = bfloat16(_rest); third = bfloat16(_rest - float32(second))",
    most=float.fromhex("0x1.fep127"),
)

_FINITE_OR = elementwise("y if isfinite(c) else c")
_CLASS = elementwise("bfloat16(float32(x > 0) - float32(x < 0) if isfinite(x) else x)")
_LARGEST = reduction("abs(x) if isfinite(x) else 0", "amax", axis=-1, keepdims=True)
SLICES = range(1, 16)
_MOST = 2**31 // 4096  # products of 6 bits by 6 that 32 bits hold


@memo()
def _digits(slices: int) -> Expression:
    """Of x 2^-e, at most 1: 6 bits, then 7 of what is left, and so on, each from -64 to 64; no step rounds."""
    parts = ["_x0 = ldexp(x if isfinite(x) else 0, 6 - e)"]
    for p in range(slices):
        parts += [f"_x{p} = (_x{p - 1} - _q{p - 1}) * 128"] if p else []
        parts += [f"_q{p} = round(_x{p})", f"q{p} = int8(_q{p})"]
    return elementwise("; ".join(parts))


@memo()
def _together(slices: int) -> Expression:
    """The sums of each size, the smallest first, at their places."""
    text = f"float64(s{slices - 1})"
    for d in range(slices - 2, -1, -1):
        text = f"({text}) / 128 + float64(s{d})"
    return elementwise(f"ldexp({text}, e + f - 12)")


def _fitting(name: str, a: Any, b: Any, kind: ElementKind) -> tuple[Any, Any, list[int]]:
    """Operands with two axes at least, and the places of the axes that the result does not have."""
    for operand, x in (("a", a), ("b", b)):
        found = read(x, operand)
        if found.element is not kind:
            raise UnsupportedError(f"{name} takes {operand} in {kind}, got {found.element}; call matmul, or cast it")
        if not found.shape:
            raise InvalidProblemError(
                f"{operand} must have an axis at least, got shape (); multiply by a number with mul"
            )
    row, column = len(shape_of(a, "a")) == 1, len(shape_of(b, "b")) == 1
    a, b = with_axis(a, 0, "a") if row else a, with_axis(b, -1, "b") if column else b
    left, right = shape_of(a, "a"), shape_of(b, "b")
    if left[-1] != right[-2]:
        raise InvalidProblemError(f"a has {left[-1]} columns and b {right[-2]} rows: {left} @ {right}")
    rank = len(broadcast_shape({"a": left[:-2], "b": right[:-2]}, ("a", "b"))) + 2
    return a, b, [axis for axis, gone in ((rank - 2, row), (rank - 1, column)) if gone]


def _slopes(product: Callable[..., Any], dy: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The gradients of a product, which are such products."""
    shapes = shape_of(a, "a"), shape_of(b, "b")
    if len(shapes[1]) == 1:
        dy, b = with_axis(dy, -1, "dy"), with_axis(b, -1, "b")
    if len(shapes[0]) == 1:
        dy, a = with_axis(dy, -2, "dy"), with_axis(a, 0, "a")
    da, db = product(dy, transposed(b, "b")), product(transposed(a, "a"), dy)
    pairs = ((da, a, shapes[0]), (db, b, shapes[1]))
    first, second = (reshaped(sum_to_size(made, shape_of(x, "x")), shape, "gradient") for made, x, shape in pairs)
    return first, second


def _split_slopes(dy: Any, a: Any, b: Any, products: str, preference: Any) -> tuple[Any, Any]:
    return _slopes(lambda x, y: split_matmul(x, y, products=products, preference=preference), dy, a, b)


@composed(_split_slopes, "a", "b")
@entry(GemmPlan)
def split_matmul(
    a: Array, b: Array, *, products: str = "bf16x9", out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """a @ b of float32 with NumPy's shapes by exact products of bfloat16 parts on the tensor cores.

    A float32 is the sum of three bfloat16. products: "bf16x9" has all nine of theirs, and the error of a float32
    product, an eps of 2^-23 for each of the 9 k terms at most, against Σ |a b|. "bf16x6" leaves out what is below
    2^-25 |a b|, "bf16x3" what is below 2^-16 |a b|. Sums are in float32, the smallest products first, in the order of
    one `matmul` of so many times k. Infinities and NaN give what IEEE 754 says; parts below 2^-133 are lost, and an
    infinity times a number below that is NaN. Gradients are such products. Five launches: the parts of each operand,
    laid side by side, and one product. `matmul(…, math_precision="bf16x9")` is the same; cuBLAS' BF16x9 emulation,
    `jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X9`.
    """
    if products not in PRODUCTS:
        raise InvalidProblemError(f"products must be {', '.join(map(repr, PRODUCTS))}, got {shown(products)}")
    left, right, gone = _fitting("split_matmul", a, b, F32)
    options = {"stream": stream, "preference": preference}
    first, second = _PARTS(left, **options), _PARTS(right, **options)
    rows = concat([first[i] for i, _ in PRODUCTS[products]], axis=-1, **options)
    columns = concat([second[j] for _, j in PRODUCTS[products]], axis=-2, **options)
    (to,) = each_of(out, 1)
    for axis in gone if to is not None else ():
        to = with_axis(to, axis, "out")
    y = matmul(rows, columns, out_element=F32, out=to, **options)
    return without_axes(y, gone, "y") if out is None else out


def _ozaki_slopes(dy: Any, a: Any, b: Any, slices: int, preference: Any) -> tuple[Any, Any]:
    return _slopes(lambda x, y: ozaki_matmul(x, y, slices=slices, preference=preference), dy, a, b)


@composed(_ozaki_slopes, "a", "b")
@entry(GemmPlan)
def ozaki_matmul(
    a: Array, b: Array, *, slices: int = 8, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """a @ b of float64 with NumPy's shapes by exact products of int8 slices (Ozaki et al. 2012, Ootomo et al. 2024).

    Rows of a and columns of b are scaled by powers of two to at most 1 and cut into `slices`, 1 to 15, of 7 bits.
    Products of slices are summed in int32, which is exact, those of one size in one product, and the sizes in float64,
    the smallest first. Slice p times slice q is left out for p + q ≥ slices: a result differs from the exact one by at
    most k (slices + 2) 2^(2 - 7 slices) max |a[i, :]| max |b[:, j]|, and `slices` roundings of 2^-53 of it. It takes
    slices (slices + 1) / 2 products of 8 bits: worth it where float64 is slow, as on GPUs for graphics. Infinities and
    NaN give what IEEE 754 says, told by one product of their places in bfloat16. Gradients are such products.
    """
    if whole("slices", slices) not in SLICES:
        raise InvalidProblemError(f"slices must be from 1 to {SLICES[-1]}, got {slices}")
    left, right, gone = _fitting("ozaki_matmul", a, b, F64)
    options = {"stream": stream, "preference": preference}
    (to,) = each_of(out, 1)
    for axis in gone if to is not None else ():
        to = with_axis(to, axis, "out")
    k, most = shape_of(left, "a")[-1], _MOST // slices - 1
    if k == 0:
        y = matmul(left, right, out=to, **options)
    else:
        y = _sliced(left[..., :most], right[..., :most, :], slices, options)
        for start in range(most, k, most):
            end = start + most
            y = add(y, _sliced(left[..., start:end], right[..., start:end, :], slices, options), **options)
        classes = matmul(_CLASS(left, **options), _CLASS(right, **options), out_element=F32, **options)
        y = _FINITE_OR(y=y, c=classes, out=to, **options)
    return without_axes(y, gone, "y") if out is None else out


def _sliced(a: Any, b: Any, slices: int, options: dict[str, Any]) -> Any:
    """The product of k so few that the sums of one size are in 32 bits."""
    columns = transposed(b, "b")
    exponents = [frexp(_LARGEST(x, **options), **options)[1] for x in (a, columns)]
    cuts = [_digits(slices)(x=x, e=e, **options) for x, e in zip((a, columns), exponents, strict=True)]
    digits = [list(cut) if slices > 1 else [cut] for cut in cuts]
    k, lead, other = shape_of(a, "a")[-1], shape_of(a, "a")[:-1], shape_of(columns, "b")[:-1]
    rows = stack(digits[0], axis=-2, **options)  # [..., m, slices, k]: slices from the first on are one view
    others = stack(digits[1][::-1], axis=-2, **options)
    sums = {}
    for d in range(slices):
        x = rows[..., : d + 1, :].reshape((*lead, (d + 1) * k))
        y = others[..., slices - 1 - d :, :].reshape((*other, (d + 1) * k))
        sums[f"s{d}"] = int_mm(x, transposed(y, "b"), **options)
    return _together(slices)(**sums, e=exponents[0], f=transposed(exponents[1], "f"), **options)
