"""sort_backward: dx = dy put back to where a sort or a selection took it from, 0 elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Variant,
    element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape, View
from ...core.variant import Step
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.map import THREADS, chunked, lay_out, map_geometry, map_kernels, map_params
from .order import RowDescriptor


@dataclass(frozen=True, kw_only=True)
class SortBackwardDescriptor(RowDescriptor):
    """dx has shape `shape`, dy and indices `picked_shape`: that with other rows along `axis`, or without the axis."""

    picked_shape: Shape = extents()
    element: ElementKind = element()

    def validate(self) -> None:
        """Rows that belong together."""
        if self.picked_shape == self.kept_shape:
            return
        others = len(self.picked_shape) == len(self.shape) and self.shape
        if not others or self.resized(self.picked_shape[self.axis]) != self.picked_shape:
            raise InvalidProblemError(
                f"picked_shape must be shape {self.shape} with another extent along axis {self.axis}, or without it, "
                f"got {self.picked_shape}"
            )

    @property
    def along(self) -> Shape:
        """The shape of dy with the axis in any case."""
        if len(self.picked_shape) == len(self.shape):
            return self.picked_shape
        return self.resized(1)


def _places(rng: Any, desc: SortBackwardDescriptor, shape: Shape) -> Any:
    """Different places in every row."""
    if not desc.shape or not desc.count:
        return np.zeros(shape, np.int64)
    order = np.argsort(rng.random(desc.shape), desc.axis)
    return np.take(order, range(desc.along[desc.axis]), desc.axis).reshape(shape)


@dataclass(slots=True, kw_only=True)
class SortBackwardArgs(Args):
    """Any strides. indices: where dy came from, in each row different places."""

    dy: Array = operand("*picked_shape")
    indices: Array = operand("*picked_shape", element=ElementKind.I64, values=_places)
    dx: Array = output("*shape")


def reference(desc: SortBackwardDescriptor, *, dy: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    shape = desc.shape or (1,)
    dx = np.zeros(shape, dy.dtype)
    known = (indices >= 0) & (indices < shape[desc.axis])
    places = [axis[known.reshape(desc.along or (1,))] for axis in np.indices(desc.along or (1,))]
    places[desc.axis] = indices[known]
    dx[tuple(places)] = dy[known]
    return {"dx": dx.reshape(desc.shape)}


PARAMS = Params("SortBackwardParams", dx="ptr", dy="ptr", indices="ptr", status="status", extent="i64", step="i64",
                **map_params(3))  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """Zeros, as indices need not name every place, then what dy has; a launch each."""
    desc, shape = p.desc, p.desc.along
    strides = [*p.dx.strides]
    if shape:
        step, strides[desc.axis] = strides[desc.axis], 0
    else:
        step = 0

    def rows(view: View) -> View:
        own = view.strides if len(view.shape) == len(shape) else (
            *view.strides[: desc.axis], 0, *view.strides[desc.axis :]
        )  # fmt: skip
        return View(view.ptr, shape, own, view.element)

    place = {"extent": desc.count, "step": step}
    zeros = map_geometry(p, (p.dx, None, None), place)
    put = lay_out((rows(p.dy), rows(p.indices), View(p.dx.ptr, shape, tuple(strides), p.dx.element)))
    if isinstance(put, str):
        return put
    if isinstance(zeros, str):
        return zeros
    steps = list(zeros.steps)
    if p.dy.size:
        blocks = -(-p.dy.size // THREADS)
        if blocks > MOST_BLOCKS:
            return "more than 2^31 blocks"
        steps.append(Step("put", (blocks, 1, 1), {**place, **chunked(put, 1)}, {}, THREADS))
    return Geometry(tuple(steps), layout="strided")


def in_torch(torch: Any, desc: SortBackwardDescriptor, *, dy: Any, indices: Any) -> Any:
    """torch's scatter into zeros."""
    shape = desc.along or (1,)
    dx = dy.new_zeros(desc.shape or (1,)).scatter(desc.axis, indices.reshape(shape), dy.reshape(shape))
    return dx.reshape(desc.shape)


class SortBackwardPlan(Plan):
    """dx[…, indices[…, j, …], …] = dy[…, j, …] along `axis`, and 0 elsewhere: the gradient of sorts and selections.

    The indices of a row are different places, as a sort gives them; of equal ones any may win. One outside
    [0, extent of the axis) writes nothing, and what no index names is 0.
    """

    op = "sort.sort_backward"
    direction = "backward"
    descriptor = SortBackwardDescriptor
    args = SortBackwardArgs
    reference = staticmethod(reference)
    value_policy = (
        "an index outside [0, extent of the axis), negative ones included, writes nothing; what no index names is 0"
    )
    variants = (
        Variant(
            "put", _geometry, source="sort/sort_backward.cu",
            kernels=(*map_kernels("zero<{T}, {LAYOUT}>", PARAMS), Kernel("put", "put<{T}>", PARAMS)),
            guarantee=Guarantee(batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[8192, 8192] bf16", shape=(8192, 8192), picked_shape=(8192, 8192), axis=1, element="bfloat16"
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SortBackwardDescriptor:
        shape = draw.shape(0, 4, 0, 9)
        axis = draw.integer(0, max(len(shape) - 1, 0))
        picked = shape
        if shape and shape[axis] and draw.integer(0, 2):
            few = draw.integer(0, shape[axis])
            kept = (*shape[:axis], *shape[axis + 1 :])
            picked = kept if draw.flag() else (*shape[:axis], few, *shape[axis + 1 :])
        return SortBackwardDescriptor(shape=shape, picked_shape=picked, axis=axis, element=draw.element)

    @classmethod
    def check_values(cls, desc: SortBackwardDescriptor, arrays: Mapping[str, Any]) -> str | None:
        index = np.asarray(arrays["indices"])
        wrong = ((index < 0) | (index >= desc.count)).any()
        return f"an index must lie in [0, {desc.count})" if wrong else None


sort_backward = functional(SortBackwardPlan)
