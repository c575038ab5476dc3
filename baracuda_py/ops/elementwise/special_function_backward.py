"""special_function_backward: the gradients of `SpecialFunctionKind` by those operands that have one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Params, Plan, Problem, Scalar,
    Variant, choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...core.error_bound import ErrorBound
from ...schedules.map import map_params
from .special_function import complete_number, drawn, kernels_of, one_by_one, operands_of
from .special_function_kinds import DIFFERENTIABLE, WITH_FOUR, WITH_THREE, SpecialFunctionKind, with_gradient


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
    """Any strides. da and db have y's shape; either may be None, and db is where b is a number.

    betainc, hyp1f1, hyp2f1, zeta, expn, jn, sph_legendre_p and polynomials have a gradient by a alone, which is their
    argument.
    """

    dy: Array = operand("*shape")
    a: Array = operand("*shape", broadcast=True, values=drawn(0))
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=drawn(1))
    c: Array | None = operand("*shape", broadcast=True, kinds=WITH_THREE, values=drawn(2))
    d: Array | None = operand("*shape", broadcast=True, kinds=WITH_FOUR, values=drawn(3))
    da: Array | None = output("*shape", optional=True, inplace=("dy", "a", "b", "c", "d"))
    db: Array | None = output("*shape", optional=True, needs="b", kinds=with_gradient(1))
    b_number: Scalar = scalar(0.0)


def reference(
    desc: SpecialFunctionBackwardDescriptor, *, dy: Any, a: Any, b: Any, c: Any, d: Any, b_number: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    operands = (*operands_of(desc, a, b, c, d, b_number), None, None)[:4]
    found = {}
    for name, partial in zip(("da", "db"), desc.kind.row.gradient, strict=False):
        if name in wanted and partial is not None:
            with np.errstate(all="ignore"):
                whole = np.asarray(partial.formula(dy, *operands), dy.dtype)
            found[name] = np.broadcast_to(whole, desc.shape)
    return found


PARAMS = Params(
    "SpecialFunctionBackwardParams", da="ptr", db="ptr", dy="ptr", a="ptr", b="ptr", c="ptr", d="ptr",
    b_number="scalar", **map_params(7),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return one_by_one(p, (p.da, p.db, p.dy, p.a, p.b, p.c, p.d))


def _bound(element: ElementKind, kind: SpecialFunctionKind) -> ErrorBound:
    return kind.row.slope_error(element)


class SpecialFunctionBackwardPlan(Plan):
    """da = dy ∂f/∂a and db = dy ∂f/∂b of y = f(a, b), of y's shape; the functions sum them to that of the operand.

    Others (by the parameters of betainc, hyp1f1 and hyp2f1, the order of zeta and expn, the degree of polynomials,
    those of comb and of derivatives by a parameter) are refused. Outside the domain a gradient is NaN, and where a
    polynomial or its derivative leaves the range of float64.
    """

    op = "elementwise.special_function_backward"
    direction = "backward"
    kinds = DIFFERENTIABLE
    descriptor = SpecialFunctionBackwardDescriptor
    args = SpecialFunctionBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/special_function_backward.cu",
            kernels=kernels_of("special_function_backward<partial::{KIND}<{T}>, {T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("gammainc 16M f32", shape=1 << 24, kind="gammainc", element="float32", also=("da",)),)

    @staticmethod
    def case(draw: Any) -> SpecialFunctionBackwardDescriptor:
        return SpecialFunctionBackwardDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 9), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", shapes["dy"])  # of the operands alone all may be broadcast

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_number(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "da", "db")
