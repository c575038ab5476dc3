"""scatter: y = x with src written, or combined, at positions along one axis (torch.scatter, torch.scatter_reduce)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Problem, Relative, Variant, Vjp,
    choice, element, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import COMPILED, EAGER, IN_ORDER, Benchmark
from ...core.element import COMPLEX, REALS
from ...core.error_bound import ErrorBound
from ...core.params import Params
from ...core.tensor import View
from ...schedules.scatter_places import Source, Tokens
from ...schedules.scatter import (
    combining_kernels, moving_kernels, scatter_atomic_geometry, scatter_geometry, scatter_params,
)  # fmt: skip
from .gather import GatherDescriptor, GatherPlan
from .indexed import ELEMENTS, MOVED, Indexed, atomic_row, from_start, known_indices, located, random_index


class ScatterKind(enum.Enum):
    """What a token does to the element it names: take its place, or be combined with it."""

    SET = "set"
    ADD = "add"
    PROD = "prod"
    AMAX = "amax"
    AMIN = "amin"
    MEAN = "mean"

    @property
    def cpp(self) -> str:
        """The functor's name in kernels/indexing/scatter.cu."""
        return f"Scatter{self.name.title()}"


_COMBINE = {
    ScatterKind.ADD: np.add,
    ScatterKind.PROD: np.multiply,
    ScatterKind.AMAX: np.maximum,
    ScatterKind.AMIN: np.minimum,
    ScatterKind.MEAN: np.add,
}
_SELECT = (ScatterKind.SET, ScatterKind.AMAX, ScatterKind.AMIN)  # kinds that make no new numbers


@dataclass(frozen=True, kw_only=True)
class ScatterDescriptor(GatherDescriptor):
    """x and y have shape `shape`, index and src `index_shape`: of the same rank, no longer except along `axis`.

    include_self: where False, an element that a token names is made of its tokens alone; of set it is so.
    """

    kind: ScatterKind = choice(ScatterKind)
    include_self: bool = flag(True)
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        GatherDescriptor.validate(self)
        refuse_fresh_set(self)


def refuse_fresh_set(desc: Any) -> None:
    """Raises where include_self is False for set."""
    if desc.kind is ScatterKind.SET and not desc.include_self:
        raise InvalidProblemError("include_self must be True for set, which leaves nothing of what was there")


@dataclass(slots=True, kw_only=True)
class ScatterArgs(Args):
    """Any strides; y may be x. index is int64 or int32."""

    x: Array = operand("*shape")
    index: Array = operand("*index_shape", element=ELEMENTS, values=random_index)
    src: Array = operand("*index_shape")
    y: Array = output("*shape", inplace=("x",))


def scattered(desc: GatherDescriptor, y: Any, index: Any, src: Any, combine: np.ufunc | None) -> Any:
    """y with the tokens of src written or combined in their order (NumPy, in place)."""
    at, known = located(index, desc.shape[desc.axis])
    places = [axis[known] for axis in np.indices(index.shape)]
    places[desc.axis] = at[known]
    if combine is not None:
        combine.at(y, tuple(places), src[known])
    else:
        for at, value in zip(zip(*places, strict=True), src[known], strict=True):
            y[at] = value
    return y


def reference(desc: ScatterDescriptor, *, x: Any, index: Any, src: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in (means of integers in 64 bits): token by token."""

    def put(y: Any, src: Any, combine: np.ufunc | None) -> Any:
        return scattered(desc, y, index, src, combine)

    return {"y": reduced(desc.kind, desc.include_self, x, src, put)}


def reduced(kind: ScatterKind, include_self: bool, x: Any, src: Any, put: Any) -> Any:
    """x with tokens combined by `put(y, tokens, ufunc)`, in the dtype x has; means of integers in 64 bits."""
    if kind is ScatterKind.MEAN and x.dtype.kind in "iu":
        wide = np.uint64 if x.dtype == np.uint64 else np.int64
        return _reduced(kind, include_self, x.astype(wide), src.astype(wide), put).astype(x.dtype)
    with np.errstate(all="ignore"):
        return _reduced(kind, include_self, np.array(x), src, put)


def _reduced(kind: ScatterKind, include_self: bool, y: Any, src: Any, put: Any) -> Any:
    if include_self and kind is not ScatterKind.MEAN:
        return put(y, src, _COMBINE.get(kind))
    counts = put(np.zeros(y.shape, np.int64), np.ones(src.shape, np.int64), np.add)
    if not include_self:
        y = np.where(counts > 0, _nothing(kind, y.dtype), y)
    y = put(y, src, _COMBINE.get(kind))
    if kind is not ScatterKind.MEAN:
        return y
    n = np.maximum(counts + include_self, 1).astype(y.dtype)
    return np.where(counts > 0, y // n if y.dtype.kind in "iu" else y / n, y)


def _nothing(kind: ScatterKind, dtype: Any) -> Any:
    """What combining with changes nothing."""
    if kind not in (ScatterKind.AMAX, ScatterKind.AMIN):
        return dtype.type(kind is ScatterKind.PROD)
    low = kind is ScatterKind.AMAX
    if dtype.kind == "f":
        return dtype.type(-np.inf if low else np.inf)
    if dtype.kind == "b":
        return dtype.type(not low)
    return dtype.type(np.iinfo(dtype).min if low else np.iinfo(dtype).max)


def along_axis(index: Any, src: Any, axis: int) -> Tokens:
    """Tokens of an index that has the rank of what is scattered to; src None: of which nothing is read."""
    strides = (index if src is None else src).strides, index.strides
    without = [tuple(0 if a == axis else s for a, s in enumerate(own)) for own in strides]
    tokens = ([index.strides[axis]], [strides[0][axis]])
    return Tokens(src, index, without[0], without[1], index.shape, (index.shape[axis],), tokens)


def source_along(src: View, index: View, axis: int) -> Source:
    """The same src, or its gradient, for kernels over its elements."""
    return Source(src, index, tuple(None if a == axis else a for a in range(len(src.shape))))


PARAMS = scatter_params("ScatterParams")


def _geometry(p: Problem) -> Geometry | str:
    axis, fresh = p.desc.axis, not p.desc.include_self
    moves = p.desc.kind is ScatterKind.SET
    return scatter_geometry(p, p.y, p.x, (axis,), along_axis(p.index, p.src, axis), {}, fresh, moves)


def _atomic_geometry(p: Problem) -> Geometry | str:
    if not p.desc.include_self:
        return "sums without what was there are not made by atomics"
    axis = p.desc.axis
    tokens, source = along_axis(p.index, p.src, axis), source_along(p.src, p.index, axis)
    return scatter_atomic_geometry(p.y, p.x, (axis,), tokens, source, {})


def bound(kind_of: ElementKind, kind: Any) -> ErrorBound:
    """The error of a kind: those that select make no new numbers."""
    return Relative(2) if kind_of.is_inexact and kind not in _SELECT else Exact()


def scatter_rows(geometry: Any, atomic: Any, params: Params, *also: Kernel) -> tuple[Variant, ...]:
    """The rows of a plan of `ScatterKind`: the last token moved as it is, or every one combined.

    also: kernels that run before.
    """
    combining = tuple(kind for kind in ScatterKind if kind is not ScatterKind.SET)
    source = "indexing/scatter.cu"
    return (
        Variant(
            "words", geometry, source, (*moving_kernels(params), *also), MOVED, kinds=(ScatterKind.SET,),
            guarantee=Guarantee(bound),
        ),
        atomic_row(atomic, params, (ScatterKind.ADD,), *also),
        Variant(
            "sorted", geometry, source, (*combining_kernels(params, "{KIND}"), *also), combined, kinds=combining,
            guarantee=Guarantee(bound),
        ),
    )  # fmt: skip


def combined(kind: ScatterKind) -> tuple[ElementKind, ...]:
    """The elements that a kind combines; a mean of truths is none."""
    if kind is ScatterKind.MEAN:
        return REALS
    return (*REALS, ElementKind.BOOL, *(COMPLEX if kind is ScatterKind.ADD else ()))


def in_torch(torch: Any, desc: ScatterDescriptor, *, x: Any, index: Any, src: Any) -> Any:
    """torch's function of the kind; on the CPU its scatter, too, lets the last of several tokens win."""
    index = from_start(torch, index, desc.shape[desc.axis])
    return scattered_in_torch(torch, desc, x, desc.axis, index, src)


def scattered_in_torch(torch: Any, desc: Any, x: Any, axis: int, index: Any, src: Any) -> Any:
    """x with the tokens of src at indices in range; `desc` says how."""
    kind, include_self = desc.kind, desc.include_self
    if kind is ScatterKind.SET:
        return torch.scatter(x, axis, index, src)
    if kind is ScatterKind.ADD and include_self:
        return torch.scatter_add(x, axis, index, src)
    if kind is ScatterKind.MEAN and not x.is_floating_point():  # torch's sums wrap before they are divided
        wide = x.to(torch.int64), axis, index, src.to(torch.int64)
        return torch.scatter_reduce(*wide, "mean", include_self=include_self).to(x.dtype)
    name = "sum" if kind is ScatterKind.ADD else kind.value
    return torch.scatter_reduce(x, axis, index, src, name, include_self=include_self)


def _permutations(torch: Any, desc: ScatterDescriptor) -> Mapping[str, Any]:
    """Each place once, so that every order is right."""
    return {"index": torch.argsort(torch.rand(desc.index_shape), desc.axis)}


class ScatterPlan(Indexed):
    """y = x, then y[…, i, …] = f(y[…, i, …], src[…, l, …]) with i = index[…, l, …] along `axis`, l in order.

    f is src itself (set: of several tokens that name one element the last one wins, where torch leaves open which),
    their sum (add) or product (prod), or the larger (amax) or smaller (amin) of the two; NaN wins. Of truths a sum is
    whether any holds, a product whether all do, and there is no mean. mean divides their
    sum by how many they are, x included; of integers downwards, after a sum in 64 bits. An element of y is made of x
    and its tokens in their order, in the accumulator (integers wrap), rounded once: the same bits in every run; but
    with `PlanPreference(deterministic=False)` sums of f32 and f64 are made by atomics. A negative index counts from the
    end; one outside [-extent, extent) writes nothing. set and add have gradients; those of the other kinds are
    `scatter_reduce_backward`.
    """

    op = "indexing.scatter"
    kinds = ScatterKind
    descriptor = ScatterDescriptor
    args = ScatterArgs
    reference = staticmethod(reference)
    vjp = Vjp("ScatterBackwardPlan", grads={"x": "dx", "src": "dsrc"}, kinds=(ScatterKind.SET, ScatterKind.ADD))
    value_policy = "an index outside [-extent, extent) of the axis writes nothing"
    variants = scatter_rows(_geometry, _atomic_geometry, PARAMS)
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{kind} [8192, 4096] f32{', any order' if any_order else ''}", kind=kind, shape=(8192, 4096),
            index_shape=(8192, 4096), axis=1, element="float32", make=make, any_order=any_order,
            peers=(EAGER, COMPILED, IN_ORDER) if kind == "add" else (EAGER, COMPILED),
        )
        for kind, make, any_order in (
            ("set", _permutations, False), ("add", known_indices("index"), False), ("add", known_indices("index"), True)
        )
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ScatterDescriptor:
        own = draw.flag() or draw.kind in (ScatterKind.SET, ScatterKind.ADD)  # whose gradients are of these
        return ScatterDescriptor(kind=draw.kind, include_self=own, **scatter_case(draw))


def scatter_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields but the kind: now and then with lines long enough to be sorted."""
    if draw.rarely():  # longer than blocks hold
        shape, index, axis = draw.choice((((9,), (8200,), 0), ((66000,), (8200,), 0)))
    elif draw.integer(0, 3) == 0:
        long = (((9,), (70,), 0), ((4100,), (1100,), 0), ((3, 8, 16), (3, 90, 16), 1), ((4, 16), (4, 130), -1))
        shape, index, axis = draw.choice(long)
    else:
        found = GatherPlan.case(draw)
        shape, index, axis = found.shape, found.index_shape, found.axis
    return {"shape": shape, "index_shape": index, "axis": axis, "element": draw.element}


scatter = functional(ScatterPlan, "scatter", kind=ScatterKind.SET, include_self=True)
scatter_add = functional(ScatterPlan, "scatter_add", kind=ScatterKind.ADD, include_self=True)
scatter_sum = functional(ScatterPlan, "scatter_sum", kind=ScatterKind.ADD)
scatter_prod = functional(ScatterPlan, "scatter_prod", kind=ScatterKind.PROD)
scatter_amax = functional(ScatterPlan, "scatter_amax", kind=ScatterKind.AMAX)
scatter_amin = functional(ScatterPlan, "scatter_amin", kind=ScatterKind.AMIN)
scatter_mean = functional(ScatterPlan, "scatter_mean", kind=ScatterKind.MEAN)
scatter_mul, scatter_max, scatter_min = scatter_prod, scatter_amax, scatter_amin  # JAX's names
