"""kthvalue: the k-th smallest element of every row, and where it stands (torch.kthvalue)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array, InvalidProblemError
from ...core.checked import shown
from ...core.keywords import entry, unexpected
from ...interop.arrays import read
from .sort import SortPlan, sort


def axis_of(x: Any, axis: Any) -> tuple[int, int]:
    """An axis of x in [0, rank), and its extent; of rank 0 axis 0 is one element."""
    shape = read(x, "x").shape
    rank = max(len(shape), 1)
    if not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise InvalidProblemError(f"axis must be in [{-rank}, {rank - 1}] for x of shape {shape}, got {shown(axis)}")
    return int(axis) % rank, shape[axis] if shape else 1


def without(array: Any, axis: int, keepdims: bool) -> Any:
    """A view without an axis of extent 1, where it is not kept; of rank 0 there is none."""
    if keepdims or not len(array.shape):
        return array
    return array[(slice(None),) * axis + (0,)]


def within(out: Any, axis: int, keepdims: bool, rank: int) -> Any:
    """What `out=` gives, seen with the axis that the results lack."""
    if out is None or keepdims or not rank:
        return out

    def seen(array: Any) -> Any:
        return array[(slice(None),) * axis + (None,)]

    if isinstance(out, dict):
        return {name: seen(array) for name, array in out.items()}
    return [seen(array) for array in out] if isinstance(out, (list, tuple)) else seen(out)


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
    rank = len(read(x, "x").shape)
    y, indices = sort(
        x, axis=axis, start=int(k) - 1, stop=int(k), out=within(out, at, keepdims, rank), stream=stream,
        preference=preference,
    )  # fmt: skip
    return without(y, at, keepdims), without(indices, at, keepdims)
