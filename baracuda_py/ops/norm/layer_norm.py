"""layer_norm: h = x + residual, y = (h - mean) / sqrt(var + eps) · weight + bias (Ba, Kiros, Hinton 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Guarantee, Plan, Relative, Variant, Vjp, element, extents,
    number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import cast
from ...schedules.norms import (
    Affine, affine_element, affine_elements, forward_kernels, forward_params, infer_normalized_shape, norm_benchmarks,
    norm_case, range_scale, streaming_geometry,
)  # fmt: skip

_X = "*batch_shape *normalized_shape"


@dataclass(frozen=True, kw_only=True)
class LayerNormDescriptor(Affine, Descriptor):
    """x has shape (*batch_shape, *normalized_shape); mean and (biased) variance are over normalized_shape.

    weight_element, of weight and bias: the element (default), or float32 beside float16 and bfloat16 activations.
    """

    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    eps: float = number(1e-5, minimum=0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class LayerNormArgs(Args):
    """weight and bias are independent. `h` = x + residual rounded to the element is what is normalised.

    `mean` and `rstd` = 1 / sqrt(var + eps) are in the accumulator's element (float32; float64 for float64).
    """

    x: Array = operand(_X)
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    bias: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    residual: Array | None = operand(_X, optional=True)
    y: Array = output(_X, inplace=("x", "residual"))
    h: Array | None = output(_X, optional=True, inplace=("x", "residual"), needs="residual")
    mean: Array | None = output("*batch_shape", element="acc", optional=True, layout="dense")
    rstd: Array | None = output("*batch_shape", element="acc", optional=True, layout="dense")


def reference(
    desc: LayerNormDescriptor, *, x: Any, weight: Any, bias: Any, residual: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; only h is rounded to the element, as it is stored."""
    h = x if residual is None else cast(x + residual, desc.element).astype(x.dtype)
    axes = tuple(range(len(desc.batch_shape), h.ndim))
    count = h.dtype.type(int(np.prod(desc.normalized_shape)))
    with np.errstate(all="ignore"):
        scale = range_scale(h, axes, desc.eps)
        z = h * scale
        mean = np.sum(z, axis=axes, keepdims=True) / count
        y = z - mean
        low = np.sum(y, axis=axes, keepdims=True) / count
        variance = np.maximum(np.sum(y * y, axis=axes, keepdims=True) / count - low * low, 0)
        low = np.where(mean * mean > variance, low, 0)  # what the mean's own rounding left out
        equal, eps = (variance == 0) & (scale <= 1), h.dtype.type(desc.eps)  # every deviation is 0, at any scale
        rstd = 1 / np.sqrt(variance + np.where(equal, eps, eps * scale * scale))
        y = (y - low) * rstd
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        mean, rstd = (mean + low) / scale, np.where(equal, rstd, rstd * scale)
    return {"y": y, "h": h, "mean": mean.reshape(desc.batch_shape), "rstd": rstd.reshape(desc.batch_shape)}


PARAMS = forward_params(
    "LayerNormParams", x="ptr", weight="ptr", bias="ptr", residual="ptr", y="ptr", h="ptr", mean="ptr", rstd="ptr"
)


def in_torch(
    torch: Any, desc: LayerNormDescriptor, *, x: Any, weight: Any, bias: Any, residual: Any, wanted: set[str]
) -> Any:
    """torch's layer_norm, of the sum where there is a residual; the statistics by their formulas."""
    if not desc.normalized_shape or 0 in desc.normalized_shape:
        return NotImplemented
    h = x if residual is None else x + residual
    made = {"y": torch.nn.functional.layer_norm(h, desc.normalized_shape, weight, bias, desc.eps), "h": h}
    if wanted & {"mean", "rstd"}:
        wide, axes = h.to(torch.promote_types(h.dtype, torch.float32)), tuple(range(len(desc.batch_shape), h.ndim))
        made |= {"mean": wide.mean(axes), "rstd": torch.rsqrt(wide.var(axes, correction=0) + desc.eps)}
    return made


class LayerNormPlan(Plan):
    """y = (h - mean) / sqrt(var + eps) · weight + bias with h = x + residual (torch.nn.functional.layer_norm).

    x, residual, y, h (*batch_shape, *normalized_shape); weight, bias (*normalized_shape); mean, rstd (*batch_shape).
    The variance is that of the deviations from the mean, and y of float32 and float64 keeps its digits where the mean
    is large. Float16 and bfloat16 rows take float32 weights too. y may be written over x or residual, and h over the
    other.
    """

    op = "norm.layer_norm"
    descriptor = LayerNormDescriptor
    args = LayerNormArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", streaming_geometry, source="norm/layer_norm.cu",
            kernels=forward_kernels(
                "layer_norm", PARAMS, streams=True
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp(
        "LayerNormBackwardPlan", saves={"h": "x"},
        grads={"x": "dx", "residual": "dx", "weight": "dweight", "bias": "dbias"},
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = norm_benchmarks("weight", "bias")

    @staticmethod
    def case(draw: Any) -> LayerNormDescriptor:
        batch, normalized = norm_case(draw)
        return LayerNormDescriptor(
            batch_shape=batch, normalized_shape=normalized, eps=draw.number(1e-8, 1e-2), element=draw.element,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)


layer_norm = functional(LayerNormPlan)
