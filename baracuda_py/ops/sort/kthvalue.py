"""kthvalue: the k-th smallest element of every row, and where it stands (torch.kthvalue)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array, InvalidProblemError
from ...core.checked import shown
from ...core.keywords import entry, unexpected
from ...core.outputs import each_of
from ...interop.arrays import read
from .sort import SortPlan, sort


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


@entry(SortPlan)
def kthvalue(
    x: Array, k: int, axis: int = -1, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """The k-th smallest element of every row along `axis`, counted from 1, and where it stands (torch.kthvalue).

    A NaN is above every number. Of equal elements the indices are counted in their order, as a stable sort has them,
    where PyTorch leaves open which it gives. The gradient of x is dy, put back to where it came from.
    """
    if unknown:
        raise unexpected(kthvalue, unknown)
    at, count = axis_of(x, axis)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= count:
        raise InvalidProblemError(f"k must be in [1, {count}], the elements of a row, got {shown(k)}")
    outs = Outs(out, 2, at, keepdims, len(read(x, "x").shape))
    given = {name: one for number, name in enumerate(("y", "indices")) if (one := outs.seen(number)) is not None}
    made = sort(x, axis=axis, start=int(k) - 1, stop=int(k), out=given or None, stream=stream, preference=preference)
    return tuple(outs.result(number, one) for number, one in enumerate(made))
