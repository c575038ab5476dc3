"""The plan of a formula: one for each choice of what its inputs are, arrays or numbers that calls may change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..core import Geometry, Guarantee, Params, Problem, Variant
from ..core.memo import keep
from ..schedules.map import map_params
from .backward import FormulaVjp
from .bounds import bound_of
from .cpp import map_text
from .formula import Formula
from .in_torch import in_torch
from .plan import FormulaPlan, evaluated, formula_kernels, made_plan, map_step, numbers, operands, pointers
from .shape import Roles, Shape


def plan_of(formula: Formula, roles: Roles) -> type[FormulaPlan]:
    """The plan of a formula whose inputs are what `roles` says; made once."""
    known = _plans.get((formula, roles))
    return known or keep(_plans, (formula, roles), _made(Shape(formula, roles)), 1024)


_plans: dict[tuple[Formula, Roles], type[FormulaPlan]] = {}


def _made(shape: Shape) -> type[FormulaPlan]:
    params = Params("FormulaParams", **pointers(shape), **numbers(shape), **map_params(operands(shape)))
    row = Variant(
        "map", partial(_geometry, shape), source="elementwise/expression.cu", kernels=formula_kernels(shape, params),
        elements=lambda kind: kind.elements[:1],
        prelude=lambda element, kind: map_text(shape.program(kind), shape.read),
        guarantee=Guarantee(lambda element, kind: bound_of(shape.program(kind)), batch_invariant=True),
    )  # fmt: skip
    recipe = plan_of, (shape.formula, shape.roles)
    facts = {"vjp": FormulaVjp(shape), "torch": staticmethod(partial(in_torch, shape))}
    return made_plan(FormulaPlan, shape, recipe, row, _reference, **facts)


def _geometry(shape: Shape, p: Problem) -> Geometry | str:
    return map_step(shape, p, [p.views[n] for n in shape.outputs])


def _reference(shape: Shape, desc: Any, /, **given: Any) -> Mapping[str, Any]:
    return dict(zip(shape.outputs, evaluated(shape, desc, given), strict=True))
