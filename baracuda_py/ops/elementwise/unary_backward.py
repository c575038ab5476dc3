"""unary_backward: dx = dy f'(x), for the kinds of `UnaryKind` that have a derivative; and one function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Variant, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.map import map_geometry, map_params
from .complex_unary_backward import of_complex_backward
from .unary_fields import MOST, UnaryFields, fixed_for, packed
from .unary_kinds import (
    DIFFERENTIABLE, ROWS, SPECIAL, UnaryKind, draw_coefficients, kernels_of, kinds_of, slope_bound, unary_points,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UnaryBackwardDescriptor(UnaryFields, Descriptor):
    """dy, x and dx have shape `shape`; the coefficients are those of `UnaryFields`."""

    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind not in DIFFERENTIABLE:
            raise InvalidProblemError(f"the derivative of {self.kind.value} is 0 wherever there is one; fill dx with 0")
        super().validate()


@dataclass(slots=True, kw_only=True)
class UnaryBackwardArgs(Args):
    """x is the forward input, for every kind: f' of a rounded y would be wrong where f is flat."""

    dy: Array = operand("*shape", values=Everywhere())
    x: Array = operand("*shape", values=Everywhere(unary_points))
    dx: Array = output("*shape", inplace=("dy", "x"))


def reference(desc: UnaryBackwardDescriptor, *, dy: Any, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        return {"dx": np.asarray(desc.kind.row.gradient(dy, x, *desc.rounded(x)), x.dtype)}


PARAMS = Params("UnaryBackwardParams", dx="ptr", dy="ptr", x="ptr", coefficients=f"f64[{MOST}]", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.dx, p.dy, p.x), {"coefficients": packed(p.desc)})


def _row(kernel: str) -> Variant:
    return Variant(
        ROWS[kernel], _geometry, source=f"elementwise/{kernel.replace('unary', 'unary_backward')}.cu",
        kernels=kernels_of(kernel, "unary_backward<gradient::{KIND}, {T}, {LAYOUT}>", PARAMS),
        kinds=tuple(kind for kind in kinds_of(kernel) if kind in DIFFERENTIABLE),
        guarantee=Guarantee(slope_bound, batch_invariant=True), may_spill=kernel in SPECIAL,
    )  # fmt: skip


def in_torch(torch: Any, desc: UnaryBackwardDescriptor, *, dy: Any, x: Any) -> Any:
    """torch's own gradient of silu; autograd of the others, NaN where f is."""
    if desc.kind is UnaryKind.SILU:
        return torch.ops.aten.silu_backward(dy, x)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = desc.kind.row.in_torch(torch, leaf, *desc.coefficients)
        if y is NotImplemented:
            return y
        return torch.where(y.isnan(), y, torch.autograd.grad(y, leaf, dy)[0]).detach()


class UnaryBackwardPlan(Plan):
    """dx = dy f'(x), with PyTorch's slopes at the kinks: 0 at 0 for relu, at ±1 for hardtanh, at ±3 for hardsigmoid.

    dy and x may have any exponent: where f'(x) alone overflows or vanishes, the product is still right. Outside the
    domain of f (log, sqrt, asin, acosh, logit, …), where f is NaN, so is dx.
    """

    op = "elementwise.unary_backward"
    direction = "backward"
    kinds = DIFFERENTIABLE
    descriptor = UnaryBackwardDescriptor
    args = UnaryBackwardArgs
    reference = staticmethod(reference)
    variants = tuple(_row(kernel) for kernel in ROWS if any(kind in DIFFERENTIABLE for kind in kinds_of(kernel)))
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("silu 134M bf16", shape=1 << 27, kind="silu", element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> UnaryBackwardDescriptor:
        own = dict(draw_coefficients(draw))
        return UnaryBackwardDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element, **own)


def _function(kind: UnaryKind) -> Any:
    doc = f"dx = dy {kind.value}'(x) element by element; see `UnaryBackwardPlan`."
    name = f"{kind.value}_backward"
    return functional(UnaryBackwardPlan, name, doc, overloads=of_complex_backward(kind.names), **fixed_for(kind))


# A function for each row that has a gradient.
globals().update({f"{kind.value}_backward": _function(kind) for kind in DIFFERENTIABLE})
