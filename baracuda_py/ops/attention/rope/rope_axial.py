"""rope_axial_frequencies: the angles of rows, columns and frames, for images and videos as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....calls.exported import exported
from ....core.checked import shown, whole
from ....core.errors import InvalidProblemError
from .rope_frequencies import rope_frequencies


@exported
class RopeAxial(NamedTuple):
    """What `rope` takes of a grid: inv_freq [pairs], positions [axes, 1, tokens], mrope_section, the pairs of axes."""

    inv_freq: np.ndarray
    positions: np.ndarray
    mrope_section: tuple[int, ...]


@exported
def rope_axial_frequencies(
    grid: Sequence[int], axes: Sequence[int], *, base: float = 10000.0, starts: Sequence[int] | None = None,
    merge: int = 1, dtype: Any = np.float32,
) -> RopeAxial:  # fmt: skip
    """Frequencies and positions of the tokens of a grid: `rope(x, **axial._asdict())` of x [batch, heads, tokens, d].

    grid: how many tokens there are along each axis, two for images, three for videos, …; tokens are in row-major order.
    axes: the columns that turn by each axis, as many axes, even numbers that make d between them; each axis has the
    frequencies of a model of so many columns (`rope_frequencies`). starts: the position of each axis' first token, 0 by
    default. merge: tokens are in the order of blocks of merge × merge along the last two axes, which it divides, as
    patches are that become one token. Positions are int64 of NumPy: bring them to x's device once.

    Flux: axes (16, 56, 56) with pairing="interleaved", text at positions 0; Wan: (44, 42, 42), interleaved; vision
    towers of Qwen2-VL and Qwen2.5-VL: (40, 40), merge=2.
    """
    several = isinstance(grid, (list, tuple))
    extents = tuple(whole("grid", n, 0) for n in grid) if several else ()
    if not extents:
        raise InvalidProblemError(f"grid must be the numbers of tokens along each axis, got {shown(grid)}")
    if not isinstance(axes, (list, tuple)) or len(axes) != len(extents):
        raise InvalidProblemError(f"axes must be {len(extents)} even numbers of columns, got {shown(axes)}")
    first = (0,) * len(extents) if starts is None else tuple(whole("starts", n) for n in starts)
    if len(first) != len(extents):
        raise InvalidProblemError(f"starts must be {len(extents)} positions, got {shown(starts)}")
    inv_freq, _ = rope_frequencies(axes=tuple(axes), base=base, dtype=dtype)
    block, places = whole("merge", merge, 1), np.indices(extents, np.int64)
    if block > 1:
        if len(extents) < 2 or any(n % block for n in extents[-2:]):
            raise InvalidProblemError(f"merge must divide the last two numbers of grid {extents}, got {merge}")
        *lead, height, width = extents
        cut = places.reshape(len(extents), *lead, height // block, block, width // block, block)
        places = np.swapaxes(cut, -3, -2)
    positions = places.reshape(len(extents), 1, -1) + np.array(first).reshape(-1, 1, 1)
    return RopeAxial(inv_freq, positions, tuple(int(n) // 2 for n in axes))
