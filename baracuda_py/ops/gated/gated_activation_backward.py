"""gated_activation_backward: dgate = dy · up · act'(gate), dup = dy · act(gate)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem,
    Relative, Variant, choice, element, operand, output,
)  # fmt: skip
from ...schedules.map import map_geometry, map_kernels, map_params
from ..elementwise.unary_fields import MOST, UnaryFields, packed
from ..elementwise.unary_kinds import draw_coefficients, unary_points
from .gated_activation import halves_in_torch
from .gated_kinds import GatedActivationKind, gate_gradient, up_gradient
from ...core.benchmark import Benchmark
from ...core.checked import require_some


@dataclass(frozen=True, kw_only=True)
class GatedActivationBackwardDescriptor(UnaryFields, Descriptor):
    """Every operand has shape `shape`; the coefficients are those of the activation, see `UnaryFields`."""

    kind: GatedActivationKind = choice(GatedActivationKind)  # type: ignore[assignment]
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class GatedActivationBackwardArgs(Args):
    """Any strides: dgate and dup may be the two halves of one packed gradient, and may overwrite the inputs."""

    dy: Array = operand("*shape", values=Everywhere())
    gate: Array = operand("*shape", values=Everywhere(unary_points))
    up: Array = operand("*shape", values=Everywhere())
    dgate: Array | None = output("*shape", optional=True, inplace=("dy", "gate", "up"))
    dup: Array | None = output("*shape", optional=True, inplace=("dy", "gate", "up"))


def reference(
    desc: GatedActivationBackwardDescriptor, *, dy: Any, gate: Any, up: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in."""
    kind, found, k = desc.kind, {}, desc.rounded(gate)
    with np.errstate(all="ignore"):
        if "dgate" in wanted:
            found["dgate"] = gate_gradient(kind, dy, up, gate, *k, element=desc.element)
        if "dup" in wanted:
            found["dup"] = up_gradient(kind, dy, up, gate, *k)
    return found


PARAMS = Params(
    "GatedActivationBackwardParams", dgate="ptr", dup="ptr", dy="ptr", gate="ptr", up="ptr",
    coefficients=f"f64[{MOST}]", **map_params(5),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.dgate, p.dup, p.dy, p.gate, p.up), {"coefficients": packed(p.desc)})


def in_torch(
    torch: Any, desc: GatedActivationBackwardDescriptor, *, dy: Any, gate: Any, up: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """swiglu's formula in float32 at least, for torch.compile to fuse; autograd of the others."""
    if desc.kind is GatedActivationKind.SWIGLU:
        wide = torch.promote_types(gate.dtype, torch.float32)
        g, u, d = (x.to(wide) for x in (gate, up, dy))
        sigmoid = torch.sigmoid(g)
        dgate, dup = d * u * sigmoid * (1 + g * (1 - sigmoid)), d * g * sigmoid
        return {"dgate": dgate.to(gate.dtype), "dup": dup.to(gate.dtype)}
    with torch.enable_grad():
        leaves = [gate.detach().requires_grad_(), up.detach().requires_grad_()]
        y = desc.kind.in_torch(torch, *leaves, *desc.coefficients)
        return dict(zip(("dgate", "dup"), torch.autograd.grad(y, leaves, dy), strict=True))


class GatedActivationBackwardPlan(Plan):
    """dgate and dup of y = act(gate) · up; either may be None, and is then free."""

    op = "gated.gated_activation_backward"
    direction = "backward"
    kinds = GatedActivationKind
    descriptor = GatedActivationBackwardDescriptor
    args = GatedActivationBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="gated/gated_activation_backward.cu",
            kernels=map_kernels(
                "gated_activation_backward<{KIND}<{T}>, gradient::{KIND}<{T}>, {T}, {LAYOUT}>", PARAMS
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "swiglu [32768, 2x4096] bf16", shape=(32768, 4096), kind="swiglu", element="bfloat16",
            make=lambda torch, desc: {
                **halves_in_torch(torch, desc, "gate", "up"), **halves_in_torch(torch, desc, "dgate", "dup")
            },
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatedActivationBackwardDescriptor:
        shape, own = draw.shape(0, 4, 0, 17), dict(draw_coefficients(draw))
        return GatedActivationBackwardDescriptor(kind=draw.kind, shape=shape, element=draw.element, **own)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dgate", "dup")

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return 5 * int(np.prod(desc.shape, dtype=np.int64)) * desc.element.itemsize  # type: ignore[no-any-return]
