"""Windows of attention that differ by head: a mask's formula of two tables, and its block mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import registry
from ....core.arrays import read
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....core.views import shape_of
from ...layout.made import from_host
from ..layouts import is_swapped

_BLOCK = 128
_TERMS = {
    "window_left": ("left", "left[h] < 0 or q + shift - k <= left[h]"),
    "window_right": ("right", "right[h] < 0 or k - shift - q <= right[h]"),
}


def by_head(window: Any) -> bool:
    """Whether a window is a number for each head."""
    return window is not None and (isinstance(window, Sequence) or len(getattr(window, "shape", ())) > 0)


def _table(name: str, window: Any, heads: int, like: Any, stream: Any) -> Any:
    """A number a head where the operands are, below 0 for none."""
    if isinstance(window, Sequence) and not isinstance(window, str):
        numbers = [-1 if one is None else whole(name, one, 0, 2**31 - 1) for one in window]
        if len(numbers) == heads:
            return from_host(np.array(numbers, np.int32), like, stream)
        shape: tuple[int, ...] = (len(numbers),)
    else:
        shape, kind = shape_of(window, name), read(window, name).element
        if str(kind) not in ("int32", "int64"):
            raise InvalidProblemError(f"{name} must hold int32 or int64, got {kind}")
    if shape != (heads,):
        raise InvalidProblemError(f"{name} must be a number or one for each of the {heads} heads, got shape {shape}")
    return window


def head_windows(q: Any, k: Any, facts: dict[str, Any], layout: str, stream: Any, preference: Any) -> tuple[Any, Any]:
    """(attention by the formula of the windows in `facts` that are by head, `facts` with what it reads in their place).

    Blocks of 128 by 128 of which no pair is seen are left out where there are more queries and keys.
    """
    axes = (2, 1) if is_swapped(layout) else (1, 2)
    shape = shape_of(q, "q")
    if len(shape) != 4 or len(shape_of(k, "k")) != 4:
        raise InvalidProblemError(f"q and k must have four axes, got {shape} and {shape_of(k, 'k')}")
    (heads, queries), keys, terms = (shape[a] for a in axes), shape_of(k, "k")[axes[1]], []
    left, given = dict(facts), {}
    for name, (table, term) in _TERMS.items():
        if by_head(left[name]):
            given[table] = _table(name, left.pop(name), heads, q, stream)
            terms.append(f"({term})")
    given["shift"] = keys - queries if left["causal_alignment"] == "bottom_right" else 0
    made = registry.public("attention")(mask=" and ".join(terms))
    if queries > _BLOCK and keys > _BLOCK:
        where = {"layout": layout, "stream": stream, "preference": preference}
        left["block_mask"] = made.block_mask(q, k, query_block=_BLOCK, key_block=_BLOCK, **given, **where)
    return made, left | given


def refuse_formulas() -> InvalidProblemError:
    """The error for windows by head beside formulas."""
    return InvalidProblemError(
        'windows by head do not go with a formula; write them into it, as in mask="q - k <= left[h]" with left=…'
    )
