"""What the plans of formulas and of their gradients share: descriptor, operands, the map, the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core import Geometry, Kernel, Params, Problem, Step, Variant, derived, element, extents, operand, output, scalar
from ..core.element import ElementKind
from ..core.memo import PLANS_KEPT, memo
from ..core.spec import numpy_row
from ..core.tensor import View, broadcast_shape
from ..schedules.map import map_geometry, map_kernels
from .made import Again, MadeArgs, MadeDescriptor, MadePlan, Numbered, args_space, part
from .program import Program
from .reference import evaluate
from .shape import Shape
from .signature import ELEMENTS, Signature, Signatures

_OPERANDS, _OPERATIONS = 8, 48  # beyond them 64 registers a thread may not do
_WIDE, _ONE = 16, 1
"""Bytes that a chunk has in the widest operand (1: one element), which `expression_width` in expression.cu divides."""


class FormulaPlan(MadePlan):
    """A formula of arrays, element by element: all are broadcast together."""

    shape: Shape

    @classmethod
    def case(cls, draw: Any) -> Any:
        """A small problem of the elements drawn."""
        return cls._case(draw, draw.kind.elements)

    @classmethod
    def gradient_case(cls, draw: Any) -> Any:
        """The same with floats in float64, of which none is drawn where a function has a kink."""
        return cls._case(draw, [ElementKind.F64 if e.is_float else e for e in draw.kind.elements])

    @classmethod
    def _case(cls, draw: Any, elements: Sequence[ElementKind]) -> Any:
        rest = {f"{n}_element": e for n, e in zip(cls.shape.arrays[1:], elements[1:], strict=True)}
        descriptor: Any = cls.descriptor
        return descriptor(shape=draw.shape(0, 4, 0, 17), element=elements[0], **rest)

    @classmethod
    def table(cls) -> tuple[Variant, ...]:
        """The row of the kernels and that of the reference, which serves whatever elements the formula does."""
        return _table(cls)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """The shape that the operands broadcast to."""
        forward = cls.shape.forward or cls.shape
        facts.setdefault("shape", broadcast_shape(shapes, forward.arrays))


@memo(maxsize=PLANS_KEPT)
def _table(cls: type[FormulaPlan]) -> tuple[Variant, ...]:
    return (*cls.variants, replace(numpy_row(cls), elements=ELEMENTS))


def made_plan(base: Any, shape: Shape, recipe: Any, row: Variant, reference: Any, **more: Any) -> type[FormulaPlan]:
    """A plan class for a formula, with its descriptor and operands; `recipe` makes it again."""
    name = f"Formula{shape.digest.capitalize()}"
    space = {
        "__doc__": shape.formula.text, "op": f"elementwise.formula_{shape.digest}", "shape": shape,
        "kinds": Signatures(len(shape.arrays), shape.program), "descriptor": _descriptor(name, shape, recipe),
        "args": _args(name, shape, recipe), "variants": (row,), "reference": staticmethod(partial(reference, shape)),
        "__recipe__": recipe, "__module__": __name__, **more,
    }  # fmt: skip
    made: Any = type(base)(f"{name}Plan", (base,), space)
    return made  # type: ignore[no-any-return]


def formula_kernels(shape: Shape, params: Params) -> tuple[Kernel, ...]:
    """The kernels of a formula's map; those of large formulas may have more registers, and fewer blocks at a time."""
    flat, strided = map_kernels(
        "expression<FormulaMap<FormulaParams>, {LAYOUT}>", params,
        "expression_width(FormulaMap<FormulaParams>::widest, {VEC})", lambda kind: (_WIDE, _ONE),
    )  # fmt: skip
    large = operands(shape) > _OPERANDS or len(shape.formula.nodes) > _OPERATIONS
    return (replace(flat, min_blocks=0) if large else flat), strided


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

    @property
    def numbered(self) -> Numbered:
        """The formula and its numbers."""
        yield self.program, tuple(self.made_for.scalars)


def _descriptor(name: str, shape: Shape, recipe: Any) -> Any:
    fields: list[Any] = [("shape", "tuple[int, ...]", extents()), ("element", ElementKind, element(ELEMENTS))]
    for i, n in enumerate(shape.arrays[1:], 1):
        fields.append((f"{n}_element", Any, element(ELEMENTS, derived(_usual(shape, i)))))
    space: dict[str, Any] = {f"{n}_result": property(_result(i)) for i, n in enumerate(shape.outputs)}
    space |= {"made_for": shape, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": __name__}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(FormulaDescriptor,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = FormulaDescriptor.__doc__
    return made


def _usual(shape: Shape, i: int) -> Any:
    """What the element of array i is by default: that of the first; of a cotangent, its output's."""
    count = None if shape.forward is None else len(shape.forward.arrays)

    def usual(desc: Any) -> ElementKind:
        if count is None or i < count:
            return desc.element  # type: ignore[no-any-return]
        assert shape.forward is not None
        elements = (desc.element, *(getattr(desc, f"{n}_element") for n in shape.arrays[1:count]))
        result = shape.forward.program(Signature(elements)).results[i - count]
        return result if result.is_float else ElementKind.F32  # it is not looked at

    return usual


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
    for i, n in enumerate(shape.outputs):
        if shape.of:
            made = output("*shape", element=f"{n}_result", like=shape.of[i], optional=True)
        else:
            made = output("*shape", element=f"{n}_result", inplace=shape.arrays)
        fields.append((n, Any, made))
    space = args_space(__name__, recipe, (*shape.formula.inputs, *shape.outputs), any(shape.scalars.values()))
    return dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )


# -- what runs -----------------------------------------------------------------------------------------------------


def operands(shape: Shape) -> int:
    """The operands that kernels have."""
    return len(shape.outputs) + len(shape.read)


def pointers(shape: Shape) -> dict[str, str]:
    """The kernels' parameters that are arrays: outputs, and the inputs that are read."""
    return dict.fromkeys([*(f"y{j}" for j in range(len(shape.outputs))), *(f"x{i}" for i in shape.read)], "ptr")


def numbers(shape: Shape) -> dict[str, str]:
    """The kernels' parameters that are numbers."""
    return {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(shape.scalars.values())}


def sources(shape: Shape) -> dict[str, str]:
    """Which operand each input of the parameters is."""
    return {f"x{i}": shape.arrays[i] for i in shape.read} | {f"s{i}_ptr": n for i, n in enumerate(shape.scalars)}


def inputs_of(shape: Shape, p: Problem) -> list[View]:
    """The arrays that are read, broadcast."""
    return [p.views[shape.arrays[i]].broadcast_to(p.desc.shape) for i in shape.read]


def map_step(shape: Shape, p: Problem, outs: Sequence[View | None]) -> Geometry | str:
    """The launch that makes the outputs that are given."""
    named = enumerate(zip(shape.outputs, outs, strict=True))
    places = {f"y{j}": "@null" if out is None else name for j, (name, out) in named}
    found = map_geometry(p, (*outs, *inputs_of(shape, p)), {**sources(shape), **places})
    if isinstance(found, str):
        return found
    (step,) = found.steps
    assert isinstance(step, Step)
    width = _ONE if step.axes["VEC"] == 1 else _WIDE
    return replace(found, steps=(replace(step, axes={"VEC": width}),))


def evaluated(shape: Shape, desc: Any, given: Mapping[str, Any]) -> list[Any]:
    """The outputs in NumPy, in the dtype that floats come in."""
    arrays = [given[n] for n in shape.arrays]
    floats = [a.dtype for a in arrays if a.dtype.kind not in "biu"]
    values = [given[n] for n in shape.scalars]
    results = evaluate(desc.program, arrays, values, floats[0] if floats else np.float64)
    return [np.broadcast_to(y, desc.shape) for y in results]
