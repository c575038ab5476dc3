"""What functions made of calls see of their operands: an axis, a row of all elements, outputs without an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import InvalidProblemError
from ...core.checked import shown
from ...core.outputs import each_of
from ...core.views import cut, reshaped, shape_of, with_axis, without_axes


def axis_of(x: Any, axis: Any) -> tuple[int, int]:
    """An axis of x in [0, rank), and its extent; of rank 0 axis 0 is one element."""
    shape = shape_of(x, "x")
    rank = max(len(shape), 1)
    if not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise InvalidProblemError(f"axis must be in [{-rank}, {rank - 1}] for x of shape {shape}, got {shown(axis)}")
    return int(axis) % rank, shape[axis] if shape else 1


class Outs:
    """What `out=` gives for `count` results that lack an axis of the calls they come from, or keep it as 1."""

    def __init__(self, out: Any, count: int, axis: int, keepdims: bool, rank: int) -> None:
        self.given = each_of(out, count)
        self.axis = None if keepdims or not rank else axis

    def seen(self, number: int) -> Any:
        """One of them, with the axis, for a call."""
        array = self.given[number]
        return array if self.axis is None or array is None else with_axis(array, self.axis, "out")

    def result(self, number: int, made: Any) -> Any:
        """What was given, or what was made without the axis."""
        if self.given[number] is not None:
            return self.given[number]
        return made if self.axis is None else without_axes(made, (self.axis,), "y")


def row_of(array: Any, name: str) -> Any:
    """All elements in a row: a view, as nothing is copied unasked."""
    shape = shape_of(array, name)
    if len(shape) == 1:
        return array
    row = reshaped(array, (math.prod(shape),), name)
    if row is None:
        raise InvalidProblemError(
            f"{name} of shape {shape} is no row and cannot be seen as one without a copy; give a contiguous array, "
            "or reshape it first"
        )
    return row


def numbered(array: Any, axis: int, number: int, name: str) -> Any:
    """Element `number` along an axis, which is no axis then."""
    return without_axes(cut(array, (slice(None),) * axis + (slice(number, number + 1),), name), (axis,), name)
