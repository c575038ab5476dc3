"""gather: y[i, j, …] = x[i, index[i, j, …], …] along one axis (torch.gather, numpy.take_along_axis)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Problem, Vjp, axis, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.errors import InvalidProblemError
from ...schedules.gather import gather_geometry, gather_params
from .indexed import ELEMENTS, MOVED, Indexed, from_start, known_indices, located, moving_row, random_index


@dataclass(frozen=True, kw_only=True)
class GatherDescriptor(Descriptor):
    """x has shape `shape`, index and y `index_shape`: of the same rank, and no longer than x except along `axis`."""

    shape: tuple[int, ...] = extents()
    index_shape: tuple[int, ...] = extents()
    axis: int = axis()
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """An index within the other axes of x."""
        if len(self.index_shape) != len(self.shape) or any(
            n > m for a, (n, m) in enumerate(zip(self.index_shape, self.shape, strict=True)) if a != self.axis
        ):
            raise InvalidProblemError(
                f"index must have the rank of x and no longer axes but axis {self.axis}, got shape {self.index_shape} "
                f"for {self.shape}"
            )


@dataclass(slots=True, kw_only=True)
class GatherArgs(Args):
    """Any strides; index is int64 or int32."""

    x: Array = operand("*shape")
    index: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    y: Array = output("*index_shape")


def reference(desc: GatherDescriptor, *, x: Any, index: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    extent = desc.shape[desc.axis]
    if not extent or 0 in desc.index_shape:
        return {"y": np.zeros(desc.index_shape, x.dtype)}
    at, known = located(index, extent)
    part = x[tuple(slice(None) if a == desc.axis else slice(0, n) for a, n in enumerate(desc.index_shape))]
    picked = np.take_along_axis(part, at, desc.axis)
    return {"y": np.where(known, picked, np.zeros((), x.dtype))}


PARAMS = gather_params("GatherParams", "index")


def _geometry(p: Problem) -> Geometry | str:
    axis = p.desc.axis
    base = (*p.x.strides[:axis], 0, *p.x.strides[axis + 1 :])
    return gather_geometry(p.y, p.index, p.x, axis, base, p.index.strides, "index")


def in_torch(torch: Any, desc: GatherDescriptor, *, x: Any, index: Any) -> Any:
    """torch's gather."""
    return torch.gather(x, desc.axis, from_start(torch, index, desc.shape[desc.axis]))


class GatherPlan(Indexed):
    """y[…, j, …] = x[…, index[…, j, …], …] along `axis` (torch.gather; numpy.take_along_axis where shapes agree).

    A negative index counts from the end. One outside [-extent, extent) reads nothing and gives 0.
    """

    op = "indexing.gather"
    descriptor = GatherDescriptor
    args = GatherArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("GatherBackwardPlan", grads={"x": "dx"})
    value_policy = "an index outside [-extent, extent) of the axis yields 0"
    variants = (moving_row(_geometry, PARAMS),)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[8192, 4096] of [8192, 16384] bf16", shape=(8192, 16384), index_shape=(8192, 4096), axis=1,
            element="bfloat16", work=BYTES, make=known_indices("index"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatherDescriptor:
        shape = draw.shape(1, 4, 0, 9)
        axis = draw.integer(-len(shape), len(shape) - 1)
        last = draw.sizes(1, 16, 3)  # rows that a broadcast index moves whole
        shape = (*shape, last) if axis >= 0 else shape
        less = draw.flag()
        index = tuple(
            draw.integer(0, 9) if a == axis % len(shape) else n - (less and n > 1) for a, n in enumerate(shape)
        )
        return GatherDescriptor(shape=shape, index_shape=index, axis=axis, element=draw.element)

    @classmethod
    def bytes(cls, desc: GatherDescriptor) -> int:
        count = int(np.prod(desc.index_shape, dtype=object))
        return count * (8 + desc.element.itemsize) + min(count, int(np.prod(desc.shape, dtype=object))) * (
            desc.element.itemsize
        )


gather = functional(GatherPlan)
