"""binary: y = f(a, b) with broadcasting, f one of `BinaryKind`, by PyTorch's names; b may be a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Scalar, Variant,
    Vjp, choice, element, extents, flag, number, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import EAGER, Benchmark
from ...core.element import cast as cast_values
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.numbers import modulo
from ...core.params import exactly
from ...core.tensor import View, broadcast_shape
from ...schedules.map import map_geometry, map_kernels, map_params
from .binary_kinds import BinaryKind, binary_bound, binary_elements, binary_points

K = BinaryKind
_TOLERANCES = 1e-5, 1e-8, False


@dataclass(frozen=True, kw_only=True)
class BinaryDescriptor(Descriptor):
    """y has shape `shape`; a and b have shapes that broadcast to it.

    with_number: b is no array but a number of Args. reverse: y = f(b, a), so that the number stands before the array.
    rtol, atol, equal_nan: of isclose.
    """

    kind: BinaryKind = choice(BinaryKind)
    shape: tuple[int, ...] = extents()
    with_number: bool = flag(False)
    reverse: bool = flag(False)
    rtol: float = number(1e-5, minimum=0)
    atol: float = number(1e-8, minimum=0)
    equal_nan: bool = flag(False)
    element: ElementKind = element(binary_elements(None))

    def validate(self) -> None:
        row, what = self.kind.row, f"{self.kind.value} of {self.element}"
        if "rtol" not in row.coefficients and (self.rtol, self.atol, self.equal_nan) != _TOLERANCES:
            raise InvalidProblemError(f"{self.kind.value} has no rtol, atol and equal_nan; leave them as they are")
        if self.element in row.elements:
            return
        if not row.elements[0].is_float:
            raise UnsupportedError(f"{what} is not defined; it takes {', '.join(map(str, row.elements))}")
        why = f"{row.whole}, or cast both to a float first" if row.whole else "cast both to a float first"
        raise UnsupportedError(f"{what} is not an integer in general; {why}")

    @property
    def result(self) -> ElementKind:
        """The element of y."""
        return self.kind.row.result(self.element)


@dataclass(slots=True, kw_only=True)
class BinaryArgs(Args):
    """Any strides; y may be a or b itself where that has y's shape and element.

    Where b is a number, it is `number` for floats and `whole` for integers and bool. alpha: of add_scaled; of integers
    any whole number of int64, and y is right modulo 2ⁿ.
    """

    a: Array = operand("*shape", broadcast=True, values=Everywhere(binary_points, lambda *given: _smooth("a", *given)))
    b: Array | None = operand("*shape", broadcast=True, instead="with_number",
                              values=Everywhere(binary_points, lambda *given: _smooth("b", *given)))  # fmt: skip
    y: Array = output("*shape", element="result", inplace=("a", "b"))
    number: Scalar = scalar(0.0)
    whole: Scalar = scalar(0, integer=True, meets="element")
    alpha: Scalar = scalar(1, meets="coefficient")


def _smooth(name: str, rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Values of a or b where f is differentiable."""
    return getattr(desc.kind.row.smooth, name if not desc.reverse else "ab"["ab".index(name) - 1])(rng, shape)


def ordered(desc: Any, a: Any, b: Any, value: Any, whole: Any) -> tuple[Any, Any]:
    """The operands of f in its order, in a's dtype; a number as the kernels have it."""
    if desc.with_number:
        b = np.broadcast_to(_held(desc, a.dtype, value, whole), a.shape)
    return (b, a) if desc.reverse else (a, b)


def _held(desc: Any, dtype: Any, value: Any, whole: Any) -> Any:
    """The number in the element, or in the type of the arithmetic: float32, float64 for float64."""
    if not desc.element.is_float:
        return np.asarray(modulo(whole, desc.element))
    held = desc.element if desc.kind.row.in_element else desc.element.acc
    return np.asarray(cast_values(np.asarray(float(value)), held)).astype(dtype)


def coefficients(desc: Any, dtype: Any, alpha: Any) -> tuple[Any, ...]:
    """What f takes besides its operands, in their dtype."""
    if "alpha" not in desc.kind.row.coefficients:
        return tuple(getattr(desc, name) for name in desc.kind.row.coefficients)
    if not desc.element.is_float:
        return (modulo(alpha, desc.element),)
    return (dtype.type(desc.element.acc.dtype.type(alpha)),)


def reference(desc: BinaryDescriptor, *, a: Any, b: Any, number: Any, whole: Any, alpha: Any) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    left, right = ordered(desc, a, b, number, whole)
    with np.errstate(all="ignore"):
        y = desc.kind.row.formula(left, right, *coefficients(desc, a.dtype, alpha))
    return {"y": np.broadcast_to(np.asarray(y, np.bool_ if desc.kind.row.predicate else a.dtype), desc.shape)}


PARAMS = Params(
    "BinaryParams", y="ptr", left="ptr", right="ptr", number="scalar", whole="iscalar", alpha="scalar",
    alpha_whole="iscalar", rtol="f64", atol="f64", equal_nan="i32", **map_params(3),
)  # fmt: skip


def sides(desc: Any) -> dict[str, str]:
    """The operands that the kernels' left and right are."""
    other = "@null" if desc.with_number else "b"
    return {"left": other, "right": "a"} if desc.reverse else {"left": "a", "right": other}


def _geometry(p: Problem) -> Geometry | str:
    desc, places = p.desc, sides(p.desc)
    shown: list[View | None] = [p.y]
    for name in places.values():
        shown.append(None if name == "@null" else p.views[name].broadcast_to(p.y.shape))
    numbers = {"rtol": desc.rtol, "atol": desc.atol, "equal_nan": desc.equal_nan}
    return map_geometry(p, shown, {**places, **numbers, **exactly(not desc.element.is_float, "alpha")})


_OF_NUMBERS = (K.ADD, K.SUB, K.MUL, K.DIV, K.POW, K.EQ, K.NE, K.LT, K.LE, K.GT, K.GE)
"""Kinds whose second operand may be a number in torch, too."""


def in_torch(torch: Any, desc: BinaryDescriptor, *, a: Any, b: Any, number: Any, whole: Any, alpha: Any) -> Any:
    """torch's function of the kind; integers wrap."""
    if desc.with_number:
        value = number if desc.element.is_float else int(whole)
        b = value if desc.kind in _OF_NUMBERS and not desc.reverse else torch.full_like(a, value)
    left, right = (b, a) if desc.reverse else (a, b)
    more = [getattr(desc, name) if name != "alpha" else alpha for name in desc.kind.row.coefficients]
    if not desc.element.is_float and "alpha" in desc.kind.row.coefficients:
        more = [modulo(alpha, desc.element).item()]
    return torch.broadcast_to(desc.kind.row.in_torch(torch, left, right, *more), desc.shape)


class BinaryPlan(Plan):
    """y = f(a, b) for the kinds of `BinaryKind` (torch.add, torch.maximum, torch.eq, …), a and b broadcast.

    maximum and minimum propagate NaN, fmax and fmin drop it; for all four +0 is above -0 (IEEE 754-2019). floor_divide
    and remainder round the quotient down (remainder has b's sign, as in Python), trunc_divide and fmod round it to
    zero, each from the exact quotient. heaviside of NaN is 0. prelu is a where a > 0, else a b. ldexp is a 2^b, also
    for b that is not whole.

    Integers wrap; with b = 0 their quotients and remainders are 0, as in NumPy. pow with b < 0 is what is whole of
    1 / aⁿ: ±1 of ±1, else 0. gcd and lcm have no sign; that of the lowest integer and 0 or itself wraps. mulhi is the
    upper half of the product (jax.lax.mulhi). Shifts by less than 0, or by as many bits as the element has and more,
    leave 0; bitwise_right_shift leaves the sign in all bits. shift_right_logical shifts 0 in (jax.lax's). Of bool, add
    is or, mul and minimum are and, maximum is or.

    Comparisons, logic and isclose give bool. isclose compares in float64, whatever the element.
    A number in b's place is rounded to the accumulator (float32, float64 for float64), and to the element itself where
    the result is a truth value or one of the operands: eq(x, 0.1) finds the 0.1 of x.
    """

    op = "elementwise.binary"
    kinds = BinaryKind
    descriptor = BinaryDescriptor
    args = BinaryArgs
    reference = staticmethod(reference)
    vjp = Vjp("BinaryBackwardPlan", grads={"a": "da", "b": "db"})
    value_policy = "an integer divided by 0 gives 0"
    variants = (
        Variant(
            "map", _geometry, source="elementwise/binary.cu",
            kernels=map_kernels("binary<{KIND}, {T}, {LAYOUT}>", PARAMS), elements=binary_elements,
            guarantee=Guarantee(binary_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("add 134M bf16", shape=1 << 27, kind="add", element="bfloat16", peers=(EAGER,)),
        Benchmark("eq 134M bf16", shape=1 << 27, kind="eq", element="bfloat16", peers=(EAGER,)),
        Benchmark("pow 2.5 134M bf16", shape=1 << 27, kind="pow", with_number=True, element="bfloat16", peers=(EAGER,),
                  make=lambda torch, desc: {"number": 2.5}),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BinaryDescriptor:
        return BinaryDescriptor(**binary_case(draw))

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("a", "b")))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_numbers(desc, arrays)


def binary_case(draw: Any) -> dict[str, Any]:
    """The fields of a drawn descriptor."""
    alone = draw.integer(0, 3) == 0
    return {
        "kind": draw.kind, "shape": draw.shape(0, 4, 0, 17), "with_number": alone,
        "reverse": alone and draw.flag(), "element": draw.element,
    }  # fmt: skip


def complete_numbers(desc: Any, arrays: dict[str, Any]) -> None:
    """Numbers for tests. In b's place one of the values of a where nothing is differentiated, so that equals meet; of
    floats one that is on no kink or step of f, another for another shape."""
    a = arrays["a"]
    if desc.with_number and desc.element.is_float:
        arrays["number"] = float(
            np.float32(_smooth("b", np.random.default_rng(len(desc.shape) + sum(desc.shape)), desc, ()))
        )
    elif desc.with_number and a.size:
        arrays["whole"] = int(a.reshape(-1)[a.size // 2])
