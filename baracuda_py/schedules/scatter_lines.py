"""Scatter of lines that blocks hold: one launch, of lines whose rows are single elements (scatter_lines.cu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View, dense_strides, merge_axes, pad
from ..core.variant import Kernel, Problem, Step
from .geometry import MOST_BLOCKS
from .map import chunked, lay_out
from .scatter_places import Lines, Tokens

_SOURCE = "indexing/scatter_lines.cu"
_MOST_TOKENS = 8192  # of longer lines blocks would be few, and hold few of them
LIST = 32  # tokens of a position that a thread takes by number
_PITCHES = (16384, 8192, 4096)  # positions of a block, of longer lines
_THREADS, _FEWEST = 1024, 64  # of a block
_STATIC = 1024  # bytes of shared memory that are not given out here
_WIDE = 56 * 1024  # bytes of a block from which few fit a multiprocessor, and each has all its threads


def combining_line_kernel(params: Params, functor: str) -> Kernel:
    """The kernel that combines every token, by the C++ functor of how."""
    return Kernel("line", f"scatter_line<{functor}, {{T}}>", params, threads=_THREADS, min_blocks=1, source=_SOURCE)


def moving_line_kernel(params: Params) -> Kernel:
    """The kernel in which the last token wins."""

    def words(kind: ElementKind) -> Mapping[str, Any]:
        return {"BYTES": (kind.itemsize,)}

    return Kernel("line_words", "scatter_line_words<{BYTES}>", params, words, threads=_THREADS, source=_SOURCE)


def _bytes(pitch: int, tokens: int, itemsize: int, moves: bool) -> int:
    """Shared memory of a block: heads, values, and of lists the tokens behind, their rows, and the long ones."""
    held = -(-tokens // 8) * 8
    return 4 * pitch + held * itemsize + (0 if moves else 4 * held + 2 * (tokens // (LIST + 1) + 1))


def line_step(
    p: Problem, lines: Lines, y: View, x: View | None, tokens: Tokens, moves: bool, params: Mapping[str, Any]
) -> Step | None:
    """The launch over whole lines, or None where a block does not hold them."""
    src, count, extent = tokens.src, math.prod(tokens.shape), math.prod(y.shape[a] for a in lines.axes)
    own = [a for a in range(len(y.shape)) if a not in lines.axes and y.shape[a] > 1]
    if src is None or count > _MOST_TOKENS or any(not lines.strides[a] for a in own):
        return None
    number = math.prod(y.shape[a] for a in own)
    size, whole = y.element.itemsize, -(-extent // 4) * 4
    # Few lines are cut into short ranges, for more blocks; each reads all tokens of its line.
    pitches = [n for n in (whole, *_PITCHES) if n <= min(whole, _PITCHES[0])]
    if number < 2 * p.device.sms and whole > _PITCHES[-1]:
        pitches = [_PITCHES[-1]]
    pitch = next((n for n in pitches if _bytes(n, count, size, moves) <= p.device.smem - _STATIC), None)
    if pitch is None or number * -(-extent // pitch) > MOST_BLOCKS:
        return None
    shape = [y.shape[a] for a in own]
    views = [
        View(v.ptr, tuple(shape), tuple(s[a] for a in own), v.element)
        for v, s in ((y, y.strides), (x or y, (x or y).strides), (src, tokens.src_strides))
    ]
    numbers = View(0, tuple(shape), dense_strides(shape), ElementKind.I64)
    found = lay_out((*views, numbers, None))
    extents = tuple(y.shape[a] for a in lines.axes)
    of = [tuple(v.strides[a] for a in lines.axes) for v in (y, x or y)]
    row_shape, (row_strides, x_strides) = merge_axes(extents, of)
    token_shape, _ = merge_axes(tuple(tokens.shape), [tuple(s) for s in tokens.strides])
    if isinstance(found, str) or max(len(row_shape), len(token_shape)) > 1:
        return None
    ranges, smem = -(-extent // pitch), _bytes(pitch, count, size, moves)
    most = _THREADS if smem > _WIDE else _THREADS // 2
    threads = max(_FEWEST, min(most, -(-max(count, pitch) // (4 * 32)) * 32))
    given = {
        **lines.params, **chunked(found, 1), **params, "ranges": ranges, "range_pitch": pitch,
        "row_strides": pad(row_strides), "x_step": sum(x_strides),
    }  # fmt: skip
    axes = {"BYTES": size} if moves else {}
    return Step("line_words" if moves else "line", (max(1, number * ranges), 1, 1), given, axes, threads, smem)
