"""average: the mean of x weighted by an array that broadcasts to it (numpy.average), and its gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Forward, Geometry, Guarantee, Params, Plan, Problem, Relative, Variant, Vjp,
    axes, element, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import no_subnormals
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.arrays import read
from ...schedules.map import map_geometry, map_kernels, map_params, widths
from ...schedules.reduce import over, reduce_geometry, reduce_kernels, reduce_params, sum_to, without_axes
from . import reduce
from .reduce import AlongAxes
from .vecdot import vecdot_case


@dataclass(frozen=True, kw_only=True)
class AverageDescriptor(AlongAxes, Descriptor):
    """x has shape `shape`, to which weights broadcast; axis and keepdims are as in `ReduceDescriptor`."""

    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    element: ElementKind = element()


@no_subnormals  # products with them keep few digits of theirs
def _weights(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Test data: weights are positive."""
    return rng.uniform(0, 1, shape)


@dataclass(slots=True, kw_only=True)
class AverageArgs(Args):
    """Any strides. z is the sum of the weights of every y, in float32 (float64 of float64)."""

    x: Array = operand("*shape")
    weights: Array = operand("*shape", broadcast=True, values=_weights)
    y: Array = output("*result_shape")
    z: Array = output("*result_shape", element="acc")


def reference(desc: AverageDescriptor, *, x: Any, weights: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x and weights come in."""
    with np.errstate(all="ignore"):
        z = np.sum(np.broadcast_to(weights, desc.shape), axis=desc.axis)
        y = np.sum(x * weights, axis=desc.axis) / z
    return {"y": np.asarray(y).reshape(desc.result_shape), "z": np.asarray(z).reshape(desc.result_shape)}


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    results = [without_axes(view, desc.axis) if desc.keepdims else view for view in (p.y, p.z)]
    return reduce_geometry(p, (p.x, p.weights.broadcast_to(desc.shape)), results, desc.axis, mapped=True)


def in_torch(torch: Any, desc: AverageDescriptor, *, x: Any, weights: Any) -> Any:
    """Two sums."""
    if not desc.axis:
        x, weights, axis = x.unsqueeze(0), torch.broadcast_to(weights, desc.shape).unsqueeze(0), (0,)
    else:
        axis = desc.axis
    weights = torch.broadcast_to(weights, x.shape)
    z = weights.sum(axis)
    return ((x * weights).sum(axis) / z).reshape(desc.result_shape), z.reshape(desc.result_shape)


class AveragePlan(Plan):
    """y = Σ weights x / Σ weights along `axis`, and z = Σ weights (numpy.average, which raises where that is 0).

    Where the weights sum to 0, y is infinite or NaN, as nothing is read back. Sums are in float32 (float64 of float64);
    a row's bits depend on its elements alone.
    """

    op = "reduce.average"
    descriptor = AverageDescriptor
    args = AverageArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/average.cu", guarantee=Guarantee(Forward(120), batch_invariant=True),
            kernels=reduce_kernels("Average<{T}>", reduce_params("AverageParams", ("x", "weights"), ("y", "z")),
                                   source="Mapped<Weighing<{T}>, {T}, {T}>"), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("AverageBackwardPlan", grads={"x": "dx", "weights": "dweights"})
    benchmarks = (Benchmark("[16384, 8192] bf16, axis 1", shape=(16384, 8192), axis=1, element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> AverageDescriptor:
        shape, axis = vecdot_case(draw)
        return AverageDescriptor(shape=shape, axis=axis, keepdims=draw.flag(), element=draw.element)


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AverageBackwardDescriptor(AverageDescriptor):
    """As `AverageDescriptor`."""


@dataclass(slots=True, kw_only=True)
class AverageBackwardArgs(Args):
    """Any strides. y and z are the forward's results; dweights has the shape of weights; it or dx may be None."""

    dy: Array = operand("*result_shape")
    x: Array = operand("*shape")
    weights: Array = operand("*shape", broadcast=True, values=_weights)
    y: Array = operand("*result_shape")
    z: Array = operand("*result_shape", element="acc")
    dx: Array | None = output("*shape", optional=True)
    dweights: Array | None = output("*shape", like="weights", optional=True)


def backward_reference(
    desc: AverageBackwardDescriptor, *, dy: Any, x: Any, weights: Any, y: Any, z: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    kept = tuple(1 if a in desc.axis else n for a, n in enumerate(desc.shape))
    dy, y, z = (one.reshape(kept) for one in (dy, y, z))
    made = {}
    with np.errstate(all="ignore"):
        if "dx" in wanted:
            made["dx"] = np.broadcast_to(dy * weights / z, desc.shape)
        if "dweights" in wanted:
            lead = x.ndim - weights.ndim
            away = (*range(lead), *(lead + i for i, n in enumerate(weights.shape) if n == 1))
            made["dweights"] = np.sum(dy * (x - y) / z, axis=away).reshape(weights.shape)
    return made


_SLOPES = Params(
    "AverageSlopesParams",
    **dict.fromkeys(("dx", "dweights", "dy", "weights", "x", "average", "z"), "ptr"), **map_params(7),
)  # fmt: skip


def _backward_geometry(p: Problem) -> Geometry | str:
    """One map to dx, and to dweights where the weights did not broadcast; else a sum to those."""
    desc = p.desc
    whole = p.dweights is not None and math.prod(p.dweights.shape) == math.prod(desc.shape)
    steps: list[Any] = []
    used, coalesced = 0, True
    if p.dx is not None or whole:
        made = _slopes(p, whole)
        if isinstance(made, str):
            return made
        steps, coalesced = [*made.steps], made.layout != "strided"
    if p.dweights is not None and not whole:
        dy, y, z = (over(view, desc.shape, desc.axis) for view in (p.dy, p.y, p.z))
        at = {"y": "dweights", "average": "y"}
        found = sum_to(p, (dy, p.x, y, z), p.dweights, at, used, "dw_")
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Geometry(tuple(steps), used, "inner_contiguous" if coalesced else "strided")


def _slopes(p: Problem, whole: bool) -> Geometry | str:
    """What is not wanted is not written, and of what it alone takes nothing is read: dy stands in its place."""
    desc = p.desc
    dy, y, z = (over(view, desc.shape, desc.axis) for view in (p.dy, p.y, p.z))
    views: list[View | None] = [None, None, dy, dy, dy, dy, z]
    names = {"dx": "@null", "dweights": "@null", "weights": "dy", "x": "dy", "average": "dy"}
    if p.dx is not None:
        views[0], views[3] = p.dx, p.weights.broadcast_to(desc.shape)
        names |= {"dx": "dx", "weights": "weights"}
    if whole:
        views[1], views[4], views[5] = p.dweights.broadcast_to(desc.shape), p.x, y
        names |= {"dweights": "dweights", "x": "x", "average": "y"}
    return map_geometry(p, views, names)


_SUMS = reduce_kernels(
    "kinds::Sum<{T}>", reduce_params("WeightSlopeParams", ("dy", "x", "average", "z")),
    source="Mapped<WeightSlope<{T}>, {T}, {T}, {T}, {A}>", prefix="dw_",
    width=lambda element: 16 // element.acc.itemsize,
)  # fmt: skip
_MAPS = map_kernels(
    "average_slopes<{T}, {LAYOUT}>", _SLOPES, widths_of=lambda element: widths(element.acc.itemsize),
    source="reduce/average_slopes.cu",
)  # fmt: skip


def backward_in_torch(
    torch: Any, desc: AverageBackwardDescriptor, *, dy: Any, x: Any, weights: Any, y: Any, z: Any, wanted: set[str]
) -> Any:
    """Autograd of Σ dy (Σ w x - y Σ w) / z, in which y and z are what was saved."""
    kept = tuple(1 if a in desc.axis else n for a, n in enumerate(desc.shape))
    dy, y, z = (one.reshape(kept) for one in (dy, y, z))
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(), weights.detach().requires_grad_()]
        grads = torch.autograd.grad((dy * (leaves[0] - y) * leaves[1] / z).sum(), leaves)
    return {name: grad for name, grad in zip(("dx", "dweights"), grads, strict=True) if name in wanted}


class AverageBackwardPlan(Plan):
    """dx = dy weights / z, and dweights = dy (x - y) / z summed over the axes along which the weights broadcast.

    z, a saved statistic, has no gradient of its own. Sums are in float32 (float64 of float64), in an order that shapes
    alone fix.
    """

    op = "reduce.average_backward"
    direction = "backward"
    descriptor = AverageBackwardDescriptor
    args = AverageBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "tree", _backward_geometry, source="reduce/average.cu",
            guarantee=Guarantee(Relative(), batch_invariant=True),
            kernels=(*_MAPS, *_SUMS), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (
        Benchmark(
            "[16384, 8192] bf16, axis 1", also=("dx", "dweights"), shape=(16384, 8192), axis=1, element="bfloat16"
        ),
    )

    @staticmethod
    def case(draw: Any) -> AverageBackwardDescriptor:
        shape, axis = vecdot_case(draw)
        return AverageBackwardDescriptor(shape=shape, axis=axis, keepdims=draw.flag(), element=draw.element)

    @classmethod
    def complete(cls, desc: AverageBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """y and z become the results of the forward."""
        given = {name: decode(arrays[name], desc.element).astype(np.float64) for name in ("x", "weights")}
        made = reference(desc, **given)
        arrays["y"], arrays["z"] = np.array(cast(made["y"], desc.element)), np.array(cast(made["z"], desc.acc))


_weighted: Any = functional(AveragePlan, "average")
average_backward = functional(AverageBackwardPlan)


@entry(AveragePlan)
def average(
    x: Array, weights: Array | None = None, *, axis: Any = None, keepdims: bool = False, returned: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Σ weights x / Σ weights along `axis` (numpy.average); without weights the mean. See `AveragePlan`.

    weights broadcast to x's shape, or are as many as x has elements along `axis`, a single one. returned: y and the sum
    of the weights, which `average_backward` takes as z; then out= gives both.
    """
    if weights is None:
        if returned:
            raise InvalidProblemError("returned=True takes weights: without them their sum is the number of elements")
        return reduce.__dict__["mean"](x, axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference)
    shape, given = read(x, "x").shape, read(weights, "weights").shape
    if len(given) == 1 and isinstance(axis, int) and -len(shape) <= axis < len(shape) and given[0] == shape[axis]:
        weights = weights.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
    made = {"y": out} if out is not None and not returned else out
    y, z = _weighted(x, weights, axis=axis, keepdims=keepdims, out=made, stream=stream, preference=preference)
    return (y, z) if returned else y
