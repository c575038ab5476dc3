"""reduce_pair_backward: dx of the reductions with two results; and one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Relative, Variant, axes,
    choice, element, extents, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.error_bound import ErrorBound
from ...core.tensor import Shape
from .gradient_launches import gradient_geometry, gradient_header, gradient_kernels
from .reduce import AlongAxes, drawn
from .reduce_gradients import both, deviations, under_root
from .reduce_pair import ReducePairDescriptor, ReducePairKind, in_torch
from .reduce_pair import reference as forward

K = ReducePairKind
_INDEXED = (K.MAX_WITH_INDEX, K.MIN_WITH_INDEX)
_OTHERS = (K.AMINMAX, K.VAR_MEAN, K.STD_MEAN)


@dataclass(frozen=True, kw_only=True)
class ReducePairBackwardDescriptor(AlongAxes, Descriptor):
    """x and dx have shape `shape`; axis, keepdims and correction are as in `ReducePairDescriptor`."""

    kind: ReducePairKind = choice(ReducePairKind)
    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    correction: int = integer(1)
    element: ElementKind = element()

    def validate(self) -> None:
        _ = self.forward  # raises what the forward op does

    @property
    def forward(self) -> ReducePairDescriptor:
        """Of the op whose gradient this is."""
        return ReducePairDescriptor(
            kind=self.kind, shape=self.shape, axis=self.axis, keepdims=self.keepdims, correction=self.correction,
            element=self.element,
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class ReducePairBackwardArgs(Args):
    """Any strides. z is the place of max_with_index and min_with_index, which has no gradient; y is of std_mean."""

    dy: Array = operand("*result_shape")
    dz: Array | None = operand("*result_shape", kinds=_OTHERS)
    x: Array | None = operand("*shape", kinds=_OTHERS)
    y: Array | None = operand("*result_shape", kinds=(K.STD_MEAN,))
    z: Array | None = operand("*result_shape", element=ElementKind.I64, kinds=_INDEXED, values=(0, "count"))
    dx: Array = output("*shape")


def reference(desc: ReducePairBackwardDescriptor, *, dy: Any, dz: Any, x: Any, y: Any, z: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    kept = tuple(1 if a in desc.axis else n for a, n in enumerate(desc.shape))
    dy, dz, y, z = (None if one is None else one.reshape(kept) for one in (dy, dz, y, z))
    with np.errstate(all="ignore"):
        if desc.kind in _INDEXED:
            places = np.arange(desc.count).reshape([n if a in desc.axis else 1 for a, n in enumerate(desc.shape)])
            dx = np.where(places == z, dy, dy.dtype.type(0))
        elif desc.kind is K.AMINMAX:
            dx = both(dy, dz, x, desc.axis)
        else:
            slope = under_root(dy, y) if desc.kind is K.STD_MEAN else dy
            dx = deviations(slope, x, desc.axis, desc.correction) + dz / dz.dtype.type(desc.count)
    return {"dx": np.broadcast_to(np.asarray(dx, dy.dtype), desc.shape)}


def _row(name: str, kinds: tuple[ReducePairKind, ...], names: Mapping[str, str | None]) -> Variant:
    statistics = kinds is not _INDEXED

    def geometry(p: Problem) -> Geometry | str:
        return gradient_geometry(p, p.desc.axis, statistics, names, p.desc.correction)

    return Variant(
        name, geometry, source="reduce/reduce_backward.cu", prelude=gradient_header, kinds=kinds, elements=FLOATS,
        kernels=gradient_kernels("{KIND}<{T}>", statistics), guarantee=Guarantee(_bound, batch_invariant=True),
    )  # fmt: skip


def _bound(element: ElementKind, kind: ReducePairKind) -> ErrorBound:
    return Exact() if kind in _INDEXED else Relative()


def backward_in_torch(
    torch: Any, desc: ReducePairBackwardDescriptor, *, dy: Any, dz: Any, x: Any, y: Any, z: Any
) -> Any:
    """Autograd of torch's function, whose std is not rounded: that is made up for; dy put at the index."""
    if desc.kind in _INDEXED:
        held = [a for a in range(len(desc.shape)) if a not in desc.axis]
        rows = dy.new_zeros((*(desc.shape[a] for a in held), desc.count))
        kept = rows.shape[:-1]
        rows = rows.scatter(-1, z.reshape(kept).unsqueeze(-1), dy.reshape(kept).unsqueeze(-1))
        order = [*held, *desc.axis]
        return rows.reshape([desc.shape[a] for a in order]).permute([order.index(a) for a in range(len(order))])
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        exact, other = in_torch(torch, desc.forward, x=leaf)
        slope = dy * (exact / y).detach() if desc.kind is K.STD_MEAN else dy
        return torch.autograd.grad((exact, other), leaf, (torch.where(dy == 0, dy, slope), dz))[0]


class ReducePairBackwardPlan(Plan):
    """dx of the kinds of `ReducePairKind`, from the gradients dy and dz of both results.

    max_with_index, min_with_index: dy at the place z of every row, 0 elsewhere (torch.max of an axis). aminmax: dy and
    dz, divided evenly among the elements that are the smallest and the largest. var_mean, std_mean: as the gradients of
    var, std and mean, together; computed in float64.
    """

    op = "reduce.reduce_pair_backward"
    direction = "backward"
    kinds = ReducePairKind
    descriptor = ReducePairBackwardDescriptor
    args = ReducePairBackwardArgs
    reference = staticmethod(reference)
    value_policy = "a place outside the row is the place of no element"
    variants = (
        _row("map", _INDEXED, {"index": "z", "y": None, "dz": None}),
        _row("statistics", _OTHERS, {"index": None}),
    )
    torch = staticmethod(backward_in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} [16384, 8192] bf16", kind=kind, shape=(16384, 8192), axis=1, element="bfloat16")
        for kind in ("max_with_index", "var_mean")
    )

    @staticmethod
    def case(draw: Any) -> ReducePairBackwardDescriptor:
        correction = draw.integer(0, 2) if draw.kind.row.corrected else 1
        return ReducePairBackwardDescriptor(
            kind=draw.kind, **drawn(draw), keepdims=draw.flag(), correction=correction, element=draw.element
        )

    @classmethod
    def complete(cls, desc: ReducePairBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes the result of the forward."""
        if arrays["y"] is not None:
            made = forward(desc.forward, x=decode(arrays["x"], desc.element).astype(np.float64))
            arrays["y"] = np.array(cast(made["y"], desc.element))


def _function(kind: ReducePairKind) -> Callable[..., Any]:
    doc = f"dx of {kind.value} along `axis` (all axes by default); see `ReducePairBackwardPlan`."
    fixed: dict[str, Any] = {} if kind.row.corrected else {"correction": 1}
    return functional(ReducePairBackwardPlan, f"{kind.value}_backward", doc, kind=kind, **fixed)


max_with_index_backward = _function(K.MAX_WITH_INDEX)
min_with_index_backward = _function(K.MIN_WITH_INDEX)
aminmax_backward = _function(K.AMINMAX)
var_mean_backward = _function(K.VAR_MEAN)
std_mean_backward = _function(K.STD_MEAN)
