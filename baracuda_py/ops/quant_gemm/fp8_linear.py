"""fp8_linear: a linear layer whose three products, forward and backward, are of fp8 (FP8 training)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.element import FP8, HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import reshaped, shape_of
from ..gemm.fp8_gemm import Fp8GemmPlan, fp8_gemm
from ..layout.views import reshape
from ..quantize.choose_qparams import RangeKind
from ..quantize.dynamic_quantize import DynamicQuantizePlan
from ..quantize.dynamic_quantize_transpose import dynamic_quantize_transpose
from ..reduce.reduce import sum as sum_of  # type: ignore[attr-defined]  # made from a table

E = ElementKind
RECIPES: dict[str, tuple[tuple[int, int], tuple[int, int], ElementKind]] = {
    "tensor": ((0, 0), (0, 0), E.FP8E5M2),
    "rows": ((1, 0), (1, 0), E.FP8E4M3),
    "blocks": ((1, 128), (128, 128), E.FP8E4M3),
}
"""The blocks of a product's first operand and of its second that have a scale, and the usual format of dy."""
_SCOPES = {"tensor": ("tensor", "tensor"), "rows": ("rows", "rows"), "blocks": ("groups", "blocks")}
"""The same as scopes of `dynamic_quantize_transpose`."""
_quantized = functional(DynamicQuantizePlan, kind=RangeKind.SYMMETRIC)


def _product(
    a: Any, b: Any, element: ElementKind, elements: tuple[Any, Any], options: Any, bias: Any = None, out: Any = None
) -> Any:
    """a @ bᵀ of (codes, scales) of [m, k] and [n, k]."""
    return fp8_gemm(
        a[0], b[0].T, a[1], b[1].T, bias=bias, out_element=element, element=elements[0], b_element=elements[1], out=out,
        **options,
    )  # fmt: skip


def _matrix(x: Any, shape: tuple[int, ...]) -> Any:
    return x if len(shape) == 2 else reshape(x, (math.prod(shape[:-1]), shape[-1]))


def _checked(x: Any, weight: Any, recipe: str, *elements: Any) -> tuple[tuple[int, ...], int, ElementKind]:
    """The shape of x, the columns of y, and the element."""
    if recipe not in RECIPES:
        raise InvalidProblemError(f"recipe must be one of {', '.join(map(repr, RECIPES))}, got {recipe!r}")
    first, second = read(x, "x"), read(weight, "weight")
    shape, columns = first.shape, second.shape
    if not shape or len(columns) != 2 or shape[-1] != columns[1]:
        raise InvalidProblemError(f"x must be [..., k] and weight [n, k], got shapes {shape} and {columns}")
    for name, one in (("x", first), ("weight", second)):
        if one.element not in HALVES:
            raise UnsupportedError(f"{name} must be float16 or bfloat16, got {one.element}; cast it")
    for one in elements:
        if one is not None and E.of(one) not in FP8:
            raise UnsupportedError(f"an operand's format must be float8_e4m3fn or float8_e5m2, got {one}")
    return shape, columns[0], first.element


def _back(
    dy: Any, x: Any, weight: Any, bias: Any = None, *, recipe: str, to_element: Any, grad_element: Any = None,
    preference: Any = None, wanted: Collection[str] = ("x", "weight", "bias"), **_: Any,
) -> Any:  # fmt: skip
    """dx = dy W and dW = dyᵀ x of fp8; the gradient of the bias is a sum of dy itself."""
    options = {"preference": preference}
    held, grad = E.of(to_element), RECIPES[recipe][2] if grad_element is None else E.of(grad_element)
    found = read(x, "x")
    shape, element, second = found.shape, found.element, _SCOPES[recipe][1]
    slope = _matrix(dy, shape_of(dy, "dy"))
    upright, turned = "x" in wanted, "weight" in wanted
    codes = _slopes(slope, recipe, grad, upright, turned, options)
    second_operand = {"scope_t": second, "to_element": held, "return_y": False, "return_scales": False, **options}
    dx = dw = None
    if upright:
        columns = dynamic_quantize_transpose(weight, **second_operand)
        dx = _product((next(codes), next(codes)), columns, element, (grad, held), options)
        dx = dx if len(shape) == 2 else reshape(dx, shape)
    if turned:
        rows = dynamic_quantize_transpose(_matrix(x, shape), **second_operand)
        dw = _product((next(codes), next(codes)), rows, element, (grad, held), options)
    dbias = sum_of(slope, axis=0, **options) if bias is not None and "bias" in wanted else None
    return dx, dw, dbias


def _slopes(slope: Any, recipe: str, grad: ElementKind, upright: bool, turned: bool, options: Any) -> Iterator[Any]:
    """Codes and scales of dy, for dx, and of dyᵀ, for dW, those that are wanted."""
    first = _SCOPES[recipe][0]
    return iter(
        dynamic_quantize_transpose(
            slope, scope=first, scope_t=first, to_element=grad, return_y=upright, return_scales=upright,
            return_yt=turned, return_scales_t=turned, **options,
        )
        if upright or turned else ()
    )  # fmt: skip


@composed(_back, "x", "weight", "bias")
@entry(Fp8GemmPlan)
def fp8_linear(
    x: Array, weight: Array, bias: Array | None = None, *, recipe: str = "tensor", to_element: Any = "float8_e4m3fn",
    grad_element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = x Wᵀ + bias by a product of fp8, and so are its gradients: x [..., k], weight [n, k], bias [n], 16 bits.

    Operands are quantised on the way by the largest size of what has a scale (current scaling). recipe: "tensor", one
    scale each (Micikevicius et al. 2022); "rows", one for each row of x and of the weight, and of dy, dyᵀ, Wᵀ and xᵀ in
    the gradients' products; "blocks", one for 128 neighbours of the first operand and for 128 x 128 of the second
    (DeepSeek-V3, whose dW has 1 x 128 of both). to_element: the format of x and the weight; grad_element: that of dy,
    by default float8_e5m2 with "tensor" and else float8_e4m3fn.

    Sums are those of `scaled_mm`; y, dx and dW are rounded once, and dbias is a sum of dy, not of its codes. Nothing
    but x, weight and dy is kept for the backward, which quantises them again. See `baracuda_py.torch.nn.Fp8Linear`.
    """
    shape, columns, element = _checked(x, weight, recipe, to_element, grad_element)
    options = {"stream": stream, "preference": preference}
    to, rows = (*shape[:-1], columns), math.prod(shape[:-1])
    flat = None
    if out is not None:
        if shape_of(out, "out") != to:
            raise InvalidProblemError(f"out must have shape {to}, got {shape_of(out, 'out')}")
        flat = reshaped(out, (rows, columns), "out")
    held, (first, second, _) = E.of(to_element), RECIPES[recipe]
    codes, scales = _quantized(_matrix(x, shape), block_shape=first, to_element=held, **options)
    if not rows:
        scales = scales[:0] if recipe != "tensor" else scales  # no rows have the scales of one
    made = _quantized(weight, block_shape=second, to_element=held, **options)
    y = _product((codes, scales), made, element, (held, held), options, bias, flat)
    return out if out is not None else y if len(shape) == 2 else reshape(y, to)


def codes_of(x: Any, weight: Any, *, recipe: str, **options: Any) -> dict[str, Any]:
    """Codes and scales of x [m, k] and of the weight as products read them, and of both turned, for the gradients'.

    One launch, after that of the ranges, makes an operand and its transpose; 16-bit x need not be kept beside them.
    """
    first, second = _SCOPES[recipe]
    made = (
        dynamic_quantize_transpose(one, scope=scope, scope_t=second, to_element=E.FP8E4M3, **options)
        for one, scope in ((x, first), (weight, second))
    )  # fmt: skip
    names = (f"{name}_{part}" for name in "xw" for part in ("codes", "scales", "turned", "turned_scales"))
    return dict(zip(names, (one for four in made for one in four), strict=True))


def _back_of_codes(
    dy: Any, x: Any, weight: Any, bias: Any = None, *, x_turned: Any, x_turned_scales: Any, w_turned: Any,
    w_turned_scales: Any, recipe: str, preference: Any = None,
    wanted: Collection[str] = ("x", "weight", "bias"), **_: Any,
) -> Any:  # fmt: skip
    """`_back` of codes that were kept."""
    options = {"preference": preference}
    held, grad = E.FP8E4M3, RECIPES[recipe][2]
    found = read(x, "x")
    slope = _matrix(dy, shape_of(dy, "dy"))
    upright, turned = "x" in wanted, "weight" in wanted
    codes, dx, dw = _slopes(slope, recipe, grad, upright, turned, options), None, None
    if upright:
        kept = (w_turned, w_turned_scales)
        dx = _product((next(codes), next(codes)), kept, found.element, (grad, held), options)
        dx = dx if len(found.shape) == 2 else reshape(dx, found.shape)
    if turned:
        kept = (x_turned, x_turned_scales)
        dw = _product((next(codes), next(codes)), kept, found.element, (grad, held), options)
    dbias = sum_of(slope, axis=0, **options) if bias is not None and "bias" in wanted else None
    return dx, dw, dbias, None, None, None, None


@composed(_back_of_codes, "x", "weight", "bias", "x_codes", "x_scales", "w_codes", "w_scales", reads=())
def linear_of_codes(
    x: Any, weight: Any, bias: Any = None, *, x_codes: Any, x_scales: Any, x_turned: Any, x_turned_scales: Any,
    w_codes: Any, w_scales: Any, w_turned: Any, w_turned_scales: Any, recipe: str, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`fp8_linear` of what `codes_of` made of x and the weight, of which autograd keeps the turned codes alone."""
    shape, columns, element = _checked(x, weight, recipe)
    options = {"stream": stream, "preference": preference}
    y = _product((x_codes, x_scales), (w_codes, w_scales), element, (E.FP8E4M3, E.FP8E4M3), options, bias)
    return y if len(shape) == 2 else reshape(y, (*shape[:-1], columns))
