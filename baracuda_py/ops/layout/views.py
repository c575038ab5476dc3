"""Views of an array in its own package: axes exchanged, put in, merged, cut, repeated. JAX, which has none, copies.

Nothing is launched but where `reshape` and its like cannot say by strides what they return, and copy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import MAX_AXES, whole, wholes
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.outputs import beside
from ...core.tensor import Shape, View, broadcast_shape
from ...core.views import broadcast as spread
from ...core.views import cut, permuted, reshaped, shape_of, windows, with_axis, without_axes
from ...core.views import diagonal as main_diagonal
from ...core.arrays import read
from .axes import bounds, expanded, full_order, listed, order_of, place, places
from .moves import copy, unfold_copy

# ---- axes in another order -----------------------------------------------------------------------------------------


@exported
def permute(x: Array, *axes: Any) -> Array:
    """A view of x with its axes in the order `axes`, numbers or one tuple (torch.permute, array API's permute_dims)."""
    order = places(listed(axes), len(shape_of(x, "x")), "axes")
    return permuted(x, full_order(order, len(shape_of(x, "x"))), "x")


permute_dims = permute


@exported
def transpose(x: Array, *axes: Any) -> Array:
    """A view of x with two axes exchanged (torch.transpose), or with all in another order (numpy.transpose).

    Two numbers are the axes to exchange; one tuple names all of them; without `axes` their order is reversed.
    """
    return permuted(x, order_of(axes, len(shape_of(x, "x"))), "x")


@exported
def t(x: Array) -> Array:
    """The transpose of a matrix as a view; what has fewer axes is returned as it is (torch.t)."""
    shape = shape_of(x, "x")
    if len(shape) > 2:
        raise InvalidProblemError(f"x must have two axes at most, got shape {shape}; use matrix_transpose")
    return transpose(x) if len(shape) == 2 else x


@exported
def matrix_transpose(x: Array) -> Array:
    """A view of x with its last two axes exchanged (jax.numpy.matrix_transpose, Tensor.mT)."""
    return transpose(x, -2, -1)


@exported
def swapaxes(x: Array, first: int, second: int) -> Array:
    """A view of x with two axes exchanged (torch.swapaxes, numpy.swapaxes)."""
    return transpose(x, first, second)


swapdims = swapaxes


@exported
def movedim(x: Array, source: Any, destination: Any) -> Array:
    """A view of x with axes moved to other places, the others staying in their order (torch.movedim)."""
    rank = len(shape_of(x, "x"))
    whence, where = places(source, rank, "source"), places(destination, rank, "destination")
    if len(whence) != len(where):
        raise InvalidProblemError(f"source and destination must be as many, got {source} and {destination}")
    order = [axis for axis in range(rank) if axis not in whence]
    for to, axis in sorted(zip(where, whence, strict=True)):
        order.insert(to, axis)
    return permuted(x, order, "x")


moveaxis = movedim


@exported
def rollaxis(x: Array, axis: int, start: int = 0) -> Array:
    """A view of x with an axis moved back until it lies before axis `start` (numpy.rollaxis)."""
    rank = len(shape_of(x, "x"))
    axis, start = place(axis, rank), whole("start", start, -rank, rank)
    start = start + rank if start < 0 else start
    return movedim(x, axis, start - (axis < start))


# ---- axes put in, taken out, merged --------------------------------------------------------------------------------


@exported
def unsqueeze(x: Array, axis: Any) -> Array:
    """A view of x with an axis of extent 1 at `axis`, or at several places of the result (torch.unsqueeze)."""
    several = 1 if isinstance(axis, (int, np.integer)) else len(wholes("axis", axis, -MAX_AXES, MAX_AXES - 1, "axes"))
    for at in sorted(places(axis, len(shape_of(x, "x")) + several)):
        x = with_axis(x, at, "x")
    return x


expand_dims = unsqueeze


@exported
def squeeze(x: Array, axis: Any = None) -> Array:
    """A view of x without its axes of extent 1, or without those of them among `axis` (torch.squeeze)."""
    shape = shape_of(x, "x")
    if axis is None:
        chosen: Shape = tuple(range(len(shape)))
    elif not shape and axis in (0, -1):
        chosen = ()
    else:
        chosen = places(axis, len(shape))
    return without_axes(x, [a for a in chosen if shape[a] == 1], "x")


def sizes(shape: Any, count: int, name: str = "shape") -> Shape:
    """The sizes of a shape of `count` elements, of which one may be -1: what the others leave."""
    given = wholes(name, (shape,) if isinstance(shape, (int, np.integer)) else shape, -1)
    open_ = [a for a, n in enumerate(given) if n == -1]
    rest = math.prod(n for n in given if n != -1)
    if len(open_) > 1 or (open_ and (not rest or count % rest)) or (not open_ and rest != count):
        raise InvalidProblemError(f"{name} {given} does not hold {count} elements")
    return tuple(count // rest if n == -1 else n for n in given)


@exported
def reshape(x: Array, *shape: Any) -> Array:
    """x as another shape of as many elements, one of whose sizes may be -1 (torch.reshape): a view, or else a copy."""
    wanted = sizes(listed(shape), math.prod(shape_of(x, "x")))
    return seen_as(x, wanted)


def seen_as(x: Array, shape: Shape, **options: Any) -> Array:
    """x as another shape: a view where strides say so, else of a copy, whose stream `options` may say."""
    seen = reshaped(x, shape, "x")
    if seen is None:
        seen = reshaped(copy(x, **options), shape, "x")
    return seen


@exported
def contiguous(x: Array) -> Array:
    """x itself where it is row-major without gaps, else a copy that is (Tensor.contiguous)."""
    found = read(x, "x")
    if View(0, found.shape, found.strides, found.element).dense:
        return x
    return copy(x)


@exported
def flatten(x: Array, start_axis: int = 0, end_axis: int = -1) -> Array:
    """x with the axes from `start_axis` to `end_axis` as one (torch.flatten): a view, or else a copy."""
    shape = shape_of(x, "x")
    if not shape:
        return seen_as(x, (1,))
    first, last = place(start_axis, len(shape), "start_axis"), place(end_axis, len(shape), "end_axis")
    if first > last:
        raise InvalidProblemError(f"start_axis {start_axis} lies behind end_axis {end_axis}")
    return seen_as(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@exported
def ravel(x: Array) -> Array:
    """x with one axis (torch.ravel, numpy.ravel): a view, or else a copy."""
    return seen_as(x, (math.prod(shape_of(x, "x")),))


def raveled(x: Array, stream: Any) -> Array:
    """`ravel`, whose copy is made in the order of a stream."""
    with beside(x, stream):
        return ravel(x)


@exported
def collapse(x: Array, start_axis: int, stop_axis: int | None = None) -> Array:
    """x with the axes from `start_axis` up to, not including, `stop_axis` as one (jax.lax.collapse)."""
    rank = len(shape_of(x, "x"))
    first = place(start_axis, rank, "start_axis")
    stop = rank if stop_axis is None else whole("stop_axis", stop_axis, -rank, rank)
    return flatten(x, first, (stop + rank if stop < 0 else stop) - 1)


@exported
def unflatten(x: Array, axis: int, shape: Any) -> Array:
    """A view of x with an axis split into several, of which one size may be -1 (torch.unflatten)."""
    own = shape_of(x, "x")
    at = place(axis, len(own))
    return seen_as(x, (*own[:at], *sizes(shape, own[at]), *own[at + 1 :]))


def _at_least(rank: int, x: Array) -> Array:
    shape = shape_of(x, "x")
    if len(shape) >= rank:
        return x
    if rank == 3 and len(shape) == 2:
        return with_axis(x, -1, "x")
    for _ in range(rank - max(len(shape), 1)):
        x = with_axis(x, 0, "x")
    if not shape:
        x = with_axis(x, 0, "x")
    return with_axis(without_axes(x, (0,), "x"), -1, "x") if rank == 3 and len(shape) == 1 else x


def _each_at_least(rank: int, arrays: tuple[Any, ...]) -> Any:
    given = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else arrays
    made = tuple(_at_least(rank, x) for x in given)
    return made[0] if given is arrays and len(made) == 1 else made


@exported
def atleast_1d(*arrays: Any) -> Any:
    """Arrays as views of one axis at least; of several, or of a list, a tuple (torch.atleast_1d)."""
    return _each_at_least(1, arrays)


@exported
def atleast_2d(*arrays: Any) -> Any:
    """Arrays as views of two axes at least, put in before the others (torch.atleast_2d)."""
    return _each_at_least(2, arrays)


@exported
def atleast_3d(*arrays: Any) -> Any:
    """Arrays as views of three axes at least: (1, n, 1) of a vector, (m, n, 1) of a matrix (torch.atleast_3d)."""
    return _each_at_least(3, arrays)


# ---- axes repeated -------------------------------------------------------------------------------------------------


@exported
def broadcast_to(x: Array, shape: Any) -> Array:
    """A view of x as a shape that it broadcasts to, with steps of 0 (torch.broadcast_to)."""
    wanted = wholes("shape", (shape,) if isinstance(shape, (int, np.integer)) else shape)
    if broadcast_shape({"x": shape_of(x, "x"), "shape": wanted}, ("x", "shape")) != wanted:
        raise InvalidProblemError(f"x {shape_of(x, 'x')} does not broadcast to {wanted}")
    return spread(x, wanted, "x")


@exported
def expand(x: Array, *sizes: Any) -> Array:
    """A view of x whose axes of extent 1 are repeated; -1 keeps an extent (Tensor.expand)."""
    return spread(x, expanded(shape_of(x, "x"), listed(sizes)), "x")


@exported
def broadcast_tensors(*arrays: Array) -> list[Array]:
    """The arrays as views of the shape that they broadcast to together (torch.broadcast_tensors)."""
    named = {f"arrays[{i}]": shape_of(x, f"arrays[{i}]") for i, x in enumerate(arrays)}
    wanted = broadcast_shape(named, named)
    return [spread(x, wanted, name) for x, name in zip(arrays, named, strict=True)]


broadcast_arrays = broadcast_tensors


@exported
def broadcast_like(x: Array, like: Array) -> Array:
    """A view of x as the shape of another array (jax.lax.broadcast_like)."""
    return broadcast_to(x, shape_of(like, "like"))


@exported
def broadcast_to_rank(x: Array, rank: int) -> Array:
    """A view of x with axes of extent 1 before its own, up to `rank` axes (jax.lax.broadcast_to_rank)."""
    for _ in range(whole("rank", rank, len(shape_of(x, "x")), MAX_AXES) - len(shape_of(x, "x"))):
        x = with_axis(x, 0, "x")
    return x


@exported
def broadcast(x: Array, sizes: Any) -> Array:
    """A view of x with axes of these sizes before its own, along which it is repeated (jax.lax.broadcast)."""
    return broadcast_to(x, (*wholes("sizes", sizes), *shape_of(x, "x")))


@exported
def broadcast_in_dim(x: Array, shape: Any, broadcast_dimensions: Any) -> Array:
    """A view of x as `shape`, in which axis i of x is axis broadcast_dimensions[i] (jax.lax.broadcast_in_dim)."""
    own, wanted = shape_of(x, "x"), wholes("shape", shape)
    order = wholes("broadcast_dimensions", broadcast_dimensions)
    if list(order) != sorted(set(order)) or len(order) != len(own) or any(a >= len(wanted) for a in order):
        raise InvalidProblemError(
            f"broadcast_dimensions must name an axis of {wanted} for each axis of {own}, ascending, got {order}"
        )
    for axis in range(len(wanted)):
        x = x if axis in order else with_axis(x, axis, "x")
    return broadcast_to(x, wanted)


# ---- parts ---------------------------------------------------------------------------------------------------------


def part(x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    """The view x[start:stop:step] along one axis, counted from the front; step is above 0."""
    return cut(x, [slice(None)] * axis + [slice(start, stop, step)], "x")


@exported
def narrow(x: Array, axis: int, start: int, length: int) -> Array:
    """The view of `length` elements along an axis from `start` on, which may count from the end (torch.narrow)."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    first = whole("start", start, -shape[at], shape[at])
    first = first + shape[at] if first < 0 else first
    return part(x, at, first, first + whole("length", length, 0, shape[at] - first))


@exported
def index_in_dim(x: Array, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The view at one index of an axis, which goes without `keepdims` (jax.lax.index_in_dim)."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    one = whole("index", index, -shape[at], shape[at] - 1) % max(shape[at], 1)
    seen = part(x, at, one, one + 1)
    return seen if keepdims else without_axes(seen, (at,), "x")


@exported
def slice_in_dim(x: Array, start: int | None, stop: int | None, step: int = 1, axis: int = 0) -> Array:
    """The view x[start:stop:step] along one axis (jax.lax.slice_in_dim); step is above 0."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    first, count, step = bounds(shape[at], start, stop, whole("step", step, 1))
    return part(x, at, first, first + max(count - 1, 0) * step + (count > 0), step)


@exported
def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The view of the diagonal `offset` above the main one of two axes, as a last axis (torch.diagonal)."""
    shape = shape_of(x, "x")
    first, second = place(axis1, len(shape), "axis1"), place(axis2, len(shape), "axis2")
    if first == second:
        raise InvalidProblemError(f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    offset = whole("offset", offset)
    up, down = max(offset, 0), max(-offset, 0)
    count = max(0, min(shape[first] - down, shape[second] - up))
    x = part(part(x, first, down if count else 0, down + count if count else 0), second, up, up + count)
    if not count:
        x = part(part(x, first, 0, 0), second, 0, 0)
    low, high = sorted((first, second))
    seen = main_diagonal(x, low, high, "x")
    rank = len(shape) - 1
    return permuted(seen, [a for a in range(rank) if a != low] + [low], "x")


@exported
def unfold(x: Array, axis: int, size: int, step: int) -> Array:
    """A view of x as windows of `size` elements along an axis, `step` apart, the last axis (Tensor.unfold)."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    whole("size", size, 0, shape[at]), whole("step", step, 1)
    seen = windows(x, at, size, step, "x")
    if seen is None:
        seen = unfold_copy(x, at, size, step)
    return seen
