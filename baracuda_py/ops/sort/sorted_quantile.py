"""sorted_quantile: between two elements of a sorted row (torch.quantile, numpy.quantile), and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Relative,
    Scalar, Variant, Vjp, choice, element, extents, flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import decode
from ...core.params import Field
from ...core.tensor import Shape, View
from ...schedules.map import THREADS, map_params
from ...schedules.radix_sort import key_order
from .order import KEYS, RowDescriptor, order_of, rows_back, rows_last, sorted_rows
from .searchsorted import one_each

_STEPS = ("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf",
          "closest_observation")  # fmt: skip
_PLACES = {
    "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3.0, 1 / 3.0), "normal_unbiased": (3 / 8.0, 3 / 8.0),
}  # fmt: skip
METHODS = (*_STEPS, *_PLACES)
"""NumPy's methods, of which torch has the first five."""


@dataclass(frozen=True, kw_only=True)
class SortedQuantileDescriptor(RowDescriptor):
    """x has shape `shape` and rows sorted along `axis`; y has q's shape, of one axis or none, then x's without it.

    interpolation: one of METHODS. percent: levels are counted in hundredths. ignore_nan: of the numbers of a row alone.
    """

    q_shape: Shape = extents(())
    interpolation: str = choice(METHODS, "linear")
    percent: bool = flag(False)
    ignore_nan: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        """A row has an element."""
        if not self.shape or not self.count:
            raise InvalidProblemError(f"shape must have an element along axis {self.axis}, got {self.shape}")
        if len(self.q_shape) > 1:
            raise InvalidProblemError(f"q must have one axis or none, got shape {self.q_shape}")

    @property
    def out_shape(self) -> Shape:
        """The shape of y."""
        return (*self.q_shape, *self.kept_shape)


def _levels(rng: Any, desc: SortedQuantileDescriptor, shape: Shape) -> Any:
    q = np.where(rng.random(shape) < 0.3, rng.choice((0.0, 0.25, 0.5, 1.0), shape), rng.random(shape))
    return q * 100 if desc.percent else q


@dataclass(slots=True, kw_only=True)
class SortedQuantileArgs(Args):
    """Any strides. x: sorted as `sort` does. q: levels in [0, 1]; without it `level` is the one."""

    x: Array = operand("*shape", values=KEYS)
    q: Array | None = operand("*q_shape", element=(ElementKind.F64, ElementKind.F32), optional=True, values=_levels)
    level: Scalar = scalar(0.5)
    y: Array = output("*out_shape")


def places(desc: SortedQuantileDescriptor, numbers: Any, q: Any) -> tuple[Any, Any, Any, Any]:
    """The low and the high element, the weight of the high one, and whether there are any; of rows, levels first."""
    n = desc.count
    q = np.asarray(q, np.float64).reshape((*np.shape(q), *(1,) * np.ndim(numbers)))
    q = q / 100.0 if desc.percent else q
    count = np.asarray(numbers, np.float64)
    rank = (count - 1.0) * q

    def stepped(at: Any, stay: Any) -> Any:
        low = np.floor(at)
        return np.maximum(np.where((at == low) & stay, low, low + 1.0), 0.0)

    closest = count * q - 1.0 - 0.5
    alpha, beta = _PLACES.get(desc.interpolation, (0.0, 0.0))
    with np.errstate(invalid="ignore"):
        at = {
            "linear": rank, "lower": np.floor(rank), "higher": np.ceil(rank), "nearest": np.rint(rank),
            "midpoint": 0.5 * (np.floor(rank) + np.ceil(rank)), "inverted_cdf": stepped(count * q - 1.0, True),
            "averaged_inverted_cdf": count * q - 1.0,
            "closest_observation": stepped(closest, np.floor(closest) % 2 == 1),
        }.get(desc.interpolation, count * q + (alpha + q * (1.0 - alpha - beta)) - 1.0)  # fmt: skip
        low = np.floor(at)
        weight = at - low
        if desc.interpolation == "averaged_inverted_cdf":
            weight = np.where(weight == 0, 0.5, 1.0)
        known = (q >= 0) & (q <= 1) & (count == count)
        ends = np.where(at >= count - 1, count - 1, np.where(at < 0, 0.0, -1.0))
    ends = np.where(numbers == 0, 0.0, ends)
    if not desc.ignore_nan:
        ends = np.where(numbers < n, n - 1.0, ends)
    inner = (ends < 0) & known
    first = np.where(inner, low, np.where(known, ends, 0)).astype(np.int64)
    return first, first + inner, np.where(inner, weight, 0.0), known


def reference(desc: SortedQuantileDescriptor, *, x: Any, q: Any, level: Any) -> Mapping[str, Any]:
    """NumPy in float64, whatever the dtype x comes in."""
    rows = rows_last(desc, x)
    numbers = (rows == rows).sum(-1)
    low, high, weight, known = places(desc, numbers, float(level) if q is None else q)
    wide = np.broadcast_to(rows.astype(np.float64), (*desc.q_shape, *rows.shape))
    a, b = (np.take_along_axis(wide, at[..., None], -1)[..., 0] for at in (low, high))
    with np.errstate(all="ignore"):
        mixed = a * (1.0 - weight) + b * weight
    y = np.where((weight == 0) | (a == b), a, np.where(weight == 1, b, mixed))
    return {"y": np.where(known, y, np.nan).astype(x.dtype).reshape(desc.out_shape)}


_FIELDS: dict[str, Field] = {
    "level": "scalar", "extent": "i64", "step": "i64", "order": "u64[7]", "alpha": "f64", "beta": "f64",
    "method": "i32", "QuantileMethod": (*_STEPS, "between"), "percent": "i32", "pass_nan": "i32", "q_wide": "i32",
}  # fmt: skip
PARAMS = Params("SortedQuantileParams", y="ptr", x="ptr", q="ptr", **_FIELDS, **map_params(3))


def _values(desc: SortedQuantileDescriptor, x: View, q: View | None) -> dict[str, Any]:
    """What the kernels know of rows and levels."""
    alpha, beta = _PLACES.get(desc.interpolation, (0.0, 0.0))
    method = METHODS.index(desc.interpolation) if desc.interpolation in _STEPS else len(_STEPS)
    return {
        "extent": desc.count, "step": x.strides[desc.axis], "order": key_order(desc.element), "alpha": alpha,
        "beta": beta, "method": method, "percent": desc.percent, "pass_nan": desc.ignore_nan,
        "q_wide": q is not None and q.element is ElementKind.F64,
    }  # fmt: skip


def _without(view: View, axis: int) -> Shape:
    return (*view.strides[:axis], *view.strides[axis + 1 :])


def _geometry(p: Problem) -> Geometry | str:
    desc, kept = p.desc, len(p.desc.kept_shape)
    rows = View(p.x.ptr, desc.out_shape, ((0,) * len(desc.q_shape)) + _without(p.x, desc.axis), p.x.element)
    levels = None if p.q is None else View(p.q.ptr, desc.out_shape, (*p.q.strides, *(0,) * kept), p.q.element)
    return one_each("quantile", (p.y, levels, rows), _values(desc, p.x, p.q))


def in_torch(torch: Any, desc: SortedQuantileDescriptor, *, x: Any, q: Any, level: Any) -> Any:
    """torch's quantile, in float64, of finite rows; it has five of the methods."""
    if desc.interpolation not in METHODS[:5] or x.isinf().any() or not x.numel():
        return NotImplemented
    levels = torch.tensor(float(level), dtype=torch.float64) if q is None else q.double()
    levels = levels / 100 if desc.percent else levels
    function = torch.nanquantile if desc.ignore_nan else torch.quantile
    return function(x.double(), levels, desc.axis, interpolation=desc.interpolation).to(x.dtype)


class SortedQuantilePlan(Plan):
    """y[k, …] = the quantile of level q[k] of every sorted row: between two of its elements, by `interpolation`.

    torch.quantile and numpy.quantile, with all methods of the latter. A row with a NaN gives NaN, or with `ignore_nan`
    the quantile of its numbers, NaN where there are none; a level outside [0, 1] gives NaN. Places and the mean of two
    elements are found in float64 and rounded once; equal elements, infinite ones too, give themselves.
    """

    op = "sort.sorted_quantile"
    descriptor = SortedQuantileDescriptor
    args = SortedQuantileArgs
    reference = staticmethod(reference)
    value_policy = "a level outside [0, 1], or NaN, gives NaN"
    variants = (
        Variant(
            "between", _geometry, source="sort/quantile.cu",
            kernels=(Kernel("quantile", "quantile<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Relative(2), math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("SortedQuantileBackwardPlan", grads={"x": "dx"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("3 of [65536, 1024] f32", shape=(65536, 1024), q_shape=(3,), also=("q",), element="float32",
                  make=sorted_rows("x")),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SortedQuantileDescriptor:
        return SortedQuantileDescriptor(**quantile_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: SortedQuantileDescriptor, arrays: dict[str, Any]) -> None:
        """Sorted rows, and levels where they have a shape."""
        rows = rows_last(desc, arrays["x"])
        order = order_of(decode(rows, desc.element))
        arrays["x"] = np.ascontiguousarray(rows_back(desc, np.take_along_axis(rows, order, -1)))
        if desc.q_shape and arrays["q"] is None:
            arrays["q"] = np.full(desc.q_shape, 0.25)

    @classmethod
    def check(cls, desc: SortedQuantileDescriptor, views: Mapping[str, Any]) -> None:
        if desc.q_shape and views.get("q") is None:
            raise InvalidProblemError(f"q has shape {desc.q_shape} and must be given, got None")


def quantile_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields but the element."""
    shape = draw.shape(1, 3, 1, 6)
    return {
        "shape": shape, "axis": draw.integer(-len(shape), len(shape) - 1), "q_shape": draw.choice(((), (3,), (1,))),
        "interpolation": draw.choice(METHODS), "percent": draw.flag(), "ignore_nan": draw.flag(),
    }  # fmt: skip


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SortedQuantileBackwardArgs(Args):
    """Any strides. x, q and level are the forward's."""

    dy: Array = operand("*out_shape")
    x: Array = operand("*shape", values=KEYS)
    q: Array | None = operand("*q_shape", element=(ElementKind.F64, ElementKind.F32), optional=True, values=_levels)
    level: Scalar = scalar(0.5)
    dx: Array = output("*shape")


def backward_reference(desc: SortedQuantileDescriptor, *, dy: Any, x: Any, q: Any, level: Any) -> Mapping[str, Any]:
    """NumPy in float64: level by level."""
    rows = rows_last(desc, x)
    low, high, weight, known = places(desc, (rows == rows).sum(-1), float(level) if q is None else q)
    many = (math.prod(desc.q_shape), *rows.shape[:-1])
    dx, own = np.zeros(rows.shape), np.arange(desc.count)
    with np.errstate(all="ignore"):
        for one, a, b, w, there in zip(*(np.broadcast_to(v, (*desc.q_shape, *rows.shape[:-1])).reshape(many)[..., None]
                                         for v in (dy.astype(np.float64).reshape(low.shape), low, high, weight, known)),
                                       strict=True):  # fmt: skip
            share = np.where(own == a, np.where(a == b, 1.0, 1.0 - w), np.where(own == b, w, 0.0)) * there
            dx = np.where(share != 0, dx + share * one, dx)
    return {"dx": rows_back(desc, dx.astype(dy.dtype))}


BACKWARD = Params("SortedQuantileBackwardParams", dx="ptr", dy="ptr", x="ptr", q="ptr", levels="i64", q_step="i64",
                  dy_step="i64", **_FIELDS, **map_params(4))  # fmt: skip


def _backward_geometry(p: Problem) -> Geometry | str:
    desc, axis = p.desc, p.desc.axis
    many = len(desc.q_shape)

    def along(view: View, strides: Shape, own: int) -> View:
        return View(view.ptr, desc.shape, (*strides[:axis], own, *strides[axis:]), view.element)

    rank = len(desc.shape) - 1
    place = View(0, desc.shape, (*(0,) * axis, 1, *(0,) * (rank - axis)), ElementKind.I64)
    views = (p.dx, place, along(p.x, _without(p.x, axis), 0), along(p.dy, p.dy.strides[many:], 0))
    values = {
        **_values(desc, p.x, p.q), "levels": math.prod(desc.q_shape), "dy_step": p.dy.strides[0] if many else 0,
        "q_step": p.q.strides[0] if many and p.q is not None else 0,
    }  # fmt: skip
    return one_each("backward", views, values)


def backward_in_torch(torch: Any, desc: SortedQuantileDescriptor, *, dy: Any, x: Any, q: Any, level: Any) -> Any:
    """Autograd of torch's quantile."""
    with torch.enable_grad():
        leaf = x.detach().double().requires_grad_()
        made = in_torch(torch, desc, x=leaf, q=q, level=level)
        if made is NotImplemented or leaf.isnan().any() or (x == x.roll(1, desc.axis)).any():
            return NotImplemented  # torch sorts for itself, and so may put equal elements in another order
        (dx,) = torch.autograd.grad(made, leaf, dy.double())
    return dx.to(x.dtype)


class SortedQuantileBackwardPlan(Plan):
    """dx = dy shared by the two elements that a quantile lies between, summed over the levels in their order.

    Sums are in float64, rounded once. Of a row with a NaN the last element has dy, as that is what the forward gave. A
    level outside [0, 1] has a gradient of 0.
    """

    op = "sort.sorted_quantile_backward"
    direction = "backward"
    descriptor = SortedQuantileDescriptor
    args = SortedQuantileBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = "a level outside [0, 1], or NaN, hands nothing back"
    variants = (
        Variant(
            "between", _backward_geometry, source="sort/quantile.cu",
            kernels=(Kernel("backward", "quantile_backward<{T}>", BACKWARD, threads=THREADS),),
            guarantee=Guarantee(Relative(2), math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (
        Benchmark("3 of [65536, 1024] f32", shape=(65536, 1024), q_shape=(3,), also=("q",), element="float32",
                  make=sorted_rows("x")),
    )  # fmt: skip
    case = SortedQuantilePlan.case
    check = SortedQuantilePlan.check
    complete = SortedQuantilePlan.complete


sorted_quantile = functional(SortedQuantilePlan)
sorted_quantile_backward = functional(SortedQuantileBackwardPlan)
