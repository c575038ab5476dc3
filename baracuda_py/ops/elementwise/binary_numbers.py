"""A Python number in the place of an operand, and two operands of different elements: what is taken, what refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.checked import shown
from ...core.element import COMPLEX, FLOATS, HALVES, INTS, ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.tensor import TensorRef

NUMBERS = frozenset(
    (
        bool, int, float, complex, np.bool_, np.longlong, np.ulonglong,
        *(kind.dtype.type for kind in (*FLOATS, *INTS, *COMPLEX)),
    )
)  # fmt: skip
"""The types of numbers: Python's, and NumPy's scalars."""


def element_of(array: Any) -> ElementKind:
    """The element of an array of any package; raises UnsupportedError where there is none."""
    if isinstance(array, TensorRef):
        return ElementKind.of(array.element)
    try:
        dtype = array.dtype
    except MemoryError:
        raise
    except Exception:  # no array, or one whose attributes raise
        dtype = array
    return ElementKind.of(dtype)


def is_complex(operand: Any) -> bool:
    """Whether an array holds complex numbers."""
    try:
        return type(operand) not in NUMBERS and element_of(operand).is_complex
    except UnsupportedError:
        return False


def number_for(name: str, place: str, element: ElementKind, value: Any) -> dict[str, Any]:
    """The scalar of `BinaryArgs` that holds a number for an array of an element; raises where torch would promote."""
    other = "b" if place == "a" else "a"
    if isinstance(value, (complex, np.complexfloating)):
        wider = ElementKind.C128 if element is ElementKind.F64 else ElementKind.C64
        raise UnsupportedError(_promoting(name, place, other, element, value, str(wider)))
    if element.is_float:
        try:
            return {"number": float(value)}
        except OverflowError:
            raise InvalidProblemError(f"{name}: {place} must fit a float64, got {shown(value)}") from None
    whole = isinstance(value, (int, np.integer, np.bool_))
    truth = isinstance(value, (bool, np.bool_))
    if element is ElementKind.BOOL and not truth:
        better = "int64" if whole else "float32"
        raise UnsupportedError(_promoting(name, place, other, element, value, better))
    if not whole:
        raise UnsupportedError(_promoting(name, place, other, element, value, "float32"))
    low, high = int(element.limits.min), int(element.limits.max)
    if not low <= int(value) <= high:
        raise InvalidProblemError(
            f"{name}: {place} must lie in [{low}, {high}] as {other} is {element}, got {shown(value)}"
        )
    return {"whole": int(value)}


def _promoting(name: str, place: str, other: str, element: ElementKind, value: Any, better: str) -> str:
    written = f"cast({other}, '{better}')"
    said = shown(value)
    call = f"{name}({said}, {written})" if place == "a" else f"{name}({written}, {said})"
    return f"{name}: {other} is {element} and {place} is {said}; nothing is promoted unasked: write {call}"


def mixed(name: str, a: Any, b: Any) -> str | None:
    """What to write instead of a call with two arrays of different elements; None where theirs are the same."""
    try:
        x, y = element_of(a), element_of(b)
    except UnsupportedError:
        return None
    if x is y:
        return None
    wanted = promoted(x, y)
    casts = [k if e is wanted else f"cast({k}, '{wanted}')" for k, e in (("a", x), ("b", y))]
    return f"{name}: a is {x} and b is {y}; nothing is promoted unasked: write {name}({', '.join(casts)})"


def promoted(x: ElementKind, y: ElementKind) -> ElementKind:
    """What torch promotes two arrays of different elements to; int64 of uint64 and a signed integer."""
    rank = {False: 0, True: 1}
    first, second = sorted((x, y), key=lambda e: (e.is_complex, e.is_float, rank[e.is_integer], e.bits), reverse=True)
    if first in HALVES and second in HALVES:
        return ElementKind.F32
    if first.is_complex and ElementKind.F64 in (first.part, second.part):
        return ElementKind.C128
    if first.is_float or first.is_complex or not second.is_integer:
        return first
    signed = [e for e in (first, second) if str(e).startswith("int")]
    if len(signed) != 1 or (signed[0] is first and first.bits > second.bits):
        return first
    unsigned = second if signed[0] is first else first
    return {8: ElementKind.I16, 16: ElementKind.I32}.get(unsigned.bits, ElementKind.I64)
