"""The axes of a reduction, as a field of a descriptor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.checked import INT64, checked, wholes
from ...core.errors import InvalidProblemError


def axes(default: Any = None) -> Any:
    """A tuple of axes, negative ones counted from the end (an int stands for a 1-tuple), or None for all of them."""

    def check(name: str, value: Any) -> tuple[int, ...] | None:
        if value is None:
            return None
        value = (value,) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else value
        return wholes(name, value, -INT64 - 1, what="axes")

    return checked(check, default)


def resolved(axis: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes counted from the front, ascending. A 0-d array counts as having one axis, as in PyTorch."""
    if axis is None:
        return tuple(range(rank))
    most = max(rank, 1)
    for one in axis:
        if not -most <= one < most:
            raise InvalidProblemError(f"axis must be in [{-most}, {most - 1}] for {rank} axes, got {one}")
    found = sorted(one % most for one in axis)
    if len(set(found)) < len(found):
        raise InvalidProblemError(f"axis names an axis twice, got {axis}")
    return tuple(found) if rank else ()
