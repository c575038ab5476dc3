"""binary_backward: da = dy ∂f/∂a and db = dy ∂f/∂b of the kinds of `BinaryKind`, summed where a or b was broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant,
    choice, element, extents, flag, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...core.tensor import View
from ...core.variant import Step
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.reduce import reduce_kernels, reduce_params, sum_to
from .binary import binary_case, coefficients, complete_numbers, ordered, sides
from .binary_kinds import WITH_GRADIENT, BinaryKind, slope_bound


@dataclass(frozen=True, kw_only=True)
class BinaryBackwardDescriptor(Descriptor):
    """As `BinaryDescriptor`, of floats: dy has shape `shape`, a and b have shapes that broadcast to it."""

    kind: BinaryKind = choice(BinaryKind)
    shape: tuple[int, ...] = extents()
    with_number: bool = flag(False)
    reverse: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind.row.gradient is None:
            what = "the derivative is 0 wherever there is one; fill da and db with 0"
            raise InvalidProblemError(f"{self.kind.value}: {what}")


def _tame(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Numbers whose sums stay in the range; a few of a and b are equal, 0, infinite or no number."""
    if desc.kind.row.smooth is not _ANY and rng.integers(2):
        return desc.kind.row.smooth.a(rng, shape)
    few = rng.choice((-2, -1, -0.5, 0, 0.5, 1, 2), shape)
    usual = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), few)
    ends = rng.choice((np.inf, -np.inf, np.nan, -0.0), shape)
    return np.where(rng.random(shape) < (0.02 if rng.integers(4) == 0 else 0), ends, usual)


_ANY = BinaryKind.ADD.row.smooth


@dataclass(slots=True, kw_only=True)
class BinaryBackwardArgs(Args):
    """Any strides. da has a's shape, db b's; either may be None, and db is where b is a number."""

    dy: Array = operand("*shape")
    a: Array = operand("*shape", broadcast=True, values=_tame)
    b: Array | None = operand("*shape", broadcast=True, instead="with_number", values=_tame)
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", like="b", optional=True)
    number: Scalar = scalar(0.0)
    alpha: Scalar = scalar(1.0)


def reference(
    desc: BinaryBackwardDescriptor, *, dy: Any, a: Any, b: Any, number: Any, alpha: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    left, right = ordered(desc, a, b, number, 0)
    more = coefficients(desc, a.dtype, alpha) if "alpha" in desc.kind.row.coefficients else ()
    gradients = desc.kind.row.gradient
    assert gradients is not None
    found = {}
    for name, shape in (("da", a.shape), ("db", np.shape(b))):
        if name in wanted:
            gradient = gradients[(name == "db") != desc.reverse]
            with np.errstate(all="ignore"):
                whole = 0 if gradient is None else gradient(dy, left, right, *more)
                found[name] = summed(np.broadcast_to(np.asarray(whole, a.dtype), desc.shape), shape)
    return found


def summed(whole: Any, shape: tuple[int, ...]) -> Any:
    """Over the axes along which `shape` broadcasts."""
    lead = whole.ndim - len(shape)
    away = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and whole.shape[lead + i] != 1)
    return np.asarray(np.sum(whole, axis=away)).reshape(shape) if away else np.array(whole)


_NUMBERS = {"number": "scalar", "alpha": "scalar", "number_place": "i32"}
PARAMS = Params(
    "BinaryBackwardParams", d_left="ptr", d_right="ptr", dy="ptr", left="ptr", right="ptr", **_NUMBERS, **map_params(5)
)
SUM_PARAMS = reduce_params("BinaryBackwardSumParams", ("dy", "left", "right"), second="i32", **_NUMBERS)
_BLOCKS = 2  # an SM: powers need more registers than four leave, and unbounded, some kernels would spill to fit four
_F, _G = "{KIND}<{T}>", "partial::{KIND}<{T}>"
_MAP = tuple(
    replace(kernel, min_blocks=_BLOCKS)
    for kernel in map_kernels(f"binary_backward<{_F}, {_G}, {{T}}, {{LAYOUT}}>", PARAMS)
)
_SUM = tuple(
    replace(kernel, source="elementwise/binary_backward_sum.cu", min_blocks=_BLOCKS)
    for kernel in reduce_kernels(
        "kinds::Sum<{T}>", SUM_PARAMS, source=f"Mapped<Summand<{_F}, {_G}, {{T}}>, {{T}}, {{T}}, {{T}}>"
    )
)


@dataclass(frozen=True)
class _Call:
    """A call in the kernels' terms: views of the left and the right operand, broadcast, and of their gradients."""

    views: tuple[View, View, View]
    gradients: tuple[View | None, View | None]
    places: Mapping[str, str]
    values: Mapping[str, Any]

    @staticmethod
    def of(p: Problem) -> _Call:
        shape, names = p.desc.shape, sides(p.desc)
        views, number_place = [p.dy], 0
        places: dict[str, str] = {}
        gradients: list[View | None] = []
        for i, (side, name) in enumerate(names.items(), 1):
            if name == "@null":  # dy is read in its place
                name, number_place = "dy", i
                views.append(View(p.dy.ptr, shape, (0,) * len(shape), p.dy.element))
                gradients.append(None)
            else:
                views.append(p.views[name].broadcast_to(shape))
                gradients.append(p.views[f"d{name}"])
            places[side] = name
            places[f"d_{side}"] = f"d{names[side]}" if names[side] != "@null" else "@null"
        return _Call(tuple(views), tuple(gradients), places, {"number_place": number_place})  # type: ignore[arg-type]

    def whole(self, gradient: View | None) -> bool:
        """Whether there is nothing to sum."""
        return gradient is None or math.prod(gradient.shape) == math.prod(self.views[0].shape)

    def map(self, p: Problem, wanted: tuple[bool, bool]) -> Geometry | str:
        """The launch of those gradients that are maps."""
        shape, places = self.views[0].shape, dict(self.places)
        shown: list[View | None] = []
        for side, gradient, one in zip(("d_left", "d_right"), self.gradients, wanted, strict=True):
            shown.append(gradient.broadcast_to(shape) if gradient is not None and one else None)
            places[side] = places[side] if shown[-1] is not None else "@null"
        # In the place of a number dy is read once more, or one element of it: no layout is refused for that.
        given = [None if i == self.values["number_place"] and i else view for i, view in enumerate(self.views)]
        return map_geometry(p, (*shown, *given), {**places, **self.values})


def gradient_map(p: Problem) -> Geometry | str:
    """The launch where no operand was broadcast."""
    call = _Call.of(p)
    if all(map(call.whole, call.gradients)):
        return call.map(p, (True, True))
    return "a gradient is summed over the axes its operand was broadcast along"


def gradient_sum(p: Problem) -> Geometry | str:
    """The launches that sum the gradients of broadcast operands, and map the other."""
    call, used, coalesced = _Call.of(p), 0, True
    steps: list[Step] = []
    maps = tuple(gradient is not None and call.whole(gradient) for gradient in call.gradients)
    for second, (gradient, one) in enumerate(zip(call.gradients, maps, strict=True)):
        if gradient is None or one:
            continue
        side = "d_right" if second else "d_left"
        operands = {name: at for name, at in call.places.items() if name in ("left", "right")}
        values = {**operands, "y": call.places[side], "second": second, **call.values}
        found = sum_to(p, call.views, gradient, values, used)
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    if any(maps):
        rest = call.map(p, maps)  # type: ignore[arg-type]
        if isinstance(rest, str):
            return rest
        steps += [step for step in rest.steps if isinstance(step, Step)]
    return Geometry(tuple(steps), used, "inner_contiguous" if coalesced else "strided")


class BinaryBackwardPlan(Plan):
    """da = dy ∂f/∂a and db = dy ∂f/∂b of y = f(a, b), each summed over the axes its operand was broadcast along.

    Kinks are PyTorch's: maximum and minimum halve dy between equals, fmax and fmin give it to a; 0 for the base of
    a^0, for the exponent of 0^b (b >= 0), for a of xlogy and xlog1py where a is 0 and the logarithm undefined, at the
    origin for atan2; NaN at the origin for hypot; copysign has 0 where a is 0. Outside its domain a gradient is NaN.

    Products keep their digits where a factor alone leaves the range. Sums are in float32, float64 of float64, in an
    order that shapes alone fix.
    """

    op = "elementwise.binary_backward"
    direction = "backward"
    kinds = WITH_GRADIENT
    descriptor = BinaryBackwardDescriptor
    args = BinaryBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", gradient_map, source="elementwise/binary_backward.cu", kernels=_MAP,
            guarantee=Guarantee(slope_bound, batch_invariant=True),
        ),
        Variant(
            "sum", gradient_sum, source="elementwise/binary_backward.cu", kernels=(*_MAP, *_SUM),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("mul 134M bf16", shape=1 << 27, kind="mul", element="bfloat16", also=("da", "db")),
        Benchmark(
            "mul [16384, 8192] bf16 by a row", shape=(16384, 8192), kind="mul", element="bfloat16", also=("da", "db"),
            make=lambda torch, desc: {n: torch.randn(desc.shape[1], dtype=torch.bfloat16) for n in ("b", "db")},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BinaryBackwardDescriptor:
        """Small shapes of any rank; rows and columns to sum, of a lane's to several segments."""
        drawn = binary_case(draw)
        if draw.flag():
            long = draw.sizes(9, 40, 131, 1030, rare=(70000,))
            drawn["shape"] = draw.choice(((long,), (draw.sizes(3, 8, 33), long), (long, draw.sizes(8, 33, 64))))
            drawn["shape"] = drawn["shape"] if long < 2000 else (long,)
        return BinaryBackwardDescriptor(**drawn)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", shapes["dy"])  # of a and b alone both may be broadcast

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_numbers(desc, arrays)
