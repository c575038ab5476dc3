"""Sequences cut into one shard a rank, in the layouts that ring attention takes, and put together again."""

from __future__ import annotations

from typing import Any

from ..core import Array
from ..core.checked import MAX_AXES, whole
from ..core.errors import InvalidProblemError
from ..core.views import cut, shape_of
from ..ops.layout.concat import concat
from ..ops.layout.moves import copy
from .agreement import checked_communicator
from .collectives import all_gather, permute
from .sequence_blocks import Blocks, blocks_of


def _chunks(x: Any, comm: Any, axis: Any, layout: str, ranks: int) -> tuple[int, int, Blocks]:
    """The axis, and the cut of a sequence of which x has the positions of so many ranks."""
    checked_communicator(comm)
    shape, at = shape_of(x, "x"), whole("axis", axis, -MAX_AXES)
    if not -len(shape) <= at < len(shape):
        raise InvalidProblemError(f"axis must be one of the {len(shape)} axes of x, got {axis}")
    at %= len(shape)
    if shape[at] % ranks:
        raise InvalidProblemError(f"axis {at} of x must be a multiple of the {ranks} ranks, got shape {shape}; pad it")
    blocks = blocks_of(shape[at] // ranks, comm.size, layout, None)
    return at, shape[at] // ranks // blocks.parts, blocks


def _piece(x: Any, axis: int, number: int, length: int) -> Any:
    return cut(x, (*[slice(None)] * axis, slice(number * length, (number + 1) * length)), "x")


def shard_sequence(
    x: Array, comm: Any, *, axis: int = 2, layout: str = "zigzag", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """This rank's positions of a whole sequence x along an axis, in memory of their own; nothing is sent.

    Of rank r chunks r and 2 size - 1 - r of 2 size ("zigzag"), or chunk r of size ("contiguous"). Positions that an op
    needs beside x, as those of rotary embeddings, are cut alike. The gradient is dy where it belongs, else 0.
    """
    at, length, blocks = _chunks(x, comm, axis, layout, getattr(comm, "size", 1))
    options = {"out": out, "stream": stream, "preference": preference}
    parts = [_piece(x, at, chunk, length) for chunk in blocks.chunks(comm.rank)]
    return copy(parts[0], **options) if len(parts) == 1 else concat(parts, axis=at, **options)


def gather_sequence(
    x: Array, comm: Any, *, axis: int = 2, layout: str = "zigzag", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The whole sequence on every rank, of which x is this rank's shard: `shard_sequence` undone by an all_gather.

    The gradient is, of this rank's positions, the sum of all ranks' dy.
    """
    at, length, blocks = _chunks(x, comm, axis, layout, 1)
    options = {"stream": stream, "preference": preference}
    if comm.size == 1:
        return copy(x, out=out, **options)
    held = all_gather(x, comm, at, stream=stream, **({} if blocks.zigzag else {"out": out}))
    if not blocks.zigzag:
        return held
    places = {chunk: n for n, chunk in enumerate(c for rank in range(comm.size) for c in blocks.chunks(rank))}
    parts = [_piece(held, at, places[chunk], length) for chunk in range(2 * comm.size)]
    return concat(parts, axis=at, out=out, **options)


def previous_positions(x: Array, comm: Any, count: int, *, axis: int = -1, out: Any = None, stream: Any = None) -> Any:
    """The last `count` positions of the rank before this one, along an axis; zeros on rank 0. Contiguous shards.

    What a window that looks back needs of what another rank has: the `initial_states` of `causal_conv1d` are
    previous_positions(x, comm, width - 1). x has as many positions or more, on every rank, and of other axes the same
    extents. The gradient goes back to where the positions are (`permute`).
    """
    checked_communicator(comm)
    shape, at, kept = shape_of(x, "x"), whole("axis", axis, -MAX_AXES), whole("count", count, 0)
    if not -len(shape) <= at < len(shape):
        raise InvalidProblemError(f"axis must be one of the {len(shape)} axes of x, got {axis}")
    at %= len(shape)
    if shape[at] < kept:
        raise InvalidProblemError(f"x must have {kept} positions along axis {at}, on every rank, got shape {shape}")
    last = cut(x, (*[slice(None)] * at, slice(shape[at] - kept, shape[at])), "x")
    return permute(last, comm, [(rank, rank + 1) for rank in range(comm.size - 1)], out=out, stream=stream)
