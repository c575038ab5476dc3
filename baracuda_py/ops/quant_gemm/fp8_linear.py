"""fp8_linear: a linear layer whose three products, forward and backward, are of fp8 (FP8 training)."""

from __future__ import annotations

import math
from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.element import FP8, HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import reshaped, shape_of, transposed
from ..gemm.fp8_gemm import Fp8GemmPlan, scaled_mm
from ..layout.views import reshape
from ..quantize.dynamic import dynamic_quantize
from ..quantize.dynamic_quantize_transpose import dynamic_quantize_transpose
from ..reduce.reduce import sum as sum_of  # type: ignore[attr-defined]  # made from a table

E = ElementKind
RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any], ElementKind]] = {
    "tensor": ({"scope": "tensor"}, {"scope": "tensor"}, E.FP8E5M2),
    "rows": ({"scope": "token"}, {"scope": "token"}, E.FP8E4M3),
    "blocks": ({"scope": "block", "block": (1, 128)}, {"scope": "block", "block": (128, 128)}, E.FP8E4M3),
}
"""What has a scale of a product's first operand and of its second, and the usual format of dy."""
_SCOPES = {"tensor": ("tensor", "tensor"), "rows": ("rows", "rows"), "blocks": ("groups", "blocks")}
"""The same as scopes of `dynamic_quantize_transpose`."""


def _product(a: Any, b: Any, recipe: str, elements: tuple[Any, Any], options: Any, **more: Any) -> Any:
    """a @ bᵀ of a [m, k] and b [n, k], both quantised along k on the way."""
    first, second, _ = RECIPES[recipe]
    codes_a, scales_a = dynamic_quantize(a, **first, to_element=elements[0], **options)
    codes_b, scales_b = dynamic_quantize(b, **second, to_element=elements[1], **options)
    scales_a = scales_a[: shape_of(a, "a")[0]]  # no rows have the scales of one
    return _of_codes((codes_a, scales_a), (codes_b, scales_b), read(a, "a").element, elements, options, **more)


def _of_codes(a: Any, b: Any, element: ElementKind, elements: tuple[Any, Any], options: Any, **more: Any) -> Any:
    """a @ bᵀ of codes [m, k] and [n, k] with scales of what they stand for."""
    return scaled_mm(
        a[0], transposed(b[0], "b"), a[1], transposed(b[1], "scales"), out_element=element, element=elements[0],
        b_element=elements[1], **more, **options,
    )  # fmt: skip


def _matrix(x: Any, name: str) -> Any:
    shape = shape_of(x, name)
    return x if len(shape) == 2 else reshape(x, (math.prod(shape[:-1]), shape[-1]))


def _checked(x: Any, weight: Any, recipe: str, *elements: Any) -> None:
    if recipe not in RECIPES:
        raise InvalidProblemError(f"recipe must be one of {', '.join(map(repr, RECIPES))}, got {recipe!r}")
    shape, columns = shape_of(x, "x"), shape_of(weight, "weight")
    if not shape or len(columns) != 2 or shape[-1] != columns[1]:
        raise InvalidProblemError(f"x must be [..., k] and weight [n, k], got shapes {shape} and {columns}")
    for name, one in (("x", x), ("weight", weight)):
        if read(one, name).element not in HALVES:
            raise UnsupportedError(f"{name} must be float16 or bfloat16, got {read(one, name).element}; cast it")
    for one in elements:
        if one is not None and E.of(one) not in FP8:
            raise UnsupportedError(f"an operand's format must be float8_e4m3fn or float8_e5m2, got {one}")


def _back(
    dy: Any, x: Any, weight: Any, bias: Any = None, *, recipe: str, to_element: Any, grad_element: Any = None,
    preference: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """dx = dy W and dW = dyᵀ x of fp8; the gradient of the bias is a sum of dy itself."""
    options = {"preference": preference}
    held, grad = E.of(to_element), RECIPES[recipe][2] if grad_element is None else E.of(grad_element)
    rows, slope, element = _matrix(x, "x"), _matrix(dy, "dy"), read(x, "x").element
    first, second = _SCOPES[recipe]
    dy8, dy_scales, dyt8, dyt_scales = dynamic_quantize_transpose(
        slope, scope=first, scope_t=first, to_element=grad, **options
    )
    turned = {"scope_t": second, "to_element": held, "return_y": False, "return_scales": False, **options}
    dx = _of_codes((dy8, dy_scales), dynamic_quantize_transpose(weight, **turned), element, (grad, held), options)
    dw = _of_codes((dyt8, dyt_scales), dynamic_quantize_transpose(rows, **turned), element, (grad, held), options)
    dbias = None if bias is None else sum_of(slope, axis=0, **options)
    return reshape(dx, shape_of(x, "x")), dw, dbias


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
    _checked(x, weight, recipe, to_element, grad_element)
    shape, columns = shape_of(x, "x"), shape_of(weight, "weight")
    options = {"stream": stream, "preference": preference}
    to = (*shape[:-1], columns[0])
    if out is not None and shape_of(out, "out") != to:
        raise InvalidProblemError(f"out must have shape {to}, got {shape_of(out, 'out')}")
    flat = None if out is None else reshaped(out, (math.prod(shape[:-1]), columns[0]), "out")
    held = E.of(to_element)
    y = _product(_matrix(x, "x"), weight, recipe, (held, held), options, bias=bias, out=flat)
    return out if out is not None else y if len(shape) == 2 else reshape(y, to)
