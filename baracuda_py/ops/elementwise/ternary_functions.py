"""The functions of `TernaryPlan`: clamp, where, lerp, fma, mac, addcmul, addcdiv and their other names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import (
    Array, BaracudaError, ElementKind, InvalidProblemError, Scalar, UnsupportedError,
)  # fmt: skip
from ...calls.functional import functional
from ...core.checked import require_some, shown
from ...core.element import FP8, encode
from ...core.element import cast as cast_values
from ...calls.entries import entry
from ...core.numbers import met, plain
from ...core.renamed import renamed
from ...interop.packages import package_name
from ...core.arrays import read
from .array_views import bitcast_convert_type
from .ternary import K, TernaryPlan
from .ternary_kinds import TernaryKind

_FUNCTIONS = {kind: functional(TernaryPlan, kind.value, kind=kind) for kind in TernaryKind}
_NARROW = range(128)  # integers that every integer element has


def _call(kind: TernaryKind, a: Array, b: Any, c: Any, names: str, **rest: Any) -> Any:
    """The function of a kind with numbers among b and c handed over as such; `names`: what the caller calls a, b, c."""
    arrays: dict[str, Any] = {}
    element = rest.get("element")
    named = dict(zip("abc", names.split(), strict=True))

    def holds() -> ElementKind:
        if element is not None:
            return ElementKind.of(element)
        lead, name = (a, "a") if kind is not K.WHERE else next((x, n) for n, x in arrays.items())
        return read(lead, named[name]).element

    for field, x in sorted((("b", b), ("c", c)), key=lambda pair: _is_number(pair[1])):  # arrays first: they say what
        if x is None:  # numbers become
            raise InvalidProblemError(f"{named[field]} is required, got None; give an array or a number")
        if not _is_number(x):
            arrays[field] = x
            continue
        clips = 0 if kind is not K.CLAMP else -1 if field == "b" else 1
        rest[f"{field}_number"], rest[f"{field}_whole"] = _parameters(named[field], x, holds, clips)
    if kind is not K.WHERE:
        rest["element"] = _dtype(a, named["a"])
    try:
        return _FUNCTIONS[kind](a, **arrays, **rest)
    except BaracudaError as error:
        if (told := renamed(error, named)) is error:
            raise
        raise told from None


def _dtype(x: Array, name: str) -> Any:
    """What an array holds, without reading all of it where its package says so."""
    try:
        return x.dtype
    except Exception:
        return read(x, name).element


def _is_number(x: Any) -> bool:
    """Whether an operand is a number of Python or NumPy, which a kernel takes as a parameter."""
    return isinstance(x, (int, float, np.generic))


def _parameters(name: str, x: Any, holds: Callable[[], ElementKind], clips: int) -> tuple[float, int]:
    """A number as a float and as an integer, of which the kernel takes what its element is.

    holds: the element, which is asked for where it matters. clips: 1 or -1 for a bound that may lie above
    or below the element's range, where it bounds nothing.
    """
    number = plain(x)
    if not isinstance(number, (int, float)):
        raise InvalidProblemError(f"{name} must be an array or a real number, got {shown(x)}")
    if isinstance(number, float) and not number.is_integer():
        if not _fractional(kind := holds()):
            raise InvalidProblemError(
                f"{name} must be an integer for {kind}, got {number}; cast to a float first: "
                f"cast(…, 'float32') of the arrays beside it"
            )
        return number, 0
    whole = int(number)
    if whole not in _NARROW and not _fractional(kind := holds()):
        low, high = int(kind.limits.min), int(kind.limits.max)
        whole = max(whole, low) if clips < 0 else min(whole, high) if clips > 0 else whole
        met(name, whole if low <= whole <= high else number, kind, "element")
    try:
        return float(number), min(max(whole, -(2**63)), 2**64 - 1)
    except OverflowError:
        raise InvalidProblemError(f"{name} must fit a float64, got {shown(number)}") from None


def _fractional(kind: ElementKind) -> bool:
    return kind.is_float or kind.is_complex


@entry(TernaryPlan, kind=K.CLAMP)
def clamp(
    x: Array, min: Any = None, max: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """min(max(x, min), max), either bound an array that broadcasts, a number, or None for none (torch.clamp).

    NaN propagates; where min > max, max wins. Of an integer x a min below its range, or a max above it, bounds nothing.
    """
    require_some({"min": min, "max": max}, "min", "max")
    return _clamp(x, min, max, out, stream, preference)


def _clamp(x: Array, low: Any, high: Any, out: Any, stream: Any, preference: Any) -> Any:
    integer = (low is None or high is None) and not read(x, "x").element.is_float
    low = (-(2**64) if integer else -math.inf) if low is None else low
    high = (2**64 if integer else math.inf) if high is None else high
    return _call(K.CLAMP, x, low, high, "x min max", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clip(
    x: Array, min: Any = None, max: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`clamp` by NumPy's name; with neither bound x itself is copied, as numpy.clip does."""
    return _clamp(x, min, max, out, stream, preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clamp_min(x: Array, min: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """max(x, min) with min an array or a number (torch.clamp_min); NaN propagates."""
    return clamp(x, min, None, out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.CLAMP)
def clamp_max(x: Array, max: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """min(x, max) with max an array or a number (torch.clamp_max); NaN propagates."""
    return clamp(x, None, max, out=out, stream=stream, preference=preference)


def _chosen(condition: Array, a: Any, b: Any, names: str, *, out: Any, **rest: Any) -> Any:
    """`_call` of where; elements of 8 bits that no kernel has a name for are moved as uint8, a number as its bits."""
    try:
        return _call(K.WHERE, condition, a, b, names, out=out, **rest)
    except UnsupportedError:
        given = [x for x in (a, b, out) if x is not None and not _is_number(x)]
        found = {read(x, "x").element for x in given} - {ElementKind.U8}  # as which they travel in NumPy and CuPy
        if len(found) != 1 or not found <= set(FP8):
            raise
    (element,) = found

    def bits(x: Any) -> Any:
        if not _is_number(x):
            return None if x is None else bitcast_convert_type(x, ElementKind.U8)
        return int(encode(cast_values(np.asarray(x), element), element).view(np.uint8))

    made = _call(K.WHERE, condition, bits(a), bits(b), names, out=bits(out), **rest)
    if out is not None:
        return out
    return bitcast_convert_type(made, element) if package_name(type(made)) in ("torch", "jax") else made


@entry(TernaryPlan, kind=K.WHERE)
def where(condition: Array, a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a where `condition` (bool) holds, else b; each an array that broadcasts or a number (torch.where).

    Elements are moved bit by bit. y has the element of the array among a and b; of two numbers float32 where one of
    them is a float, bool where both are bool, else int64.
    """
    rest, numbers = {}, [x for x in (a, b) if _is_number(x)]
    if len(numbers) == 2:
        kinds = {type(plain(x)) for x in numbers}
        rest["element"] = "float32" if float in kinds else "bool" if kinds == {bool} else "int64"
    return _chosen(condition, a, b, "condition a b", out=out, stream=stream, preference=preference, **rest)


@entry(TernaryPlan, kind=K.WHERE)
def masked_fill(
    x: Array, mask: Array, value: Any, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """x with `value` (a number, or an array that broadcasts) where `mask` (bool) holds (torch.masked_fill)."""
    return _chosen(mask, value, x, "mask value x", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.LERP)
def lerp(a: Array, b: Any, weight: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a + weight (b - a) with weight an array or a number (torch.lerp); exactly b for weight 1."""
    return _call(K.LERP, a, b, weight, "a b weight", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.FMA)
def fma(a: Array, b: Any, c: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a b + c, rounded once; c and one of a and b may be numbers, integers wrap."""
    if _is_number(a) and not _is_number(b):
        a, b = b, a  # a product has no order
    return _call(K.FMA, a, b, c, "a b c", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.MAC)
def mac(a: Array, b: Any, c: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a + b c, the product rounded to the accumulator; b and c are arrays or numbers, integers wrap."""
    return _call(K.MAC, a, b, c, "a b c", out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.ADDCMUL)
def addcmul(
    a: Array, b: Any, c: Any, *, value: Scalar = 1.0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a + value b c (torch.addcmul); b and c are arrays or numbers, value a number or a 0-d array. Integers wrap."""
    return _call(K.ADDCMUL, a, b, c, "a b c", value=value, out=out, stream=stream, preference=preference)


@entry(TernaryPlan, kind=K.ADDCDIV)
def addcdiv(
    a: Array, b: Any, c: Any, *, value: Scalar = 1.0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a + value b / c (torch.addcdiv); b and c are arrays or numbers, value a number or a 0-d array."""
    return _call(K.ADDCDIV, a, b, c, "a b c", value=value, out=out, stream=stream, preference=preference)
