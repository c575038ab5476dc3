"""selective_state_update_complex: a step of the selective scan with complex states, whose numbers are pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, ElementKind, Guarantee, InvalidProblemError, Kernel, Plan, Relative, Variant, derived, element, inout,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from .kinds import numbers
from .selective import COMPLEX_STATES, MOST_COMPLEX, THREADS
from .selective_scan_complex import MATRIX, finite_steps, turning
from .selective_state_update import (
    PARAMS, SelectiveStateUpdateDescriptor, SelectiveStateUpdatePlan, Slotted, random_slots, reference, update_fields,
    update_geometry,
)  # fmt: skip

X, INPUTS = "batch dim", "batch groups states pair"


def _wide(desc: Any, given: ElementKind) -> ElementKind:
    wanted: ElementKind = desc.element.acc
    if given is not wanted:
        raise InvalidProblemError(f"state_element must be {wanted}, got {given}")
    return wanted


@dataclass(frozen=True, kw_only=True)
class SelectiveStateUpdateComplexDescriptor(SelectiveStateUpdateDescriptor):
    """The same with a, b, c and states of complex numbers, whose parts are a last axis of 2; at most 64 states."""

    state_element: ElementKind = element(default=derived(lambda desc: desc.element.acc, _wide))

    @property
    def pair(self) -> int:
        """Parts of a number of the states."""
        return 2


@dataclass(slots=True, kw_only=True)
class SelectiveStateUpdateComplexArgs(Args):
    """Those of `SelectiveStateUpdateArgs`; the parts of each number of state, a, b and c lie side by side, last."""

    state: Array = inout("slots dim states pair", element="acc", values=numbers)
    u: Array = operand(X, values=numbers)
    delta: Array = operand(X, values=finite_steps)
    a: Array = operand(MATRIX, element="acc", values=turning)
    b: Array = operand(INPUTS, values=numbers)
    c: Array = operand(INPUTS, values=numbers)
    d: Array | None = operand("dim", element="acc", optional=True, values=numbers)
    z: Array | None = operand(X, optional=True, values=numbers)
    delta_bias: Array | None = operand("dim", element="acc", optional=True, values=finite_steps)
    state_indices: Array | None = operand("batch", element=INDICES[::-1], optional=True, values=random_slots)
    y: Array = output(X)


class SelectiveStateUpdateComplexPlan(Slotted, Plan):
    """state = exp(dt a) state + dt b u of complex a, b, c and states, y = (2 Re Σ_n c state + d u) silu(z).

    `SelectiveStateUpdatePlan` with pairs of parts for complex numbers, float32 (float64 of float64) in the states, and
    at most 64 of them. A sequence has the bits of `selective_scan_complex`.
    """

    op = "recurrence.selective_state_update_complex"
    descriptor = SelectiveStateUpdateComplexDescriptor
    args = SelectiveStateUpdateComplexArgs
    reference = staticmethod(reference)
    value_policy = SelectiveStateUpdatePlan.value_policy
    variants = (
        Variant(
            "channels", update_geometry, source="recurrence/selective_state_update.cu",
            kernels=(
                Kernel("update", f"selective_state_update<{{T}}, {COMPLEX_STATES}, true>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(4), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("256 sequences of 5120 channels bf16, 16 complex states", also=("d", "z", "delta_bias"), batch=256,
                  dim=5120, states=16, slots=256, softplus=True, element="bfloat16", target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SelectiveStateUpdateComplexDescriptor:
        return SelectiveStateUpdateComplexDescriptor(**update_fields(draw, MOST_COMPLEX - 3))


selective_state_update_complex = functional(SelectiveStateUpdateComplexPlan)
