"""scatter_backward: what y = scatter(x, index, src) hands back to x and to src."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Problem, Variant, element, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import UnsupportedError
from ...schedules.scatter import gradient_kernels, scatter_backward_geometry, scatter_params
from .indexed import ELEMENTS, SUMMED, Indexed, distinct_indices, from_start, known_indices, located, random_index
from .scatter import ScatterDescriptor, ScatterKind, along_axis, scatter_case, scattered, source_along

KINDS = (ScatterKind.SET, ScatterKind.ADD)


@dataclass(frozen=True, kw_only=True)
class ScatterBackwardDescriptor(ScatterDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)

    def validate(self) -> None:
        """As the forward, for kinds with a gradient."""
        if self.kind not in KINDS:
            raise UnsupportedError(f"scatter has no gradient for kind {self.kind.value}: see scatter_reduce_backward")
        if not self.include_self:
            raise UnsupportedError("scatter has no gradient without include_self: see scatter_reduce_backward")
        ScatterDescriptor.validate(self)


@dataclass(slots=True, kw_only=True)
class ScatterBackwardArgs(Args):
    """Any strides; dx may be dy. A None gradient costs nothing."""

    dy: Array = operand("*shape")
    index: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    dx: Array | None = output("*shape", optional=True, inplace=("dy",))
    dsrc: Array | None = output("*index_shape", optional=True)


def reference(desc: ScatterBackwardDescriptor, *, dy: Any, index: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy on the values: the tokens are numbered, and of several that name one element all count, or the last."""
    extent, grads = desc.shape[desc.axis], {}
    at, known = located(index, extent)
    places = list(np.indices(index.shape))
    places[desc.axis] = at
    if desc.kind is ScatterKind.SET:
        last = scattered(desc, np.full(desc.shape, -1), index, np.arange(index.size).reshape(index.shape), None)
        if extent:
            known &= last[tuple(places)] == np.arange(index.size).reshape(index.shape)
    if "dx" in wanted:
        grads["dx"] = np.where(last >= 0, dy.dtype.type(0), dy) if desc.kind is ScatterKind.SET else np.array(dy)
    if "dsrc" in wanted:
        read = dy[tuple(places)] if extent else np.zeros(index.shape, dy.dtype)
        grads["dsrc"] = np.where(known, read, dy.dtype.type(0))
    return grads


PARAMS = scatter_params("ScatterBackwardParams")


def _geometry(p: Problem) -> Geometry | str:
    axis, last = p.desc.axis, p.desc.kind is ScatterKind.SET
    source = None if p.dsrc is None else source_along(p.dsrc, p.index, axis)
    return scatter_backward_geometry(p.dx, source, p.dy, (axis,), along_axis(p.index, None, axis), last, {}, "dsrc")


def in_torch(torch: Any, desc: ScatterBackwardDescriptor, *, dy: Any, index: Any, wanted: set[str]) -> Any:
    """A gather for src, and for set a scatter of zeros; the tokens that torch's scatter leaves are found by number."""
    index = from_start(torch, index, desc.shape[desc.axis])
    dx, dsrc = dy, torch.gather(dy, desc.axis, index)
    if desc.kind is ScatterKind.SET:
        numbers = torch.arange(index.numel()).reshape(index.shape)
        left = torch.full(desc.shape, -1).scatter(desc.axis, index, numbers)
        dx, dsrc = torch.where(left < 0, dy, 0), torch.where(left.gather(desc.axis, index) == numbers, dsrc, 0)
    return {name: grad for name, grad in (("dx", dx), ("dsrc", dsrc)) if name in wanted}


class ScatterBackwardPlan(Indexed):
    """dx = dy, and dsrc[…, l, …] = dy[…, index[…, l, …], …]; for set only of the token that won, and dx is 0 there.

    What an index outside [-extent, extent) did not write has the gradient 0. torch's gradient of scatter counts every
    token.
    """

    op = "indexing.scatter_backward"
    direction = "backward"
    kinds = ScatterKind
    descriptor = ScatterBackwardDescriptor
    args = ScatterBackwardArgs
    reference = staticmethod(reference)
    value_policy = "what an index outside [-extent, extent) of the axis did not write has the gradient 0"
    variants = (
        Variant(
            "sorted", _geometry, source="indexing/scatter.cu", elements=SUMMED, kinds=KINDS,
            kernels=gradient_kernels(PARAMS),
            guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{kind} [8192, 4096] f32", kind=kind, shape=(8192, 4096), index_shape=(8192, 4096), axis=1,
            element="float32", also=("dx", "dsrc"),
            make=distinct_indices("index") if kind == "set" else known_indices("index"),
        )
        for kind in ("set", "add")
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ScatterBackwardDescriptor:
        return ScatterBackwardDescriptor(kind=draw.kind, **scatter_case(draw))


scatter_backward = functional(ScatterBackwardPlan, "scatter_backward", kind=ScatterKind.SET, include_self=True)
scatter_add_backward = functional(ScatterBackwardPlan, "scatter_add_backward", kind=ScatterKind.ADD, include_self=True)
