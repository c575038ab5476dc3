"""Gradient of softmax and log_softmax from the saved output (torch._softmax_backward_data, _log_softmax_backward_data).

softmax      dx = y · (dy - Σ y · dy)
log_softmax  dx = dy - exp(y) · Σ dy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Geometry, Params, Plan, Problem, operand, output
from ...calls.functional import functional
from ...core.element import cast, decode
from ...schedules.row_groups import TILE_FIELDS, group_params, row_axis_last
from .softmax import SoftmaxDescriptor, SoftmaxKind, SoftmaxPlan, row_steps, row_variants
from .softmax import reference as forward
from ...core.benchmark import Benchmark


@dataclass(slots=True, kw_only=True)
class SoftmaxBackwardArgs(Args):
    """`y` is the output of the forward; `dx` may be either input itself."""

    dy: Array = operand("*shape")
    y: Array = operand("*shape")
    dx: Array = output("*shape", inplace=("dy", "y"))


def reference(desc: SoftmaxDescriptor, *, dy: Any, y: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    grad, saved = (a.reshape(desc.shape or (1,)) for a in (dy, y))
    if desc.kind is SoftmaxKind.LOG_SOFTMAX:
        dx = grad - np.exp(saved) * grad.sum(axis=desc.row_axis, keepdims=True)
    else:
        dx = saved * (grad - (saved * grad).sum(axis=desc.row_axis, keepdims=True))
    return {"dx": dx.reshape(desc.shape)}


PARAMS = Params("SoftmaxBackwardParams", dy="ptr", y="ptr", dx="ptr", stage="i32", **TILE_FIELDS, **group_params(3))


_AT_ONCE = 2


def _geometry(p: Problem) -> Geometry | str:
    operands = (p.dy, p.y, p.dx)
    if not p.desc.shape:
        return row_steps(p, tuple(v.reshaped((1,)) for v in operands), 2, _AT_ONCE)
    return row_steps(p, tuple(row_axis_last(v, p.desc.row_axis) for v in operands), 2, _AT_ONCE)


def in_torch(torch: Any, desc: SoftmaxDescriptor, *, dy: Any, y: Any) -> Any:
    """torch's gradient from the saved output."""
    function = getattr(torch.ops.aten, f"_{desc.kind.value}_backward_data")
    return function(dy, y, desc.axis, dy.dtype)


class SoftmaxBackwardPlan(Plan):
    """dx of softmax or log_softmax along `axis`: y (dy - Σ y dy), or dy - exp(y) Σ dy.

    y counts as it is stored, and the bound is that of the formula on it. Roundings of a 16-bit y leave Σ y at 1 + δ,
    |δ| up to eps / 2: an offset c that all of a row's dy have in common, which the gradient of the exact softmax does
    not see, then adds -c δ y to dx. Those of a 16-bit log_softmax make exp(y) Σ dy wrong by |y| eps / 2 of itself.
    """

    op = "softmax.softmax_backward"
    direction = "backward"
    descriptor = SoftmaxDescriptor
    args = SoftmaxBackwardArgs
    kinds = SoftmaxKind
    reference = staticmethod(reference)
    variants = row_variants(_geometry, "softmax_backward", PARAMS, 2, _AT_ONCE)
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[32768, 4096] bf16", shape=(32768, 4096), element="bfloat16"),)

    case = staticmethod(SoftmaxPlan.case)

    @classmethod
    def complete(cls, desc: SoftmaxDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes the output of the forward."""
        logits = decode(arrays["y"], desc.element).astype(np.float64)
        arrays["y"] = np.array(cast(forward(desc, x=logits)["y"], desc.element))


softmax_backward = functional(SoftmaxBackwardPlan)
