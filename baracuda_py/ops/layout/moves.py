"""What copies along a walk: axes permuted, reversed, repeated, cut, exchanged with channels. One launch each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import whole, wholes
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.memo import memo
from ...core.tensor import Shape
from ...core.views import shape_of
from .view_copy import ViewCopyPlan, view_copy
from .axes import bounds, expanded, full_order, listed, order_of, place, places
from .walk import Walk

_KNOWN = 4096  # walks that are remembered, by the shape and the arguments


def _copied(x: Array, walk: Walk, **more: Any) -> Any:
    return view_copy(x, **walk.fields, **more)


@entry(ViewCopyPlan)
def copy(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x in memory of its own, row-major (torch.clone with contiguous_format, numpy.copy)."""
    return _copied(x, Walk.of(shape_of(x, "x")), out=out, stream=stream, preference=preference)


clone = copy


@entry(ViewCopyPlan)
def permute_copy(x: Array, *axes: Any, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with its axes in the order `axes`, numbers or one tuple, in memory of its own (torch.permute_copy)."""
    shape = shape_of(x, "x")
    order = full_order(places(listed(axes), len(shape), "axes"), len(shape))
    return _copied(x, Walk.of(shape).permuted(order), out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def transpose_copy(x: Array, *axes: Any, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """What `transpose` sees, in memory of its own (torch.transpose_copy)."""
    shape = shape_of(x, "x")
    walk = Walk.of(shape).permuted(order_of(axes, len(shape)))
    return _copied(x, walk, out=out, stream=stream, preference=preference)


@memo(_KNOWN)
def _broadcast(shape: Shape, wanted: Shape) -> Walk:
    walk = Walk.of(shape)
    for axis in range(len(shape)):
        n = wanted[len(wanted) - len(shape) + axis]
        if n != shape[axis]:
            walk = walk.taken(axis, 0).repeated(axis, n)
    for n in reversed(wanted[: len(wanted) - len(shape)]):
        walk = walk.repeated(0, n)
    return walk


@entry(ViewCopyPlan)
def expand_copy(x: Array, sizes: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with its axes of extent 1 repeated, -1 keeping an extent, in memory of its own (torch.expand_copy)."""
    shape = shape_of(x, "x")
    walk = _broadcast(shape, expanded(shape, (sizes,) if isinstance(sizes, (int, np.integer)) else sizes))
    return _copied(x, walk, out=out, stream=stream, preference=preference)


# ---- reversed ------------------------------------------------------------------------------------------------------


@memo(_KNOWN)
def flipped(shape: Shape, axes: Shape) -> Walk:
    """The walk of `flip`."""
    walk = Walk.of(shape)
    for axis in axes:
        walk = walk.sliced(axis, shape[axis] - 1, shape[axis], -1)
    return walk


@entry(ViewCopyPlan)
def flip(x: Array, axis: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with the order along an axis, several, or all of them reversed (torch.flip, numpy.flip)."""
    shape = shape_of(x, "x")
    axes = tuple(range(len(shape))) if axis is None else places(axis, len(shape))
    return _copied(x, flipped(shape, axes), out=out, stream=stream, preference=preference)


rev = flip


@entry(ViewCopyPlan)
def fliplr(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with the order along axis 1 reversed (torch.fliplr)."""
    return flip(x, 1, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def flipud(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with the order along axis 0 reversed (torch.flipud)."""
    return flip(x, 0, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def rot90(
    x: Array, k: int = 1, axes: Any = (0, 1), *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x turned k times by a quarter, from the first of two axes to the second (torch.rot90, numpy.rot90)."""
    shape = shape_of(x, "x")
    held = places(axes, len(shape), "axes")
    if len(held) != 2:
        raise InvalidProblemError(f"axes must be two, got {axes}")
    first, second = held
    turns = whole("k", k) % 4
    reversed_axes = ((), (second,), (first, second), (first,))[turns]
    order = list(range(len(shape)))
    if turns % 2:
        order[first], order[second] = second, first
    walk = flipped(shape, reversed_axes).permuted(order)
    return _copied(x, walk, out=out, stream=stream, preference=preference)


# ---- repeated ------------------------------------------------------------------------------------------------------


@memo(_KNOWN)
def tiled(shape: Shape, reps: Shape) -> Walk:
    """The walk of `tile`."""
    reps = (1,) * (len(shape) - len(reps)) + reps
    added = len(reps) - len(shape)
    walk = Walk.of(shape)
    for n in reversed(reps[:added]):
        walk = walk.repeated(0, n)
    for axis, n in enumerate(reps[added:], added):
        if n != 1:
            walk = walk.repeated(axis, n).merged(axis, 2)
    return walk


@entry(ViewCopyPlan)
def tile(x: Array, reps: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x laid out again and again, reps[a] times along axis a (torch.tile, numpy.tile, Tensor.repeat).

    Where `reps` has fewer items than x axes, they are those of the last axes; where it has more, x gets axes before
    its own.
    """
    shape = shape_of(x, "x")
    held = wholes("reps", (reps,) if isinstance(reps, (int, np.integer)) else reps)
    return _copied(x, tiled(shape, held), out=out, stream=stream, preference=preference)


# ---- cut -----------------------------------------------------------------------------------------------------------


@memo(_KNOWN)
def _cut(shape: Shape, cuts: tuple[tuple[int, int, int], ...]) -> Walk:
    walk = Walk.of(shape)
    for axis, (start, count, step) in enumerate(cuts):
        walk = walk.sliced(axis, start, count, step)
    return walk


@entry(ViewCopyPlan)
def slice_copy(
    x: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x[start:stop:step] along one axis, in memory of its own (torch.slice_copy); step may be below 0."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    here = bounds(shape[at], start, stop, step)
    cuts = tuple(here if a == at else (0, n, 1) for a, n in enumerate(shape))
    return _copied(x, _cut(shape, cuts), out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def narrow_copy(
    x: Array, axis: int, start: int, length: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """What `narrow` sees, in memory of its own (torch.narrow_copy)."""
    extent = shape_of(x, "x")[place(axis, len(shape_of(x, "x")))]
    first = whole("start", start, -extent, extent)
    first = first + extent if first < 0 else first
    stop = first + whole("length", length, 0, extent - first)
    return slice_copy(x, axis, first, stop, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def diagonal_copy(
    x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """What `diagonal` sees, in memory of its own (torch.diagonal_copy)."""
    shape = shape_of(x, "x")
    first, second = place(axis1, len(shape), "axis1"), place(axis2, len(shape), "axis2")
    if first == second:
        raise InvalidProblemError(f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    walk = Walk.of(shape).diagonal(whole("offset", offset), first, second)
    return _copied(x, walk, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def unfold_copy(
    x: Array, axis: int, size: int, step: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """What `unfold` sees, in memory of its own (torch.unfold_copy). Its gradient adds up where windows overlap."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    walk = Walk.of(shape).windowed(at, whole("size", size, 0, shape[at]), whole("step", step, 1))
    return _copied(x, walk, out=out, stream=stream, preference=preference)


# ---- channels and space --------------------------------------------------------------------------------------------


def _factor(name: str, value: Any, extent: int, of: str) -> int:
    by = whole(name, value, 1)
    if extent % by:
        raise InvalidProblemError(f"{name} {by} must divide the {of}, got {extent}")
    return by


def _rank(shape: Shape, least: int, what: str) -> None:
    if len(shape) < least:
        raise InvalidProblemError(f"x must have the axes {what}, got shape {shape}")


@memo(_KNOWN)
def _shuffled(shape: Shape, r: int, blocks_first: bool) -> Walk:
    """[…, C r r, H, W] to […, C, H r, W r]; blocks_first: the channels are [r, r, C], not [C, r, r]."""
    lead, (channels, _, _) = len(shape) - 3, shape[-3:]
    split = (r, r, channels // (r * r)) if blocks_first else (channels // (r * r), r, r)
    walk = Walk.of(shape).split(lead, split)
    c, down, along = (2, 0, 1) if blocks_first else (0, 1, 2)
    order = [*range(lead), lead + c, lead + 3, lead + down, lead + 4, lead + along]
    return walk.permuted(order).merged(lead + 1, 2).merged(lead + 2, 2)


@memo(_KNOWN)
def _unshuffled(shape: Shape, r: int, blocks_first: bool) -> Walk:
    """[…, C, H r, W r] to […, C r r, H, W], the opposite of `_shuffled`."""
    lead, (_, rows, columns) = len(shape) - 3, shape[-3:]
    walk = Walk.of(shape).split(lead + 2, (columns // r, r)).split(lead + 1, (rows // r, r))
    channels = (2, 4, 0) if blocks_first else (0, 2, 4)
    order = [*range(lead), *(lead + a for a in channels), lead + 1, lead + 3]
    return walk.permuted(order).merged(lead, 3)


def pixel_shuffled(shape: Shape, upscale_factor: Any) -> Walk:
    """The walk of `pixel_shuffle`; raises where there is none."""
    _rank(shape, 3, "(…, channels, height, width)")
    r = whole("upscale_factor", upscale_factor, 1)
    _factor("upscale_factor squared", r * r, shape[-3], "channels")
    return _shuffled(shape, r, False)


def pixel_unshuffled(shape: Shape, downscale_factor: Any) -> Walk:
    """The walk of `pixel_unshuffle`; raises where there is none."""
    _rank(shape, 3, "(…, channels, height, width)")
    r = _factor("downscale_factor", downscale_factor, math.gcd(*shape[-2:]), "height and the width")
    return _unshuffled(shape, r, False)


@entry(ViewCopyPlan)
def pixel_shuffle(x: Array, upscale_factor: int, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """[…, C r r, H, W] to […, C, H r, W r]: channels become pixels (torch.nn.functional.pixel_shuffle)."""
    walk = pixel_shuffled(shape_of(x, "x"), upscale_factor)
    return _copied(x, walk, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def pixel_unshuffle(
    x: Array, downscale_factor: int, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """[…, C, H r, W r] to […, C r r, H, W]: pixels become channels (torch.nn.functional.pixel_unshuffle)."""
    walk = pixel_unshuffled(shape_of(x, "x"), downscale_factor)
    return _copied(x, walk, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def depth_to_space(
    x: Array, block_size: int, mode: str = "DCR", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Channels as blocks of pixels; of channels (block row, block column, C) with "DCR", else "CRD" (pixel_shuffle).

    ONNX's DepthToSpace, of x with shape (…, channels, height, width).
    """
    shape = shape_of(x, "x")
    _rank(shape, 3, "(…, channels, height, width)")
    r = whole("block_size", block_size, 1)
    _factor("block_size squared", r * r, shape[-3], "channels")
    return _copied(x, _shuffled(shape, r, _blocks_first(mode)), out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def space_to_depth(
    x: Array, block_size: int, mode: str = "DCR", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Blocks of pixels as channels, the opposite of `depth_to_space` (ONNX's SpaceToDepth; patches of images)."""
    shape = shape_of(x, "x")
    _rank(shape, 3, "(…, channels, height, width)")
    r = _factor("block_size", block_size, math.gcd(*shape[-2:]), "height and the width")
    return _copied(x, _unshuffled(shape, r, _blocks_first(mode)), out=out, stream=stream, preference=preference)


def _blocks_first(mode: Any) -> bool:
    if mode not in ("DCR", "CRD"):
        raise InvalidProblemError(f'mode must be "DCR" or "CRD", got {mode!r}')
    return bool(mode == "DCR")


@entry(ViewCopyPlan)
def channel_shuffle(x: Array, groups: int, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Channels (g, C / g) of axis 1 in the order (C / g, g) (torch.nn.functional.channel_shuffle)."""
    shape = shape_of(x, "x")
    _rank(shape, 3, "(batch, channels, …)")
    g = _factor("groups", groups, shape[1], "channels")
    walk = Walk.of(shape).split(1, (g, shape[1] // g))
    order = (0, 2, 1, *range(3, len(shape) + 1))
    return _copied(x, walk.permuted(order).merged(1, 2), out=out, stream=stream, preference=preference)


native_channel_shuffle = channel_shuffle
