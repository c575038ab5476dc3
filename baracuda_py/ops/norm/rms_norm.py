"""rms_norm: h = x + residual, y = h / sqrt(mean(h²) + eps) · weight over trailing axes (Zhang and Sennrich 2019)."""

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
    Affine, affine_element, affine_elements, forward_geometry, forward_kernels, forward_params, infer_normalized_shape,
    norm_benchmarks, norm_case, range_scale,
)  # fmt: skip
from ...core.benchmark import Benchmark

_X = "*batch_shape *normalized_shape"


@dataclass(frozen=True, kw_only=True)
class RMSNormDescriptor(Affine, Descriptor):
    """x has shape (*batch_shape, *normalized_shape); the mean is over normalized_shape.

    weight_element: the element (default), or float32 beside float16 and bfloat16 activations. weight_offset is added to
    every weight, in the accumulator: 1 where weights are learned as differences from 1 (Gemma).
    """

    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class RMSNormArgs(Args):
    """`h` = x + residual rounded to the element is what is normalised, what the backward takes as its x.

    `rstd` = 1 / sqrt(mean(h²) + eps) is in the accumulator's element (float32; float64 for float64).
    """

    x: Array = operand(_X)
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    residual: Array | None = operand(_X, optional=True)
    y: Array = output(_X, inplace=("x", "residual"))
    h: Array | None = output(_X, optional=True, inplace=("x", "residual"), needs="residual")
    rstd: Array | None = output("*batch_shape", element="acc", optional=True, layout="dense")


def reference(desc: RMSNormDescriptor, *, x: Any, weight: Any, residual: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; only h is rounded to the element, as it is stored."""
    h = x if residual is None else cast(x + residual, desc.element).astype(x.dtype)
    axes = tuple(range(len(desc.batch_shape), h.ndim))
    count = h.dtype.type(int(np.prod(desc.normalized_shape)))
    with np.errstate(all="ignore"):
        scale = range_scale(h, axes, desc.eps)
        z = h * scale
        eps = h.dtype.type(desc.eps) * scale * scale
        rstd = 1 / np.sqrt(np.sum(z * z, axis=axes, keepdims=True) / count + eps)
        y = z * rstd if weight is None else z * rstd * (weight + h.dtype.type(desc.weight_offset))
    return {"y": y, "h": h, "rstd": (rstd * scale).reshape(desc.batch_shape)}


PARAMS = forward_params(
    "RMSNormParams", x="ptr", weight="ptr", residual="ptr", y="ptr", h="ptr", rstd="ptr", weight_offset="f64"
)


def in_torch(torch: Any, desc: RMSNormDescriptor, *, x: Any, weight: Any, residual: Any, wanted: set[str]) -> Any:
    """torch's rms_norm, of the sum where there is a residual; rstd by its formula."""
    if not desc.normalized_shape:
        return NotImplemented
    h = x if residual is None else x + residual
    weight = None if weight is None else weight + desc.weight_offset
    made = {"y": torch.nn.functional.rms_norm(h, desc.normalized_shape, weight, desc.eps), "h": h}
    if "rstd" in wanted:
        wide, axes = h.to(torch.promote_types(h.dtype, torch.float32)), tuple(range(len(desc.batch_shape), h.ndim))
        made["rstd"] = torch.rsqrt(wide.square().mean(axes) + desc.eps)
    return made


class RMSNormPlan(Plan):
    """y = h / sqrt(mean(h² over normalized_shape) + eps) · weight, h = x + residual (torch.nn.functional.rms_norm).

    The weight may be weight + weight_offset. x, residual, y, h (*batch_shape, *normalized_shape); weight
    (*normalized_shape); rstd (*batch_shape). Float16 and bfloat16 rows take float32 weights too. y may be written over
    x or residual, and h over the other.
    """

    op = "norm.rms_norm"
    descriptor = RMSNormDescriptor
    args = RMSNormArgs
    autocast = "widest"
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", forward_geometry, source="norm/rms_norm.cu", kernels=forward_kernels("rms_norm", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("RMSNormBackwardPlan", saves={"h": "x"}, grads={"x": "dx", "residual": "dx", "weight": "dweight"})
    torch = staticmethod(in_torch)
    benchmarks = (
        *norm_benchmarks("weight"),
        Benchmark(
            "add + norm [32768, 4096] bf16", batch_shape=32768, normalized_shape=4096, element="bfloat16",
            also=("weight", "residual", "h"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RMSNormDescriptor:
        batch, normalized = norm_case(draw)
        return RMSNormDescriptor(
            batch_shape=batch, normalized_shape=normalized, eps=draw.number(1e-8, 1e-2), element=draw.element,
            weight_offset=draw.choice((0.0, 1.0)),
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)


rms_norm = functional(RMSNormPlan)
