"""rope_hadamard_backward: the gradient of rope_hadamard: the transform, which is its own transpose, and R⁻¹."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import Args, Array, Guarantee, Plan, Relative, Scalar, Variant, operand, output, scalar
from ....calls.functional import functional
from ..layouts import Layouts
from .rope import X2, RopePlan, X
from .rope_hadamard import RopeHadamardDescriptor, geometry, hadamard_benchmarks, kernels, mixed, random_case
from .rotary import TABLES, angles, check_tokens, frequencies_operand, positions_operand, rotate, table_operand


@dataclass(frozen=True, kw_only=True)
class RopeHadamardBackwardDescriptor(RopeHadamardDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class RopeHadamardBackwardArgs(Args):
    """Everything but dy and dy2 is that of the forward call."""

    dy: Array = operand(X)
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    dy2: Array | None = operand(X2, optional=True)
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    dx: Array = output(X, inplace=("dy",))
    dx2: Array | None = output(X2, optional=True, needs="dy2", inplace=("dy2",))
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)


def reference(
    desc: RopeHadamardBackwardDescriptor, *, dy: Any, dy2: Any, wanted: set[str], **turn: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    cos, sin = angles(desc, dy.dtype, **turn)
    results = {"dx": rotate(desc, mixed(desc, dy), cos, -sin)}
    if "dx2" in wanted:
        results["dx2"] = rotate(desc, mixed(desc, dy2), cos, -sin)
    return results


class RopeHadamardBackwardPlan(Plan):
    """dx = H dy / √head_dim with pair j of each row turned by -(position + offset) · inv_freq[j], times scale."""

    op = "attention.rope_hadamard_backward"
    direction = "backward"
    descriptor = RopeHadamardBackwardDescriptor
    args = RopeHadamardBackwardArgs
    autocast = "widest"
    reference = staticmethod(reference)
    value_policy = RopePlan.value_policy
    variants = (
        Variant(
            "heads", lambda p: geometry(p, ("dy", "dx", "dy2", "dx2")), source="attention/rope/rope_hadamard.cu",
            kernels=kernels("rope_hadamard_backward"), guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = hadamard_benchmarks()

    @staticmethod
    def case(draw: Any) -> RopeHadamardDescriptor:
        return random_case(draw, RopeHadamardBackwardDescriptor)

    check = RopePlan.check
    complete = RopePlan.complete

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if "dy2" in shapes and len(shapes["dy2"]) == 4:
            facts["num_heads2"] = shapes["dy2"][1]
        check_tokens(shapes, "dy", ("dy2",), facts)


rope_hadamard_backward = functional(RopeHadamardBackwardPlan, layouts=Layouts(("dy", "dy2", *TABLES, "dx", "dx2")))
