"""gather_backward and take_backward: dx = dy added up at the positions that were read, in their order; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, ElementKind, Geometry, Problem, element, operand, output
from ...calls.functional import functional
from ...core.benchmark import COMPILED, EAGER, IN_ORDER, Benchmark
from ...core.tensor import View
from ...schedules.scatter import scatter_atomic_geometry, scatter_geometry, scatter_params
from ...schedules.scatter_places import Source, Tokens
from .gather import GatherDescriptor, GatherPlan
from .indexed import ELEMENTS, SUMMED, Indexed, adding_rows, known_indices, located, random_index
from .scatter import along_axis, scattered, source_along
from .take import TakeDescriptor, TakePlan


@dataclass(frozen=True, kw_only=True)
class GatherBackwardDescriptor(GatherDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)


@dataclass(slots=True, kw_only=True)
class GatherBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*index_shape")
    index: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    dx: Array = output("*shape")


def gather_reference(desc: GatherBackwardDescriptor, *, dy: Any, index: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: token by token."""
    return {"dx": scattered(desc, np.zeros(desc.shape, dy.dtype), index, dy, np.add)}


GATHER_PARAMS = scatter_params("GatherBackwardParams")


def _gather_geometry(p: Problem, atomic: bool = False) -> Geometry | str:
    axis, names = p.desc.axis, {"y": "dx", "x": "@null", "src": "dy"}
    tokens = along_axis(p.index, p.dy, axis)
    if atomic:
        return scatter_atomic_geometry(p.dx, None, (axis,), tokens, source_along(p.dy, p.index, axis), names)
    return scatter_geometry(p, p.dx, None, (axis,), tokens, names)


class GatherBackwardPlan(Indexed):
    """dx[…, i, …] = sum of dy[…, j, …] over the j with index[…, j, …] = i, in their order (gather's gradient)."""

    op = "indexing.gather_backward"
    direction = "backward"
    descriptor = GatherBackwardDescriptor
    args = GatherBackwardArgs
    reference = staticmethod(gather_reference)
    value_policy = "what an index outside [-extent, extent) of the axis read hands nothing back"
    variants = adding_rows(_gather_geometry, GATHER_PARAMS)
    benchmarks = tuple(
        Benchmark(
            f"[8192, 4096] to [8192, 16384] {said}", shape=(8192, 16384), index_shape=(8192, 4096), axis=1,
            element=element, make=known_indices("index"), any_order=said.endswith("any order"),
            peers=(EAGER, COMPILED, IN_ORDER),
        )
        for element, said in (("bfloat16", "bf16"), ("float32", "f32"), ("float32", "f32, any order"))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatherBackwardDescriptor:
        found = GatherPlan.case(draw)
        shape, index, axis = found.shape, found.index_shape, found.axis
        if draw.integer(0, 3) == 0:
            shape, index, axis = draw.choice((((9,), (70,), 0), ((3, 8, 16), (3, 90, 16), 1), ((4, 16), (4, 130), 1)))
        if draw.rarely():
            shape, index, axis = draw.choice((((9,), (8200,), 0), ((66000,), (8200,), 0)))
        return GatherBackwardDescriptor(shape=shape, index_shape=index, axis=axis, element=draw.element)


@dataclass(frozen=True, kw_only=True)
class TakeBackwardDescriptor(TakeDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)


@dataclass(slots=True, kw_only=True)
class TakeBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*out_shape")
    indices: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    dx: Array = output("*shape")


def take_reference(desc: TakeBackwardDescriptor, *, dy: Any, indices: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: slice by slice."""
    dx = np.zeros((desc.shape[desc.axis], *desc.shape[: desc.axis], *desc.shape[desc.axis + 1 :]), dy.dtype)
    at, known = located(indices, desc.shape[desc.axis])
    many = range(desc.axis, desc.axis + len(desc.index_shape))
    slices = np.moveaxis(dy, list(many), range(len(many)))
    np.add.at(dx, at[known], slices[known])
    return {"dx": np.moveaxis(dx, 0, desc.axis)}


TAKE_PARAMS = scatter_params("TakeBackwardParams")


def _take_geometry(p: Problem, atomic: bool = False) -> Geometry | str:
    axis, many = p.desc.axis, len(p.indices.shape)
    lead, trail = range(axis), range(axis + 1, len(p.dx.shape))
    own = p.dy.strides[axis : axis + many]
    others = (*p.dy.strides[:axis], 0, *p.dy.strides[axis + many :])
    tokens = Tokens(
        p.dy, p.indices, others, (0,) * len(p.dx.shape), p.dx.shape, p.indices.shape, (p.indices.strides, own)
    )
    names = {"y": "dx", "x": "@null", "src": "dy", "index": "indices"}
    if atomic:
        shared = (*(0 for _ in lead), *p.indices.strides, *(0 for _ in trail))
        index = View(p.indices.ptr, p.dy.shape, shared, p.indices.element)
        source = Source(p.dy, index, (*lead, *(None,) * many, *trail))
        return scatter_atomic_geometry(p.dx, None, (axis,), tokens, source, names)
    return scatter_geometry(p, p.dx, None, (axis,), tokens, names)


class TakeBackwardPlan(Indexed):
    """dx[…, i, …] = sum of dy[…, j…, …] over the j with indices[j…] = i, in their order (the gradient of take)."""

    op = "indexing.take_backward"
    index = "indices"
    direction = "backward"
    descriptor = TakeBackwardDescriptor
    args = TakeBackwardArgs
    reference = staticmethod(take_reference)
    value_policy = "what an index outside [-extent, extent) of the axis read hands nothing back"
    variants = adding_rows(_take_geometry, TAKE_PARAMS)
    benchmarks = (
        Benchmark(
            "65536 slices of [65536, 2048] bf16", shape=(65536, 2048), index_shape=65536, axis=0, element="bfloat16",
            make=known_indices("indices"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> TakeBackwardDescriptor:
        found = TakePlan.case(draw)
        shape, index, axis = found.shape, found.index_shape, found.axis
        if draw.integer(0, 2) == 0:
            shape, index, axis = draw.choice((((9, 16), (10, 9), 0), ((3, 9), (70,), 1), ((4100,), (2, 600), 0)))
        if draw.rarely():
            shape, index, axis = (66000,), (8200,), 0
        return TakeBackwardDescriptor(shape=shape, index_shape=index, axis=axis, element=draw.element)


gather_backward = functional(GatherBackwardPlan)
take_backward = functional(TakeBackwardPlan)
