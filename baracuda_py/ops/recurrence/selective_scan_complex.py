"""selective_scan_complex: the selective scan with complex states, whose numbers are pairs (S4D, Gu et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import Args, Array, Guarantee, Params, Plan, Relative, Variant, Vjp, operand, output
from ...calls.functional import functional
from ...core.args import finite_only
from ..attention.packed.ragged import INDEX, random_bounds
from .kinds import numbers
from .selective import COMMON, POLICY, PackedScan, SelectiveScanComplexDescriptor, scan_case, step_sizes, walking
from .selective_scan import X, in_torch, reference, scan_benchmarks, scan_geometry

MATRIX, INPUTS, STATE = "dim states pair", "batch groups states length pair", "num_states dim states pair"


@finite_only
def turning(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: decays below 1 that turn; a product of complex numbers makes of an infinity an infinity or NaN."""
    made = rng.uniform(-2.0, 2.0, shape)
    made[..., 0] = -rng.uniform(0.05, 2.0, shape[:-1])
    return made


@finite_only
def finite_steps(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: steps of time; see `turning`."""
    return step_sizes(rng, desc, shape)


@dataclass(slots=True, kw_only=True)
class SelectiveScanComplexArgs(Args):
    """Those of `SelectiveScanArgs`; the parts of each number of a, b, c and the states lie side by side, last."""

    u: Array = operand(X, values=numbers)
    delta: Array = operand(X, values=finite_steps)
    a: Array = operand(MATRIX, element="acc", values=turning)
    b: Array = operand(INPUTS, values=numbers)
    c: Array = operand(INPUTS, values=numbers)
    d: Array | None = operand("dim", element="acc", optional=True, values=numbers)
    z: Array | None = operand(X, optional=True, values=numbers)
    delta_bias: Array | None = operand("dim", element="acc", optional=True, values=finite_steps)
    initial_state: Array | None = operand(STATE, element="acc", optional=True, values=numbers)
    cu_seqlens: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_bounds("length"))
    y: Array = output(X)
    last_state: Array | None = output(STATE, element="acc", optional=True)


PARAMS = Params("SelectiveScanParams", **COMMON, y="ptr", last_state="ptr", checkpoints="ptr")


class SelectiveScanComplexPlan(PackedScan, Plan):
    """h[n] = exp(dt a[n]) h[n] + dt b[n] u of complex a, b, c and h, y = (2 Re Σ_n c[n] h[n] + d u) silu(z).

    `SelectiveScanPlan` with pairs of parts for complex numbers, at most 64 states; the rest is as there. y is twice the
    real part, as mamba-ssm's `selective_scan_ref` has it: states stand for themselves and their conjugates.
    """

    op = "recurrence.selective_scan_complex"
    descriptor = SelectiveScanComplexDescriptor
    args = SelectiveScanComplexArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "channels", scan_geometry, source="recurrence/selective_scan.cu",
            kernels=walking("scan", "selective_scan", PARAMS, pair=2),
            guarantee=Guarantee(Relative(4), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp(
        "SelectiveScanComplexBackwardPlan",
        grads={
            "u": "du", "delta": "ddelta", "a": "da", "b": "db", "c": "dc", "d": "dd", "z": "dz",
            "delta_bias": "ddelta_bias", "initial_state": "dinitial_state",
        },
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("y", pair=2)

    @staticmethod
    def case(draw: Any) -> SelectiveScanComplexDescriptor:
        made: SelectiveScanComplexDescriptor = scan_case(draw, SelectiveScanComplexDescriptor, (40,))
        return made


selective_scan_complex = functional(SelectiveScanComplexPlan)
