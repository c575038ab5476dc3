"""What functions made of calls see of their operands: an axis, a row of all elements, outputs without an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import InvalidProblemError, View
from ...core.checked import shown
from ...core.outputs import each_of
from ...interop.arrays import read


def axis_of(x: Any, axis: Any) -> tuple[int, int]:
    """An axis of x in [0, rank), and its extent; of rank 0 axis 0 is one element."""
    shape = read(x, "x").shape
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
        return array if self.axis is None or array is None else array[(slice(None),) * self.axis + (None,)]

    def result(self, number: int, made: Any) -> Any:
        """What was given, or what was made without the axis."""
        if self.given[number] is not None:
            return self.given[number]
        return made if self.axis is None else made[(slice(None),) * self.axis + (0,)]


def row_of(array: Any, name: str) -> Any:
    """All elements in a row: a view, as nothing is copied unasked."""
    seen = read(array, name)
    if len(seen.shape) == 1:
        return array
    view = View(0, tuple(seen.shape), tuple(seen.strides), seen.element)
    if not hasattr(array, "reshape") or view.reshaped((view.size,)) is None:
        raise InvalidProblemError(
            f"{name} of shape {view.shape} is not one row and cannot be seen as one without a copy; give a contiguous "
            "array, or reshape it first"
        )
    return array.reshape(-1)
