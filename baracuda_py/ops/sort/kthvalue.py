"""kthvalue: the k-th smallest element of every row, and where it stands (torch.kthvalue)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array, InvalidProblemError
from ...core.checked import shown, truth
from ...calls.entries import entry
from ...core.arrays import read
from .seen import Outs, axis_of
from .sort import SortPlan, sort


@entry(SortPlan)
def kthvalue(
    x: Array, k: int, axis: int = -1, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The k-th smallest element of every row along `axis`, counted from 1, and where it stands (torch.kthvalue).

    A NaN is above every number. Of equal elements the indices are counted in their order, as a stable sort has them,
    where PyTorch leaves open which it gives. The gradient of x is dy, put back to where it came from.
    """
    at, count = axis_of(x, axis)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= count:
        raise InvalidProblemError(f"k must be in [1, {count}], the elements of a row, got {shown(k)}")
    outs = Outs(out, 2, at, truth("keepdims", keepdims), len(read(x, "x").shape))
    given = {name: one for number, name in enumerate(("y", "indices")) if (one := outs.seen(number)) is not None}
    made = sort(x, axis=axis, start=int(k) - 1, stop=int(k), out=given or None, stream=stream, preference=preference)
    return tuple(outs.result(number, one) for number, one in enumerate(made))
