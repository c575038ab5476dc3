"""selective_scan_complex_backward: gradients of the scan with complex states, conjugate as torch's are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import Args, Array, Guarantee, Kernel, Plan, Relative, Variant, operand, output
from ...calls.functional import functional
from ..attention.packed.ragged import INDEX, random_bounds
from .kinds import numbers
from .selective import (
    COMPLEX_STATES, POLICY, THREADS, PackedScan, SelectiveScanComplexDescriptor, scan_case, walking,
)  # fmt: skip
from .selective_scan import X, scan_benchmarks
from .selective_scan_backward import FOLD, PARAMS, reference, slopes_geometry
from .selective_scan_complex import INPUTS, MATRIX, STATE, finite_steps, turning


@dataclass(slots=True, kw_only=True)
class SelectiveScanComplexBackwardArgs(Args):
    """Those of `SelectiveScanBackwardArgs`, with pairs; ∂L/∂re and ∂L/∂im are the parts of a gradient."""

    dy: Array = operand(X, values=numbers)
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
    dlast_state: Array | None = operand(STATE, element="acc", optional=True, values=numbers)
    du: Array | None = output(X, optional=True)
    ddelta: Array | None = output(X, optional=True)
    da: Array | None = output(MATRIX, element="acc", optional=True)
    db: Array | None = output(INPUTS, optional=True)
    dc: Array | None = output(INPUTS, optional=True)
    dd: Array | None = output("dim", element="acc", optional=True, needs="d")
    dz: Array | None = output(X, optional=True, needs="z")
    ddelta_bias: Array | None = output("dim", element="acc", optional=True, needs="delta_bias")
    dinitial_state: Array | None = output(STATE, element="acc", optional=True, needs="initial_state")


_WIDE = {"WIDE": (True, False)}


class SelectiveScanComplexBackwardPlan(PackedScan, Plan):
    """Gradients of `SelectiveScanComplexPlan`: with g = ∂L/∂h, walked back, g = 2 dy c̄ + conj(exp(dt a)) g and so on.

    As `SelectiveScanBackwardPlan`, in whose order sums are.
    """

    op = "recurrence.selective_scan_complex_backward"
    direction = "backward"
    descriptor = SelectiveScanComplexDescriptor
    args = SelectiveScanComplexBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "channels", slopes_geometry, source="recurrence/selective_scan_backward.cu",
            kernels=(
                *walking("states", "selective_scan_states", PARAMS, pair=2),
                Kernel("slopes", f"selective_scan_slopes<{{T}}, {COMPLEX_STATES}, {{WIDE}}, true>", PARAMS, _WIDE,
                       threads=THREADS),
                Kernel("fold_inputs", "selective_scan_fold_inputs<{T}>", FOLD, threads=THREADS),
                Kernel("fold_channels", "selective_scan_fold_channels<{T}>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(4)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = scan_benchmarks("du", "ddelta", "da", "db", "dc", "dd", "dz", "ddelta_bias", pair=2)

    @staticmethod
    def case(draw: Any) -> SelectiveScanComplexDescriptor:
        made: SelectiveScanComplexDescriptor = scan_case(draw, SelectiveScanComplexDescriptor, (40,))
        return made


selective_scan_complex_backward = functional(SelectiveScanComplexBackwardPlan)
