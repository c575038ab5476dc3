"""unary: y = f(x), f one of `UnaryKind`, by PyTorch's definitions; and one function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem,
    Variant, Vjp, choice, derived, element, extents, functional, number, operand, output,
)  # fmt: skip
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.map import map_geometry, map_kernels, map_params
from .complex_unary import of_complex
from .unary_formulas import FORWARD
from .unary_kinds import (
    ALPHA, INTEGERS, UnaryKind, rounded_alpha, unary_bound, unary_elements, unary_points,
)  # fmt: skip
from ...core.benchmark import Benchmark
from .unary_torch import unary_in_torch


@dataclass(frozen=True, kw_only=True)
class UnaryDescriptor(Descriptor):
    """x and y have shape `shape`. `alpha` is the coefficient of kinds that have one, by default PyTorch's.

    leaky_relu: slope below 0 (0.01). elu: scale below 0 (1.0). hardshrink, softshrink: threshold (0.5). It is rounded
    to the accumulator (f32, f64 for f64), so that a threshold is the number that the same constant in x is.
    """

    kind: UnaryKind = choice(UnaryKind)
    shape: tuple[int, ...] = extents()
    alpha: float | None = number(derived(lambda desc: ALPHA.get(desc.kind)))
    element: ElementKind = element((*unary_elements(None), *INTEGERS))

    def validate(self) -> None:
        if self.element not in unary_elements(self.kind):
            what = f"{self.kind.value} of {self.element}"
            raise UnsupportedError(f"{what} is not an integer in general; cast to a float first")
        if self.alpha is not None and self.kind not in ALPHA:
            raise InvalidProblemError(f"{self.kind.value} has no coefficient; alpha must be None, got {self.alpha}")
        if self.kind in (UnaryKind.HARDSHRINK, UnaryKind.SOFTSHRINK) and not self.alpha >= 0:  # type: ignore[operator]
            raise InvalidProblemError(f"{self.kind.value} needs alpha >= 0, got {self.alpha}")


@dataclass(slots=True, kw_only=True)
class UnaryArgs(Args):
    """y may be x itself; both may have any strides."""

    x: Array = operand("*shape", values=Everywhere(unary_points))
    y: Array = output("*shape", inplace=("x",))


def reference(desc: UnaryDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    alpha = rounded_alpha(desc, x)
    with np.errstate(all="ignore"):
        return {"y": np.asarray(FORWARD[desc.kind](x, alpha), x.dtype)}


PARAMS = Params("UnaryParams", y="ptr", x="ptr", alpha="f64", **map_params(2))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.x), {"alpha": p.desc.alpha or 0.0})


def in_torch(torch: Any, desc: UnaryDescriptor, *, x: Any) -> Any:
    """torch's function of the kind."""
    return unary_in_torch(torch, desc.kind, x, desc.alpha)


class UnaryPlan(Plan):
    """y = f(x) for the kinds of `UnaryKind` (torch.exp, torch.nn.functional.gelu, …).

    Special values follow the formula, as PyTorch does: NaN stays NaN except in `sign`, where it gives 0; silu, gelu,
    mish and hardswish of -inf are NaN. Coefficients are `alpha`. Integers (neg, abs, sign, square, relu) wrap.
    """

    op = "elementwise.unary"
    kinds = UnaryKind
    descriptor = UnaryDescriptor
    args = UnaryArgs
    reference = staticmethod(reference)
    vjp = Vjp("UnaryBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/unary.cu",
            kernels=map_kernels("unary<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=unary_elements,
            guarantee=Guarantee(unary_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} 134M bf16", shape=1 << 27, kind=kind, element="bfloat16")
        for kind in ("silu", "gelu", "exp", "tanh")
    )

    @staticmethod
    def case(draw: Any) -> UnaryDescriptor:
        alpha = draw.number(0.0, 2.0) if draw.kind in ALPHA else None
        return UnaryDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), alpha=alpha, element=draw.element)


def _function(kind: UnaryKind) -> Any:
    doc = f"y = {kind.value}(x) element by element; see `UnaryPlan`."
    fixed: dict[str, Any] = {} if kind in ALPHA else {"alpha": None}
    return functional(UnaryPlan, kind.value, doc, overloads=of_complex(kind.value), kind=kind, **fixed)


neg = _function(UnaryKind.NEG)
abs = _function(UnaryKind.ABS)
sign = _function(UnaryKind.SIGN)
reciprocal = _function(UnaryKind.RECIPROCAL)
square = _function(UnaryKind.SQUARE)
cube = _function(UnaryKind.CUBE)
sqrt = _function(UnaryKind.SQRT)
rsqrt = _function(UnaryKind.RSQRT)
cbrt = _function(UnaryKind.CBRT)
exp = _function(UnaryKind.EXP)
exp2 = _function(UnaryKind.EXP2)
expm1 = _function(UnaryKind.EXPM1)
log = _function(UnaryKind.LOG)
log2 = _function(UnaryKind.LOG2)
log10 = _function(UnaryKind.LOG10)
log1p = _function(UnaryKind.LOG1P)
sin = _function(UnaryKind.SIN)
cos = _function(UnaryKind.COS)
tan = _function(UnaryKind.TAN)
asin = _function(UnaryKind.ASIN)
acos = _function(UnaryKind.ACOS)
atan = _function(UnaryKind.ATAN)
sinh = _function(UnaryKind.SINH)
cosh = _function(UnaryKind.COSH)
tanh = _function(UnaryKind.TANH)
asinh = _function(UnaryKind.ASINH)
acosh = _function(UnaryKind.ACOSH)
atanh = _function(UnaryKind.ATANH)
erf = _function(UnaryKind.ERF)
erfc = _function(UnaryKind.ERFC)
floor = _function(UnaryKind.FLOOR)
ceil = _function(UnaryKind.CEIL)
round = _function(UnaryKind.ROUND)
trunc = _function(UnaryKind.TRUNC)
frac = _function(UnaryKind.FRAC)
sigmoid = _function(UnaryKind.SIGMOID)
log_sigmoid = _function(UnaryKind.LOG_SIGMOID)
logit = _function(UnaryKind.LOGIT)
relu = _function(UnaryKind.RELU)
relu6 = _function(UnaryKind.RELU6)
leaky_relu = _function(UnaryKind.LEAKY_RELU)
elu = _function(UnaryKind.ELU)
selu = _function(UnaryKind.SELU)
gelu = _function(UnaryKind.GELU)
gelu_tanh = _function(UnaryKind.GELU_TANH)
silu = _function(UnaryKind.SILU)
mish = _function(UnaryKind.MISH)
softplus = _function(UnaryKind.SOFTPLUS)
softsign = _function(UnaryKind.SOFTSIGN)
hardtanh = _function(UnaryKind.HARDTANH)
hardsigmoid = _function(UnaryKind.HARDSIGMOID)
hardswish = _function(UnaryKind.HARDSWISH)
hardshrink = _function(UnaryKind.HARDSHRINK)
softshrink = _function(UnaryKind.SOFTSHRINK)
