"""reduce: x reduced along any of its axes, by one of `ReduceKind`; and one function per kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, Vjp, axes, choice, element,
    extents, flag, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import COMPLEX, HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import aligned
from ...schedules.reduce import (
    over, reduce_geometry, reduce_kernels, reduce_launches, reduce_params, without_axes,
)  # fmt: skip
from .reduce_formulas import merged, near_circle, once
from .reduce_kinds import WIDENED, ReduceKind, reduce_bound, reduce_elements


class AlongAxes:
    """What `shape`, `axis` and `keepdims` of a descriptor say of its results."""

    if TYPE_CHECKING:
        shape: Shape
        axis: Any
        keepdims: bool

    @property
    def count(self) -> int:
        """Elements that make one of a result."""
        return math.prod(self.shape[a] for a in self.axis)

    @property
    def result_shape(self) -> Shape:
        """The shape without the reduced axes, or with an extent of 1 for each: of results and their gradients."""
        whole = enumerate(self.shape)
        return tuple(1 if a in self.axis else n for a, n in whole if self.keepdims or a not in self.axis)


@dataclass(frozen=True, kw_only=True)
class ReduceDescriptor(AlongAxes, Descriptor):
    """x has shape `shape`; `axis` (an int or a tuple, negative from the end; None: all, (): none) is reduced away.

    keepdims: reduced axes stay, with extent 1. correction: of var and std, what the count is lessened by. p: the order
    of p_norm, not 0. out_element: float32 for a sum of 16-bit floats that is not rounded to them (None: as x).
    """

    kind: ReduceKind = choice(ReduceKind)
    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    correction: int = integer(1)
    p: float = number(2.0)
    out_element: ElementKind | None = element((ElementKind.F32,), None)
    element: ElementKind = element(reduce_elements(None))

    def validate(self) -> None:
        refuse_elements(self.kind, self.element)
        refuse_empty(self)
        for name, default in OPTIONS.items():
            value = getattr(self, name)
            if value != default and name not in self.kind.row.takes:
                raise InvalidProblemError(f"{self.kind.value} has no {name}; it must be {default}, got {value}")
        if self.kind is ReduceKind.P_NORM and self.p == 0:
            raise InvalidProblemError("p must not be 0: l0_norm counts what is not 0")
        if self.kind is ReduceKind.P_NORM and self.p < 0 and self.count == 0:
            raise InvalidProblemError(f"p_norm of no elements is not defined for p < 0, got p {self.p}")
        if self.out_element is not None and (self.kind not in WIDENED or self.element not in HALVES):
            got = f"{self.kind.value} of {self.element}"
            raise UnsupportedError(f"out_element is for sums of float16 and bfloat16, got {got}; cast instead")

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return self.out_element or self.kind.row.result(self.element)


OPTIONS = {"correction": 1, "p": 2.0}
"""What only some kinds take, and the value that the others have."""


def refuse_elements(kind: Any, given: ElementKind) -> None:
    """Raise where a kind does not take an element."""
    if given not in kind.row.elements:
        if given.is_float:
            raise UnsupportedError(f"{kind.value} is of the bits of integers, got {given}")
        if given.is_complex:
            raise UnsupportedError(f"{kind.value} is of real numbers, got {given}; take the real part or the magnitude")
        why = "has no NaN" if kind.value.startswith("nan") else f"has no {kind.value} that is one in general"
        raise UnsupportedError(f"{given} {why}; cast to a float first")


def refuse_empty(desc: Any) -> None:
    """Raise where a kind is not defined for no elements."""
    if desc.kind.row.nonempty and desc.count == 0:
        what = f"{desc.kind.value} of no elements is not defined"
        raise InvalidProblemError(f"{what}: axes {desc.axis} of shape {desc.shape}")


@dataclass(slots=True, kw_only=True)
class ReduceArgs(Args):
    """Any strides. y has x's element; int64 for totals of integers, counts and places, bool for any and all.

    Norms, var and std of complex numbers are real.
    """

    x: Array = operand("*shape")
    y: Array = output("*result_shape", element="result")


def reference(desc: ReduceDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        row = desc.kind.row
        if x.dtype.kind in "fc":
            y = row.formula(x, desc.axis, *(getattr(desc, name) for name in row.takes))
        elif row.merge is not None:
            y = merged(row.formula, row.merge, x, desc.axis)
        else:
            y = row.formula(once(x, desc.axis) if desc.kind is ReduceKind.PTP else x, desc.axis)
    return {"y": np.array(y).reshape(desc.result_shape)}


PARAMS = reduce_params("ReduceParams")
MAPPED = reduce_params("MappedReduceParams", ("x",), p="f64")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    y = without_axes(p.y, desc.axis) if desc.keepdims else p.y
    if desc.out_element is not None:
        return reduce_geometry(p, (p.x,), (y,), desc.axis, mapped=True, values={"p": desc.p}, prefix="wide_")
    values = {"correction": desc.correction}
    return reduce_geometry(p, (p.x,), (y,), desc.axis, ordered=ordered(desc), values=values)


def _powers_geometry(p: Problem) -> Geometry | str:
    y = without_axes(p.y, p.desc.axis) if p.desc.keepdims else p.y
    return reduce_geometry(p, (p.x,), (y,), p.desc.axis, mapped=True, values={"p": p.desc.p})


_MEANS = reduce_params("ComplexMeanParams", ("x", "first"))
_DISTANCES = reduce_params("DistanceParams", ("x", "means"))


def _spread_geometry(p: Problem) -> Geometry | str:
    """Of complex numbers: the means in the workspace, then what lies between them and the elements."""
    axis = p.desc.axis
    y = without_axes(p.y, axis) if p.desc.keepdims else p.y
    means = View(0, y.shape, dense_strides(y.shape), ElementKind.C128)
    place = ("@workspace", 0)
    pairs = (p.x, over(p.x, p.x.shape, axis))  # every element with the first of its row
    found = reduce_launches(
        p.device, pairs, (means,), axis, mapped=True, values={"y": place, "first": "x"}, prefix="mean_",
        base=aligned(means.nbytes),
    )  # fmt: skip
    if isinstance(found, str):
        return found
    operands, values = (p.x, over(means, p.x.shape, axis)), {"means": place, "correction": p.desc.correction}
    last = reduce_launches(p.device, operands, (y,), axis, mapped=True, values=values, base=found.used)
    if isinstance(last, str):
        return last
    layout = "inner_contiguous" if found.coalesced and last.coalesced else "strided"
    return Geometry((*found.steps, *last.steps), last.used, layout)


def ordered(desc: Any) -> bool:
    """Whether the order of the elements counts: that of totals of integers does not, as they are exact."""
    exact = desc.kind in (ReduceKind.SUM, ReduceKind.PROD) and not desc.element.is_inexact
    return bool(desc.kind.row.ordered and not exact)


def in_torch(torch: Any, desc: ReduceDescriptor, *, x: Any) -> Any:
    """torch's function of the kind; those without one for several axes take the axes as one."""
    axis = desc.axis
    if not axis:  # torch means all axes by none
        x, axis = x.unsqueeze(0), (0,)
    function = desc.kind.row.torch
    y = function(torch, x, axis, desc) if function else getattr(torch, desc.kind.value)(x, axis)
    return y if y is NotImplemented else y.reshape(desc.result_shape)


# Rows, columns, a middle axis, few long rows, everything to one.
_TIMED: tuple[tuple[Shape, int], ...] = (
    ((16384, 8192), 1), ((65536, 2048), 1), ((1 << 20, 128), 1), ((2048, 50257), 1), ((8192, 16384), 0),
    ((1 << 20, 128), 0), ((64, 1024, 2048), 1), ((4, 1 << 25), 1), ((1 << 27,), 0),
)  # fmt: skip


def _benchmark(kind: str, shape: Shape, axis: int, element: ElementKind) -> Benchmark:
    label = f"{kind} {list(shape)} {element.name.lower()}, axis {axis}"
    return Benchmark(label, kind=kind, shape=shape, axis=axis, element=element)


_SPREADS = (ReduceKind.VAR, ReduceKind.STD)
_TREE = reduce_kernels("{KIND}<{T}>", PARAMS)


def _in_own_element(kind: ReduceKind | None) -> tuple[ElementKind, ...]:
    """The elements of a row whose results are in them, or in their totals' element."""
    elsewhere = HALVES if kind in WIDENED else COMPLEX if kind in _SPREADS else ()
    return tuple(e for e in reduce_elements(kind) if e not in elsewhere)


class ReducePlan(Plan):
    """y = the elements of x along `axis` made one by `ReduceKind` (torch.sum, torch.amax, numpy.ptp, numpy.nanmax, …).

    NaN propagates through sums and extremes; for argmax and argmin a NaN is the extreme, and the first of equals wins.
    Kinds named nan… pass it over: where all are NaN nansum is 0, nanprod 1, nanargmax and nanargmin -1 (NumPy raises,
    but nothing is read back), the others NaN. Of no elements: sum, nansum, norms and counts are 0, prod 1, any False,
    all True, means and variances NaN, logsumexp -inf; extremes and places raise InvalidProblemError. reduce_or,
    reduce_and and xor_sum combine the bits of integers (jax.lax.reduce_or, …), of none 0, all ones and 0.

    Totals of integers are int64 (uint64 of uint64) and wrap; so does ptp, in x's element. argmax and argmin along
    several axes give the place in their row-major order. p_norm is (Σ |x|^p)^(1/p), its stated error for |p| >= 1/4;
    l0_norm counts what is not 0, max_norm and min_norm are of the orders inf and -inf. A sum in float32 (float64 for
    float64) that leaves the range on the way is infinite or NaN, as in PyTorch; var, prod, l2_norm and p_norm are
    carried in float64. No partial product of floats leaves the range: prod and nanprod are infinite or 0 only where the
    product rounds to that, or has such a factor; parts of complex products are doubles. Of complex numbers var is the
    mean squared distance from the mean, norms are of magnitudes. A row's bits depend on its elements alone.
    """

    op = "reduce.reduce"
    kinds = ReduceKind
    descriptor = ReduceDescriptor
    args = ReduceArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/reduce.cu", elements=_in_own_element, kernels=_TREE,
            kinds=tuple(kind for kind in ReduceKind if kind is not ReduceKind.P_NORM),
            guarantee=Guarantee(reduce_bound, batch_invariant=True), may_spill=True,
        ),
        Variant(
            "halves", _geometry, source="reduce/reduce.cu", elements=HALVES, kinds=WIDENED,
            kernels=(*_TREE, *reduce_kernels("{KIND}<float>", MAPPED,
                                             source="Mapped<kinds::Widened<{T}, float>, {T}>", prefix="wide_")),
            guarantee=Guarantee(reduce_bound, batch_invariant=True), may_spill=True,
        ),
        Variant(
            "spread", _spread_geometry, source="reduce/complex_spread.cu", elements=COMPLEX, kinds=_SPREADS,
            kernels=(*reduce_kernels("{KIND}<{T}>", _DISTANCES, width=lambda element: 1,
                                     source="Mapped<kinds::Distance<{T}>, {T}, complex<double>>"),
                     *reduce_kernels("kinds::MeanFromFirst", _MEANS, prefix="mean_",
                                     source="Mapped<kinds::Differences<{T}>, {T}, {T}>")),
            guarantee=Guarantee(reduce_bound, math="float64", batch_invariant=True),
        ),
        Variant(
            "powers", _powers_geometry, source="reduce/reduce.cu", elements=reduce_elements, kinds=(ReduceKind.P_NORM,),
            kernels=reduce_kernels("{KIND}<{T}>", MAPPED, source="Mapped<kinds::Magnitude<{T}>, {T}>"),
            guarantee=Guarantee(reduce_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("ReduceBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        _benchmark(kind, shape, axis, element)
        for element in (ElementKind.F32, ElementKind.BF16)
        for kind in ("sum", "amax", "argmax", "var", "logsumexp", "l2_norm")
        for shape, axis in (_TIMED if kind == "sum" else (_TIMED[0], _TIMED[4]))
    )

    @staticmethod
    def case(draw: Any) -> ReduceDescriptor:
        row = draw.kind.row
        options: dict[str, Any] = {"correction": draw.integer(0, 2)} if "correction" in row.takes else {}
        if "p" in row.takes:
            options["p"] = draw.choice((3.0, 0.5, 1.5, 10.0))
        if row.widened and draw.element in HALVES:
            options["out_element"] = draw.choice((None, ElementKind.F32))
        return ReduceDescriptor(kind=draw.kind, **drawn(draw), keepdims=draw.flag(), element=draw.element, **options)

    @classmethod
    def complete(cls, desc: ReduceDescriptor, arrays: dict[str, Any]) -> None:
        """Complex factors of a product are near the unit circle."""
        if desc.kind is ReduceKind.PROD and desc.element.is_complex:
            arrays["x"] = near_circle(arrays["x"])


def drawn(draw: Any) -> dict[str, Any]:
    """A shape and axes for a kind; those that are defined for no elements get some of none."""
    return row_case(draw, 1 if draw.kind.row.nonempty else 0)


def row_case(draw: Any, least: int) -> dict[str, Any]:
    """A shape and axes: any axes of small arrays; rows and columns from a lane's to several segments."""
    style = draw.choice(("small", "rows", "columns", "whole"))
    if style == "small":
        shape = draw.shape(0, 5, least, 5)
        return {"shape": shape, "axis": draw.choice((None, tuple(a for a in range(len(shape)) if draw.flag())))}
    long = draw.sizes(9, 1, 40, 131, 512, 1030, 2500, 9000, rare=(35001,))
    across = draw.sizes(1, 8, 33, 64) if long <= 2500 else 8
    if style == "whole":
        return {"shape": (long,), "axis": None}
    if style == "rows":
        return {"shape": (draw.sizes(1, 3, 17) if long <= 2500 else 2, long), "axis": (-1,)}
    return {"shape": (long, across), "axis": (0,)}


def fixed_for(kind: Any) -> dict[str, Any]:
    """What the function of a kind does not ask."""
    fixed = {name: value for name, value in OPTIONS.items() if name not in kind.row.takes}
    return fixed if kind in WIDENED else {**fixed, "out_element": None}


def _function(kind: ReduceKind) -> Any:
    also = "".join(f", also called {name}" for name in kind.row.aliases)
    doc = f"The {kind.value} of x along `axis` (all axes by default){also}; see `ReducePlan`."
    return functional(ReducePlan, kind.value, doc, kind=kind, defaults=kind.row.defaults, **fixed_for(kind))


# A function for each row, under its name and its aliases; they hide Python's own of these names from here on.
globals().update({name: made for kind in ReduceKind for made in (_function(kind),) for name in kind.names})
