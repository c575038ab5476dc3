"""sliding_tile_attention: tiles of a video see the tiles around them, and text sees all (Zhang et al. 2025).

A mask's formula and its block mask: a tile that is a multiple of blocks has blocks that are seen whole or not at all.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ....calls.entries import entry
from ....core import Array
from ....core.arrays import read
from ....core.checked import shown, whole, wholes
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import shape_of
from ....expressions.attention import attention
from ...layout.made import from_host
from ..dense.flash_sdpa import FlashSdpaPlan
from ..layouts import is_swapped

_BLOCKS = 128, 64, 32, 16


@cache
def _formula(by_head: bool) -> Any:
    """Tiles n along each axis, t of them in a step, windows w, `volume` tokens in a tile; text from `image` on."""
    lines, seen = [], []
    for a in range(3):
        half = f"w[h, {a}] // 2" if by_head else f"w{a} // 2"
        lines += [
            f"i{a} = q // volume // t{a} % n{a}",
            f"j{a} = k // volume // t{a} % n{a}",
            f"c{a} = minimum(maximum(i{a}, {half}), n{a} - 1 - {half})",
        ]
        seen.append(f"c{a} - j{a} <= {half} and j{a} - c{a} <= {half}")
    return attention(mask="; ".join((*lines, f"q >= image or k >= image or ({' and '.join(seen)})")))


def _window(value: Any) -> tuple[int, ...]:
    found = wholes("window", value, 1, what="integers")
    if len(found) != 3 or not all(w % 2 for w in found):
        raise InvalidProblemError(f"window must have three odd numbers of tiles, got {shown(value)}")
    return found


def _windows(window: Any, heads: int, like: Any, stream: Any) -> tuple[bool, dict[str, Any]]:
    """(whether they are by head, what the formula reads)."""
    if hasattr(window, "shape"):
        kind = read(window, "window").element
        if shape_of(window, "window") != (heads, 3) or str(kind) not in ("int32", "int64"):
            raise InvalidProblemError(
                f"window must be three numbers, or [{heads}, 3] of int32 or int64, got {shape_of(window, 'window')} of "
                f"{kind}"
            )
        return True, {"w": window}
    if isinstance(window, (tuple, list)) and any(isinstance(one, (tuple, list)) for one in window):
        if len(window) != heads:
            raise InvalidProblemError(
                f"window must be three numbers, or three for each of {heads} heads, got {len(window)}"
            )
        return True, {"w": from_host(np.array([_window(one) for one in window], np.int32), like, stream)}
    return False, {f"w{a}": w for a, w in enumerate(_window(window))}


@entry(FlashSdpaPlan)
def sliding_tile_attention(
    q: Array, k: Array, v: Array, tiles: tuple[int, ...], tile_volume: int, window: Any, *, text_length: int = 0,
    scale: float | None = None, layout: str = "bhsd", return_lse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v of a video's tokens tile by tile, each tile seeing the window of tiles around it.

    q, k and v [batch, heads, tokens, d] (k and v may have fewer heads), layout "bshd": heads and tokens exchanged. The
    tokens are those of `tiles` (frames, rows, columns) of tile_volume tokens each, tile after tile in row-major order,
    and then text_length tokens that all see and that see all. window: three odd numbers of tiles, or such for each
    head, as a tuple of tuples, which is copied to the device, or as an array [heads, 3]. At an edge the window moves
    inwards and keeps its size; one as wide as its axis or wider sees all of it. With return_lse also log Σ exp.

    Sliding Tile Attention (arXiv:2502.04507; FastVideo's `sliding_tile_attention`, whose windows these are). Blocks of
    up to 128 by 128 tokens of which no pair is seen are left out, which cost nothing where blocks divide a tile: let
    tile_volume be a multiple of 128, of 64 at least. Elements are `flash_sdpa`'s; gradients of q, k and v.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    shapes = [shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v))]
    if any(len(shape) != 4 for shape in shapes):
        raise InvalidProblemError(f"q, k and v must have four axes, got {', '.join(map(str, shapes))}")
    counts = wholes("tiles", tiles, 1, what="integers")
    volume, text = whole("tile_volume", tile_volume, 1), whole("text_length", text_length, 0)
    if len(counts) != 3:
        raise InvalidProblemError(f"tiles must have three numbers, got {shown(tiles)}")
    image, along = math.prod(counts) * volume, 1 if swapped else 2
    for name, shape in zip("qkv", shapes, strict=True):
        if shape[along] != image + text:
            raise InvalidProblemError(
                f"{name} must have {counts} tiles of {volume} and {text} tokens of text, {image + text}, got "
                f"{shape[along]}"
            )
    by_head, given = _windows(window, shapes[0][3 - along], q, stream)
    given |= {"volume": volume, "image": image}
    for a, n in enumerate(counts):
        given |= {f"n{a}": n, f"t{a}": math.prod(counts[a + 1 :])}
    f, block = _formula(by_head), next((b for b in _BLOCKS if volume % b == 0), 64)
    mask = f.block_mask(q, k, query_block=block, key_block=block, layout=layout, **given, **options)
    outs = each_of(out, 2 if return_lse else 1)
    return f(
        q, k, v, block_mask=mask, scale=scale, layout=layout, return_lse=return_lse,
        out=None if out is None else outs if return_lse else outs[0], **given, **options,
    )  # fmt: skip
