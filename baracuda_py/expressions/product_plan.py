"""The plans of matrix products whose epilogue is a formula."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..core import (
    Array,
    Chained,
    Guarantee,
    InvalidProblemError,
    derived,
    element,
    extent,
    extents,
    operand,
    output,
    scalar,
)  # fmt: skip
from ..core.args import arrays_of
from ..core.element import ElementKind
from ..core.memo import keep
from ..ops.gemm.gemm import GemmArgs, GemmDescriptor, GemmPlan
from ..ops.gemm.gemm import reference as product_reference
from ..schedules.gemm_formula import Embedded, formula_rows
from .formula import Formula
from .made import Again, MadeArgs, MadeDescriptor, MadePlan, Numbered, args_space, part
from .product_shape import ProductShape
from .shape import Roles
from .signature import ELEMENTS, LedSignatures, Signature

_SHAPE = "*batch_shape m n"
_ABSENT: Mapping[str, Any] = dict.fromkeys(s.name for s in arrays_of(GemmArgs) if s.reads and s.name not in ("a", "b"))
"""What a product has besides, and those here have not."""
ROWS = ("wgmma", "mma_split", "mma", "simt")
"""The rows of `GemmPlan` that take a formula."""


class ProductDescriptor(MadeDescriptor):
    """As `GemmDescriptor`; an array of the formula has `<name>_element` (by default that of a and b)."""

    made_for: ProductShape
    batch_shape: tuple[int, ...]
    m: int
    n: int
    k: int
    out_element: ElementKind

    def validate(self) -> None:
        if self.out_element not in (self.element, self.element.acc):
            raise InvalidProblemError(
                f"out_element must be {self.element} or {self.element.acc}, got {self.out_element}"
            )
        self.made_for.program(self.kind)  # raises where the formula has no meaning for these elements

    @property
    def kind(self) -> Signature:
        """The elements of a and b, and of the formula's arrays."""
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in self.made_for.arrays)))

    @property
    def numbered(self) -> Numbered:
        """The formula and its numbers."""
        yield self.made_for.program(self.kind), tuple(self.made_for.numbers)

    @property
    def plain(self) -> GemmDescriptor:
        """That of the product alone."""
        return GemmDescriptor(
            batch_shape=self.batch_shape, m=self.m, n=self.n, k=self.k, out_element=self.out_element,
            element=self.element,
        )  # fmt: skip


class ProductPlan(MadePlan):
    """y = f(alpha · a @ b, …) for a formula f, whose arrays broadcast to y; rounded once.

    x is the product in the accumulator's precision. As in `GemmPlan`, alpha = 0 leaves a and b out.
    """

    shape: ProductShape
    flops = GemmPlan.flops

    @classmethod
    def case(cls, draw: Any) -> Any:
        """A problem of a product with operands of few or many elements."""
        one, *rest = draw.kind.elements
        elements = {f"{name}_element": e for name, e in zip(cls.shape.arrays, rest, strict=True)}
        descriptor: Any = cls.descriptor
        return descriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(1, 7, 64, 130), n=draw.sizes(1, 5, 64, 129),
            k=draw.sizes(0, 1, 16, 67), element=one, out_element=draw.choice((one, one.acc)), **elements,
        )  # fmt: skip


def product_plan_of(formula: Formula, roles: Roles) -> type[ProductPlan]:
    """The plan of a formula whose operands are what `roles` says; made once."""
    key = (formula, roles)
    made: type[ProductPlan] = _plans.get(key) or keep(_plans, key, _made(ProductShape(formula, roles), key), 1024)
    return made


_plans: dict[tuple[Formula, Roles], Any] = {}


def _made(shape: ProductShape, key: Any) -> Any:
    embedded = Embedded(
        shape.arrays, shape.numbers, lambda element, kind: shape.code(kind), lambda desc: desc.plain,
        Guarantee(lambda element, kind: _bound(shape, kind), batch_invariant=True),
    )  # fmt: skip
    name, recipe = f"Product{shape.digest.capitalize()}", (product_plan_of, key)
    space: dict[str, Any] = {
        "__doc__": shape.formula.text, "shape": shape, "__recipe__": recipe, "__module__": __name__,
        "op": f"gemm.gemm_formula_{shape.digest}", "kinds": LedSignatures(1 + len(shape.arrays), shape.program),
        "descriptor": _descriptor(name, shape, recipe), "args": _args(name, shape, recipe),
        "variants": formula_rows((row for row in GemmPlan.variants if row.name in ROWS), embedded),
        "reference": staticmethod(partial(_reference, shape)),
    }  # fmt: skip
    base: Any = ProductPlan
    return type(base)(f"{name}Plan", (base,), space)


def _bound(shape: ProductShape, kind: Signature) -> Chained:
    """A sum is one chain along k, which tensor cores, of 16-bit elements, truncate; the formula's ulps come on top."""
    worst, factor = shape.ulps(kind), kind.elements[0]
    return Chained((4 if factor is factor.acc else 8) + 2 * worst, 4 + worst)


def _descriptor(name: str, shape: ProductShape, recipe: Any) -> Any:
    fields: list[Any] = [("batch_shape", Any, extents(()))]
    fields += [(axis, int, extent()) for axis in ("m", "n", "k")]
    fields.append(("out_element", ElementKind, element(default=derived(lambda desc: desc.element))))
    usual = derived(lambda desc: desc.element)
    fields += [(f"{n}_element", ElementKind, element(ELEMENTS, usual)) for n in shape.arrays]
    fields.append(("element", ElementKind, element()))
    space = {"made_for": shape, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": __name__}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(ProductDescriptor,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = ProductDescriptor.__doc__
    return made


def _args(name: str, shape: ProductShape, recipe: Any) -> Any:
    fields: list[Any] = [
        ("a", Array, operand("*batch_shape m k")), ("b", Array, operand("*batch_shape k n")),
        *((n, Array, operand(_SHAPE, element=f"{n}_element", broadcast=True)) for n in shape.arrays),
        ("y", Array, output(_SHAPE, element="out_element", inplace=shape.arrays)),
        ("alpha", Any, scalar(1.0)), *((n, Any, scalar(integer=whole)) for n, whole in shape.numbers.items()),
    ]  # fmt: skip
    space = args_space(__name__, recipe, (*shape.arrays, *shape.numbers), any(shape.numbers.values()))
    made = dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )
    made.__doc__ = "Any strides; arrays of the formula broadcast to y, which may be one of them."
    return made


def _reference(shape: ProductShape, desc: Any, /, *, a: Any, b: Any, alpha: Any, **given: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype that a and b come in, then the formula."""
    x = product_reference(desc.plain, a=a, b=b, alpha=alpha, beta=1.0, wanted={"y"}, **_ABSENT)["y"]
    return {"y": shape.value(desc.kind, x, given)}
