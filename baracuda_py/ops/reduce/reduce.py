"""reduce: x reduced along any of its axes, by one of `ReduceKind`; and one function per kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, axes, choice, element,
    extents, flag, functional, integer, operand, output, where,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.tensor import Shape
from ...schedules.reduce import reduce_geometry, reduce_kernels, reduce_params, without_axes
from .reduce_kinds import ReduceKind, reduce_bound, reduce_elements


@dataclass(frozen=True, kw_only=True)
class ReduceDescriptor(Descriptor):
    """x has shape `shape`; `axis` (an int or a tuple, negative from the end; None: all, (): none) is reduced away.

    keepdims: reduced axes stay, with extent 1. correction: of var and std, what the count is lessened by.
    """

    kind: ReduceKind = choice(ReduceKind)
    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    correction: int = integer(1)
    element: ElementKind = element(reduce_elements(None))

    def validate(self) -> None:
        row = self.kind.row
        if self.element not in row.elements:
            what = f"{self.kind.value} of {self.element} is not an integer in general"
            raise UnsupportedError(f"{what}; cast to a float first")
        if row.nonempty and self.count == 0:
            raise InvalidProblemError(
                f"{self.kind.value} of no elements is not defined: axes {self.axis} of shape {self.shape}"
            )
        if self.correction != 1 and not row.corrected:
            raise InvalidProblemError(f"{self.kind.value} has no correction; it must be 1, got {self.correction}")

    @property
    def count(self) -> int:
        """Elements that make one of y."""
        return math.prod(self.shape[a] for a in self.axis)

    @property
    def result_shape(self) -> Shape:
        """The shape of y."""
        whole = enumerate(self.shape)
        return tuple(1 if a in self.axis else n for a, n in whole if self.keepdims or a not in self.axis)

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return self.kind.row.result(self.element)


@dataclass(slots=True, kw_only=True)
class ReduceArgs(Args):
    """Any strides. y has x's element; int64 for totals of integers, counts and places, bool for any and all."""

    x: Array = operand("*shape")
    y: Array = output("*result_shape", element="result")


def reference(desc: ReduceDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        y = desc.kind.row.formula(x, desc.axis, desc.correction)
    return {"y": np.array(y).reshape(desc.result_shape)}


PARAMS = reduce_params("ReduceParams")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    ordered = desc.kind.row.ordered and not (desc.kind in _TOTALS and not desc.element.is_float)
    y = without_axes(p.y, desc.axis) if desc.keepdims else p.y
    return reduce_geometry(p, (p.x,), (y,), desc.axis, ordered=ordered, values={"correction": desc.correction})


_TOTALS = (ReduceKind.SUM, ReduceKind.PROD)  # of integers exact, so in any order


def in_torch(torch: Any, desc: ReduceDescriptor, *, x: Any) -> Any:
    """torch's function of the kind; those without one for several axes take the axes as one."""
    kind, axis = desc.kind, desc.axis
    if not axis:  # torch means all axes by none
        x, axis = x.unsqueeze(0), (0,)
    if kind in (ReduceKind.PROD, ReduceKind.ARGMAX, ReduceKind.ARGMIN):
        if len(axis) > 1:
            x = torch.movedim(x, axis, tuple(range(-len(axis), 0))).flatten(-len(axis))
        y = getattr(torch, kind.value)(x, axis[0] if len(axis) == 1 else -1)
    elif kind in (ReduceKind.VAR, ReduceKind.STD):
        y = getattr(torch, kind.value)(x, axis, correction=desc.correction)
    elif kind in (ReduceKind.L1_NORM, ReduceKind.L2_NORM):
        y = torch.linalg.vector_norm(x, 1 if kind is ReduceKind.L1_NORM else 2, axis)
    elif kind is ReduceKind.SUM_SQUARES:
        y = torch.sum(torch.square(x), axis)
    else:
        y = getattr(torch, kind.value)(x, axis)
    return y.reshape(desc.result_shape)


# Rows, columns, a middle axis, few long rows, everything to one.
_TIMED: tuple[tuple[Shape, int], ...] = (
    ((16384, 8192), 1), ((65536, 2048), 1), ((1 << 20, 128), 1), ((2048, 50257), 1), ((8192, 16384), 0),
    ((1 << 20, 128), 0), ((64, 1024, 2048), 1), ((4, 1 << 25), 1), ((1 << 27,), 0),
)  # fmt: skip


def _benchmark(kind: str, shape: Shape, axis: int, element: ElementKind) -> Benchmark:
    label = f"{kind} {list(shape)} {element.name.lower()}, axis {axis}"
    return Benchmark(label, kind=kind, shape=shape, axis=axis, element=element)


class ReducePlan(Plan):
    """y = the elements of x along `axis` made one by `ReduceKind` (torch.sum, torch.amax, torch.logsumexp, …).

    NaN propagates through sums and extremes; for argmax and argmin a NaN is the extreme, and the first of equals wins.
    Of no elements: sum, nansum, norms and counts are 0, prod 1, any False, all True, mean, var and std NaN, logsumexp
    -inf; amax, amin, argmax and argmin raise InvalidProblemError. Totals of integers are int64 (uint64 of uint64) and
    wrap. argmax and argmin along several axes give the place in their row-major order. A sum in float32 (float64 for
    float64) that leaves the range on the way is infinite or NaN, as in PyTorch; var, prod and l2_norm are carried in
    float64. A row's bits depend on its elements alone.
    """

    op = "reduce.reduce"
    kinds = ReduceKind
    descriptor = ReduceDescriptor
    args = ReduceArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/reduce.cu", elements=reduce_elements,
            kernels=reduce_kernels("{KIND}<{T}>", PARAMS, where(kind=ReduceKind.LOGSUMEXP, element=ElementKind.F64)),
            guarantee=Guarantee(reduce_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        _benchmark(kind, shape, axis, element)
        for element in (ElementKind.F32, ElementKind.BF16)
        for kind in ("sum", "amax", "argmax", "var", "logsumexp", "l2_norm")
        for shape, axis in (_TIMED if kind == "sum" else (_TIMED[0], _TIMED[4]))
    )

    @staticmethod
    def case(draw: Any) -> ReduceDescriptor:
        """Any axes of small arrays; rows and columns from a lane's to several segments."""
        least = 1 if draw.kind.row.nonempty else 0
        style = draw.choice(("small", "rows", "columns", "whole"))
        if style == "small":
            shape = draw.shape(0, 5, least, 5)
            axis = draw.choice((None, tuple(a for a in range(len(shape)) if draw.flag())))
        else:
            long = draw.sizes(9, 1, 40, 131, 512, 1030, 2500, 9000)
            across = draw.sizes(1, 8, 33, 64) if long <= 2500 else 8
            if style == "whole":
                shape, axis = (long,), None
            elif style == "rows":
                shape, axis = (draw.sizes(1, 3, 17) if long <= 2500 else 2, long), (-1,)
            else:
                shape, axis = (long, across), (0,)
        correction = draw.integer(0, 2) if draw.kind.row.corrected else 1
        return ReduceDescriptor(
            kind=draw.kind, shape=shape, axis=axis, keepdims=draw.flag(), correction=correction, element=draw.element
        )


def _function(kind: ReduceKind) -> Any:
    doc = f"The {kind.value} of x along `axis` (all axes by default); see `ReducePlan`."
    fixed: dict[str, Any] = {} if kind.row.corrected else {"correction": 1}
    return functional(ReducePlan, kind.value, doc, kind=kind, **fixed)


sum = _function(ReduceKind.SUM)
mean = _function(ReduceKind.MEAN)
prod = _function(ReduceKind.PROD)
amax = _function(ReduceKind.AMAX)
amin = _function(ReduceKind.AMIN)
any = _function(ReduceKind.ANY)
all = _function(ReduceKind.ALL)
count_nonzero = _function(ReduceKind.COUNT_NONZERO)
argmax = _function(ReduceKind.ARGMAX)
argmin = _function(ReduceKind.ARGMIN)
nansum = _function(ReduceKind.NANSUM)
sum_squares = _function(ReduceKind.SUM_SQUARES)
l1_norm = _function(ReduceKind.L1_NORM)
l2_norm = _function(ReduceKind.L2_NORM)
logsumexp = _function(ReduceKind.LOGSUMEXP)
var = _function(ReduceKind.VAR)
std = _function(ReduceKind.STD)
