"""The plan of a formula: its descriptor, operands, kernels and reference, made when they are first asked for.

A formula has one plan for each choice of what its inputs are: arrays, or numbers that may change from call to call.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core import (
    Geometry,
    Guarantee,
    Params,
    Problem,
    Step,
    Variant,
    derived,
    element,
    extents,
    operand,
    output,
    scalar,
)
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.memo import keep, memo
from ..core.spec import numpy_row
from ..schedules.map import map_geometry, map_kernels, map_params
from .bounds import bound_of
from .cpp import map_text
from .formula import Formula
from .made import MadeArgs, MadeDescriptor, MadePlan, part
from .program import Program, program_of
from .reference import evaluate
from .signature import ELEMENTS, Signature, Signatures

ARRAY, WHOLE, REAL = "array", "integer", "float"
"""What an input may be."""
Roles = tuple[str, ...]
_WIDE, _ONE = 16, 1
"""Bytes that a chunk has in the widest operand (1: one element), which `expression_width` in expression.cu divides."""
_PROGRAMS = 4096


@dataclasses.dataclass(frozen=True)
class Shape:
    """A formula and what its inputs are: what a plan is made from."""

    formula: Formula
    roles: Roles

    @property
    def arrays(self) -> tuple[str, ...]:
        """The inputs that are arrays."""
        return tuple(n for n, role in zip(self.formula.inputs, self.roles, strict=True) if role == ARRAY)

    @property
    def scalars(self) -> Mapping[str, bool]:
        """The inputs that are numbers, and whether they are integers."""
        return {n: r == WHOLE for n, r in zip(self.formula.inputs, self.roles, strict=True) if r != ARRAY}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(name for name, _ in self.formula.outputs)

    @property
    def digest(self) -> str:
        """A hash of the trees and of what the inputs are, whatever they are called."""
        roles = "".join(role[0] for role in self.roles)
        return hashlib.blake2b(f"{self.formula.digest} {roles}".encode(), digest_size=6).hexdigest()

    def program(self, signature: Signature) -> Program:
        """The steps for operands of these elements."""
        found = _programs.get((self, signature))
        if found is None:
            arrays = dict(zip(self.arrays, signature.elements, strict=True))
            found = keep(_programs, (self, signature), program_of(self.formula, arrays, self.scalars), _PROGRAMS)
        return found


_programs: dict[tuple[Shape, Signature], Program] = {}


class FormulaPlan(MadePlan):
    """A formula of arrays, element by element: all are broadcast together. `formula` is its text."""

    shape: Shape

    @classmethod
    def table(cls) -> tuple[Variant, ...]:
        """The row of the kernels and that of the reference, which serves whatever elements the formula does."""
        return _table(cls)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """The shape that the operands broadcast to."""
        given = {name: tuple(shapes[name]) for name in cls.shape.arrays if name in shapes}
        try:
            facts.setdefault("shape", np.broadcast_shapes(*given.values()))
        except ValueError:
            raise InvalidProblemError(
                f"{' and '.join(f'{name} {shape}' for name, shape in given.items())} do not broadcast together"
            ) from None


@memo()
def _table(cls: type[FormulaPlan]) -> tuple[Variant, ...]:
    return (*cls.variants, replace(numpy_row(cls), elements=ELEMENTS))


def plan_of(formula: Formula, roles: Roles) -> type[FormulaPlan]:
    """The plan of a formula whose inputs are what `roles` says."""
    known = _plans.get((formula, roles))
    return known or keep(_plans, (formula, roles), _made(Shape(formula, roles)), 1024)


_plans: dict[tuple[Formula, Roles], type[FormulaPlan]] = {}


def _made(shape: Shape) -> type[FormulaPlan]:
    name = f"Formula{shape.digest.capitalize()}"
    recipe = plan_of, (shape.formula, shape.roles)
    args = _args(name, shape, recipe)
    params = _params(shape)
    guarantee = Guarantee(lambda element, kind: bound_of(shape.program(kind)), batch_invariant=True)
    row = Variant(
        "map", partial(_geometry, shape), source="elementwise/expression.cu",
        kernels=map_kernels(
            "expression<FormulaMap, {LAYOUT}>", params, "expression_width(FormulaMap::widest, {VEC})",
            lambda kind: (_WIDE, _ONE),
        ),
        elements=lambda kind: kind.elements[:1], guarantee=guarantee,
        prelude=lambda element, kind: map_text(shape.program(kind), params.name),
    )  # fmt: skip
    made: Any = type(FormulaPlan)
    return made(  # type: ignore[no-any-return]
        f"{name}Plan",
        (FormulaPlan,),
        {
            "__doc__": shape.formula.text, "op": f"elementwise.formula_{shape.digest}", "shape": shape,
            "kinds": Signatures(len(shape.arrays), shape.program), "descriptor": _descriptor(name, shape, recipe),
            "args": args, "variants": (row,), "reference": staticmethod(partial(_reference, shape)),
            "case": staticmethod(partial(_case, shape)), "recipe": recipe, "__module__": __name__,
        },
    )  # fmt: skip


# -- descriptor and operands ---------------------------------------------------------------------------------------


class FormulaDescriptor(MadeDescriptor):
    """All operands broadcast to `shape`. `element` is that of the first, and of those without `<name>_element`."""

    made_for: Shape

    def validate(self) -> None:
        self.program  # noqa: B018  raises where the formula has no meaning for these elements

    @property
    def kind(self) -> Signature:
        """The elements of the operands."""
        rest = self.made_for.arrays[1:]
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in rest)))

    @property
    def program(self) -> Program:
        """The steps of the formula for these elements."""
        return self.made_for.program(self.kind)


def _descriptor(name: str, shape: Shape, recipe: Any) -> Any:
    own = derived(lambda desc: desc.element)
    fields: list[Any] = [("shape", Any, extents()), ("element", ElementKind, element(ELEMENTS))]
    fields += [(f"{n}_element", Any, element(ELEMENTS, own)) for n in shape.arrays[1:]]
    space: dict[str, Any] = {f"{n}_result": property(_result(i)) for i, n in enumerate(shape.outputs)}
    space |= {"made_for": shape, "recipe": (part, (_Plan(recipe), "descriptor")), "__module__": __name__}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(FormulaDescriptor,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = FormulaDescriptor.__doc__
    return made


def _result(i: int) -> Any:
    def result(desc: Any) -> ElementKind:
        """The element of an output."""
        return desc.program.results[i]  # type: ignore[no-any-return]

    return result


def _args(name: str, shape: Shape, recipe: Any) -> Any:
    rule = {n: "element" if i == 0 else f"{n}_element" for i, n in enumerate(shape.arrays)}
    fields: list[Any] = []
    for n in shape.formula.inputs:
        if n in rule:
            fields.append((n, Any, operand("*shape", element=rule[n], broadcast=True)))
        else:
            fields.append((n, Any, scalar(integer=shape.scalars[n])))
    fields += [(n, Any, output("*shape", element=f"{n}_result", inplace=shape.arrays)) for n in shape.outputs]
    space = {"recipe": (part, (_Plan(recipe), "args")), "__module__": __name__}
    return dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )


class _Plan:
    """Stands for a plan in a pickle of its parts: what makes the plan again."""

    def __init__(self, recipe: Any) -> None:
        self.recipe = recipe

    def __reduce__(self) -> Any:
        return self.recipe


# -- what runs -----------------------------------------------------------------------------------------------------


def _params(shape: Shape) -> Params:
    pointers = {f"y{j}": "ptr" for j in range(len(shape.outputs))} | {f"x{i}": "ptr" for i in range(len(shape.arrays))}
    numbers = {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(shape.scalars.values())}
    return Params("FormulaParams", **pointers, **numbers, **map_params(len(pointers)))


def places(shape: Shape) -> dict[str, str]:
    """Which operand each pointer of the parameters is."""
    return {
        **{f"y{j}": n for j, n in enumerate(shape.outputs)},
        **{f"x{i}": n for i, n in enumerate(shape.arrays)},
        **{f"s{i}_ptr": n for i, n in enumerate(shape.scalars)},
    }


def _geometry(shape: Shape, p: Problem) -> Geometry | str:
    outs = [p.views[n] for n in shape.outputs]
    views = (*outs, *(p.views[n].broadcast_to(p.desc.shape) for n in shape.arrays))
    found = map_geometry(p, views, places(shape))
    if isinstance(found, str):
        return found
    (step,) = found.steps
    assert isinstance(step, Step)
    width = _ONE if step.axes["VEC"] == 1 else _WIDE
    return replace(found, steps=(replace(step, axes={"VEC": width}),))


def _reference(shape: Shape, desc: Any, **given: Any) -> Mapping[str, Any]:
    """NumPy, in the dtype that floats come in."""
    arrays = [given[n] for n in shape.arrays]
    floats = [a.dtype for a in arrays if a.dtype.kind not in "biu"]
    results = evaluate(desc.program, arrays, [given[n] for n in shape.scalars], floats[0] if floats else np.float64)
    return {n: np.broadcast_to(y, desc.shape) for n, y in zip(shape.outputs, results, strict=True)}


def _case(shape: Shape, draw: Any) -> Any:
    elements = {f"{n}_element": e for n, e in zip(shape.arrays[1:], draw.kind.elements[1:], strict=True)}
    descriptor: Any = plan_of(shape.formula, shape.roles).descriptor
    return descriptor(shape=draw.shape(0, 4, 0, 17), element=draw.kind.elements[0], **elements)
