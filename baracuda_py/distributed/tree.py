"""The one order of sums over ranks: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), whatever the message and the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..core.element import ElementKind, cast
from .descriptors import ReduceOp

T = TypeVar("T")


def tree(parts: Sequence[T], combine: Callable[[T, T], T]) -> T:
    """Neighbours combine until one is left; the last of an odd number waits for the next round."""
    level = list(parts)
    while len(level) > 1:
        pairs = [combine(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


_COMBINE: dict[ReduceOp, Any] = {
    ReduceOp.SUM: np.add, ReduceOp.MEAN: np.add, ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum,
}  # fmt: skip


def reduced(parts: Sequence[np.ndarray], op: ReduceOp, element: ElementKind) -> np.ndarray:
    """The parts of all ranks as one, in the element: floats of 16 bits or fewer in float32, rounded once at the end.

    Integers wrap. NaN of any rank is NaN in minimum and maximum, as in NumPy.
    """
    wide: Any = element.acc.dtype if element.is_float else element.dtype
    with np.errstate(all="ignore"):
        made = tree([part.astype(wide, copy=False) for part in parts], _COMBINE[op])
        if op is ReduceOp.MEAN:
            made = made / made.real.dtype.type(len(parts))
        return cast(made, element)
