"""gated_activation: y = act(gate) · up (Dauphin et al. 2017; Shazeer 2020), for any activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Variant, Vjp, choice,
    element, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...schedules.map import map_geometry, map_kernels, map_params
from ..elementwise.unary_fields import MOST, UnaryFields, packed
from ..elementwise.unary_kinds import draw_coefficients, unary_points
from .gated_kinds import GatedActivationKind, gated, gated_bound


@dataclass(frozen=True, kw_only=True)
class GatedActivationDescriptor(UnaryFields, Descriptor):
    """gate, up and y have shape `shape`; the coefficients are those of the activation, see `UnaryFields`."""

    kind: GatedActivationKind = choice(GatedActivationKind)  # type: ignore[assignment]
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class GatedActivationArgs(Args):
    """Any strides: gate and up may be the two halves of one packed projection. y may be either of them itself."""

    gate: Array = operand("*shape", values=Everywhere(unary_points))
    up: Array = operand("*shape", values=Everywhere())
    y: Array = output("*shape", inplace=("gate", "up"))


def reference(desc: GatedActivationDescriptor, *, gate: Any, up: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in."""
    with np.errstate(all="ignore"):
        return {"y": gated(desc.kind, gate, up, *desc.rounded(gate))}


PARAMS = Params(
    "GatedActivationParams", y="ptr", gate="ptr", up="ptr", coefficients=f"f64[{MOST}]", **map_params(3)
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.gate, p.up), {"coefficients": packed(p.desc)})


def halves_in_torch(torch: Any, desc: Any, *names: str) -> dict[str, Any]:
    """Random arrays `names` that are the two halves of one."""
    packed = torch.randn(*desc.shape[:-1], 2 * desc.shape[-1], dtype=getattr(torch, str(desc.element)))
    return dict(zip(names, packed.chunk(2, -1), strict=True))


def in_torch(torch: Any, desc: GatedActivationDescriptor, *, gate: Any, up: Any) -> Any:
    """The formula."""
    return desc.kind.in_torch(torch, gate, up, *desc.coefficients)


class GatedActivationPlan(Plan):
    """y = act(gate) · up; the activation is that of `UnaryPlan`, not rounded before the product is.

    The product is right wherever it is a number of the element, also where act(gate) alone is subnormal or 0.
    swiglu_oai, the unit of gpt-oss, is g sigmoid(alpha g) (u + 1) with g = min(gate, limit) and u = up kept in
    [-limit, limit].
    """

    op = "gated.gated_activation"
    kinds = GatedActivationKind
    descriptor = GatedActivationDescriptor
    args = GatedActivationArgs
    reference = staticmethod(reference)
    vjp = Vjp("GatedActivationBackwardPlan", grads={"gate": "dgate", "up": "dup"})
    variants = (
        Variant(
            "map", _geometry, source="gated/gated_activation.cu",
            kernels=map_kernels("gated_activation<{KIND}<{T}>, gradient::{KIND}<{T}>, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(gated_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "swiglu [32768, 2x4096] bf16", shape=(32768, 4096), kind="swiglu", element="bfloat16",
            make=lambda torch, desc: halves_in_torch(torch, desc, "gate", "up"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatedActivationDescriptor:
        own = dict(draw_coefficients(draw))
        return GatedActivationDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element, **own)
