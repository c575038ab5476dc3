"""reduce_backward: dx of the reductions that have a gradient; and one function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, axes, choice, element, extents,
    flag, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import cast, decode, joined
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape
from .gradient_launches import gradient_geometry, gradient_header, gradient_kernels
from .reduce import OPTIONS, AlongAxes, ReduceDescriptor, drawn, in_torch
from .reduce import reference as forward
from .reduce_gradients import GRADIENT
from .reduce_formulas import near_circle
from .reduce_kinds import INEXACT, ReduceKind


@dataclass(frozen=True, kw_only=True)
class ReduceBackwardDescriptor(AlongAxes, Descriptor):
    """x and dx have shape `shape`; axis, keepdims, correction and p are as in `ReduceDescriptor`."""

    kind: ReduceKind = choice(ReduceKind)
    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    correction: int = integer(1)
    p: float = number(2.0)
    element: ElementKind = element(INEXACT)

    def validate(self) -> None:
        if self.kind not in GRADIENT:
            raise InvalidProblemError(f"the gradient of {self.kind.value} is 0 wherever there is one; fill dx with 0")
        _ = self.forward  # raises what the forward op does

    @property
    def forward(self) -> ReduceDescriptor:
        """Of the op whose gradient this is."""
        return ReduceDescriptor(
            kind=self.kind, shape=self.shape, axis=self.axis, keepdims=self.keepdims, correction=self.correction,
            p=self.p, element=self.element,
        )  # fmt: skip

    @property
    def result(self) -> ElementKind:
        """The element of y and dy: real where the forward makes complex numbers real."""
        return self.forward.result


_WITH_X = tuple(kind for kind, slope in GRADIENT.items() if slope.x)
_WITH_Y = tuple(kind for kind, slope in GRADIENT.items() if slope.y)


@dataclass(slots=True, kw_only=True)
class ReduceBackwardArgs(Args):
    """Any strides. x where the gradient depends on it (not of sum and mean), y (the forward's result) likewise."""

    dy: Array = operand("*result_shape", element="result")
    x: Array | None = operand("*shape", kinds=_WITH_X)
    y: Array | None = operand("*result_shape", element="result", kinds=_WITH_Y)
    dx: Array = output("*shape")


def reference(desc: ReduceBackwardDescriptor, *, dy: Any, x: Any, y: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    kept = tuple(1 if a in desc.axis else n for a, n in enumerate(desc.shape))
    with np.errstate(all="ignore"):
        held = None if y is None else y.reshape(kept)
        dx = GRADIENT[desc.kind].formula(dy.reshape(kept), x, held, desc.axis, desc)
    dtype = np.result_type(dy, np.complex64) if desc.element.is_complex else dy.dtype
    return {"dx": np.broadcast_to(np.asarray(dx, dtype), desc.shape)}


def _elements(kind: ReduceKind | None) -> tuple[ElementKind, ...]:
    return INEXACT if kind is None else tuple(e for e in kind.row.elements if e.is_inexact)


def _row(name: str, kinds: tuple[ReduceKind, ...]) -> Variant:
    statistics, powers = name != "map", name == "powers"

    def geometry(p: Problem) -> Geometry | str:
        option = p.desc.p if powers else p.desc.correction
        return gradient_geometry(p, p.desc.axis, statistics, {"dz": None, "index": None}, option, powers)

    return Variant(
        name, geometry, source="reduce/reduce_backward.cu", prelude=gradient_header, elements=_elements, kinds=kinds,
        kernels=gradient_kernels("{KIND}<{T}>", statistics, powers), guarantee=Guarantee(_bound, batch_invariant=True),
        may_spill=True,
    )  # fmt: skip


def tied(x: Any, axes: tuple[int, ...], extreme: Any) -> Any:
    """Complex x whose magnitudes along some axes are the extreme one, on an axis of the plane, or 4 ulp from it."""
    ulp = np.finfo(x.dtype)
    with np.errstate(all="ignore"):
        size = np.abs(x.astype(np.clongdouble))
        top = extreme(size, axis=axes, keepdims=True) if size.size else size
        near = np.abs(size - top) <= 4 * np.maximum(ulp.eps * top, ulp.smallest_subnormal)
        near &= np.isfinite(top) & (np.sum(near, axis=axes, keepdims=True) > 1)
        size = np.copysign(top.astype(ulp.dtype), x.real)
        turned = np.where(np.abs(x.real) < np.abs(x.imag), joined(0 * size, size), size)
    return np.where(near, turned, x).astype(x.dtype)


_SIZES = {ReduceKind.MAX_NORM: np.max, ReduceKind.MIN_NORM: np.min}
_POWERS = (ReduceKind.P_NORM,)
_MAPS = tuple(kind for kind, slope in GRADIENT.items() if not slope.statistics)
_FOUND = tuple(kind for kind, slope in GRADIENT.items() if slope.statistics and kind not in _POWERS)


def _bound(element: ElementKind, kind: ReduceKind) -> ErrorBound:
    return GRADIENT[kind].bound(element)


def backward_in_torch(torch: Any, desc: ReduceBackwardDescriptor, *, dy: Any, x: Any, y: Any) -> Any:
    """Autograd of torch's function of the kind, whose y is not rounded: that is made up for."""
    slope = GRADIENT[desc.kind]
    if desc.kind in (ReduceKind.NANVAR, ReduceKind.NANSTD) and desc.count <= desc.correction:
        return NotImplemented  # what torch makes of it depends on how it is put together
    with torch.enable_grad():
        leaf = (dy.new_zeros(desc.shape) if x is None else x.detach()).requires_grad_()  # of sums, whose dy is as x
        exact = in_torch(torch, desc.forward, x=leaf)
        (dx,) = torch.autograd.grad(exact, leaf, dy)
    if slope.exactly is None:
        return dx
    kept = tuple(1 if a in desc.axis else n for a, n in enumerate(desc.shape))
    factor = slope.exactly(exact.detach(), y, desc).reshape(kept)
    return torch.where(dx == 0, dx, dx * factor)


class ReduceBackwardPlan(Plan):
    """dx of y = the elements of x along `axis` made one, for the kinds of `ReduceKind` that have a gradient.

    An extreme's dy is divided evenly among the elements that are it (NaN among the NaN, as torch.max does it), also of
    max_norm, min_norm and ptp. The gradient of prod is the product of all other elements, with zeros and infinities
    among them, and without overflow on the way. Norms and std have the gradient 0 where they are 0, l1_norm at 0. Where
    x is NaN, kinds named nan… have the gradient 0. Magnitudes of complex numbers are compared as float64 numbers,
    by the hypot of the device: those that differ by no more than its error, 2 ulp, may count as one extreme or as
    two. var of as many elements as `correction` has an infinite slope, as in PyTorch; infinite times a deviation
    that the mean's rounding hides (2^-44 of the root of all squares) is NaN. Of complex numbers dx is dy times the
    conjugate of the derivative, as in PyTorch. Statistics of rows are found in launches of their own, in the order
    of the forward; variances, products and norms of any order are computed in float64.
    """

    op = "reduce.reduce_backward"
    direction = "backward"
    kinds = tuple(GRADIENT)
    descriptor = ReduceBackwardDescriptor
    args = ReduceBackwardArgs
    reference = staticmethod(reference)
    variants = (_row("map", _MAPS), _row("statistics", _FOUND), _row("powers", _POWERS))
    torch = staticmethod(backward_in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} {list(shape)} bf16, axis {axis}", kind=kind, shape=shape, axis=axis, element="bfloat16")
        for kind in ("sum", "amax", "logsumexp", "var")
        for shape, axis in (((16384, 8192), 1), ((8192, 16384), 0))
    )

    @staticmethod
    def case(draw: Any) -> ReduceBackwardDescriptor:
        options: dict[str, Any] = {"correction": draw.integer(0, 2)} if "correction" in draw.kind.row.takes else {}
        if "p" in draw.kind.row.takes:
            options["p"] = draw.choice((3.0, 0.5, 1.5, 10.0))
        return ReduceBackwardDescriptor(
            kind=draw.kind, **drawn(draw), keepdims=draw.flag(), element=draw.element, **options
        )

    @classmethod
    def complete(cls, desc: ReduceBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """Complex factors of a product are near the unit circle, magnitudes next to the extreme are it; y becomes the
        result of the forward."""
        if desc.kind is ReduceKind.PROD and desc.element.is_complex:
            arrays["x"] = near_circle(arrays["x"])
        if desc.kind in _SIZES and desc.element.is_complex:
            arrays["x"] = tied(arrays["x"], desc.axis, _SIZES[desc.kind])
        if arrays["y"] is not None:
            wide = np.complex128 if desc.element.is_complex else np.float64
            made = forward(desc.forward, x=decode(arrays["x"], desc.element).astype(wide))
            arrays["y"] = np.array(cast(made["y"], desc.result))


def _function(kind: ReduceKind) -> Any:
    doc = f"dx of {kind.value} along `axis` (all axes by default); see `ReduceBackwardPlan`."
    fixed: dict[str, Any] = {name: value for name, value in OPTIONS.items() if name not in kind.row.takes}
    return functional(ReduceBackwardPlan, f"{kind.value}_backward", doc, kind=kind, **fixed)


# A function for each kind with a gradient, named after it.
globals().update({f"{kind.value}_backward": _function(kind) for kind in GRADIENT})
