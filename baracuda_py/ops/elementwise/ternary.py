"""ternary: y = f(a, b, c) with broadcasting, b and c arrays or numbers, f one of `TernaryKind`; and its functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Geometry, Guarantee, Params, Plan, Problem, Scalar,
    Variant, View, choice, element, extents, functional, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark, EAGER
from ...core.checked import shown
from ...core.element import cast as cast_values
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.keywords import entry, unexpected
from ...interop.arrays import read
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
            raise UnsupportedError(f"{self.kind.value} takes no {self.element}; cast the operands to a float first")

    @property
    def first(self) -> ElementKind:
        """The element of a: bool where it is the condition."""
        return ElementKind.BOOL if self.kind.row.a_is_condition else self.element


def _points(_: Any) -> tuple[float, ...]:
    return (0, 0.5, 1, 2, 3, 10, 127, 128, 2.0**24, 2.0**53)


@dataclass(slots=True, kw_only=True)
class TernaryArgs(Args):
    """Any strides; y may be any of the operands itself where that has y's shape and element.

    For b None, b is a number: b_number, or b_integer for elements that are integers or bool; so is c. Floats take a
    number rounded to the accumulator (f32, f64 for f64), in `where` to the element. Integers have 64 bits, unsigned for
    uint64; beyond the range of the element they are the end of the range. value: of addcmul and addcdiv.
    """

    a: Array = operand("*shape", element="first", broadcast=True, values=Everywhere(_points))
    b: Array | None = operand("*shape", broadcast=True, optional=True, values=Everywhere(_points))
    c: Array | None = operand("*shape", broadcast=True, optional=True, values=Everywhere(_points))
    y: Array = output("*shape", inplace=("a", "b", "c"))
    b_number: Scalar = scalar(0.0)
    b_integer: Scalar = scalar(0, integer=True)
    c_number: Scalar = scalar(0.0)
    c_integer: Scalar = scalar(0, integer=True)
    value: Scalar = scalar(1.0)


def _number(desc: TernaryDescriptor, dtype: Any, number: Any, integer: Any) -> Any:
    """A number as the kernel has it, in the dtype that arrays come in."""
    kind = desc.element
    if kind.is_float or kind.is_complex:
        rounded = kind if desc.kind is K.WHERE else kind.acc
        return cast_values(np.float64(number), rounded).astype(dtype)
    if kind is ElementKind.U64:
        return dtype.type(int(integer) % 2**64)
    whole = (int(integer) + 2**63) % 2**64 - 2**63  # 64 bits, as parameters have
    return dtype.type(min(max(whole, int(kind.limits.min)), int(kind.limits.max)))


def reference(
    desc: TernaryDescriptor, *, a: Any, b: Any, c: Any, b_number: Any, b_integer: Any, c_number: Any, c_integer: Any,
    value: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in; float64 in longdouble, so that no product on the way overflows."""
    given = next((x for x in (b, c) if x is not None), a)
    dtype = desc.element.dtype if given.dtype == np.bool_ and desc.first is not desc.element else given.dtype
    b = _number(desc, dtype, b_number, b_integer) if b is None else b
    c = _number(desc, dtype, c_number, c_integer) if c is None else c
    if dtype == np.float64 and desc.kind is not K.WHERE:
        a, b, c = (np.asarray(x, np.longdouble) for x in (a, b, c))
    with np.errstate(all="ignore"):
        scale = a.dtype.type(_value(desc, value)) if desc.kind.row.scaled else None
        y = desc.kind.row.formula(a, b, c, scale, desc.element)
    return {"y": np.broadcast_to(np.asarray(y, dtype), desc.shape)}


def _value(desc: TernaryDescriptor, value: Any) -> Any:
    """`value` as the kernel has it: rounded to the accumulator, integers' the integer part modulo 2ⁿ."""
    if desc.element.is_float:
        return desc.element.acc.dtype.type(value)
    return cast_values(cast_values(np.float64(value), "int64"), desc.element)


PARAMS = Params(
    "TernaryParams", y="ptr", a="ptr", b="ptr", c="ptr", b_number="scalar", b_integer="iscalar", c_number="scalar",
    c_integer="iscalar", value="scalar", **map_params(4),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    def wide(view: View | None) -> View | None:
        return None if view is None else view.broadcast_to(p.y.shape)

    return map_geometry(p, (p.y, wide(p.a), wide(p.b), wide(p.c)))


def in_torch(
    torch: Any, desc: TernaryDescriptor, *, a: Any, b: Any, c: Any, b_number: Any, b_integer: Any, c_number: Any,
    c_integer: Any, value: Any,
) -> Any:  # fmt: skip
    """torch's function of the kind; fma and mac are the formula. Integers as int64, where torch has all of them."""
    kind, whole = desc.kind, not (desc.element.is_float or desc.element.is_complex)
    if desc.element is ElementKind.U64:
        return NotImplemented  # of which torch has little
    dtype = torch.int64 if whole else (a if kind is not K.WHERE else c if b is None else b).dtype
    numbers = (b_integer, c_integer) if whole else (b_number, c_number)
    limits = desc.element.limits

    def tensor(x: Any, number: Any) -> Any:
        if x is not None:
            return x.to(dtype)
        return torch.tensor(min(max(number, limits.min), limits.max) if whole else number, dtype=dtype)

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
    bit; a is bool. lerp: a + c (b - a), from b's side for |c| >= 1/2, so that c = 1 gives b. fma: a b + c, rounded
    once. mac: a + b c, the product rounded to the accumulator as in mul and add composed. addcmul: a + value b c;
    addcdiv: a + value b / c; their products overflow only where all of it does. Integers wrap.
    """

    op = "elementwise.ternary"
    kinds = TernaryKind
    descriptor = TernaryDescriptor
    args = TernaryArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="elementwise/ternary.cu",
            kernels=map_kernels("ternary<ternary_kinds::{KIND}<{T}>, {LAYOUT}>", PARAMS), elements=ternary_elements,
            guarantee=Guarantee(ternary_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("clamp 134M bf16", shape=1 << 27, kind="clamp", element="bfloat16", peers=(EAGER,)),
        Benchmark("where 134M bf16", shape=1 << 27, kind="where", element="bfloat16", peers=(EAGER,)),
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
        arrays["b_integer"], arrays["c_integer"] = (3, -(2**63), -100, 0)[pick % 4], (2**63 - 1, 100, 7)[pick % 3]
        if desc.kind.row.scaled:
            arrays["value"] = (1.0, 0.3, -2.0)[pick % 3] if desc.element.is_float else (1.0, 3.0, -2.0)[pick % 3]

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        given = {name: tuple(shape) for name, shape in shapes.items() if name in ("a", "b", "c") and shape is not None}
        try:
            facts.setdefault("shape", np.broadcast_shapes(*given.values()))
        except ValueError:
            said = ", ".join(f"{name} {shape}" for name, shape in given.items())
            raise InvalidProblemError(f"{said} do not broadcast together") from None


_FUNCTIONS = {kind: functional(TernaryPlan, kind.value, kind=kind) for kind in TernaryKind}
_NARROW = range(128)  # integers that every integer element has


def _call(kind: TernaryKind, a: Array, b: Any, c: Any, names: str, **rest: Any) -> Any:
    """The function of a kind with numbers among b and c handed over as such; `names`: what the caller calls b and c."""
    arrays: dict[str, Any] = {}
    element = rest.get("element")

    def holds() -> ElementKind:
        lead = a if kind is not K.WHERE else next(iter(arrays.values()))
        return ElementKind.of(element) if element is not None else read(lead, "a").element

    given = [("b", b), ("c", c)]
    named = dict(zip("bc", names.split(), strict=True))
    for field, x in sorted(given, key=lambda pair: _is_number(pair[1])):  # arrays first: they say what numbers become
        if x is None:
            raise InvalidProblemError(f"{named[field]} is required, got None; give an array or a number")
        if not _is_number(x):
            arrays[field] = x
            continue
        rest[f"{field}_number"], rest[f"{field}_integer"] = _parameters(named[field], x, holds, kind is K.CLAMP)
    if not arrays and element is None:
        rest["element"] = holds()
    return _FUNCTIONS[kind](a, **arrays, **rest)


def _is_number(x: Any) -> bool:
    """Whether an operand is a number of Python or NumPy, which a kernel takes as a parameter."""
    return isinstance(x, (int, float, np.generic))


def _parameters(name: str, x: Any, holds: Callable[[], ElementKind], clips: bool) -> tuple[float, int]:
    """A number as a float and as an integer, of which the kernel takes what its element is.

    holds: the element, which is asked for where it matters. clips: the element's range may be exceeded.
    """
    number = x.item() if isinstance(x, np.generic) else x
    if not isinstance(number, (int, float)):
        raise InvalidProblemError(f"{name} must be an array or a real number, got {shown(x)}")
    if isinstance(number, float) and not number.is_integer():
        if not (kind := holds()).is_float:
            raise InvalidProblemError(f"{name} must be an integer for {kind}, got {number}; cast to a float first")
        return number, 0
    whole = int(number)
    if whole not in _NARROW and not (kind := holds()).is_float:
        low, high = int(kind.limits.min), int(kind.limits.max)
        if not clips and not low <= whole <= high:
            raise InvalidProblemError(f"{name} must fit {kind}, got {shown(number)}")
        whole = min(max(whole, low), high)
    try:
        return float(number), min(max(whole, -(2**63)), 2**64 - 1)
    except OverflowError:
        raise InvalidProblemError(f"{name} must fit a float64, got {shown(number)}") from None


@entry(TernaryPlan, kind=K.CLAMP)
def clamp(
    x: Array, min: Any = None, max: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """min(max(x, min), max), either bound an array that broadcasts, a number, or None for none (torch.clamp).

    NaN propagates; where min > max, max wins. A number beyond the range of an integer x is the end of the range.
    """
    if unknown:
        raise unexpected(clamp, unknown)
    if min is None and max is None:
        raise InvalidProblemError("min and max are both None; give one of them at least")
    return _clamp(x, min, max, out, stream, preference)


def _clamp(x: Array, low: Any, high: Any, out: Any, stream: Any, preference: Any) -> Any:
    integer = (low is None or high is None) and not read(x, "x").element.is_float
    low = (-(2**64) if integer else -math.inf) if low is None else low
    high = (2**64 if integer else math.inf) if high is None else high
    return _call(K.CLAMP, x, low, high, "min max", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clip(
    x: Array, min: Any = None, max: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """`clamp` by NumPy's name; with neither bound x itself is copied, as numpy.clip does."""
    if unknown:
        raise unexpected(clip, unknown)
    return _clamp(x, min, max, out, stream, preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clamp_min(
    x: Array, min: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """max(x, min) with min an array or a number (torch.clamp_min); NaN propagates."""
    if unknown:
        raise unexpected(clamp_min, unknown)
    return clamp(x, min, None, out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clamp_max(
    x: Array, max: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """min(x, max) with max an array or a number (torch.clamp_max); NaN propagates."""
    if unknown:
        raise unexpected(clamp_max, unknown)
    return clamp(x, None, max, out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.WHERE)
def where(
    condition: Array, a: Any, b: Any, *, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """a where `condition` (bool) holds, else b; each an array that broadcasts or a number (torch.where).

    Elements are moved bit by bit. y has the element of the array among a and b; of two numbers `element`, by default
    float32 where one of them is a float, bool where both are bool, else int64.
    """
    if unknown:
        raise unexpected(where, unknown)
    numbers = [x for x in (a, b) if _is_number(x)]
    if element is None and len(numbers) == 2:
        kinds = {type(x.item() if isinstance(x, np.generic) else x) for x in numbers}
        element = "float32" if float in kinds else "bool" if kinds == {bool} else "int64"
    rest = {} if element is None else {"element": element}
    return _call(K.WHERE, condition, a, b, "a b", out=out, stream=stream, preference=preference, **rest)


@entry(TernaryPlan, kind=K.WHERE)
def masked_fill(
    x: Array, mask: Array, value: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """x with `value` (a number, or an array that broadcasts) where `mask` (bool) holds (torch.masked_fill)."""
    if unknown:
        raise unexpected(masked_fill, unknown)
    return _call(K.WHERE, mask, value, x, "value x", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.LERP)
def lerp(
    a: Array, b: Any, weight: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """a + weight (b - a) with weight an array or a number (torch.lerp); exactly b for weight 1."""
    if unknown:
        raise unexpected(lerp, unknown)
    return _call(K.LERP, a, b, weight, "b weight", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.FMA)
def fma(
    a: Array, b: Any, c: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """a b + c, rounded once; b and c are arrays or numbers, integers wrap."""
    if unknown:
        raise unexpected(fma, unknown)
    return _call(K.FMA, a, b, c, "b c", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.MAC)
def mac(
    a: Array, b: Any, c: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """a + b c, the product rounded to the accumulator; b and c are arrays or numbers, integers wrap."""
    if unknown:
        raise unexpected(mac, unknown)
    return _call(K.MAC, a, b, c, "b c", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.ADDCMUL)
def addcmul(
    a: Array, b: Any, c: Any, *, value: Scalar = 1.0, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """a + value b c (torch.addcmul); b and c are arrays or numbers, value a number or a 0-d array. Integers wrap."""
    if unknown:
        raise unexpected(addcmul, unknown)
    return _call(K.ADDCMUL, a, b, c, "b c", value=value, out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.ADDCDIV)
def addcdiv(
    a: Array, b: Any, c: Any, *, value: Scalar = 1.0, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """a + value b / c (torch.addcdiv); b and c are arrays or numbers, value a number or a 0-d array."""
    if unknown:
        raise unexpected(addcdiv, unknown)
    return _call(K.ADDCDIV, a, b, c, "b c", value=value, out=out, stream=stream, preference=preference)
