"""The plan of a reduction of a formula, `then(kind over the axes of formula(x0, x1, …))`, which reads operands once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..core import Guarantee, Variant, axes, extents, flag, integer, output
from ..core.element import HALVES, ElementKind
from ..core.error_bound import ErrorBound, Exact
from ..core.errors import InvalidProblemError
from ..core.memo import cached_property, keep
from ..ops.reduce.reduce_kinds import ReduceKind
from ..schedules.reduce import reduce_geometry, reduce_kernels, reduce_params, without_axes
from .bounds import bound_of
from .cpp import functor, headers, mapped_text, value_type
from .folded import (
    FoldedDescriptor,
    args_class,
    bound_of_both,
    computed_in,
    descriptor_class,
    drawn_elements,
    plan_class,
    scalar_params,
    scalar_places,
)  # fmt: skip
from .formula import RESULT, Formula, output_name
from .nodes import named
from .plan import FormulaPlan, evaluated, inputs_of
from .program import Program, program_of, result_of
from .reference import evaluate
from .shape import ARRAY, WHOLE, Roles, Shape
from .signature import Signature

_WIDTHS = (4, 2, 1)


@dataclass(frozen=True)
class Reduction:
    """What is reduced, by which kind, and the formula of the result, whose first input is what is reduced.

    inputs: of both formulas, in the order of calls, and what they are; the others of `outer` are numbers.
    """

    inner: Formula
    kind: ReduceKind
    outer: Formula
    inputs: tuple[str, ...]
    roles: Roles
    word: ClassVar[str] = "reduction"

    def __post_init__(self) -> None:
        for name in self.outer.inputs[1:]:
            if self.of[name] == ARRAY:
                raise self.outer.wrong(f"{name} is outside the {self.word}, and must be a number", named(name))

    @cached_property
    def of(self) -> Mapping[str, str]:
        """The role of each input."""
        return dict(zip(self.inputs, self.roles, strict=True))

    @cached_property
    def map(self) -> Shape:
        """The formula that is reduced."""
        return Shape(self.inner, tuple(self.of[name] for name in self.inner.inputs))

    @cached_property
    def scalars(self) -> Mapping[str, bool]:
        """The inputs that are numbers, and whether they are integers."""
        return {n: role == WHOLE for n, role in self.of.items() if role != ARRAY}

    @cached_property
    def result(self) -> str:
        """What the result is called."""
        return output_name(RESULT, self.inputs)

    def places(self, names: Any) -> list[str]:
        """What the parameters call these scalars."""
        known = list(self.scalars)
        return [f"s{known.index(name)}" for name in names]

    @cached_property
    def digest(self) -> str:
        """A hash of both trees, the kind and the roles."""
        places = self.places((*self.map.scalars, *self.outer.inputs[1:]))
        said = f"{self.map.digest} {self.kind.value} {self.outer.digest} {places}"
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def program(self, signature: Signature) -> Program:
        """The steps of the formula that is reduced."""
        return self.map.program(signature)

    def reduced(self, signature: Signature) -> ElementKind:
        """The element of what is reduced; raises where the kind has no such."""
        (found,) = self.map.program(signature).results
        if found not in self.kind.row.elements:
            raise self.inner.wrong(f"{self.kind.value} of {found} is not served; cast the formula", self.inner.roots[0])
        return found

    def value(self, signature: Signature) -> ElementKind:
        """The element of the reduced value."""
        return self.kind.row.result(self.reduced(signature))

    def last(self, signature: Signature) -> Program:
        """The steps of the formula of the result, which is not rounded to 16 bits before."""
        given = {name: self.scalars[name] for name in self.outer.inputs[1:]}
        value = self.value(signature)
        result = program_of(self.outer, {self.outer.inputs[0]: value}, given).results
        wide = value.acc if value in HALVES else value
        return program_of(self.outer, {self.outer.inputs[0]: wide}, given, result)


class ReductionPlan(FormulaPlan):
    """A reduction of a formula along axes, and a formula of the result."""

    reduction: Reduction

    @classmethod
    def case(cls, draw: Any) -> Any:
        """Any axes of small arrays; rows and columns from a lane's to several segments."""
        least = 1 if cls.reduction.kind.row.nonempty else 0
        if draw.flag():
            shape = draw.shape(0, 4, least, 6)
            axis: Any = draw.choice((None, tuple(a for a in range(len(shape)) if draw.flag())))
        else:
            long, across = draw.sizes(9, 1, 40, 131, 1030, 2500), draw.sizes(1, 8, 33)
            shape, axis = draw.choice((((long,), 0), ((across, long), -1), ((long, across), 0)))
        descriptor: Any = cls.descriptor
        return descriptor(shape=shape, axis=axis, keepdims=draw.flag(), **drawn_elements(cls, draw))


class ReductionDescriptor(FoldedDescriptor):
    """All operands broadcast to `shape`, of which `axis` (an int, a tuple, None for all) is reduced away.

    `element` is that of the first operand, and of those without `<name>_element`. keepdims: reduced axes stay, with
    extent 1. correction: of var and std, what the count is lessened by.
    """

    shape: Any
    axis: Any
    keepdims: bool

    def validate(self) -> None:
        self.last  # noqa: B018  raises where the formula has no meaning for these elements
        if self.made_for.kind.row.nonempty and not math.prod(self.shape[a] for a in self.axis):
            what = f"{self.made_for.kind.value} of no elements is not defined"
            raise InvalidProblemError(f"{what}: axes {self.axis} of shape {self.shape}")

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        whole = enumerate(self.shape)
        return tuple(1 if a in self.axis else n for a, n in whole if self.keepdims or a not in self.axis)


def reduction_plan_of(
    inner: Formula, kind: str, outer: Formula, inputs: tuple[str, ...], roles: Roles
) -> type[ReductionPlan]:
    """The plan of a reduction; made once."""
    key = (inner, kind, outer, inputs, roles)
    known = _plans.get(key)
    row = next(one for one in ReduceKind if one.value == kind)
    return known or keep(_plans, key, _made(Reduction(inner, row, outer, inputs, roles), key), 1024)


_plans: dict[Any, type[ReductionPlan]] = {}


def _made(made: Reduction, key: Any) -> type[ReductionPlan]:
    name, recipe = f"Reduction{made.digest.capitalize()}", (reduction_plan_of, key)
    params = reduce_params("ReductionParams", [f"x{i}" for i in made.map.read], **scalar_params(made))
    kernels = [
        replace(one, axes={"VEC": _WIDTHS} if one.name == "columns" else one.axes)
        for one in reduce_kernels("Reduction", params, source="MappedFormula")
    ]
    row = Variant(
        "tree", partial(_geometry, made), source="reduce/expression_reduce.cu", kernels=tuple(kernels),
        elements=lambda kind: kind.elements[:1], prelude=lambda element, kind: _text(made, kind),
        guarantee=Guarantee(lambda element, kind: _bound(made, kind), batch_invariant=True),
    )  # fmt: skip
    fields = (
        ("shape", "tuple[int, ...]", extents()), ("axis", Any, axes(None)), ("keepdims", bool, flag(False)),
        ("correction", int, integer(1)),
    )  # fmt: skip
    return plan_class(  # type: ignore[no-any-return]
        ReductionPlan, name, made, recipe, row, _reference, op=f"reduce.formula_{made.digest}", reduction=made,
        descriptor=descriptor_class(ReductionDescriptor, name, made, recipe, fields),
        args=args_class(
            ReductionPlan, name, made, recipe, ((made.result, Any, output("*result_shape", element="result")),)
        ),
    )  # fmt: skip


def _geometry(made: Reduction, p: Any) -> Any:
    desc, out = p.desc, p.views[made.result]
    values = {f"x{i}": made.map.arrays[i] for i in made.map.read} | {"y": made.result, "correction": desc.correction}
    values |= scalar_places(made)
    y = without_axes(out, desc.axis) if desc.keepdims else out
    return reduce_geometry(
        p, inputs_of(made.map, p), (y,), desc.axis, ordered=made.kind.row.ordered, mapped=True, values=values
    )


def _text(made: Reduction, kind: Signature) -> str:
    """The functors of both formulas; `MappedFormula`, the source of the reduction; `Reduction`, its kind."""
    program, last, reduced = made.map.program(kind), made.last(kind), made.reduced(kind)
    wide = reduced.acc if reduced.is_float else reduced
    given = ", ".join(program.inputs[i].ctype for i in made.map.read)
    base = f"{made.kind.cpp}<{wide.ctype}>"
    return f"""{headers(program)}{headers(last)}#include "{made.kind.header}"
namespace baracuda {{
{functor("Formula", program, made.places(made.map.scalars))}
{functor("Then", last, made.places(made.outer.inputs[1:]))}
}}
{mapped_text("Reduced_", program, made.map.read, 0, f"acc_t<{wide.ctype}>")}
namespace baracuda {{
using MappedFormula = Mapped<Reduced_, {given}>;
struct Reduction : {base} {{
  using Base = {base};
  using Result = {last.results[0].ctype};
  using TakesParameters = void;
  template <class P> static BARACUDA_D Result finish(const typename Base::State& s, const Reduced& r, const P& p) {{
    const Then then(p);
    {_result_type(last)} y;
    then(Base::finish(s, r), y);
    return cast<Result>(y);
  }}
}};
}}  // namespace baracuda
"""


def _result_type(program: Program) -> str:
    return value_type(result_of(program.steps[program.outputs[0][0]]))


def _bound(made: Reduction, kind: Signature) -> ErrorBound:
    first, last = made.map.program(kind), made.last(kind)
    if all(isinstance(bound_of(one), Exact) for one in (first, last)):
        found = made.kind.row.bound(made.reduced(kind))
        if isinstance(found, Exact):
            return found
    return bound_of_both(first, last)


def _reference(made: Reduction, desc: Any, /, **given: Any) -> Mapping[str, Any]:
    (x,) = evaluated(made.map, desc, given)
    options = [getattr(desc, name) for name in made.kind.row.takes]
    with np.errstate(all="ignore"):
        y = np.array(made.kind.row.formula(x, desc.axis, *options)).reshape(desc.result_shape)
    numbers = [given[name] for name in made.outer.inputs[1:]]
    (result,) = evaluate(desc.last, [y], numbers, y.dtype if y.dtype.kind == "f" else computed_in(given))
    return {made.result: np.broadcast_to(result, desc.result_shape)}
