"""What pages that draw a number for each element share: which element has which draw, and streams for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import ElementKind, View
from ...core.errors import InvalidProblemError
from ...core.tensor import dense_strides
from ...core.views import reshaped, shape_of

_NUMBERS = (bool, int, float, np.generic)
_MARKS = ("shape", "__dlpack__", "__cuda_array_interface__")  # an array has one of them


def numbered(shape: Sequence[int], element: ElementKind, axis: Sequence[int] | None = None) -> View:
    """An operand without memory, whose offsets are the numbers of draws: row-major over `axis`, by default all axes."""
    own = range(len(shape)) if axis is None else axis
    steps = iter(dense_strides([shape[a] for a in own]))
    strides = tuple(next(steps) if a in own else 0 for a in range(len(shape)))
    return View(0, tuple(shape), strides, element)


def is_array(value: Any) -> bool:
    """Whether a parameter is an array and not a number. An object that raises when it is looked at is none."""
    if isinstance(value, _NUMBERS):
        return False
    try:
        return any(hasattr(value, mark) for mark in _MARKS)
    except MemoryError:
        raise
    except Exception:
        return False


def by_row(given: dict[str, Any], rows: dict[str, str]) -> dict[str, Any]:
    """Each option under the name of its scalar, or under that of its rows where it is an array of one axis."""
    return {rows[n] if is_array(v) and len(shape_of(v, n)) == 1 else n: v for n, v in given.items()}


def flattened(out: Any, shape: Sequence[int], size: int) -> Any:
    """out, which must be dense and of a shape with `size` elements, as a view of one axis; None where it is None."""
    if out is None:
        return None
    if (own := shape_of(out, "out")) != tuple(shape):
        raise InvalidProblemError(f"out must have shape {tuple(shape)}, got {own}")
    flat = reshaped(out, (size,), "out")
    if flat is None:
        raise InvalidProblemError(f"out must be dense, and its shape {own} has strides that are not those of a vector")
    return flat


def streams(shape: Sequence[int], arrays: dict[str, Any]) -> None:
    """Seeds and offsets of 64 bits, by the shape alone: a captured graph keeps them."""
    pick = len(shape) + sum(shape)
    arrays["seed"], arrays["offset"] = (1, -5, 2**63 - 3)[pick % 3], (0, 2**40 + 7)[pick % 2]
