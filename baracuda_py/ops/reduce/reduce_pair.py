"""reduce_pair: two results of one pass over x, by one of `ReducePairKind`; and one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Forward, Geometry, Guarantee, PerOutput, Plan, Problem, Relative,
    Ulp, Variant, Vjp, axes, choice, element, extents, flag, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind, WithFunctor
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape
from ...schedules.reduce import reduce_geometry, reduce_kernels, reduce_params, without_axes
from . import reduce_formulas as formulas
from . import reduce_torch as oracle
from .reduce import AlongAxes, drawn, refuse_elements, refuse_empty
from .reduce_formulas import Axes, once
from .reduce_kinds import EVERY, NUMBERS, exact


@dataclass(frozen=True)
class Pair(WithFunctor):
    """A row: the functor's name, the formula (x, axes, correction) → (y, z), elements, the bound; see `Reduction`."""

    folder: ClassVar[str] = "reduce"

    functor: str
    formula: Callable[[Any, Axes, int], tuple[Any, Any]]
    elements: tuple[ElementKind, ...]
    bound: Callable[[ElementKind], ErrorBound]
    index: bool = False
    ordered: bool = True
    nonempty: bool = False
    corrected: bool = False


def _with_index(best: Callable[..., Any], find: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    return lambda x, axes, _: (best(x, axis=axes), formulas.place(find)(x, axes))


def _and_mean(root: bool) -> Callable[..., tuple[Any, Any]]:
    def formula(x: Any, axes: Axes, correction: int) -> tuple[Any, Any]:
        found = formulas.variance(x, axes, correction)
        return np.sqrt(found) if root else found, formulas.mean(x, axes)

    return formula


# Of float64, u half an eps, S the mean of |x|. A lane's 16 elements: a deviation from the first errs by u of itself and
# passes 1 + 8 additions. Where the mean is no nearer to 0 than to it, deviations are at most 3 S on average: 31 u S. A
# merge divides, multiplies, and adds to a difference of at most S: 5 u S. There are 5 of lanes, and 8 + 5 in each of at
# most 7 merges of 256 segments (2^63 elements): (31 + 96 * 5) u S.
_MEAN = Forward(256)


def _spread(element: ElementKind) -> ErrorBound:
    # Both are carried in double, but a mean near 0 has no digits of its own.
    return PerOutput((("y", Ulp(512)), ("z", _MEAN))) if element is ElementKind.F64 else Relative()


class ReducePairKind(TableKind):
    """What y and z are, by PyTorch's names where it has one."""

    MAX_WITH_INDEX = (
        "max_with_index",
        Pair("pairs/MaxWithIndex", _with_index(np.max, np.argmax), EVERY, exact, index=True, nonempty=True),
    )
    MIN_WITH_INDEX = (
        "min_with_index",
        Pair("pairs/MinWithIndex", _with_index(np.min, np.argmin), EVERY, exact, index=True, nonempty=True),
    )
    AMINMAX = (
        "aminmax",
        Pair("pairs/Aminmax", lambda x, axes, _: (np.min(x, axis=axes), np.max(x, axis=axes)), NUMBERS, exact,
             ordered=False, nonempty=True),
    )  # fmt: skip
    VAR_MEAN = "var_mean", Pair("pairs/VarMean", _and_mean(False), FLOATS, _spread, corrected=True)
    STD_MEAN = "std_mean", Pair("pairs/StdMean", _and_mean(True), FLOATS, _spread, corrected=True)

    row: Pair

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.row.cpp}"


def pair_elements(kind: ReducePairKind | None) -> tuple[ElementKind, ...]:
    """The elements a kind takes."""
    return EVERY if kind is None else kind.row.elements


@dataclass(frozen=True, kw_only=True)
class ReducePairDescriptor(AlongAxes, Descriptor):
    """x has shape `shape`; axis, keepdims and correction are as in `ReduceDescriptor`."""

    kind: ReducePairKind = choice(ReducePairKind)
    shape: Shape = extents()
    axis: Any = axes(None)
    keepdims: bool = flag(False)
    correction: int = integer(1)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        refuse_elements(self.kind, self.element)
        refuse_empty(self)
        if self.correction != 1 and not self.kind.row.corrected:
            raise InvalidProblemError(f"{self.kind.value} has no correction; it must be 1, got {self.correction}")

    @property
    def second(self) -> ElementKind:
        """The element of z."""
        return ElementKind.I64 if self.kind.row.index else self.element


@dataclass(slots=True, kw_only=True)
class ReducePairArgs(Args):
    """Any strides. y has x's element, z int64 where it is an index, else x's."""

    x: Array = operand("*shape")
    y: Array = output("*result_shape")
    z: Array = output("*result_shape", element="second")


def reference(desc: ReducePairDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    if desc.kind is ReducePairKind.AMINMAX:
        x = once(x, desc.axis)
    with np.errstate(all="ignore"):
        y, z = desc.kind.row.formula(x, desc.axis, desc.correction)
    return {"y": np.array(y).reshape(desc.result_shape), "z": np.array(z).reshape(desc.result_shape)}


PARAMS = reduce_params("ReducePairParams", results=("y", "z"))


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    results = [without_axes(view, desc.axis) if desc.keepdims else view for view in (p.y, p.z)]
    return reduce_geometry(
        p, (p.x,), results, desc.axis, ordered=desc.kind.row.ordered, values={"correction": desc.correction}
    )


def in_torch(torch: Any, desc: ReducePairDescriptor, *, x: Any) -> Any:
    """torch's function of the kind; those without one for several axes take the axes as one."""
    kind, axis = desc.kind, desc.axis
    if not axis:
        x, axis = x.unsqueeze(0), (0,)
    if kind.row.corrected:
        found = getattr(torch, kind.value)(x, axis, correction=desc.correction)
    else:
        name = kind.value.partition("_")[0]
        found = getattr(torch, name)(oracle.rows(torch, x, axis), dim=axis[0] if len(axis) == 1 else -1)
    return tuple(one.reshape(desc.result_shape) for one in found)


class ReducePairPlan(Plan):
    """y and z of one pass over x along `axis`, by `ReducePairKind`.

    max_with_index, min_with_index: the extreme and its place (torch.max and torch.min of an axis; along several axes
    the place in their row-major order); NaN is the extreme, the first of equals wins. aminmax: the smallest and the
    largest (torch.aminmax); NaN if any is. var_mean, std_mean: torch's, carried in float64. Extremes of no elements
    raise InvalidProblemError. A row's bits depend on its elements alone.
    """

    op = "reduce.reduce_pair"
    kinds = ReducePairKind
    descriptor = ReducePairDescriptor
    args = ReducePairArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="reduce/reduce.cu", elements=pair_elements,
            kernels=reduce_kernels("{KIND}<{T}>", PARAMS),
            guarantee=Guarantee(lambda element, kind: kind.row.bound(element), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("ReducePairBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        Benchmark(f"{kind} {list(shape)} bf16, axis {axis}", kind=kind, shape=shape, axis=axis, element="bfloat16")
        for kind in ("max_with_index", "var_mean")
        for shape, axis in (((16384, 8192), 1), ((8192, 16384), 0))
    )

    @staticmethod
    def case(draw: Any) -> ReducePairDescriptor:
        correction = draw.integer(0, 2) if draw.kind.row.corrected else 1
        return ReducePairDescriptor(
            kind=draw.kind, **drawn(draw), keepdims=draw.flag(), correction=correction, element=draw.element
        )


def _function(kind: ReducePairKind) -> Any:
    doc = f"The {kind.value} of x along `axis` (all axes by default), two arrays; see `ReducePairPlan`."
    fixed: dict[str, Any] = {} if kind.row.corrected else {"correction": 1}
    return functional(ReducePairPlan, kind.value, doc, kind=kind, **fixed)


max_with_index = _function(ReducePairKind.MAX_WITH_INDEX)
min_with_index = _function(ReducePairKind.MIN_WITH_INDEX)
aminmax = _function(ReducePairKind.AMINMAX)
var_mean = _function(ReducePairKind.VAR_MEAN)
std_mean = _function(ReducePairKind.STD_MEAN)
