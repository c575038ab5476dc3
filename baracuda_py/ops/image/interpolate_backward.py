"""interpolate_backward: dx from dy, each element a sum over the outputs that read it, in a fixed order; no atomics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...schedules.map import THREADS
from ...schedules.planes import planes_geometry, planes_kernels, planes_params
from .interpolate import (
    AXIS_FIELDS, InterpolateDescriptor, axis_values, in_torch, interpolate_benchmarks, interpolate_case,
)  # fmt: skip
from .resample import InterpolateKind, products
from .resample_walk import WALK_FIELDS, walk


@dataclass(frozen=True, kw_only=True)
class InterpolateBackwardDescriptor(InterpolateDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class InterpolateBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("*out_shape")
    dx: Array = output("*shape")


def reference(desc: InterpolateBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in, tap by tap."""
    batch = math.prod(desc.shape[: len(desc.shape) - desc.spatial_rank])
    slopes = dy.reshape(batch, *desc.size)
    dx = np.zeros((*desc.spatial_shape, batch), dy.dtype)
    with np.errstate(all="ignore"):
        for places, weights, there in products(desc.axes):
            weight = dy.dtype.type(1)
            for one in weights:
                weight = weight * one.astype(dy.dtype)
            exists = np.broadcast_to(there, desc.size)
            at = tuple(np.broadcast_to(place, desc.size)[exists] for place in places)
            np.add.at(dx, at, np.moveaxis(weight * slopes, 0, -1)[exists])
    return {"dx": np.moveaxis(dx, -1, 0).reshape(desc.shape)}


PARAMS = Params("InterpolateBackwardParams", dx="ptr", dy="ptr", **AXIS_FIELDS, **planes_params(2))

TEMPLATE = "interpolate_backward<{T}, {N}, {TOGETHER}, Resample::{KIND}>"
STACK = "interpolate_backward_stack<{T}, {N}, Resample::{KIND}>"


def _geometry(p: Problem) -> Geometry | str:
    rank, batch = len(p.desc.shape), len(p.desc.shape) - p.desc.spatial_rank
    return planes_geometry((p.dx, p.dy), range(batch), range(batch, rank), axis_values(p.desc), stacks=True)


WALK = Params("InterpolateBackwardWalkParams", dx="ptr", dy="ptr", **AXIS_FIELDS, **planes_params(2), **WALK_FIELDS)
TAPS = (4, 8)  # readers of a column whose weights a thread keeps
_WALKED = (InterpolateKind.LINEAR, InterpolateKind.CUBIC)


def _columns(kind: ElementKind) -> int:
    """Columns of a thread."""
    return 1 if kind is ElementKind.F64 else 2


def _walk(p: Problem) -> Geometry | str:
    reach = 4 if p.desc.kind is InterpolateKind.CUBIC else 2
    scale = p.desc.axes[-1].scale / 0.95  # of a few more readers, as with align_corners, weights are found again
    if scale * TAPS[-1] < reach:
        return f"columns of dx have more than {TAPS[-1]} readers"
    taps = TAPS[0] if scale * TAPS[0] >= reach else TAPS[-1]
    return walk(p, _geometry(p), p.dx, p.dy, _columns(p.desc.element), {"TAPS": taps})


def backward_in_torch(torch: Any, desc: InterpolateBackwardDescriptor, *, dy: Any) -> Any:
    """torch's gradient of its interpolate."""
    x = torch.zeros(desc.shape, dtype=dy.dtype, device=dy.device, requires_grad=True)
    with torch.enable_grad():
        y = in_torch(torch, desc, x=x)
    return y if y is NotImplemented else torch.autograd.grad(y, x, dy)[0]


class InterpolateBackwardPlan(Plan):
    """dx[…, i] = Σ over the outputs o that read i of w(o, i) dy[…, o], in their row-major order."""

    op = "image.interpolate_backward"
    direction = "backward"
    kinds = InterpolateKind
    descriptor = InterpolateBackwardDescriptor
    args = InterpolateBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "walk", _walk, source="image/interpolate_backward_walk.cu", elements=FLOATS, kinds=_WALKED,
            kernels=(
                Kernel(
                    "walk", "interpolate_backward_walk<{T}, {N}, {TAPS}, Resample::{KIND}>", WALK,
                    lambda kind: {"N": (_columns(kind),), "TAPS": TAPS}, THREADS, min_blocks=3,
                ),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "planes", _geometry, source="image/interpolate_backward.cu", elements=FLOATS,
            kernels=planes_kernels(TEMPLATE, PARAMS, STACK), may_spill=True,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = interpolate_benchmarks("dy", "dx")

    @staticmethod
    def case(draw: Any) -> InterpolateBackwardDescriptor:
        return interpolate_case(draw, InterpolateBackwardDescriptor)  # type: ignore[no-any-return]


interpolate_backward = functional(InterpolateBackwardPlan, follows="dy")
