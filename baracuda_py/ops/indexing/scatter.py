"""scatter: y = x with src written, or added, at positions along one axis (torch.scatter, torch.scatter_add)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Relative, Variant, choice, element,
    functional, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES, REALS
from ...core.error_bound import ErrorBound
from ...schedules.scatter import Tokens, scatter_geometry, scatter_kernels, scatter_params
from .gather import GatherDescriptor, GatherPlan, known_indices, out_of_range, random_index


class ScatterKind(enum.Enum):
    """What a token does to the element it names: take its place, or be added."""

    SET = "set"
    ADD = "add"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/indexing/scatter.cu."""
        return f"Scatter{self.name.title()}"


@dataclass(frozen=True, kw_only=True)
class ScatterDescriptor(GatherDescriptor):
    """x and y have shape `shape`, index and src `index_shape`: of the same rank, no longer except along `axis`."""

    kind: ScatterKind = choice(ScatterKind)
    element: ElementKind = element(REALS)


@dataclass(slots=True, kw_only=True)
class ScatterArgs(Args):
    """Any strides; y may be x. index is int64 or int32."""

    x: Array = operand("*shape")
    index: Array = operand("*index_shape", element=INDICES[::-1], values=random_index)
    src: Array = operand("*index_shape")
    y: Array = output("*shape", inplace=("x",))


def scattered(desc: GatherDescriptor, y: Any, index: Any, src: Any, add: bool) -> Any:
    """y with the tokens of src written or added in their order (NumPy, in place)."""
    known = (index >= 0) & (index < desc.shape[desc.axis])
    places = [axis[known] for axis in np.indices(index.shape)]
    places[desc.axis] = index[known]
    if add:
        np.add.at(y, tuple(places), src[known])
    else:
        for at, value in zip(zip(*places, strict=True), src[known], strict=True):
            y[at] = value
    return y


def reference(desc: ScatterDescriptor, *, x: Any, index: Any, src: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: token by token."""
    return {"y": scattered(desc, np.array(x), index, src, desc.kind is ScatterKind.ADD)}


def along_axis(y: Any, index: Any, src: Any, axis: int) -> Tokens:
    """Tokens of an index that has the rank of y."""
    without = [tuple(0 if a == axis else s for a, s in enumerate(v.strides)) for v in (src, index)]
    tokens = ([index.strides[axis]], [src.strides[axis]])
    return Tokens(src, index, without[0], without[1], index.shape, (index.shape[axis],), tokens)


PARAMS = scatter_params("ScatterParams")


def _geometry(p: Problem) -> Geometry | str:
    return scatter_geometry(p.y, p.x, p.desc.axis, along_axis(p.y, p.index, p.src, p.desc.axis), {})


def _bound(kind_of: ElementKind, kind: Any) -> ErrorBound:
    return Exact() if kind is ScatterKind.SET or kind_of.is_integer else Relative(2)


def in_torch(torch: Any, desc: ScatterDescriptor, *, x: Any, index: Any, src: Any) -> Any:
    """torch's function of the kind; on the CPU its scatter, too, lets the last of several tokens win."""
    function = torch.scatter if desc.kind is ScatterKind.SET else torch.scatter_add
    return function(x, desc.axis, index.long(), src)


def _permutations(torch: Any, desc: ScatterDescriptor) -> Mapping[str, Any]:
    """Each place once, so that every order is right."""
    return {"index": torch.argsort(torch.rand(desc.index_shape), desc.axis)}


class ScatterPlan(Plan):
    """y = x, then y[…, index[…, l, …], …] = src[…, l, …] (set) or += (add) along `axis`, l in order.

    set: of several tokens that name one element the last one wins (torch leaves open which does). add: an element is
    x plus its tokens in their order, in the accumulator (integers wrap), rounded once: the same bits in every run. An
    index outside [0, extent), negative ones included, writes nothing.
    """

    op = "indexing.scatter"
    kinds = ScatterKind
    descriptor = ScatterDescriptor
    args = ScatterArgs
    reference = staticmethod(reference)
    value_policy = "an index outside [0, extent of the axis), negative ones included, writes nothing"
    variants = (
        Variant(
            "sorted", _geometry, source="indexing/scatter.cu",
            kernels=scatter_kernels(PARAMS, "{KIND}"), elements=REALS, guarantee=Guarantee(_bound),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{kind} [8192, 4096] f32", kind=kind, shape=(8192, 4096), index_shape=(8192, 4096), axis=1,
            element="float32", make=make,
        )
        for kind, make in (("set", _permutations), ("add", known_indices("index")))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ScatterDescriptor:
        if draw.integer(0, 3) == 0:  # lines long enough to be sorted
            long = (((9,), (70,), 0), ((4100,), (1100,), 0), ((3, 8, 16), (3, 90, 16), 1), ((4, 16), (4, 130), -1))
            shape, index, axis = draw.choice(long)
            return ScatterDescriptor(kind=draw.kind, shape=shape, index_shape=index, axis=axis, element=draw.element)
        found = GatherPlan.case(draw)
        return ScatterDescriptor(
            kind=draw.kind, shape=found.shape, index_shape=found.index_shape, axis=found.axis, element=draw.element
        )

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return out_of_range(desc, arrays["index"])


scatter = functional(ScatterPlan, "scatter", kind=ScatterKind.SET)
scatter_add = functional(ScatterPlan, "scatter_add", kind=ScatterKind.ADD)
