"""vecdot: y = the sum of a b along some axes, a and b broadcast (torch.linalg.vecdot, torch.dot)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Forward, Geometry, Guarantee, Params, Plan, Problem, Variant,
    Vjp, axes, element, extents, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import COMPLEX, INTS
from ...core.error_bound import ErrorBound
from ...core.tensor import Shape, View, broadcast_shape
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.reduce import over, reduce_geometry, reduce_kernels, reduce_params, sum_to
from .reduce_kinds import sum_bound, total


@dataclass(frozen=True, kw_only=True)
class VecdotDescriptor(Descriptor):
    """a and b have shapes that broadcast to `shape`; `axis` (an int, a tuple, None for all) is summed away.

    conjugate: of complex numbers a is conjugated.
    """

    shape: Shape = extents()
    axis: Any = axes(-1)
    conjugate: bool = flag(True)
    element: ElementKind = element((*FLOATS, *INTS, *COMPLEX))

    @property
    def result_shape(self) -> Shape:
        """The shape of y."""
        return tuple(n for a, n in enumerate(self.shape) if a not in self.axis)

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return total(self.element)


@dataclass(slots=True, kw_only=True)
class VecdotArgs(Args):
    """Any strides. y has the element of a and b; of integers int64 (uint64 of uint64)."""

    a: Array = operand("*shape", broadcast=True)
    b: Array = operand("*shape", broadcast=True)
    y: Array = output("*result_shape", element="result")


def reference(desc: VecdotDescriptor, *, a: Any, b: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    dtype = a.dtype if a.dtype.kind in "fc" else desc.result.dtype
    a = np.conj(a) if desc.element.is_complex and desc.conjugate else a
    with np.errstate(all="ignore"):
        product = np.broadcast_to(a.astype(dtype) * b.astype(dtype), desc.shape)
        return {"y": np.asarray(np.sum(product, axis=desc.axis, dtype=dtype))}


PARAMS = reduce_params("VecdotParams", ("a", "b"), conjugate="i32")
_KERNELS = reduce_kernels("kinds::Sum<{T}>", PARAMS, source="Mapped<Times<{T}>, {T}, {T}>")


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    # The product rounds, too; a part of a complex one is a sum of two.
    return Forward(sum_bound.c + (3 if element.is_complex else 1)) if element.is_inexact else Exact()


def _geometry(p: Problem) -> Geometry | str:
    shape = p.desc.shape
    return reduce_geometry(
        p, (p.a.broadcast_to(shape), p.b.broadcast_to(shape)), (p.y,), p.desc.axis,
        ordered=p.desc.element.is_inexact, mapped=True, values={"conjugate": p.desc.conjugate},
    )  # fmt: skip


def in_torch(torch: Any, desc: VecdotDescriptor, *, a: Any, b: Any) -> Any:
    """torch.linalg.vecdot along one axis; a product and a sum otherwise, and of integers, which torch cuts to a's."""
    if desc.element is ElementKind.U64:
        return NotImplemented
    if not desc.element.is_inexact:
        a, b = a.to(torch.int64), b.to(torch.int64)
    elif not desc.conjugate or (len(desc.axis) != 1 and a.is_complex()):
        a = a.conj() if desc.conjugate else a
    elif len(desc.axis) == 1 and a.ndim == b.ndim == len(desc.shape):
        return torch.linalg.vecdot(a, b, dim=desc.axis[0])
    product = torch.broadcast_to(a * b, desc.shape)
    return product.sum(desc.axis) if desc.axis else product


class VecdotPlan(Plan):
    """y = the sum of a b along `axis`, a and b broadcast (torch.linalg.vecdot, numpy.vecdot).

    Complex a is conjugated, unless `conjugate` is False: the gradients then are dy conj(b) and dy conj(a), else
    conj(dy) b and dy a, as PyTorch defines them.
    Floats of 16 bits are multiplied and summed in float32, float64 in itself; integers in 64 bits modulo 2^64, into
    int64 (uint64 of uint64), where PyTorch keeps their own element. Of no elements y is 0. A row's bits depend on its
    elements alone.
    """

    op = "reduce.vecdot"
    descriptor = VecdotDescriptor
    args = VecdotArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/vecdot.cu", elements=(*FLOATS, *INTS, *COMPLEX), kernels=_KERNELS,
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("VecdotBackwardPlan", grads={"a": "da", "b": "db"})
    benchmarks = tuple(
        Benchmark(f"[{shape}] bf16, axis {axis}", shape=shape, axis=axis, element="bfloat16")
        for shape, axis in (((16384, 8192), 1), ((8192, 16384), 0), ((1 << 27,), 0))
    )

    @staticmethod
    def case(draw: Any) -> VecdotDescriptor:
        shape, axis = vecdot_case(draw)
        return VecdotDescriptor(shape=shape, axis=axis, conjugate=draw.flag(), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("a", "b")))


def vecdot_case(draw: Any) -> tuple[Shape, Any]:
    """A shape and axes: any axes of small arrays; rows and columns from a lane's to several segments."""
    if draw.flag():
        shape = draw.shape(0, 5, 0, 5)
        return shape, draw.choice((None, tuple(a for a in range(len(shape)) if draw.flag())))
    long = draw.sizes(9, 1, 40, 131, 512, 1030, 2500, 9000, rare=(35001,))
    across = draw.sizes(1, 8, 33, 64) if long <= 2500 else 8
    found: tuple[Shape, Any] = draw.choice((((long,), 0), ((across, long), -1), ((long, across), 0)))
    return found


@dataclass(frozen=True, kw_only=True)
class VecdotBackwardDescriptor(Descriptor):
    """As `VecdotDescriptor`."""

    shape: Shape = extents()
    axis: Any = axes(-1)
    conjugate: bool = flag(True)
    element: ElementKind = element((*FLOATS, *COMPLEX))

    @property
    def result_shape(self) -> Shape:
        """The shape of dy."""
        return tuple(n for a, n in enumerate(self.shape) if a not in self.axis)


@dataclass(slots=True, kw_only=True)
class VecdotBackwardArgs(Args):
    """Any strides. da has a's shape, db b's; either may be None."""

    dy: Array = operand("*result_shape")
    a: Array = operand("*shape", broadcast=True)
    b: Array = operand("*shape", broadcast=True)
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", like="b", optional=True)


def backward_reference(desc: VecdotBackwardDescriptor, *, dy: Any, a: Any, b: Any, wanted: set[str]) -> Any:
    """NumPy in the dtype the operands come in."""
    dy = np.expand_dims(dy, desc.axis)

    def summed(product: Any, shape: Shape) -> Any:
        whole = np.broadcast_to(product, desc.shape)
        lead = whole.ndim - len(shape)
        away = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1)
        return np.sum(whole, axis=away).reshape(shape)

    with np.errstate(all="ignore"):
        if desc.conjugate:
            products = {"da": (np.conj(dy) * b, a.shape), "db": (dy * a, b.shape)}
        else:
            products = {"da": (dy * np.conj(b), a.shape), "db": (dy * np.conj(a), b.shape)}
        return {name: summed(product, shape) for name, (product, shape) in products.items() if name in wanted}


_SLOPES = Params(
    "VecdotSlopesParams", **dict.fromkeys(("da", "db", "dy", "a", "b"), "ptr"), conjugate="i32", **map_params(5)
)
_SLOPE_KERNELS = map_kernels("vecdot_slopes<{T}, {LAYOUT}>", _SLOPES, source="reduce/vecdot_slopes.cu")
_OTHER = {"da": "b", "db": "a"}  # the factor of dy


def _backward_geometry(p: Problem) -> Geometry | str:
    """One map to the gradients of what was not broadcast, and a sum to each of the others."""
    shape, wanted = p.desc.shape, [name for name in _OTHER if p.views[name] is not None]
    dy = over(p.dy, shape, p.desc.axis)
    whole = [name for name in wanted if math.prod(p.views[name].shape) == math.prod(shape)]
    steps: list[Any] = []
    used, coalesced = 0, True
    if whole:
        made = _slopes(p, dy, whole)
        if isinstance(made, str):
            return made
        steps, coalesced = [*made.steps], made.layout != "strided"
    for name in (name for name in wanted if name not in whole):
        factors, names = (dy, p.views[_OTHER[name]].broadcast_to(shape)), ("dy", _OTHER[name])
        if not p.desc.conjugate:  # dy times the other's conjugate
            factors, names = factors[::-1], names[::-1]
        first = not p.desc.conjugate or name == "da"  # of da = conj(dy) b and db = dy a one has a conjugate
        at = {"a": names[0], "b": names[1], "y": name, "conjugate": first}
        found = sum_to(p, factors, p.views[name], at, used)
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Geometry(tuple(steps), used, "inner_contiguous" if coalesced else "strided")


def _slopes(p: Problem, dy: View, wanted: Sequence[str]) -> Geometry | str:
    """What is not wanted is not written, and of its factor nothing is read: dy stands in its place."""
    views: list[View | None] = [None, None, dy, dy, dy]
    names: dict[str, Any] = {"da": "@null", "db": "@null", "a": "dy", "b": "dy", "conjugate": p.desc.conjugate}
    for number, (name, other) in enumerate(_OTHER.items()):
        if name in wanted:
            views[number], views[4 - number] = (p.views[one].broadcast_to(p.desc.shape) for one in (name, other))
            names |= {name: name, other: other}
    return map_geometry(p, views, names)


class VecdotBackwardPlan(Plan):
    """da = dy b and db = dy a, summed over the axes along which a and b were broadcast (torch.linalg.vecdot).

    Of complex numbers da = conj(dy) b, or where a was not conjugated da = dy conj(b) and db = dy conj(a). Sums are in
    float32, in float64 of float64, in an order that shapes alone fix.
    """

    op = "reduce.vecdot_backward"
    direction = "backward"
    descriptor = VecdotBackwardDescriptor
    args = VecdotBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "tree", _backward_geometry, source="reduce/vecdot.cu", elements=(*FLOATS, *COMPLEX),
            kernels=(*_KERNELS, *_SLOPE_KERNELS),
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[16384, 8192] bf16", also=("da", "db"), shape=(16384, 8192), element="bfloat16"),)

    @staticmethod
    def case(draw: Any) -> VecdotBackwardDescriptor:
        shape, axis = vecdot_case(draw)
        return VecdotBackwardDescriptor(shape=shape, axis=axis, conjugate=draw.flag(), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        VecdotPlan.infer(shapes, facts)


vecdot: Any = functional(VecdotPlan)
vecdot_backward = functional(VecdotBackwardPlan)
