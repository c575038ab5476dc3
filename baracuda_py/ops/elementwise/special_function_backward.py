"""special_function_backward: the gradients of `SpecialFunctionKind` by those operands that have one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Guarantee, InvalidProblemError, Params, Plan, Relative, Scalar, Variant,
    choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.error_bound import ErrorBound
from ...schedules.map import map_kernels, map_params
from ...schedules.reduce import reduce_kernels, reduce_params
from .binary_backward import summed
from .special_function import complete_number, drawn, operands_of
from .special_function_kinds import DIFFERENTIABLE, WITH_THREE, SpecialFunctionKind, with_gradient
from .ternary_backward import partials_map, partials_sum

_NAMES = ("a", "b", "c")


@dataclass(frozen=True, kw_only=True)
class SpecialFunctionBackwardDescriptor(Descriptor):
    """As `SpecialFunctionDescriptor`: dy has shape `shape`; the operands have shapes that broadcast to it."""

    kind: SpecialFunctionKind = choice(SpecialFunctionKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind not in DIFFERENTIABLE:
            raise InvalidProblemError(f"{self.kind.value} has no gradient; compute it without one")


@dataclass(slots=True, kw_only=True)
class SpecialFunctionBackwardArgs(Args):
    """Any strides. da has a's shape, db b's; either may be None, and db is where b is a number.

    gammainc, gammaincc, betainc, zeta and expn have a gradient by a alone, which is their argument.
    """

    dy: Array = operand("*shape")
    a: Array = operand("*shape", broadcast=True, values=drawn(0))
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=drawn(1))
    c: Array | None = operand("*shape", broadcast=True, kinds=WITH_THREE, values=drawn(2))
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", like="b", optional=True, kinds=with_gradient(1))
    dc: Array | None = output("*shape", like="c", optional=True, kinds=with_gradient(2))
    b_number: Scalar = scalar(0.0)


def reference(
    desc: SpecialFunctionBackwardDescriptor, *, dy: Any, a: Any, b: Any, c: Any, b_number: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    shapes = {"da": np.shape(a), "db": np.shape(b), "dc": np.shape(c)}
    operands = (*operands_of(desc, a, b, c, b_number), None)[:3]
    found = {}
    for name, partial in zip(shapes, desc.kind.row.gradient, strict=True):
        if name in wanted and partial is not None:
            with np.errstate(all="ignore"):
                whole = np.asarray(partial.formula(dy, *operands, None), dy.dtype)
                found[name] = summed(np.broadcast_to(whole, desc.shape), shapes[name])
    return found


_NUMBERS = {"b_number": "scalar", "numbers": "i32"}
PARAMS = Params(
    "SpecialFunctionBackwardParams", da="ptr", db="ptr", dc="ptr", dy="ptr", a="ptr", b="ptr", c="ptr", **_NUMBERS,
    **map_params(7),
)  # fmt: skip
SUM_PARAMS = reduce_params("SpecialFunctionBackwardSumParams", ("dy", *_NAMES), which="i32", **_NUMBERS)
_PARTIAL = "partial::{KIND}<{T}>"
_MAP = tuple(
    replace(kernel, min_blocks=0)
    for kernel in map_kernels(f"special_function_backward<{_PARTIAL}, {{T}}, {{LAYOUT}}>", PARAMS)
)
_SUM = tuple(
    replace(kernel, source="elementwise/special_function_backward_sum.cu")
    for kernel in reduce_kernels(
        "kinds::Sum<{T}>", SUM_PARAMS, source=f"Mapped<SpecialSummand<{_PARTIAL}, {{T}}>, {{T}}, {{T}}, {{T}}, {{T}}>"
    )
)


def _bound(element: ElementKind, kind: SpecialFunctionKind) -> ErrorBound:
    return kind.row.slope_error(element)


class SpecialFunctionBackwardPlan(Plan):
    """da = dy ∂f/∂a and db = dy ∂f/∂b of y = f(a, b), each summed over the axes its operand was broadcast along.

    Gradients that do not exist in closed form (by the parameters of incomplete functions, the order of zeta and expn,
    the degree and the argument of polynomials, comb) are refused. Outside the domain a gradient is NaN. Sums are in
    float32, float64 of float64, in an order that shapes alone fix.
    """

    op = "elementwise.special_function_backward"
    direction = "backward"
    kinds = DIFFERENTIABLE
    descriptor = SpecialFunctionBackwardDescriptor
    args = SpecialFunctionBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", partials_map, source="elementwise/special_function_backward.cu", kernels=_MAP,
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
        Variant(
            "sum", partials_sum, source="elementwise/special_function_backward.cu", kernels=(*_MAP, *_SUM),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("gammainc 16M f32", shape=1 << 24, kind="gammainc", element="float32", also=("da",)),)

    @staticmethod
    def case(draw: Any) -> SpecialFunctionBackwardDescriptor:
        """Small shapes of any rank; rows and columns to sum, of a lane's to several segments."""
        shape = draw.shape(0, 4, 0, 17)
        if draw.flag():
            long = draw.sizes(9, 40, 131, 1030, rare=(70000,))
            shape = draw.choice(((long,), (draw.sizes(3, 8, 33), long), (long, draw.sizes(8, 33, 64))))
            shape = shape if long < 2000 else (long,)
        return SpecialFunctionBackwardDescriptor(kind=draw.kind, shape=shape, element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", shapes["dy"])  # of the operands alone all may be broadcast

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_number(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if all(views.get(f"d{name}") is None for name in _NAMES):
            raise InvalidProblemError("da, db and dc are all None; give one of them at least")
