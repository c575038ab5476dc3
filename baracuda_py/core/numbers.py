"""A number that meets an element: one rule for Python's and NumPy's numbers and for 0-d arrays, on every backend.

`scalar(…, meets=…)` says how a number of Args meets the element of its descriptor, formulas ask here as well:

- "element": it stands for an element (`add(x, 3)`, `where(c, x, 0)`, `fill(x, 7)`). Integers and bool take a number
  that they have, and any other is refused: 300 and 2.5 are no uint8.
- "coefficient": it multiplies or is added (`add(a, b, alpha=-3)`). Integers take a whole number of int64, and results
  are right modulo 2ⁿ: -3 of uint8 is 253. Fractions and what is beyond int64 are refused.
- A 0-d device array is not read by the host, so nothing of it is refused. Integers take its integer modulo 2ⁿ. A float
  is cut toward zero first, its ends being those of int64, and NaN is 0. bool takes whether that is not 0.

Floats take the nearest number that they, or what computes them, have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .checked import shown
from .element import ElementKind
from .errors import InvalidProblemError

LEAST, MOST = -(2**63), 2**63 - 1
"""The ends of int64, in which coefficients of integers travel."""


def range_of(element: ElementKind, meets: str) -> tuple[int, int]:
    """The least and the largest number that may meet an integer or bool."""
    if meets == "coefficient":
        return LEAST, MOST
    return int(element.limits.min), int(element.limits.max)


def met(name: str, value: int | float, element: ElementKind, meets: str) -> int | float:
    """A host's number as it meets an element: a float for inexact ones, else an int; raises InvalidProblemError."""
    value = plain(value)
    if element.is_inexact:
        try:
            return float(value)
        except OverflowError:
            raise InvalidProblemError(f"{name} must fit a float64, got {shown(value)}") from None
    if isinstance(value, float) and not value.is_integer():
        raise InvalidProblemError(
            f"{name} must be an integer as it meets {element}, got {shown(value)}; cast to a float first"
        )
    low, high = range_of(element, meets)
    if not low <= value <= high:
        raise InvalidProblemError(f"{name} must lie in [{low}, {high}] as it meets {element}, got {shown(value)}")
    return int(value)


def plain(value: Any) -> Any:
    """A number of NumPy as Python's own; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def integer_of(value: Any) -> int:
    """The integer of a number or of a 0-d array, as a kernel reads it (`load_scalar_i`): cut, in int64, NaN being 0."""
    number = value.item() if isinstance(value, (np.ndarray, np.generic)) else value
    if not isinstance(number, float):
        return int(number)
    if number != number:
        return 0
    return int(number) if abs(number) < 2.0**63 else MOST if number > 0 else LEAST


def modulo(value: Any, element: ElementKind) -> Any:
    """A number or a 0-d array as an integer or bool takes it once it is past all checks: modulo 2ⁿ (NumPy)."""
    whole = integer_of(value)
    if element is ElementKind.BOOL:
        return np.bool_(whole != 0)
    low = int(element.limits.min)
    return element.dtype.type((whole - low) % 2**element.bits + low)


def taken(value: Any, element: ElementKind) -> Any:
    """A number or a 0-d array for a reference: modulo 2ⁿ of integers, float64 of floats."""
    return (
        np.float64(value.item() if isinstance(value, np.ndarray) else value)
        if element.is_inexact
        else modulo(value, element)
    )
