"""unary_backward: dx = dy f'(x), for the kinds of `UnaryKind` that have a derivative; and one function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem,
    Variant, choice, derived, element, extents, functional, number, operand, output,
)  # fmt: skip
from ...core.errors import InvalidProblemError
from ...schedules.map import map_geometry, map_kernels, map_params
from .complex_unary_backward import of_complex_backward
from .unary_gradients import GRADIENT, slope_bound
from .unary_kinds import ALPHA, UnaryKind, rounded_alpha, unary_points
from ...core.benchmark import Benchmark
from .unary_torch import unary_in_torch


@dataclass(frozen=True, kw_only=True)
class UnaryBackwardDescriptor(Descriptor):
    """dy, x and dx have shape `shape`; `alpha` as in `UnaryDescriptor`."""

    kind: UnaryKind = choice(UnaryKind)
    shape: tuple[int, ...] = extents()
    alpha: float | None = number(derived(lambda desc: ALPHA.get(desc.kind)))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind not in GRADIENT:
            raise InvalidProblemError(f"the derivative of {self.kind.value} is 0 wherever there is one; fill dx with 0")
        if self.alpha is not None and self.kind not in ALPHA:
            raise InvalidProblemError(f"{self.kind.value} has no coefficient; alpha must be None, got {self.alpha}")


@dataclass(slots=True, kw_only=True)
class UnaryBackwardArgs(Args):
    """x is the forward input, for every kind: f' of a rounded y would be wrong where f is flat."""

    dy: Array = operand("*shape", values=Everywhere())
    x: Array = operand("*shape", values=Everywhere(unary_points))
    dx: Array = output("*shape", inplace=("dy", "x"))


def reference(desc: UnaryBackwardDescriptor, *, dy: Any, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    alpha = rounded_alpha(desc, x)
    with np.errstate(all="ignore"):
        return {"dx": np.asarray(GRADIENT[desc.kind](dy, x, alpha), x.dtype)}


PARAMS = Params("UnaryBackwardParams", dx="ptr", dy="ptr", x="ptr", alpha="f64", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.dx, p.dy, p.x), {"alpha": p.desc.alpha or 0.0})


def in_torch(torch: Any, desc: UnaryBackwardDescriptor, *, dy: Any, x: Any) -> Any:
    """torch's own gradient of silu; autograd of the others, NaN where f is."""
    if desc.kind is UnaryKind.SILU:
        return torch.ops.aten.silu_backward(dy, x)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = unary_in_torch(torch, desc.kind, leaf, desc.alpha)
        return torch.where(y.isnan(), y, torch.autograd.grad(y, leaf, dy)[0]).detach()


class UnaryBackwardPlan(Plan):
    """dx = dy f'(x), with PyTorch's slopes at the kinks: 0 at 0 for relu, at ±1 for hardtanh, at ±3 for hardsigmoid.

    dy and x may have any exponent: where f'(x) alone overflows or vanishes, the product is still right. Outside the
    domain of f (log, sqrt, asin, acosh, logit, …), where f is NaN, so is dx.
    """

    op = "elementwise.unary_backward"
    direction = "backward"
    kinds = tuple(GRADIENT)
    descriptor = UnaryBackwardDescriptor
    args = UnaryBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/unary_backward.cu",
            kernels=map_kernels("unary_backward<gradient::{KIND}, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(slope_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("silu 134M bf16", shape=1 << 27, kind="silu", element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> UnaryBackwardDescriptor:
        alpha = draw.number(0.0, 2.0) if draw.kind in ALPHA else None
        return UnaryBackwardDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), alpha=alpha, element=draw.element)


def _function(kind: UnaryKind) -> Any:
    name = f"{kind.value}_backward"
    doc = f"dx = dy {kind.value}'(x) element by element; see `UnaryBackwardPlan`."
    fixed: dict[str, Any] = {} if kind in ALPHA else {"alpha": None}
    return functional(UnaryBackwardPlan, name, doc, overloads=of_complex_backward(kind.value), kind=kind, **fixed)


neg_backward = _function(UnaryKind.NEG)
abs_backward = _function(UnaryKind.ABS)
reciprocal_backward = _function(UnaryKind.RECIPROCAL)
square_backward = _function(UnaryKind.SQUARE)
cube_backward = _function(UnaryKind.CUBE)
sqrt_backward = _function(UnaryKind.SQRT)
rsqrt_backward = _function(UnaryKind.RSQRT)
cbrt_backward = _function(UnaryKind.CBRT)
exp_backward = _function(UnaryKind.EXP)
exp2_backward = _function(UnaryKind.EXP2)
expm1_backward = _function(UnaryKind.EXPM1)
log_backward = _function(UnaryKind.LOG)
log2_backward = _function(UnaryKind.LOG2)
log10_backward = _function(UnaryKind.LOG10)
log1p_backward = _function(UnaryKind.LOG1P)
sin_backward = _function(UnaryKind.SIN)
cos_backward = _function(UnaryKind.COS)
tan_backward = _function(UnaryKind.TAN)
asin_backward = _function(UnaryKind.ASIN)
acos_backward = _function(UnaryKind.ACOS)
atan_backward = _function(UnaryKind.ATAN)
sinh_backward = _function(UnaryKind.SINH)
cosh_backward = _function(UnaryKind.COSH)
tanh_backward = _function(UnaryKind.TANH)
asinh_backward = _function(UnaryKind.ASINH)
acosh_backward = _function(UnaryKind.ACOSH)
atanh_backward = _function(UnaryKind.ATANH)
erf_backward = _function(UnaryKind.ERF)
erfc_backward = _function(UnaryKind.ERFC)
frac_backward = _function(UnaryKind.FRAC)
sigmoid_backward = _function(UnaryKind.SIGMOID)
log_sigmoid_backward = _function(UnaryKind.LOG_SIGMOID)
logit_backward = _function(UnaryKind.LOGIT)
relu_backward = _function(UnaryKind.RELU)
relu6_backward = _function(UnaryKind.RELU6)
leaky_relu_backward = _function(UnaryKind.LEAKY_RELU)
elu_backward = _function(UnaryKind.ELU)
selu_backward = _function(UnaryKind.SELU)
gelu_backward = _function(UnaryKind.GELU)
gelu_tanh_backward = _function(UnaryKind.GELU_TANH)
silu_backward = _function(UnaryKind.SILU)
mish_backward = _function(UnaryKind.MISH)
softplus_backward = _function(UnaryKind.SOFTPLUS)
softsign_backward = _function(UnaryKind.SOFTSIGN)
hardtanh_backward = _function(UnaryKind.HARDTANH)
hardsigmoid_backward = _function(UnaryKind.HARDSIGMOID)
hardswish_backward = _function(UnaryKind.HARDSWISH)
hardshrink_backward = _function(UnaryKind.HARDSHRINK)
softshrink_backward = _function(UnaryKind.SOFTSHRINK)
