"""Gradient of masked_softmax with respect to x, from the saved output.

softmax  dx = scale y · (dy - Σ y · dy)
log      dx = scale (dy - exp(y) · Σ dy)

Both are 0 at columns that mask and causal leave out, also in a row of which nothing is left, whose y is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, operand,
    output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import cast
from ...schedules.row_slopes import slope_geometry, slope_kernels
from .masked_softmax import MaskedSoftmaxDescriptor, causal_rows, drawn, kept
from .masked_softmax import reference as forward


@dataclass(slots=True, kw_only=True)
class MaskedSoftmaxBackwardArgs(Args):
    """`y` is the output of the forward, `mask` and `scale` what it was given."""

    dy: Array = operand("*shape", element="out_element")
    y: Array = operand("*shape", element="out_element")
    mask: Array | None = operand("*shape", element=ElementKind.BOOL, optional=True, broadcast=True)
    dx: Array = output("*shape", inplace=("dy", "y"))
    scale: Scalar = scalar(1.0)


def reference(desc: MaskedSoftmaxDescriptor, *, dy: Any, y: Any, mask: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    grad, saved = (a.reshape(desc.shape or (1,)) for a in (dy, y))
    with np.errstate(all="ignore"):
        if desc.log:
            dx = grad - np.exp(saved) * grad.sum(axis=desc.axis, keepdims=True)
        else:
            dx = saved * (grad - (saved * grad).sum(axis=desc.axis, keepdims=True))
        dx = (dx * dx.dtype.type(scale)).reshape(desc.shape)
        seen = kept(desc, mask)
    return {"dx": dx if seen is None else np.where(seen, dx, dx.dtype.type(0))}


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    mask = p.mask.broadcast_to(desc.shape) if p.mask is not None else None
    views = (p.dy, p.y, p.dx, mask, causal_rows(desc))
    causal = (int(desc.causal), desc.diagonal)
    return slope_geometry(p, views, desc.axis, causal, axes={"LOG": desc.log}, mask="mask")


def in_torch(
    torch: Any, desc: MaskedSoftmaxDescriptor, *, dy: Any, y: Any, mask: Any, scale: Any
) -> Any:  # fmt: skip
    """torch's gradients from the saved output, and what is left out."""
    function = torch.ops.aten._log_softmax_backward_data if desc.log else torch.ops.aten._softmax_backward_data
    wide = torch.promote_types(dy.dtype, torch.float32)
    dx = function(dy.to(wide), y.to(wide), desc.axis, wide) * scale
    if mask is not None:
        dx = dx.masked_fill(~mask, 0)
    if desc.causal:
        dx = dx.tril(desc.diagonal)
    return dx.to(getattr(torch, str(desc.element)) if str(dy.dtype).endswith(str(desc.out_element)) else dy.dtype)


class MaskedSoftmaxBackwardPlan(Plan):
    """dx of masked_softmax along `axis`: scale y (dy - Σ y dy), of its logarithm scale (dy - exp(y) Σ dy).

    What mask and causal leave out has 0, also in a row of which nothing is left, whose y is NaN.
    """

    op = "softmax.masked_softmax_backward"
    direction = "backward"
    descriptor = MaskedSoftmaxDescriptor
    args = MaskedSoftmaxBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "row", _geometry, source="softmax/row_slopes.cu",
            kernels=slope_kernels("{LOG} ? slope_log : slope_softmax", widened=True, LOG=(False, True)),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[32, 1024, 1024] bf16", shape=(32, 1024, 1024), element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> MaskedSoftmaxDescriptor:
        """As the forward's."""
        return drawn(draw)

    @classmethod
    def complete(cls, desc: MaskedSoftmaxDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes an output of the forward."""
        x = np.random.default_rng(sum(desc.shape)).standard_normal(desc.shape)
        y = forward(desc, x=x, mask=arrays["mask"], bias=None, scale=1.0)["y"]
        arrays["y"] = np.array(cast(y, desc.out_element))


masked_softmax_backward = functional(MaskedSoftmaxBackwardPlan)
