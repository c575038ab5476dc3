"""tiled_mlp: a function of rows, a part of them at a time, whose insides are made again for the gradient."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...calls.exported import exported
from ...core import Array
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...core.views import shape_of
from ...interop.packages import package_name
from ..layout.axes import place
from ..layout.concat import concat


@exported
def tiled_mlp(function: Callable[[Any], Any], x: Array, *, chunks: int | None = None, axis: int = -2) -> Any:
    """function(x) by parts of x along an axis, for a function that takes each row by itself, as an MLP does.

    x: [..., rows, features]; function: what makes of such an array another with as many rows, a module of torch too.
    chunks: how many parts, by default rows / features rounded up. The gradient of torch and JAX keeps x alone: what is
    inside a part is computed again when its gradient is, with the same random numbers, and goes before the next part,
    so that memory goes by the longest part; gradients of weights are added part by part. Arrays of other packages have
    no gradient and go by parts all the same. In JAX the parts are one loop (`jax.lax.map`). Liger's LigerTiledMLP,
    ALST's TiledMLP (arXiv:2506.13996).
    """
    if not callable(function):
        raise InvalidProblemError(f"function must be callable, got {shown(function)}")
    shape = shape_of(x, "x")
    if len(shape) < 2:
        raise InvalidProblemError(f"x must be [..., rows, features], got shape {shape}")
    at = place(axis, len(shape))
    rows = shape[at]
    parts = -(-rows // max(shape[-1], 1)) if chunks is None else whole("chunks", chunks, 1)
    size = max(-(-rows // max(parts, 1)), 1)

    def part(piece: Any) -> Any:
        made = function(piece)
        given, found = shape_of(piece, "x"), shape_of(made, "function(x)")
        if len(found) != len(given) or found[at] != given[at]:
            raise InvalidProblemError(f"function must keep the {given[at]} rows of axis {at}, got {found} of {given}")
        return made

    package = package_name(type(x))
    if package == "jax":
        return _in_jax(part, x, at, size)
    if package == "torch":
        return _in_torch(part, x, at, size)
    pieces = [x[(slice(None),) * at + (slice(begin, begin + size),)] for begin in range(0, max(rows, 1), size)]
    return concat([part(piece) for piece in pieces], axis=at)


def _in_torch(part: Callable[[Any], Any], x: Any, axis: int, size: int) -> Any:
    torch: Any = sys.modules["torch"]
    from torch.utils.checkpoint import checkpoint

    return torch.cat([checkpoint(part, piece, use_reentrant=False) for piece in x.split(size, axis)], axis)


def _in_jax(part: Callable[[Any], Any], x: Any, axis: int, size: int) -> Any:
    jax: Any = sys.modules["jax"]
    move, once = jax.numpy.moveaxis, jax.checkpoint(part)
    rows = move(x, axis, 0)
    full = rows.shape[0] // size
    made = []
    if full:
        stacked = rows[: full * size].reshape(full, size, *rows.shape[1:])
        y = jax.lax.map(lambda piece: move(once(move(piece, 0, axis)), axis, 0), stacked)
        made.append(y.reshape(full * size, *y.shape[2:]))
    if full * size < rows.shape[0] or not full:
        made.append(move(once(move(rows[full * size :], 0, axis)), axis, 0))
    return move(jax.numpy.concatenate(made) if len(made) > 1 else made[0], 0, axis)
