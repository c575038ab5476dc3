"""ternary_backward: the gradients of `TernaryKind` by a, b and c, summed where an operand was broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative,
    Scalar, UnsupportedError, Variant, choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...core.tensor import View
from ...core.variant import Step
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.reduce import reduce_kernels, reduce_params, sum_to
from .ternary import numbers_of, rounded_value
from .ternary_kinds import INEXACT, TernaryKind, slope_elements, ternary_slope_bound

_NAMES = ("a", "b", "c")


@dataclass(frozen=True, kw_only=True)
class TernaryBackwardDescriptor(Descriptor):
    """As `TernaryDescriptor`, of floats and complex numbers: dy has shape `shape`, to which a, b and c broadcast."""

    kind: TernaryKind = choice(TernaryKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(INEXACT)

    def validate(self) -> None:
        if self.element not in slope_elements(self.kind):
            raise UnsupportedError(f"{self.kind.value} takes no {self.element}, and has no gradient of it")

    @property
    def first(self) -> ElementKind:
        """The element of a: bool where it is the condition."""
        return ElementKind.BOOL if self.kind.row.a_is_condition else self.element


def _tame(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Numbers whose products and sums stay in the range; a few are equal, and a few infinite or no number."""
    few = rng.choice((-2, -1, -0.5, 0.5, 1, 2), shape)
    usual = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape) + 0.1, few)
    if desc.element.is_complex:
        return usual + 1j * np.where(rng.random(shape) < 0.8, rng.standard_normal(shape), 0)
    ends = rng.choice((np.inf, -np.inf, np.nan, 0.0), shape)
    return np.where(rng.random(shape) < (0.02 if rng.integers(4) == 0 else 0), ends, usual)


@dataclass(slots=True, kw_only=True)
class TernaryBackwardArgs(Args):
    """Any strides. da has a's shape, db b's, dc c's; each may be None, and is where its operand is a number.

    Operands and numbers are those of the forward call. The condition of `where` has no gradient.
    """

    dy: Array = operand("*shape")
    a: Array = operand("*shape", element="first", broadcast=True, values=_tame)
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=_tame)
    c: Array | None = operand("*shape", broadcast=True, optional=True, values=_tame)
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", like="b", optional=True)
    dc: Array | None = output("*shape", like="c", optional=True)
    b_number: Scalar = scalar(0.0)
    c_number: Scalar = scalar(0.0)
    value: Scalar = scalar(1.0)


def reference(
    desc: TernaryBackwardDescriptor, *, dy: Any, a: Any, b: Any, c: Any, b_number: Any, c_number: Any, value: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in; float64 in longdouble, so that no product on the way overflows."""
    dtype = dy.dtype
    wide = np.result_type(dtype, np.longdouble) if dtype in (np.float64, np.complex128) else dtype
    shapes = {"da": np.shape(a), "db": np.shape(b), "dc": np.shape(c)}
    b, c = numbers_of(desc, dtype, b, c, (b_number, 0), (c_number, 0))
    operands = [np.asarray(x, wide) for x in (dy, a, b, c)]
    found = {}
    for name, partial in zip(("da", "db", "dc"), desc.kind.row.gradient, strict=True):
        if name in wanted and partial is not None:
            with np.errstate(all="ignore"):
                whole = np.asarray(partial.formula(*operands, wide.type(rounded_value(desc, value))), wide)
                found[name] = _summed(np.broadcast_to(whole, desc.shape), shapes[name]).astype(dtype)
    return found


def _summed(whole: Any, shape: tuple[int, ...]) -> Any:
    """Over the axes along which `shape` broadcasts."""
    lead = whole.ndim - len(shape)
    away = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and whole.shape[lead + i] != 1)
    return np.asarray(np.sum(whole, axis=away)).reshape(shape) if away else np.array(whole)


_NUMBERS = {"b_number": "scalar", "c_number": "scalar", "value": "scalar", "numbers": "i32"}
PARAMS = Params(
    "TernaryBackwardParams", da="ptr", db="ptr", dc="ptr", dy="ptr", a="ptr", b="ptr", c="ptr", **_NUMBERS,
    **map_params(7),
)  # fmt: skip
SUM_PARAMS = reduce_params("TernaryBackwardSumParams", ("dy", *_NAMES), which="i32", **_NUMBERS)
_PARTIAL = "ternary_partials::{KIND}<{T}>"
_MAP = map_kernels(f"ternary_backward<{_PARTIAL}, {{T}}, {{LAYOUT}}>", PARAMS)
_SUM = tuple(
    replace(kernel, source="elementwise/ternary_backward_sum.cu")
    for kernel in reduce_kernels(
        "kinds::Sum<{T}>", SUM_PARAMS,
        source=f"Mapped<TernarySummand<{_PARTIAL}, {{T}}>, {{T}}, ternary_kinds::{{KIND}}<{{T}}>::First, {{T}}, {{T}}>",
    )
)  # fmt: skip


def _whole(p: Problem, name: str) -> bool:
    """Whether the gradient of an operand is wanted, and has nothing to sum."""
    view = p.views[f"d{name}"]
    return view is not None and math.prod(view.shape) == math.prod(p.desc.shape)


def _summed_ones(p: Problem) -> list[str]:
    return [name for name in _NAMES if p.views[f"d{name}"] is not None and not _whole(p, name)]


def _read(p: Problem, wanted: list[str]) -> dict[str, View | None]:
    """The operands that these gradients read, broadcast; None for the others and for numbers."""
    partials = [p.desc.kind.row.gradient[_NAMES.index(name)] for name in wanted]
    read = "".join(partial.reads for partial in partials)
    views = {name: p.views[name] for name in _NAMES}
    return {n: v.broadcast_to(p.desc.shape) if v is not None and n in read else None for n, v in views.items()}


def _numbers(p: Problem) -> int:
    return sum(1 << i for i, name in enumerate(_NAMES) if p.views[name] is None)


def _map_step(p: Problem) -> Geometry | str:
    """The launch of those gradients that are maps."""
    wanted = [name for name in _NAMES if _whole(p, name)]
    read = _read(p, wanted)
    values: dict[str, Any] = {"numbers": _numbers(p)}
    values |= {name: "@null" for name, view in read.items() if view is None}
    values |= {f"d{name}": "@null" for name in _NAMES if name not in wanted}
    made = [p.views[f"d{n}"].broadcast_to(p.desc.shape) if n in wanted else None for n in _NAMES]
    return map_geometry(p, (*made, p.dy, *read.values()), values)


def _map(p: Problem) -> Geometry | str:
    if _summed_ones(p):
        return "a gradient is summed over the axes its operand was broadcast along"
    return _map_step(p)


def _sum(p: Problem) -> Geometry | str:
    steps: list[Step] = []
    used, coalesced = 0, True
    for name in _summed_ones(p):
        still = View(p.dy.ptr, p.desc.shape, (0,) * len(p.desc.shape), p.dy.element)  # read where nothing is
        read = _read(p, [name])
        places = {n: n if view is not None else "dy" for n, view in read.items()}
        values: dict[str, Any] = {**places, "y": f"d{name}", "which": _NAMES.index(name), "numbers": _numbers(p)}
        views = [still if view is None else view for view in read.values()]
        found = sum_to(p, (p.dy, *views), p.views[f"d{name}"], values, used)
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    if any(_whole(p, name) for name in _NAMES):
        rest = _map_step(p)
        if isinstance(rest, str):
            return rest
        steps += [step for step in rest.steps if isinstance(step, Step)]
    return Geometry(tuple(steps), used, "inner_contiguous" if coalesced else "strided")


class TernaryBackwardPlan(Plan):
    """da, db and dc of y = f(a, b, c), each summed over the axes its operand was broadcast along.

    clamp gives dy to a between the bounds, ends included, to b below it and to c above it or where b > c; for b = c the
    lower bound has none (PyTorch's). where gives dy to the operand that was taken. Products keep their digits where
    some of their factors leave the range. Sums are in float32, float64 of float64, in an order that shapes alone fix.
    """

    op = "elementwise.ternary_backward"
    direction = "backward"
    kinds = TernaryKind
    descriptor = TernaryBackwardDescriptor
    args = TernaryBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _map, source="elementwise/ternary_backward.cu", kernels=_MAP, elements=slope_elements,
            guarantee=Guarantee(ternary_slope_bound, batch_invariant=True),
        ),
        Variant(
            "sum", _sum, source="elementwise/ternary_backward.cu", kernels=(*_MAP, *_SUM),
            elements=slope_elements, guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "clamp 134M bf16", shape=1 << 27, kind="clamp", element="bfloat16", also=("da",),
            make=lambda torch, desc: {"b_number": -1.0, "c_number": 1.0},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> TernaryBackwardDescriptor:
        """Small shapes of any rank; rows and columns to sum, of a lane's to several segments."""
        shape = draw.shape(0, 4, 0, 17)
        if draw.flag():
            long = draw.sizes(9, 40, 131, 1030, rare=(70000,))
            shape = draw.choice(((long,), (draw.sizes(3, 8, 33), long), (long, draw.sizes(8, 33, 64))))
            shape = shape if long < 2000 else (long,)
        return TernaryBackwardDescriptor(kind=draw.kind, shape=shape, element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", shapes["dy"])  # of the operands alone all may be broadcast

    @classmethod
    def complete(cls, desc: TernaryBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers that differ from case to case, by the descriptor alone."""
        pick = len(desc.shape) + sum(desc.shape)
        if desc.kind.row.a_is_condition and arrays["b"] is None and arrays["c"] is None:
            arrays["c"] = np.ones(desc.shape, desc.element.dtype)
        arrays["b_number"], arrays["c_number"] = (-0.3, 1.7, 0.5)[pick % 3], (2.5, 0.7)[pick % 2]

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, *(f"d{name}" for name in _NAMES))


def _function(kind: TernaryKind) -> Any:
    name = f"{kind.value}_backward"
    doc = f"The gradients of {kind.value} by its operands, those of arrays; see `TernaryBackwardPlan`."
    return functional(TernaryBackwardPlan, name, doc, kind=kind)


clamp_backward = _function(TernaryKind.CLAMP)
where_backward = _function(TernaryKind.WHERE)
lerp_backward = _function(TernaryKind.LERP)
fma_backward = _function(TernaryKind.FMA)
mac_backward = _function(TernaryKind.MAC)
addcmul_backward = _function(TernaryKind.ADDCMUL)
addcdiv_backward = _function(TernaryKind.ADDCDIV)
