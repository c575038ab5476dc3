"""layer_norm_backward: the gradients of layer_norm in x (and residual), weight and bias, one pass over dy and x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Guarantee, Plan, Relative, Variant, element, extents,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...schedules.norms import (
    Affine, affine_element, affine_elements, backward_bytes, backward_geometry, backward_kernels,
    backward_params, combine_params, infer_normalized_shape, norm_benchmarks, norm_case,
)  # fmt: skip

_X = "*batch_shape *normalized_shape"


@dataclass(frozen=True, kw_only=True)
class LayerNormBackwardDescriptor(Affine, Descriptor):
    """The fields of `LayerNormDescriptor` that the gradient needs (eps is in rstd)."""

    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class LayerNormBackwardArgs(Args):
    """`x` is what was normalised (the forward's h where it added a residual); mean and rstd are what it saved.

    `dh` is the gradient that reaches h by the residual stream; it is added to dx, which is then the gradient of x and
    of residual both. Each output may be None.
    """

    dy: Array = operand(_X)
    x: Array = operand(_X)
    mean: Array = operand("*batch_shape", element="acc", layout="dense")
    rstd: Array = operand("*batch_shape", element="acc", layout="dense")
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    dh: Array | None = operand(_X, optional=True)
    dx: Array | None = output(_X, optional=True, inplace=("dy", "x", "dh"))
    dweight: Array | None = output("*normalized_shape", element="weight_element", optional=True, needs="weight")
    dbias: Array | None = output("*normalized_shape", element="weight_element", optional=True)


def reference(
    desc: LayerNormBackwardDescriptor, *, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any, dh: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """With xhat = (x - mean)·rstd and g = dy·weight: dx = rstd·(g - mean(g) - xhat·mean(g·xhat)) + dh."""
    split = len(desc.batch_shape)
    axes, rows = tuple(range(split, x.ndim)), tuple(range(split))
    scale = rstd.reshape(desc.batch_shape + (1,) * len(axes))
    results = {}
    with np.errstate(all="ignore"):
        xhat = (x - mean.reshape(scale.shape)) * scale
        if "dx" in wanted:
            g = dy if weight is None else dy * weight
            count = x.dtype.type(int(np.prod(desc.normalized_shape)))
            along = xhat * (np.sum(g * xhat, axis=axes, keepdims=True) / count)
            dx = scale * (g - np.sum(g, axis=axes, keepdims=True) / count - along)
            results["dx"] = dx if dh is None else dx + dh
        if "dweight" in wanted:
            results["dweight"] = np.sum(dy * xhat, axis=rows)
        if "dbias" in wanted:
            results["dbias"] = np.sum(dy, axis=rows)
    return results


PARAMS = backward_params("LayerNormBackwardParams", mean="ptr")
COMBINE = combine_params("LayerNormCombineParams", dweight="ptr", dbias="ptr")


class LayerNormBackwardPlan(Plan):
    """dx = rstd·(g - mean(g) - xhat·mean(g·xhat)) + dh, dweight = Σ rows dy·xhat, dbias = Σ rows dy.

    xhat = (x - mean)·rstd, g = dy·weight. dy, x, dh, dx (*batch_shape, *normalized_shape); weight, dweight, dbias
    (*normalized_shape); mean, rstd (*batch_shape), float32 (float64 for float64). dweight and dbias are summed in a
    fixed order: the rows a block takes, then the blocks.
    """

    op = "norm.layer_norm_backward"
    direction = "backward"
    descriptor = LayerNormBackwardDescriptor
    args = LayerNormBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "pipeline", backward_geometry, source="norm/layer_norm_backward.cu",
            kernels=backward_kernels("layer_norm", PARAMS, COMBINE), guarantee=Guarantee(Relative(2)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = norm_benchmarks("weight", "dx", "dweight", "dbias")

    @staticmethod
    def case(draw: Any) -> LayerNormBackwardDescriptor:
        batch, normalized = norm_case(draw)
        return LayerNormBackwardDescriptor(
            batch_shape=batch, normalized_shape=normalized, element=draw.element,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if arrays["x"].size:
            x = arrays["x"].astype(np.float64).reshape(*desc.batch_shape, -1)
            with np.errstate(invalid="ignore"):
                arrays["mean"] = x.mean(axis=-1).astype(desc.acc.dtype)
                arrays["rstd"] = (1 / np.sqrt(x.var(axis=-1) + 1e-5)).astype(desc.acc.dtype)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return backward_bytes(desc, sums=2)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)


layer_norm_backward = functional(LayerNormBackwardPlan)
