"""Products whose left operand has any leading axes: its rows below each other as one matrix, over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import rows_of, shape_of


def matrix_of(x: Any, name: str) -> Any:
    """The rows of x below each other."""
    shape = shape_of(x, name)
    if not shape:
        raise InvalidProblemError(f"{name} must have an axis at least, got shape ()")
    if len(shape) == 2:
        return x
    rows = rows_of(x, name)
    if rows is None:
        raise InvalidProblemError(
            f"the leading axes of {name} {shape} are not evenly spaced in memory, so that they are not the rows of one "
            f"matrix; give a contiguous copy of it"
        )
    return rows


def over_rows(call: Callable[[Any, Any], Any], x: Any, name: str, columns: int, out: Any) -> Any:
    """`call(matrix, out)` on the rows of x, its result with the leading axes of x."""
    shape = (*shape_of(x, name)[:-1], columns)
    (given,) = each_of(out, 1)
    if given is not None and shape_of(given, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(given, 'out')}")
    made = call(matrix_of(x, name), None if given is None else matrix_of(given, "out"))
    return given if given is not None else made if len(shape) == 2 else made.reshape(shape)


def last_of(x: Any, name: str) -> int:
    """The extent of the last axis."""
    shape = shape_of(x, name)
    if not shape:
        raise InvalidProblemError(f"{name} must have an axis at least, got shape ()")
    return shape[-1]


def columns_of(weight: Any, name: str) -> int:
    """The lines of a packed matrix, which are the columns of a product."""
    shape = shape_of(weight, name)
    if len(shape) != 2:
        raise InvalidProblemError(f"{name} must have two axes, lines and bytes, got shape {shape}")
    return shape[0]
