"""rope_backward: the gradient of rope is the rotation by the negated angle (a rotation's transpose is its inverse)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import Args, Array, Guarantee, Plan, Relative, Scalar, Variant, operand, output, scalar
from ....calls.functional import functional
from ..layouts import Layouts
from .rope import X2, RopeDescriptor, RopePlan, X, geometry, kernels, random_case, rope_benchmarks
from .rotary import TABLES, angles, check_tokens, frequencies_operand, positions_operand, rotate, table_operand


@dataclass(frozen=True, kw_only=True)
class RopeBackwardDescriptor(RopeDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class RopeBackwardArgs(Args):
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


def reference(desc: RopeBackwardDescriptor, *, dy: Any, dy2: Any, wanted: set[str], **turn: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    cos, sin = angles(desc, dy.dtype, **turn)
    results = {"dx": rotate(desc, dy, cos, -sin)}
    if "dx2" in wanted:
        results["dx2"] = rotate(desc, dy2, cos, -sin)
    return results


class RopeBackwardPlan(Plan):
    """dx = dy with pair j of each row turned by -(position + offset) · inv_freq[j] and multiplied by scale."""

    op = "attention.rope_backward"
    direction = "backward"
    descriptor = RopeBackwardDescriptor
    args = RopeBackwardArgs
    autocast = "widest"
    reference = staticmethod(reference)
    value_policy = "any position is legal: a negative one turns backwards"
    variants = (
        Variant(
            "rotate", lambda p: geometry(p, ("dy", "dx", "dy2", "dx2"), True), source="attention/rope/rope.cu",
            kernels=kernels(), guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = rope_benchmarks()

    @staticmethod
    def case(draw: Any) -> RopeDescriptor:
        return random_case(draw, RopeBackwardDescriptor)

    check = RopePlan.check
    complete = RopePlan.complete

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if "dy2" in shapes and len(shapes["dy2"]) == 4:
            facts["num_heads2"] = shapes["dy2"][1]
        check_tokens(shapes, "dy", ("dy2",), facts)

    @classmethod
    def flops(cls, desc: RopeBackwardDescriptor) -> int:
        return 3 * desc.batch_size * desc.num_heads * desc.seq_len * desc.rotary


rope_backward = functional(RopeBackwardPlan, layouts=Layouts(("dy", "dy2", *TABLES, "dx", "dx2")))
