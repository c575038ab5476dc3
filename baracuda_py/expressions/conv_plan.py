"""The plans of convolutions whose epilogue is a formula."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..core import Array, Chained, Guarantee, InvalidProblemError, derived, element, operand, output, scalar
from ..core.element import FP8, ElementKind
from ..core.memo import cached_property, keep
from ..ops.conv.conv import ConvDescriptor, ConvPlan, conv_case
from ..ops.conv.conv import reference as convolved
from ..schedules.conv_formula import EmbeddedInConv, formula_rows, outputs_of
from .formula import Formula
from .made import Again, MadeArgs, MadeDescriptor, MadePlan, Numbered, args_space, part
from .product_shape import ProductShape
from .shape import Roles
from .signature import ELEMENTS, LedSignatures, Signature

_SHAPE = "*out_shape"


class ConvShape(ProductShape):
    """A formula of x, the sums of a convolution, and of operands that broadcast to its result."""

    header: ClassVar[str] = "conv/formula_epilogue.cuh"
    what: ClassVar[str] = "convolution"


class FormulaConvDescriptor(ConvDescriptor, MadeDescriptor):
    """As `ConvDescriptor`, without its activation; an array of the formula has `<name>_element` (by default that of x).

    out_element: that of y, by default that of x: the accumulator's too, and int8, uint8 or fp8, which saturate.
    """

    made_for: ConvShape
    out_element: ElementKind

    def validate(self) -> None:
        super().validate()
        if self.activation != "none":
            raise InvalidProblemError(f"activation is written into the formula, got {self.activation!r}")
        if self.out_element not in (allowed := outputs_of(self.element)):
            known = " or ".join(map(str, allowed))
            raise InvalidProblemError(f"out_element must be {known} of {self.element}, got {self.out_element}")
        self.made_for.program(self.kind)  # raises where the formula has no meaning for these elements

    @property
    def kind(self) -> Signature:
        """The elements of x and w, and of the formula's arrays."""
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in self.made_for.arrays)))

    @property
    def numbered(self) -> Numbered:
        """The formula and its numbers."""
        yield self.made_for.program(self.kind), tuple(self.made_for.numbers)

    @cached_property
    def plain(self) -> ConvDescriptor:
        """That of the convolution alone."""
        names = [f.name for f in dataclasses.fields(ConvDescriptor)]
        return ConvDescriptor(**{name: getattr(self, name) for name in names})


class FormulaConvPlan(MadePlan):
    """y = f(Σ x̂ w, …) for a formula f, whose arrays broadcast to y; rounded once, to int8, uint8 and fp8 saturating."""

    shape: ConvShape
    flops = ConvPlan.flops

    @classmethod
    def case(cls, draw: Any) -> Any:
        """A problem of `ConvPlan`."""
        one, *rest = draw.kind.elements
        plain = conv_case(draw, partial(_facts, one))
        elements = {f"{name}_element": e for name, e in zip(cls.shape.arrays, rest, strict=True)}
        descriptor: Any = cls.descriptor
        return descriptor(**plain, out_element=draw.choice(outputs_of(one)), **elements)


def _facts(one: ElementKind, **facts: Any) -> dict[str, Any]:
    tf32 = facts["math_precision"] if one is ElementKind.F32 else "element"
    return {**facts, "activation": "none", "element": one, "math_precision": tf32}


def conv_plan_of(formula: Formula, roles: Roles) -> type[FormulaConvPlan]:
    """The plan of a formula whose operands are what `roles` says; made once."""
    key = (formula, roles)
    made: type[FormulaConvPlan] = _plans.get(key) or keep(_plans, key, _made(ConvShape(formula, roles), key), 1024)
    return made


_plans: dict[tuple[Formula, Roles], Any] = {}


def _made(shape: ConvShape, key: Any) -> Any:
    embedded = EmbeddedInConv(
        shape.arrays, shape.numbers, lambda element, kind: shape.code(kind), lambda desc: desc.plain,
        Guarantee(lambda element, kind: _bound(shape, kind), batch_invariant=True),
    )  # fmt: skip
    name, recipe = f"Conv{shape.digest.capitalize()}", (conv_plan_of, key)
    space: dict[str, Any] = {
        "__doc__": shape.formula.text, "shape": shape, "__recipe__": recipe, "__module__": __name__,
        "op": f"conv.conv_formula_{shape.digest}", "kinds": LedSignatures(1 + len(shape.arrays), shape.program),
        "descriptor": _descriptor(name, shape, recipe), "args": _args(name, shape, recipe),
        "variants": formula_rows(ConvPlan.variants, embedded), "reference": staticmethod(partial(_reference, shape)),
    }  # fmt: skip
    base: Any = FormulaConvPlan
    return type(base)(f"{name}Plan", (base,), space)


def _bound(shape: ConvShape, kind: Signature) -> Chained:
    """As of products of matrices: one chain along k, and the formula's ulps on top."""
    worst, factor = shape.ulps(kind), kind.elements[0]
    return Chained((4 if factor is factor.acc else 8) + 2 * worst, 4 + worst)


def _descriptor(name: str, shape: ConvShape, recipe: Any) -> Any:
    usual = derived(lambda desc: desc.element)
    fields: list[Any] = [("out_element", ElementKind, element(tuple(ElementKind), usual))]
    fields += [(f"{n}_element", ElementKind, element(ELEMENTS, usual)) for n in shape.arrays]
    space = {"made_for": shape, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": __name__}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(FormulaConvDescriptor,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = FormulaConvDescriptor.__doc__
    return made


def _args(name: str, shape: ConvShape, recipe: Any) -> Any:
    fields: list[Any] = [
        ("x", Array, operand("*shape")), ("w", Array, operand("*filter_shape")),
        *((n, Array, operand(_SHAPE, element=f"{n}_element", broadcast=True)) for n in shape.arrays),
        ("y", Array, output(_SHAPE, element="out_element", inplace=shape.arrays)),
        *((n, Any, scalar(integer=whole)) for n, whole in shape.numbers.items()),
    ]  # fmt: skip
    space = args_space(__name__, recipe, (*shape.arrays, *shape.numbers), any(shape.numbers.values()))
    made = dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )
    made.__doc__ = "Any strides; arrays of the formula broadcast to y, which may be one of them."
    return made


def _reference(shape: ConvShape, desc: Any, /, *, x: Any, w: Any, **given: Any) -> Mapping[str, Any]:
    """The convolution in the dtype that x and w come in, then the formula; what saturates is clipped."""
    sums = convolved(desc.plain, x=x, w=w, bias=None, z=None, wanted={"y"})["pre"]
    y, to = shape.value(desc.kind, sums, given), desc.out_element
    with np.errstate(all="ignore"):
        if to.is_integer:
            y = np.rint(np.clip(np.where(np.isnan(y), 0, y), to.limits.min, to.limits.max))
        elif to in FP8:
            y = np.clip(y, -to.limits.max, to.limits.max)
    return {"y": y}
