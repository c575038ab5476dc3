"""What the plans of reductions and of scans of a formula share: their descriptors, their operands, the class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core import Relative, Variant, derived, element, operand, scalar
from ..core.element import ElementKind
from .made import Again, MadeArgs, MadeDescriptor, Numbered, args_space, part
from .program import Program
from .signature import ELEMENTS, Signature, Signatures

Field = tuple[str, Any, Any]
"""A dataclass field: its name, type and default."""


class FoldedDescriptor(MadeDescriptor):
    """`element` is that of the first operand, and of those without `<name>_element`."""

    made_for: Any
    element: ElementKind

    @property
    def kind(self) -> Signature:
        """The elements of the operands."""
        rest = self.made_for.map.arrays[1:]
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in rest)))

    @property
    def program(self) -> Program:
        """The steps of the formula that is reduced or scanned."""
        return self.made_for.program(self.kind)  # type: ignore[no-any-return]

    @property
    def last(self) -> Program:
        """The steps of the formula of the result."""
        return self.made_for.last(self.kind)  # type: ignore[no-any-return]

    @property
    def numbered(self) -> Numbered:
        """Both formulas and their numbers."""
        yield self.program, tuple(self.made_for.map.scalars)
        yield self.last, self.made_for.outer.inputs[1:]

    @property
    def result(self) -> ElementKind:
        """The element of the result."""
        return self.last.results[0]


def scalar_params(made: Any) -> dict[str, str]:
    """The parameters of a kernel that are numbers of the formulas."""
    return {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(made.scalars.values())}


def scalar_places(made: Any) -> dict[str, str]:
    """Which number each of them is."""
    return {f"s{i}_ptr": name for i, name in enumerate(made.scalars)}


def drawn_elements(plan: Any, draw: Any) -> dict[str, ElementKind]:
    """The elements of a drawn kind, by the descriptor's fields."""
    names = ("element", *(f"{name}_element" for name in plan.shape.arrays[1:]))
    return dict(zip(names, draw.kind.elements, strict=True))


def plan_class(
    base: type[Any], name: str, made: Any, recipe: Any, row: Variant, reference: Any, descriptor: Any, args: Any,
    **own: Any,
) -> Any:  # fmt: skip
    """A plan class, `base` with its one row; own: more of its attributes."""
    space = {
        "__doc__": f"{made.outer.text}, {made.kind.value} that of {made.inner.text}", "shape": made.map,
        "kinds": Signatures(len(made.map.arrays), made.last), "descriptor": descriptor, "args": args,
        "variants": (row,), "reference": staticmethod(partial(reference, made)), "__recipe__": recipe,
        "__module__": base.__module__, **own,
    }  # fmt: skip
    plan: Any = type(base)
    return plan(f"{name}Plan", (base,), space)


def descriptor_class(base: type[Any], name: str, made: Any, recipe: Any, fields: Iterable[Field]) -> Any:
    """A descriptor with an element for each array; fields: those before."""
    own = derived(lambda desc: desc.element)
    elements = [(f"{n}_element", Any, element(ELEMENTS, own)) for n in made.map.arrays[1:]]
    space = {"made_for": made, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": base.__module__}
    found = dataclasses.make_dataclass(
        f"{name}Descriptor", [*fields, ("element", ElementKind, element(ELEMENTS)), *elements], bases=(base,),
        namespace=space, frozen=True, kw_only=True,
    )  # fmt: skip
    found.__doc__ = base.__doc__
    return found


def args_class(base: type[Any], name: str, made: Any, recipe: Any, more: Iterable[Field]) -> Any:
    """The arrays of the formulas, which broadcast to the shape, and their numbers; more: the operands after."""
    rule = {n: "element" if i == 0 else f"{n}_element" for i, n in enumerate(made.map.arrays)}
    fields: list[Any] = [
        (n, Any, operand("*shape", element=rule[n], broadcast=True) if n in rule else scalar(integer=made.scalars[n]))
        for n in made.inputs
    ]
    space = args_space(base.__module__, recipe, (*made.inputs, made.result), any(made.scalars.values()))
    return dataclasses.make_dataclass(
        f"{name}Args", [*fields, *more], bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )


def bound_of_both(first: Program, last: Program) -> Relative:
    """The bound of what is rounded between two formulas, by the worst of the functions that they call."""
    worst = max((step.value.ulps for step in (*first.steps, *last.steps) if step.form == "call"), default=0.0)
    return Relative(8 + 2 * worst, 4 + worst)


def computed_in(given: Mapping[str, Any]) -> Any:
    """The dtype that a reference computes in: that of the first operand of floats."""
    return next((a.dtype for a in given.values() if isinstance(a, np.ndarray) and a.dtype.kind == "f"), np.float64)
