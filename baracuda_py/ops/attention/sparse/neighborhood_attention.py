"""`neighborhood_attention`: every query sees the keys around it on a grid of one to three axes (NATTEN)."""

from __future__ import annotations

import math
from typing import Any

from ....calls.entries import entry
from ....calls.exported import exported
from ....core.arrays import read
from ....core.checked import shown, truth, whole, wholes
from ....core.errors import InvalidProblemError
from ....core.views import reshaped
from ....expressions.attention import FormulaAttention, attention
from ..dense.flash_sdpa import FlashSdpaPlan

_BLOCK = 64  # queries and keys: neighbourhoods are small beside torch's blocks of 128


@exported
@entry(FlashSdpaPlan)
def neighborhood_attention(
    q: Any, k: Any, v: Any, kernel_size: int | tuple[int, ...], *, dilation: int | tuple[int, ...] = 1,
    is_causal: bool | tuple[bool, ...] = False, scale: float | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v over the kernel_size keys nearest to each query along every axis of a grid.

    q is [batch, *grid, heads, d] with one to three axes of the grid, k and v alike (natten's na1d, na2d and na3d; their
    heads may be fewer). kernel_size, dilation and is_causal are for all axes, or one for each. Query p of an axis of n
    sees the keys from min(max(p - kernel_size // 2, 0), n - kernel_size) on: at an edge the window moves inwards and
    keeps its size; a causal axis sees p and the kernel_size - 1 before it, of those that there are. With a dilation
    queries see keys of their own residue alone, which count as an axis by themselves; kernel_size · dilation is at most
    n. Blocks of 64 by 64 tokens of which no query sees a key are left out. Differentiable; elements are `flash_sdpa`'s.
    """
    shape = read(q, "q").shape
    grid = tuple(shape[1:-2])
    if not 1 <= len(grid) <= 3:
        raise InvalidProblemError(f"q is [batch, *grid, heads, d] with one to three axes of a grid, got shape {shape}")
    for name, x in (("k", k), ("v", v)):
        if (other := tuple(read(x, name).shape))[1:-2] != grid:
            raise InvalidProblemError(f"{name} must have the grid {grid} of q, got shape {other}")
    sizes, steps = _each("kernel_size", kernel_size, grid), _each("dilation", dilation, grid)
    causal = _flags(is_causal, grid)
    for n, size, step in zip(grid, sizes, steps, strict=True):
        if size * step > n:
            raise InvalidProblemError(f"kernel_size {size} with dilation {step} is beyond an axis of {n}")
    given: dict[str, Any] = {}
    for axis, values in enumerate(zip(grid, sizes, steps, strict=True)):
        given |= {f"n{axis}": values[0], f"w{axis}": values[1], f"d{axis}": values[2]}
        given |= {f"t{axis}": math.prod(grid[axis + 1 :])}
    f: Any = _formula(causal)
    operands = [_in_a_row(name, x, grid) for name, x in (("q", q), ("k", k), ("v", v))]
    where: dict[str, Any] = {"layout": "bshd", "stream": stream, "preference": preference}
    mask = f.block_mask(*operands[:2], query_block=_BLOCK, key_block=_BLOCK, **given, **where)
    facts: dict[str, Any] = {"block_mask": mask, "scale": scale, **given, **where}
    if out is not None:
        if (taken := tuple(read(out, "out").shape)[:-1]) != tuple(shape[:-1]):
            raise InvalidProblemError(f"out must be {tuple(shape[:-1])} and the columns of v, got {taken} before them")
        f(*operands, **facts, out=_in_a_row("out", out, grid))
        return out
    y = f(*operands, **facts)
    return reshaped(y, (*shape[:-1], y.shape[-1]), "y")


def _in_a_row(name: str, x: Any, grid: tuple[int, ...]) -> Any:
    """[batch, tokens, heads, d], a view."""
    shape = read(x, name).shape
    made = reshaped(x, (shape[0], math.prod(grid), *shape[-2:]), name)
    if made is None:
        raise InvalidProblemError(f"{name} needs the tokens of its grid at one stride; copy it")
    return made


def _each(name: str, value: Any, grid: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        return (whole(name, value, 1),) * len(grid)
    found = wholes(name, value, 1, what="integers")
    if len(found) != len(grid):
        raise InvalidProblemError(
            f"{name} must be an integer or one for each axis of the grid {grid}, got {shown(value)}"
        )
    return found


def _flags(value: Any, grid: tuple[int, ...]) -> tuple[bool, ...]:
    flags = tuple(value) if isinstance(value, (tuple, list)) else (value,) * len(grid)
    if len(flags) != len(grid):
        raise InvalidProblemError(
            f"is_causal must be a bool or one for each axis of the grid {grid}, got {shown(value)}"
        )
    return tuple(truth("is_causal", flag) for flag in flags)


def _formula(causal: tuple[bool, ...]) -> FormulaAttention:
    """The mask of a grid: a number of an axis is its length n, window w, dilation d, and the tokens t of one step."""
    lines, seen = [], []
    for a, is_causal in enumerate(causal):
        lines += [
            f"i{a} = q // t{a} % n{a}",
            f"j{a} = k // t{a} % n{a}",
            f"p{a} = i{a} // d{a}",
            f"r{a} = j{a} // d{a}",
        ]
        if is_causal:
            inside = f"r{a} <= p{a} and p{a} - r{a} < w{a}"
        else:
            lines.append(f"m{a} = (n{a} - i{a} % d{a} + d{a} - 1) // d{a}")  # length of the residue's own axis
            lines.append(f"f{a} = minimum(maximum(p{a} - w{a} // 2, 0), m{a} - w{a})")
            inside = f"r{a} >= f{a} and r{a} - f{a} < w{a}"
        seen.append(f"i{a} % d{a} == j{a} % d{a} and {inside}")
    return attention(mask="; ".join((*lines, " and ".join(seen))))
