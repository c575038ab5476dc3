"""index: x picked by several index arrays that broadcast together (advanced indexing), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Problem, Variant, Vjp, element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...schedules.keys import along, index_geometry, index_kernel, index_params
from ...schedules.scatter import scatter_params
from .indexed import ELEMENTS, MOVED, SUMMED, adding_rows
from .keyed import (
    Keyed, KeyedDescriptor, fronted_in_torch, index_case, keys_along, known_keys, picked, placed_in_torch,
    places_in_torch, put_geometry, put_position_kernel, tokens_put,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class IndexDescriptor(KeyedDescriptor):
    """x has shape `shape`; y the shape of what is picked."""


@dataclass(slots=True, kw_only=True)
class IndexArgs(Args):
    """Any strides; each index is int64 or int32."""

    x: Array = operand("*shape")
    indices: list[Array] = operand(many="index_shapes", element=ELEMENTS)
    y: Array = output("*out_shape")


def reference(desc: IndexDescriptor, *, x: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    return {"y": picked(desc, x, indices)}


PARAMS = index_params("IndexParams")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    keys = keys_along(desc, p.indices, p.y.shape)
    return index_geometry(p.y, along(p.x, p.y.shape, desc.out_axes), p.x, keys, desc.axes)


def in_torch(torch: Any, desc: IndexDescriptor, *, x: Any, indices: Any) -> Any:
    """torch's advanced indexing."""
    made = fronted_in_torch(torch, desc, x)[places_in_torch(torch, desc, indices)]
    return placed_in_torch(torch, desc, made)


class IndexPlan(Keyed):
    """y = x[i, :, j, …] with an index array for each of `axes`, which broadcast together (NumPy's advanced indexing).

    Negative indices count from the end. Where an index lies outside [-extent, extent) of its axis, y is 0.
    """

    op = "indexing.index"
    descriptor = IndexDescriptor
    args = IndexArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("IndexBackwardPlan", grads={"x": "dx"})
    value_policy = "an index outside [-extent, extent) of its axis yields 0"
    variants = (
        Variant(
            "words", _geometry, "indexing/index.cu", (index_kernel(PARAMS),), elements=MOVED,
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "rows i, j of [256, 256, 1024] bf16, 65536", shape=(256, 256, 1024), index_shapes=((65536,), (65536,)),
            axes=(0, 1), element="bfloat16", work=BYTES, make=known_keys,
        ),
        Benchmark(
            "elements i, j of [4096, 4096] f32, 16M", shape=(4096, 4096), index_shapes=((1 << 24,), (1 << 24,)),
            axes=(0, 1), element="float32", work=BYTES, make=known_keys,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> IndexDescriptor:
        return IndexDescriptor(**index_case(draw))

    @classmethod
    def bytes(cls, desc: Any) -> int:
        indices, written, read = (
            sum(int(np.prod(s, dtype=object)) for s in each)
            for each in (desc.index_shapes, (desc.out_shape,), (desc.shape,))
        )
        return 8 * indices + (written + min(written, read)) * int(desc.element.itemsize)


@dataclass(frozen=True, kw_only=True)
class IndexBackwardDescriptor(IndexDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)


@dataclass(slots=True, kw_only=True)
class IndexBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*out_shape")
    indices: list[Array] = operand(many="index_shapes", element=ELEMENTS)
    dx: Array = output("*shape")


def backward_reference(desc: IndexBackwardDescriptor, *, dy: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: token by token."""
    return {"dx": tokens_put(desc, np.zeros(desc.shape, dy.dtype), indices, dy, np.add)}


BACKWARD_PARAMS = scatter_params("IndexBackwardParams")


def _backward_geometry(p: Problem, atomic: bool = False) -> Geometry | str:
    names = {"y": "dx", "x": "@null", "src": "dy"}
    return put_geometry(p, p.dx, None, p.dy, p.indices, names, atomic=atomic)


class IndexBackwardPlan(Keyed):
    """dx = dy added up at the positions that were read, in the row-major order of the indices; 0 elsewhere."""

    op = "indexing.index_backward"
    direction = "backward"
    descriptor = IndexBackwardDescriptor
    args = IndexBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = "what an index outside [-extent, extent) of its axis read hands nothing back"
    variants = adding_rows(_backward_geometry, BACKWARD_PARAMS, put_position_kernel("IndexBackwardPositions"))
    benchmarks = (
        Benchmark(
            "65536 rows to [256, 256, 1024] bf16", shape=(256, 256, 1024), index_shapes=((65536,), (65536,)),
            axes=(0, 1), element="bfloat16", make=known_keys,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> IndexBackwardDescriptor:
        return IndexBackwardDescriptor(**index_case(draw))


index_backward = functional(IndexBackwardPlan)
