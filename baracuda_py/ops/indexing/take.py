"""take: slices of x along one axis, picked by an array of positions (numpy.take, torch.index_select)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Problem, Vjp, axis, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...schedules.gather import gather_geometry, gather_params
from .indexed import ELEMENTS, MOVED, Indexed, from_start, known_indices, located, moving_row, random_index


@dataclass(frozen=True, kw_only=True)
class TakeDescriptor(Descriptor):
    """x has shape `shape`; in y the axes of `indices` (index_shape, any rank) stand in the place of `axis`."""

    shape: tuple[int, ...] = extents()
    index_shape: tuple[int, ...] = extents()
    axis: int = axis(0)
    element: ElementKind = element(MOVED)

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        return (*self.shape[: self.axis], *self.index_shape, *self.shape[self.axis + 1 :])


@dataclass(slots=True, kw_only=True)
class TakeArgs(Args):
    """Any strides; indices are int64 or int32."""

    x: Array = operand("*shape")
    indices: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    y: Array = output("*out_shape")


def reference(desc: TakeDescriptor, *, x: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    extent = desc.shape[desc.axis]
    at, known = located(indices, extent)
    if not known.any():
        return {"y": np.zeros(desc.out_shape, x.dtype)}
    y = np.take(x, at, desc.axis)
    trailing = (1,) * (len(desc.shape) - desc.axis - 1)
    return {"y": np.where(known.reshape(known.shape + trailing), y, np.zeros((), x.dtype))}


PARAMS = gather_params("TakeParams", "indices")


def _geometry(p: Problem) -> Geometry | str:
    axis, x, indices = p.desc.axis, p.x, p.indices
    lead, trail = x.strides[:axis], x.strides[axis + 1 :]
    base = (*lead, *(0,) * len(indices.shape), *trail)
    shared = (*(0,) * len(lead), *indices.strides, *(0,) * len(trail))
    return gather_geometry(p.y, indices, x, axis, base, shared, "indices")


def in_torch(torch: Any, desc: TakeDescriptor, *, x: Any, indices: Any) -> Any:
    """torch's index_select, whose indices have one axis."""
    indices = from_start(torch, indices, desc.shape[desc.axis])
    return torch.index_select(x, desc.axis, indices.reshape(-1)).reshape(desc.out_shape)


class TakePlan(Indexed):
    """y[…, j…, …] = x[…, indices[j…], …] along `axis` (numpy.take; torch.index_select where indices have one axis).

    A negative index counts from the end. One outside [-extent, extent) reads nothing and gives a slice of 0.
    """

    op = "indexing.take"
    descriptor = TakeDescriptor
    args = TakeArgs
    raw = True
    index = "indices"
    reference = staticmethod(reference)
    vjp = Vjp("TakeBackwardPlan", grads={"x": "dx"})
    value_policy = "an index outside [-extent, extent) of the axis yields a slice of zeros"
    variants = (moving_row(_geometry, PARAMS),)
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{count} slices of {list(shape)} bf16, axis {axis}", shape=shape, index_shape=count, axis=axis,
            element="bfloat16", work=BYTES, make=known_indices("indices"),
        )
        for shape, count, axis in (((65536, 2048), 65536, 0), ((512, 1024, 256), 1024, 1))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> TakeDescriptor:
        shape = (*draw.shape(0, 2, 0, 7), draw.integer(0, 9), *draw.choice(((), (16,), (3,), (2, 4), (12,))))
        return TakeDescriptor(
            shape=shape, index_shape=draw.shape(0, 2, 0, 9), axis=draw.integer(-len(shape), len(shape) - 1),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def bytes(cls, desc: TakeDescriptor) -> int:
        written, read = (int(np.prod(s, dtype=object)) for s in (desc.out_shape, desc.shape))
        return 8 * int(np.prod(desc.index_shape, dtype=object)) + (written + min(written, read)) * desc.element.itemsize


take = functional(TakePlan)
index_select = functional(TakePlan, "index_select")
