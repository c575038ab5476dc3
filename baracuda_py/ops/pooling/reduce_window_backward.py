"""reduce_window_backward: dx from dy, each element a sum over the windows that hold it; no atomics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Geometry, Guarantee, InvalidProblemError, Plan, Problem, Relative, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.errors import UnsupportedError
from .pool import check_indices, pool_values
from .pool_backward import KERNELS, backward_geometry, known_places, random_places
from .reduce_window import EXTREMES, ReduceWindowDescriptor, ReduceWindowKind, torch_serves, unfolded, window_case

DIFFERENTIABLE = (ReduceWindowKind.SUM, *EXTREMES)


@dataclass(frozen=True, kw_only=True)
class ReduceWindowBackwardDescriptor(ReduceWindowDescriptor):
    """The forward's fields."""

    def validate(self) -> None:
        if self.kind not in DIFFERENTIABLE:
            raise InvalidProblemError(f"{self.kind.value} has no gradient here; take exp of the sum of logarithms")
        if self.element not in FLOATS:
            raise UnsupportedError(f"element {self.element} has no gradient; it may be one of {FLOATS}")
        ReduceWindowDescriptor.validate(self)


@dataclass(slots=True, kw_only=True)
class ReduceWindowBackwardArgs(Args):
    """Any strides. max and min take the forward's `indices`."""

    dy: Array = operand("*out_shape")
    indices: Array | None = operand("*out_shape", element=INDICES[::-1], kinds=EXTREMES, values=random_places)
    dx: Array = output("*shape")


def reference(desc: ReduceWindowBackwardDescriptor, *, dy: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: place by place of all windows."""
    windows = desc.windows
    shape = (math.prod(desc.shape[: len(desc.shape) - desc.spatial_rank]), math.prod(windows.in_extent))
    grids = (shape[0], *windows.out_extent)
    dx, slopes = np.zeros(shape, dy.dtype), dy.reshape(grids)
    for place, exists in windows.places() if dy.size else ():
        part = slopes
        if indices is not None:
            part = np.where(indices.reshape(grids) == place, part, dy.dtype.type(0))
        np.add.at(dx.T, place[exists], part[:, exists].T)
    return {"dx": dx.reshape(desc.shape)}


def _geometry(p: Problem) -> Geometry | str:
    values = {**pool_values(p.desc, p.indices), "x": "@null", "y": "@null"}
    return backward_geometry(p.desc, (p.dx, None, p.dy, p.indices, None), values)


def in_torch(torch: Any, desc: ReduceWindowBackwardDescriptor, *, dy: Any, indices: Any) -> Any:
    """The parts of all places of all windows, scattered."""
    if not torch_serves(desc):
        return NotImplemented
    count = math.prod(desc.spatial_shape)
    places = unfolded(desc, torch.arange(count, device=dy.device).reshape(desc.spatial_shape), -1)
    held = places >= 0 if indices is None else (places >= 0) & (places == indices[..., None])
    parts = (dy[..., None] * held).reshape(-1, places.numel())
    dx = dy.new_zeros(parts.shape[0], count)
    return dx.index_add(1, places.clamp(min=0).flatten(), parts).reshape(desc.shape)


class ReduceWindowBackwardPlan(Plan):
    """dx[..., i] = sum over the windows that hold i of dy, for extremes of those whose saved index is i.

    The order of the sum is the row-major one of the windows.
    """

    op = "pooling.reduce_window_backward"
    direction = "backward"
    kinds = DIFFERENTIABLE
    descriptor = ReduceWindowBackwardDescriptor
    args = ReduceWindowBackwardArgs
    reference = staticmethod(reference)
    torch = staticmethod(in_torch)
    value_policy = "an index that names no place of its window hands nothing back"
    variants = (
        Variant(
            "window", _geometry, source="pooling/pool_backward.cu", kernels=KERNELS,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "[64, 64, 112, 112] bf16, sum of 3 × 3", kind="sum", shape=(64, 64, 112, 112), spatial_rank=2,
            kernel_size=3, padding=1, element="bfloat16",
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ReduceWindowBackwardDescriptor:
        return window_case(draw, ReduceWindowBackwardDescriptor, kind=draw.kind, element=draw.element)  # type: ignore[no-any-return]

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_indices(desc, views)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return known_places(desc.windows, arrays["indices"]) if desc.kind in EXTREMES else None


reduce_window_backward = functional(ReduceWindowBackwardPlan, follows="dy")
