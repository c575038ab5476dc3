"""hadamard_backward: the gradient of a Hadamard transform, which is one too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import Args, Array, Plan, Scalar, operand, output, scalar
from ...calls.functional import functional
from .hadamard import HadamardDescriptor, HadamardPlan, Names, draw_case, rotated, variants_of


@dataclass(slots=True, kw_only=True)
class HadamardBackwardArgs(Args):
    """Any strides; dx may be dy itself. signs, after and scale are those of the forward call."""

    dy: Array = operand("*shape")
    signs: Array | None = operand("*cols", optional=True)
    after: Array | None = operand("*cols", optional=True)
    dx: Array = output("*shape", inplace=("dy",))
    scale: Scalar = scalar(1.0)


def reference(desc: HadamardDescriptor, *, dy: Any, signs: Any, after: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    return {"dx": rotated(desc, dy, after, signs, scale)}


class HadamardBackwardPlan(Plan):
    """dx = signs · scale H (after · dy): H is symmetric, and signs and after change places."""

    op = "quantize.hadamard_backward"
    direction = "backward"
    descriptor = HadamardDescriptor
    args = HadamardBackwardArgs
    reference = staticmethod(reference)
    variants = variants_of(Names("dx", "dy", "after", "signs"))
    benchmarks = HadamardPlan.benchmarks[:1]
    case = staticmethod(draw_case)


hadamard_backward = functional(HadamardBackwardPlan)
