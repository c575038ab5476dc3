"""rms_norm_backward: the gradients of rms_norm in x (and residual) and weight, one pass over dy and x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Guarantee, Plan, Relative, Variant, element, extents, number,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...schedules.norms import (
    Affine, affine_element, affine_elements, backward_bytes, backward_geometry, backward_kernels,
    backward_params, combine_params, infer_normalized_shape, norm_benchmarks, norm_case,
)  # fmt: skip

_X = "*batch_shape *normalized_shape"


@dataclass(frozen=True, kw_only=True)
class RMSNormBackwardDescriptor(Affine, Descriptor):
    """The fields of `RMSNormDescriptor` that the gradient needs (eps is in rstd)."""

    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    weight_offset: float = number(0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class RMSNormBackwardArgs(Args):
    """`x` is what was normalised (the forward's h where it added a residual), `rstd` what the forward saved.

    `dh` is the gradient that reaches h by the residual stream; it is added to dx, which is then the gradient of x and
    of residual both. Each output may be None.
    """

    dy: Array = operand(_X)
    x: Array = operand(_X)
    rstd: Array = operand("*batch_shape", element="acc", layout="dense")
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    dh: Array | None = operand(_X, optional=True)
    dx: Array | None = output(_X, optional=True, inplace=("dy", "x", "dh"))
    dweight: Array | None = output("*normalized_shape", element="weight_element", optional=True, needs="weight")


def reference(
    desc: RMSNormBackwardDescriptor, *, dy: Any, x: Any, rstd: Any, weight: Any, dh: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """With xhat = x·rstd and g = dy·weight: dx = rstd·(g - xhat·mean(g·xhat)) + dh, dweight = Σ rows dy·xhat."""
    split = len(desc.batch_shape)
    axes = tuple(range(split, x.ndim))
    scale = rstd.reshape(desc.batch_shape + (1,) * len(axes))
    results = {}
    with np.errstate(all="ignore"):
        xhat = x * scale
        if "dx" in wanted:
            g = dy if weight is None else dy * (weight + x.dtype.type(desc.weight_offset))
            count = x.dtype.type(int(np.prod(desc.normalized_shape)))
            dx = scale * (g - xhat * (np.sum(g * xhat, axis=axes, keepdims=True) / count))
            results["dx"] = dx if dh is None else dx + dh
        if "dweight" in wanted:
            results["dweight"] = np.sum(dy * xhat, axis=tuple(range(split)))
    return results


PARAMS = backward_params("RMSNormBackwardParams", weight_offset="f64")
COMBINE = combine_params("RMSNormCombineParams", dweight="ptr")


class RMSNormBackwardPlan(Plan):
    """dx = rstd·(g - xhat·mean(g·xhat)) + dh, dweight = Σ rows dy·xhat; xhat = x·rstd, g = dy·(weight + weight_offset).

    dy, x, dh, dx (*batch_shape, *normalized_shape); weight, dweight (*normalized_shape); rstd (*batch_shape), float32
    (float64 for float64). dweight is summed in a fixed order: the rows a block takes, then the blocks.
    """

    op = "norm.rms_norm_backward"
    direction = "backward"
    descriptor = RMSNormBackwardDescriptor
    args = RMSNormBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "pipeline", backward_geometry, source="norm/rms_norm_backward.cu",
            kernels=backward_kernels("rms_norm", PARAMS, COMBINE), guarantee=Guarantee(Relative(2)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = norm_benchmarks("weight", "dx", "dweight")

    @staticmethod
    def case(draw: Any) -> RMSNormBackwardDescriptor:
        batch, normalized = norm_case(draw)
        return RMSNormBackwardDescriptor(
            batch_shape=batch, normalized_shape=normalized, element=draw.element,
            weight_offset=draw.choice((0.0, 1.0)),
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if arrays["x"].size:
            x = arrays["x"].astype(np.float64).reshape(*desc.batch_shape, -1)
            arrays["rstd"] = (1 / np.sqrt(np.mean(x * x, axis=-1) + 1e-6)).astype(desc.acc.dtype)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return backward_bytes(desc, sums=1)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)


rms_norm_backward = functional(RMSNormBackwardPlan)
