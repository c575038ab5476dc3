"""ternary: y = f(a, b, c) with broadcasting, b and c arrays or numbers, f one of `TernaryKind`; and its functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Scalar,
    Variant, View, Vjp, choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark, EAGER
from ...core.element import cast as cast_values
from ...core.errors import UnsupportedError
from ...core.numbers import modulo
from ...core.params import exactly
from ...core.tensor import broadcast_shape
from ...schedules.map import map_geometry, map_kernels, map_params
from .ternary_kinds import TernaryKind, ternary_bound, ternary_elements

K = TernaryKind


@dataclass(frozen=True, kw_only=True)
class TernaryDescriptor(Descriptor):
    """y has shape `shape`; a, b and c have shapes that broadcast to it."""

    kind: TernaryKind = choice(TernaryKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(ternary_elements(None))

    def validate(self) -> None:
        if self.element not in ternary_elements(self.kind):
            better = (
                "take the real or the imaginary part" if self.element.is_complex else "cast the operands to a float"
            )
            raise UnsupportedError(f"{self.kind.value} takes no {self.element}; {better} first")

    @property
    def first(self) -> ElementKind:
        """The element of a: bool where it is the condition."""
        return ElementKind.BOOL if self.kind.row.a_is_condition else self.element


def _points(desc: Any) -> tuple[float, ...] | None:
    """Of complex products and sums of any size no bound holds."""
    return (
        None
        if desc.element.is_complex and desc.kind is not K.WHERE
        else (0, 0.5, 1, 2, 3, 10, 127, 128, 2.0**24, 2.0**53)
    )


def _smooth(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Divisors that are not near 0."""
    if desc.element.is_complex:
        return np.exp(2j * np.pi * rng.random(shape)) * rng.uniform(0.5, 2, shape)
    return rng.choice((-1, 1), shape) * rng.uniform(0.5, 2, shape)


@dataclass(slots=True, kw_only=True)
class TernaryArgs(Args):
    """Any strides; y may be any of the operands itself where that has y's shape and element.

    For b None, b is a number: b_number, or b_whole for elements that are integers or bool; so is c. Floats take a
    number rounded to the accumulator (f32, f64 for f64), in `where` to the element; integers one that they have. value:
    of addcmul and addcdiv; of integers any whole number of int64, and y is right modulo 2ⁿ.
    """

    a: Array = operand("*shape", element="first", broadcast=True, values=Everywhere(_points))
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=Everywhere(_points))
    c: Array | None = operand("*shape", broadcast=True, optional=True, values=Everywhere(_points, _smooth))
    y: Array = output("*shape", inplace=("a", "b", "c"))
    b_number: Scalar = scalar(0.0)
    b_whole: Scalar = scalar(0, integer=True, meets="element")
    c_number: Scalar = scalar(0.0)
    c_whole: Scalar = scalar(0, integer=True, meets="element")
    value: Scalar = scalar(1, meets="coefficient")


def _number(desc: Any, dtype: Any, number: Any, integer: Any) -> Any:
    """A number as the kernel has it, in the dtype that arrays come in."""
    kind = desc.element
    if kind.is_float or kind.is_complex:
        rounded = kind if desc.kind is K.WHERE else kind.acc
        return cast_values(np.float64(number), rounded).astype(dtype)
    return dtype.type(modulo(integer, kind))


def numbers_of(
    desc: Any, dtype: Any, b: Any, c: Any, in_place_of_b: tuple[Any, Any], in_place_of_c: tuple[Any, Any]
) -> tuple[Any, Any]:
    """b and c, or the numbers (a float, an integer) in their places."""
    found = [x if x is not None else _number(desc, dtype, *n) for x, n in ((b, in_place_of_b), (c, in_place_of_c))]
    return found[0], found[1]


def reference(
    desc: TernaryDescriptor, *, a: Any, b: Any, c: Any, b_number: Any, b_whole: Any, c_number: Any, c_whole: Any,
    value: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in; float64 in longdouble, so that no product on the way overflows."""
    given = next((x for x in (b, c) if x is not None), a)
    dtype = desc.element.dtype if given.dtype == np.bool_ and desc.first is not desc.element else given.dtype
    b, c = numbers_of(desc, dtype, b, c, (b_number, b_whole), (c_number, c_whole))
    if dtype in (np.float64, np.complex128) and desc.kind is not K.WHERE:
        wide = np.result_type(dtype, np.longdouble)
        a, b, c = (np.asarray(x, wide) for x in (a, b, c))
    with np.errstate(all="ignore"):
        scale = a.dtype.type(rounded_value(desc, value)) if desc.kind.row.scaled else None
        y = desc.kind.row.formula(a, b, c, scale, desc.element)
    return {"y": np.broadcast_to(np.asarray(y, dtype), desc.shape)}


def rounded_value(desc: Any, value: Any) -> Any:
    """`value` as the kernel has it: rounded to the accumulator, integers' the integer part modulo 2ⁿ."""
    if desc.element.is_inexact:
        return desc.element.acc.part.dtype.type(value)
    return modulo(value, desc.element)


PARAMS = Params(
    "TernaryParams", y="ptr", a="ptr", b="ptr", c="ptr", b_number="scalar", b_whole="iscalar", c_number="scalar",
    c_whole="iscalar", value="scalar", value_whole="iscalar", **map_params(4),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    def wide(view: View | None) -> View | None:
        return None if view is None else view.broadcast_to(p.y.shape)

    views = (p.y, wide(p.a), wide(p.b), wide(p.c))
    return map_geometry(p, views, exactly(not p.desc.element.is_inexact, "value"))


def in_torch(
    torch: Any, desc: TernaryDescriptor, *, a: Any, b: Any, c: Any, b_number: Any, b_whole: Any, c_number: Any,
    c_whole: Any, value: Any,
) -> Any:  # fmt: skip
    """torch's function of the kind; fma and mac are the formula. Integers as int64, where torch has all of them."""
    kind, whole = desc.kind, not (desc.element.is_float or desc.element.is_complex)
    if desc.element is ElementKind.U64:
        return NotImplemented  # of which torch has little
    dtype = torch.int64 if whole else (a if kind is not K.WHERE else c if b is None else b).dtype
    numbers = (b_whole, c_whole) if whole else (b_number, c_number)

    def tensor(x: Any, number: Any) -> Any:
        if x is not None:
            return x.to(dtype)
        return torch.tensor(number, dtype=dtype)

    if kind is K.CLAMP and b is None and c is None and not whole:
        return torch.broadcast_to(torch.clamp(a, *numbers), desc.shape)
    b, c = tensor(b, numbers[0]), tensor(c, numbers[1])
    if kind is K.WHERE:
        y = torch.where(a, b, c)
    elif kind in (K.FMA, K.MAC):
        a = a.to(dtype)
        y = a * b + c if kind is K.FMA else a + b * c
    elif kind.row.scaled:
        y = getattr(torch, kind.value)(a.to(dtype), b, c, value=int(value) if whole else value)
    else:
        y = getattr(torch, kind.value)(a.to(dtype), b, c)
    return y.to(getattr(torch, str(desc.element))).broadcast_to(desc.shape)


class TernaryPlan(Plan):
    """y = f(a, b, c) for the kinds of `TernaryKind` (torch.clamp, torch.where, …), all three broadcast.

    clamp: min(max(a, b), c), where NaN of any operand propagates and c wins where b > c. where: b if a else c, bit by
    bit; a is bool. lerp: a + c (b - a), from b's side for |c| >= 1/2, so that c = 1 gives b; NaN of two infinities, and
    of an infinite b where c is 0 or a number that rounds to 0. fma: a b + c, rounded once. mac: a + b c, the product
    rounded to the accumulator as in mul and add composed. addcmul: a + value b c; addcdiv: a + value b / c; their
    products overflow only where all of it does. Integers wrap. Complex numbers have where, lerp, addcmul and addcdiv,
    with `value` and numbers in an operand's place real.
    """

    op = "elementwise.ternary"
    kinds = TernaryKind
    descriptor = TernaryDescriptor
    args = TernaryArgs
    reference = staticmethod(reference)
    vjp = Vjp("TernaryBackwardPlan", grads={"a": "da", "b": "db", "c": "dc"})
    variants = (
        Variant(
            "map", _geometry, source="elementwise/ternary.cu",
            kernels=map_kernels("ternary<ternary_kinds::{KIND}<{T}>, {LAYOUT}>", PARAMS), elements=ternary_elements,
            guarantee=Guarantee(ternary_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "clamp 134M bf16", shape=1 << 27, kind="clamp", element="bfloat16", peers=(EAGER,),
            make=lambda torch, desc: {"b_number": -1.0, "c_number": 1.0},
        ),
        Benchmark(
            "where 134M bf16", shape=1 << 27, kind="where", element="bfloat16", peers=(EAGER,), also=("b", "c"),
            make=lambda torch, desc: {"a": torch.rand(desc.shape) > 0.5},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> TernaryDescriptor:
        return TernaryDescriptor(kind=draw.kind, shape=draw.shape(0, 4, 0, 17), element=draw.element)

    @classmethod
    def complete(cls, desc: TernaryDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers that differ from case to case, by the descriptor alone; a `where` has an array at least."""
        pick = len(desc.shape) + sum(desc.shape)
        if desc.kind is K.WHERE and arrays["b"] is None and arrays["c"] is None:
            arrays["c"] = np.ones(desc.shape, desc.element.dtype)
        arrays["b_number"], arrays["c_number"] = (-0.3, 1.7, 0.0, -1e30)[pick % 4], (2.5, 0.7, float("inf"))[pick % 3]
        if not desc.element.is_inexact:
            low, high = int(desc.element.limits.min), int(desc.element.limits.max)
            arrays["b_whole"] = (min(3, high), low, max(-100, low), 0)[pick % 4]
            arrays["c_whole"] = (high, min(100, high), min(7, high))[pick % 3]

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("a", "b", "c"), ", "))
