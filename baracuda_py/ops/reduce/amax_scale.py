"""amax_scale: the largest magnitude of x, and the factor that brings it to the largest number of a narrow format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Ulp, Variant, axes, derived, element,
    extents, flag, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.error_bound import ErrorBound
from ...core.tensor import Shape
from ...schedules.reduce import reduce_geometry, reduce_kernels, reduce_params, without_axes
from .reduce import AlongAxes, row_case

TARGETS = (ElementKind.FP8E4M3, ElementKind.FP8E5M2, ElementKind.I8)


@dataclass(frozen=True, kw_only=True)
class AmaxScaleDescriptor(AlongAxes, Descriptor):
    """x has shape `shape`; axis and keepdims are as in `ReduceDescriptor`.

    target: the format that x is to be quantised to. limit: what the largest magnitude is brought to; by default the
    largest number of `target` (448, 57344, 127). eps: a smaller magnitude counts as this. power_of_two: the scale is
    rounded down to a power of two. inverse: the scale is what quantised values are multiplied by, not x.
    """

    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    target: ElementKind = element(TARGETS, ElementKind.FP8E4M3)
    limit: float = number(derived(lambda desc: float(desc.target.limits.max)), above=0)
    eps: float = number(0.0, minimum=0)
    power_of_two: bool = flag(False)
    inverse: bool = flag(False)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class AmaxScaleArgs(Args):
    """Any strides. Both results are float32, of float64 float64."""

    x: Array = operand("*shape")
    scale: Array = output("*result_shape", element="acc")
    amax: Array = output("*result_shape", element="acc")


def reference(desc: AmaxScaleDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        amax = np.max(np.abs(x), axis=desc.axis, initial=0).reshape(desc.result_shape)
        usual = np.isfinite(amax) & (amax > 0)
        size = np.maximum(np.where(usual, amax, 1), x.dtype.type(desc.eps))
        limit = x.dtype.type(desc.limit)
        scale = np.minimum(limit / size, x.dtype.type(desc.acc.limits.max))
        if desc.power_of_two:
            power = np.ldexp(x.dtype.type(1), np.frexp(scale)[1] - 1)
            scale = np.where(power * size > limit, power / 2, power)
        scale = np.where(usual, 1 / scale if desc.inverse else scale, 1)
    return {"scale": np.asarray(scale, x.dtype), "amax": np.asarray(amax)}


PARAMS = reduce_params("AmaxScaleParams", results=("y", "z"), limit="f64", eps="f64", power_of_two="i32", inverse="i32")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    results = [without_axes(view, desc.axis) if desc.keepdims else view for view in (p.scale, p.amax)]
    names = ("limit", "eps", "power_of_two", "inverse")
    values = {"y": "scale", "z": "amax", **{name: getattr(desc, name) for name in names}}
    return reduce_geometry(p, (p.x,), results, desc.axis, ordered=False, values=values)


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    return Ulp(1.51 if element is ElementKind.F64 else 0.51)  # a quotient, and its inverse; of float64 each is rounded


def in_torch(torch: Any, desc: AmaxScaleDescriptor, *, x: Any) -> Any:
    """Elementwise functions around torch.amax."""
    sizes = x.abs()
    if 0 in desc.shape:
        amax = x.new_zeros(desc.result_shape)
    else:
        amax = (sizes.amax(desc.axis) if desc.axis else sizes).reshape(desc.result_shape)
    usual = torch.isfinite(amax) & (amax > 0)
    size = torch.where(usual, amax, torch.ones_like(amax)).clamp(min=desc.eps)
    scale = (desc.limit / size).clamp(max=float(desc.acc.limits.max))
    if desc.power_of_two:
        power = torch.ldexp(torch.ones_like(scale), torch.frexp(scale)[1] - 1)
        scale = torch.where(power * size > desc.limit, power / 2, power)
    return torch.where(usual, 1 / scale if desc.inverse else scale, torch.ones_like(scale)), amax


class AmaxScalePlan(Plan):
    """amax = the largest |x| along `axis`, and scale = limit / max(amax, eps), as recipes of fp8 and int8 want both.

    cast(x * scale) then fills the range of the target format. Where amax is 0, infinite or NaN (which wins) the scale
    is 1; a quotient beyond the range is the largest number. With power_of_two it is rounded down to a power of two, so
    that scaling is exact; with inverse it is 1 / scale. One pass over x; along no axis, |x| itself is scaled. Formula:
    Micikevicius et al., FP8 formats for deep learning (2022).
    """

    op = "reduce.amax_scale"
    descriptor = AmaxScaleDescriptor
    args = AmaxScaleArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/amax_scale.cu", kernels=reduce_kernels("kinds::AmaxScale<{T}>", PARAMS),
            guarantee=Guarantee(_bound, math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{list(shape)} bf16, axis {axis}", shape=shape, axis=axis, element="bfloat16")
        for shape, axis in (((16384, 8192), None), ((16384, 8192), 1), ((8192, 16384), 0), ((1 << 20, 128), 1))
    )

    @staticmethod
    def case(draw: Any) -> AmaxScaleDescriptor:
        return AmaxScaleDescriptor(
            **row_case(draw, 0), keepdims=draw.flag(), target=draw.choice(TARGETS), eps=draw.choice((0.0, 1e-12, 2.0)),
            power_of_two=draw.flag(), inverse=draw.flag(), element=draw.element,
        )  # fmt: skip


amax_scale = functional(AmaxScalePlan)
