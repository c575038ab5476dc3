"""The walks and paddings of plans that are named after what they do to axes: from a descriptor's own fields."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidProblemError
from .axes import full_order, places
from .moves import flipped, pixel_shuffled, pixel_unshuffled, tiled
from .walk import Walk


def identity(desc: Any) -> Walk:
    """All of x in its order."""
    return Walk.of(desc.shape)


def permuted(desc: Any) -> Walk:
    """Axes in the order `axes`."""
    rank = len(desc.shape)
    return Walk.of(desc.shape).permuted(full_order(places(desc.axes, rank, "axes"), rank))


def reversed_along(desc: Any) -> Walk:
    """Axes `axes` from their ends on."""
    return flipped(desc.shape, places(desc.axes, len(desc.shape), "axes"))


def repeated(desc: Any) -> Walk:
    """As `tile`."""
    return tiled(desc.shape, desc.reps)


def channels_to_pixels(desc: Any) -> Walk:
    """As `pixel_shuffle`."""
    return pixel_shuffled(desc.shape, desc.upscale_factor)


def pixels_to_channels(desc: Any) -> Walk:
    """As `pixel_unshuffle`."""
    return pixel_unshuffled(desc.shape, desc.downscale_factor)


def rolling(desc: Any) -> tuple[tuple[int, int], ...]:
    """The circular padding that moves elements `shifts[a]` further along axis a."""
    if len(desc.shifts) != len(desc.shape):
        raise InvalidProblemError(f"shifts must have an item for each axis of shape {desc.shape}, got {desc.shifts}")
    return tuple((s % n, -(s % n)) if n else (0, 0) for s, n in zip(desc.shifts, desc.shape, strict=True))
