"""What functions of shape and layout say of axes, checked: numbers, orders, bounds, sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.checked import MAX_AXES, whole, wholes
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, broadcast_shape


def place(axis: Any, rank: int, name: str = "axis") -> int:
    """An axis of an array of `rank` axes, counted from the front; negative ones count from the end."""
    if not rank:
        whole(name, axis, -1, 0)
        raise InvalidProblemError(f"{name} is {axis}, but x has no axes")
    return whole(name, axis, -rank, rank - 1) % rank


def places(axes: Any, rank: int, name: str = "axis") -> Shape:
    """One axis or several different ones, counted from the front."""
    given = (axes,) if isinstance(axes, (int, np.integer)) else wholes(name, axes, -MAX_AXES, MAX_AXES - 1, "axes")
    held = tuple([place(axis, rank, name) for axis in given])
    if len(set(held)) < len(held):
        raise InvalidProblemError(f"{name} names an axis twice, got {axes}")
    return held


def listed(axes: tuple[Any, ...]) -> Any:
    """Numbers that are given one by one, or as one tuple."""
    return axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes


def full_order(order: Shape, rank: int) -> Shape:
    """An order that names every axis, or an error."""
    if len(order) != rank:
        raise InvalidProblemError(f"axes must name each of the {rank} axes of x once, got {order}")
    return order


def order_of(axes: tuple[Any, ...], rank: int) -> Shape:
    """What `transpose` takes: nothing or None for all axes backwards, two axes to exchange, or a tuple of all."""
    given = listed(axes)
    if given is None or (isinstance(given, tuple) and not given):
        return tuple(reversed(range(rank)))
    if len(axes) == 2 and given is axes:
        first, second = (place(axis, rank) for axis in axes)
        order = list(range(rank))
        order[first], order[second] = second, first
        return tuple(order)
    return full_order(places(given, rank, "axes"), rank)


def bounds(extent: int, start: Any, stop: Any, step: Any) -> tuple[int, int, int]:
    """Where start:stop:step of an axis begins, how many elements it has, and the step, which is not 0."""
    first = None if start is None else whole("start", start)
    last = None if stop is None else whole("stop", stop)
    if whole("step", step) == 0:
        raise InvalidProblemError("step must not be 0")
    found = range(extent)[first:last:step]
    return found.start if len(found) else 0, len(found), int(step)


def expanded(shape: Shape, sizes: Any) -> Shape:
    """What `expand` makes of a shape: of the sizes given, -1 keeps the extent that there is."""
    given = wholes("sizes", sizes, -1)
    added = len(given) - len(shape)
    kept = (None,) * max(added, 0) + shape
    if added < 0 or any(n == -1 and m is None for n, m in zip(given, kept, strict=False)):
        raise InvalidProblemError(f"sizes {given} do not expand shape {shape}")
    wanted = tuple(m if n == -1 and m is not None else n for n, m in zip(given, kept, strict=True))
    if broadcast_shape({"x": shape, "sizes": wanted}, ("x", "sizes")) != wanted:
        raise InvalidProblemError(f"x {shape} does not broadcast to {wanted}")
    return wanted
