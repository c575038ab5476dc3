"""gated_activation: y = act(gate) · up (Dauphin et al. 2017; Shazeer 2020): glu, reglu, swiglu, geglu."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Ulp,
    Variant, Vjp, choice, element, extents, functional, operand, output,
)  # fmt: skip
from ...core.checked import shown
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...core.keywords import entry, unexpected
from ...interop.arrays import read
from ...schedules.map import map_geometry, map_kernels, map_params
from ..elementwise.functions.row import POINTS
from ..elementwise.unary_kinds import UnaryKind, unary_bound
from ...core.benchmark import Benchmark


class GatedActivationKind(enum.Enum):
    """The activation of the gate: sigmoid, relu, silu, gelu (erf), gelu (tanh)."""

    GLU = "glu"
    REGLU = "reglu"
    SWIGLU = "swiglu"
    GEGLU = "geglu"
    GEGLU_TANH = "geglu_tanh"

    @property
    def activation(self) -> UnaryKind:
        """The unary kind that the gate goes through."""
        return _ACTIVATIONS[self.value]

    @property
    def cpp(self) -> str:
        """That kind's functor."""
        return self.activation.cpp


_ACTIVATIONS = {
    "glu": UnaryKind.SIGMOID, "reglu": UnaryKind.RELU, "swiglu": UnaryKind.SILU, "geglu": UnaryKind.GELU,
    "geglu_tanh": UnaryKind.GELU_TANH,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GatedActivationDescriptor(Descriptor):
    """gate, up and y have shape `shape`."""

    kind: GatedActivationKind = choice(GatedActivationKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element()


def gate_points(_: Any) -> tuple[float, ...]:
    """Gates whose neighbours are worth testing."""
    return POINTS


@dataclass(slots=True, kw_only=True)
class GatedActivationArgs(Args):
    """Any strides: gate and up may be the two halves of one packed projection. y may be either of them itself."""

    gate: Array = operand("*shape", values=Everywhere(gate_points))
    up: Array = operand("*shape", values=Everywhere())
    y: Array = output("*shape", inplace=("gate", "up"))


def reference(desc: GatedActivationDescriptor, *, gate: Any, up: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in."""
    with np.errstate(all="ignore"):
        return {"y": np.asarray(desc.kind.activation.row.gate(gate, up), gate.dtype)}


def _bound(kind: ElementKind, gated: Any) -> ErrorBound:
    of_gate = unary_bound(kind, gated.activation)
    if not isinstance(of_gate, Ulp):  # relu: the product is rounded once
        return Ulp(0.51)
    return Ulp(0.53) if kind in HALVES else Ulp(2 * of_gate.n + 0.5)  # an ulp of the product may be half as large


PARAMS = Params("GatedActivationParams", y="ptr", gate="ptr", up="ptr", **map_params(3))


def _geometry(p: Problem) -> Geometry | str:
    return map_geometry(p, (p.y, p.gate, p.up))


def halves_in_torch(torch: Any, desc: Any, *names: str) -> dict[str, Any]:
    """Random arrays `names` that are the two halves of one."""
    packed = torch.randn(*desc.shape[:-1], 2 * desc.shape[-1], dtype=getattr(torch, str(desc.element)))
    return dict(zip(names, packed.chunk(2, -1), strict=True))


def in_torch(torch: Any, desc: GatedActivationDescriptor, *, gate: Any, up: Any) -> Any:
    """The formula."""
    return desc.kind.activation.row.in_torch(torch, gate) * up


class GatedActivationPlan(Plan):
    """y = act(gate) · up; the activation is that of `UnaryPlan`, not rounded before the product is."""

    op = "gated.gated_activation"
    kinds = GatedActivationKind
    descriptor = GatedActivationDescriptor
    args = GatedActivationArgs
    reference = staticmethod(reference)
    vjp = Vjp("GatedActivationBackwardPlan", grads={"gate": "dgate", "up": "dup"})
    variants = (
        Variant(
            "map", _geometry, source="gated/gated_activation.cu",
            kernels=map_kernels("gated_activation<{KIND}, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(_bound, batch_invariant=True),
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
        return GatedActivationDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)


gated_activation = functional(GatedActivationPlan)


def halves(x: Array, order: str = "gate_first") -> tuple[Array, Array]:
    """(gate, up): views of the two halves of x along its last axis.

    order: "gate_first" as language models pack them (LLaMA's gate_up projection), or "gate_last" as
    torch.nn.functional.glu does, where glu(x) = first · sigmoid(second).
    """
    if not isinstance(order, str) or order not in ("gate_first", "gate_last"):
        raise InvalidProblemError(f'order must be "gate_first" or "gate_last", got {shown(order)}')
    shape = read(x, "x").shape
    if not shape or shape[-1] % 2:
        raise InvalidProblemError(f"x must have an even last axis to be split in halves, got shape {shape}")
    try:
        first, second = x[..., : shape[-1] // 2], x[..., shape[-1] // 2 :]
    except Exception as error:
        raise InvalidProblemError(f"x must be an array that can be sliced, got {type(x).__name__}") from error
    return (first, second) if order == "gate_first" else (second, first)


@entry(GatedActivationPlan)
def gated_activation_packed(
    x: Array, *, kind: Any, order: str = "gate_first", out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """y[..., F] from x[..., 2F], its halves gate and up in the given `order` (see `halves`); nothing is copied."""
    if unknown:
        raise unexpected(gated_activation_packed, unknown)
    gate, up = halves(x, order)
    return gated_activation(gate, up, kind=kind, out=out, stream=stream, preference=preference)


def _function(kind: GatedActivationKind) -> Any:
    doc = f"y = {kind.activation.value}(gate) · up; see `GatedActivationPlan`. Packed: {kind.value}(*halves(x, order))."
    return functional(GatedActivationPlan, kind.value, doc, kind=kind)


glu = _function(GatedActivationKind.GLU)
reglu = _function(GatedActivationKind.REGLU)
swiglu = _function(GatedActivationKind.SWIGLU)
geglu = _function(GatedActivationKind.GEGLU)
geglu_tanh = _function(GatedActivationKind.GEGLU_TANH)
