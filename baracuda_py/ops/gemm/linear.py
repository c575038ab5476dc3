"""linear and gated_linear: a layer's product with its bias, activation, gate and residual, in one launch."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.ordinals import ordinal
from ...core.views import halves, shape_of, transposed, with_axis
from ...interop.packages import package_name
from ..elementwise.binary_numbers import element_of
from .gemm import GemmPlan, dense_gemm
from .matmul import product


@entry(GemmPlan)
def linear(
    x: Array, weight: Array, bias: Array | None = None, *, activation: str | None = None,
    residual: Array | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """act(x @ weightᵀ + bias) + residual (torch.nn.functional.linear): x [*, in], weight [out, in] or [in], bias [out].

    activation: None, "relu", "gelu", "gelu_tanh" or "silu". residual has the result's shape. All of it is added in the
    accumulator, before the result is rounded once.
    """
    more = {"stream": stream, "preference": preference}
    if len(shape_of(weight, "weight")) != 1:
        return _layer(x, transposed(weight, "weight"), bias, activation, residual, out, more)
    if bias is not None and not shape_of(bias, "bias"):
        bias = with_axis(bias, 0, "bias")
    return _layer(x, weight, bias, activation, residual, out, more)


@entry(GemmPlan)
def gated_linear(
    x: Array, gate_weight: Array, up_weight: Array, gate_bias: Array | None = None, up_bias: Array | None = None, *,
    activation: str | None = "silu", residual: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """act(x @ gate_weightᵀ + gate_bias) · (x @ up_weightᵀ + up_bias) + residual (Shazeer 2020): x [*, in].

    Both weights are [out, in], the biases [out]; activation as in `linear`. One launch reads x once for both products.
    """
    shapes = {name: shape_of(w, name) for name, w in (("gate_weight", gate_weight), ("up_weight", up_weight))}
    for name, shape in shapes.items():
        if len(shape) != 2 or shape != shapes["gate_weight"]:
            raise InvalidProblemError(
                f"{name} must be [out, in], as both weights, got {shape}; the gate's is {shapes['gate_weight']}"
            )
    columns = shapes["gate_weight"][:1]
    for name, bias in (("gate_bias", gate_bias), ("up_bias", up_bias)):
        if bias is not None and shape_of(bias, name) != columns:
            raise InvalidProblemError(f"{name} must have shape {columns}, got {shape_of(bias, name)}")
    more = {"stream": stream, "preference": preference, "up_bias": up_bias}
    gate, up = transposed(gate_weight, "gate_weight"), transposed(up_weight, "up_weight")
    return _layer(x, gate, gate_bias, activation, residual, out, more, up)


@entry(GemmPlan)
def linear_swiglu(
    x: Array, weight: Array, bias: Array | None = None, *, activation: str | None = "silu",
    residual: Array | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`gated_linear` of one packed weight [2 · out, in], the gate's rows first, and one packed bias [2 · out].

    silu(x @ W₁ᵀ + b₁) · (x @ W₂ᵀ + b₂) + residual; activation "gelu" is geglu, "relu" reglu, None bilinear.
    """
    gate, up = halves(weight, "weight")
    gate_bias, up_bias = (None, None) if bias is None else halves(bias, "bias")
    return gated_linear(
        x, gate, up, gate_bias, up_bias, activation=activation, residual=residual, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


def _layer(
    x: Array, b: Array, bias: Array | None, activation: str | None, residual: Array | None, out: Any,
    more: dict[str, Any], up: Array | None = None,
) -> Any:  # fmt: skip
    """x b with its epilogue; b and up are [in, out], b may be [in].

    What the library of the device adds as beta · c is c: a residual alone, and a bias where no row of our own is
    faster. So is a bias that is no vector of the columns.
    """
    rows, right = shape_of(x, "x"), shape_of(b, "weight")
    shape, c = (*rows[:-1], *right[1:]), None
    if activation is None and up is None:
        vector = bias is not None and shape_of(bias, "bias") == (right[1:] or (1,))
        if bias is not None and residual is None and (not vector or _by_library(x)):
            c, bias = bias, None
        elif bias is None and residual is not None and shape_of(residual, "residual") == shape:
            c, residual = residual, None
    given = {name: value for name, value in more.items() if value is not None or name in ("stream", "preference")}
    given |= {} if bias is None else {"bias": bias}
    given |= {} if activation is None else {"activation": activation}
    matrices = len(rows) == len(right) == 2 and rows[1] == right[0] and residual is None
    if matrices and (c is None or shape_of(c, "c") == shape):  # nothing to change of these views
        return dense_gemm(x, b, c, up=up, out=out, **given)
    return product(x, b, c, out, given, up=up, residual=residual, names=("x", "weight", "bias"))


def _by_library(x: Array) -> bool:
    """Whether products of these operands without an activation are for cuBLAS, which adds a c, and no vector."""
    on_device = package_name(type(x)) == "jax" or ordinal(x) >= 0
    return on_device and element_of(x) in (ElementKind.F32, ElementKind.F64)
