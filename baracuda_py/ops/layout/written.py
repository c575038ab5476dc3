"""Arrays with a part written: diagonals, one index, slices; parts that begin where indices on the device say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import INT64, whole, wholes
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import View, dense_strides
from ...core.views import broadcast, shape_of, storage_offset, with_axis, without_axes
from ...interop.packages import package_name
from ...core.arrays import read
from ..elementwise.fill import FillPlan, fill
from .concat import stack
from .creation import full
from .dynamic_slice import (
    DynamicSlicePlan, DynamicUpdateSlicePlan, WriteSlicePlan, slice_at, update_slice_at, write_at,
)  # fmt: skip
from .moves import diagonal_copy
from .view_copy import ViewCopyPlan, view_copy
from .view_scatter import ViewScatterPlan, view_scatter
from .axes import bounds, place
from .views import diagonal, raveled, reshape
from .walk import Walk

_integers = (int, np.integer)

# ---- diagonals -----------------------------------------------------------------------------------------------------


@entry(ViewScatterPlan)
def diag_embed(
    x: Array, offset: int = 0, axis1: int = -2, axis2: int = -1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The last axis of x as a diagonal of two axes of the result, 0 elsewhere (torch.diag_embed)."""
    shape = shape_of(x, "x")
    if not shape:
        raise InvalidProblemError("x must have an axis at least, got shape ()")
    rank = len(shape) + 1
    first, second = place(axis1, rank, "axis1"), place(axis2, rank, "axis2")
    if first == second:
        raise InvalidProblemError(f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    offset = whole("offset", offset)
    n, rest = shape[-1] + abs(offset), iter(shape[:-1])
    whole_shape = tuple(n if a in (first, second) else next(rest) for a in range(rank))
    walk = Walk.of(whole_shape).diagonal(offset, first, second)
    return view_scatter(x, shape=whole_shape, **walk.fields, out=out, stream=stream, preference=preference)


@entry(ViewCopyPlan)
def diag(x: Array, diagonal: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """A diagonal of a matrix, copied, or a matrix with a vector as a diagonal, 0 elsewhere (torch.diag, numpy.diag)."""
    rank = len(shape_of(x, "x"))
    if rank not in (1, 2):
        raise InvalidProblemError(f"x must be a vector or a matrix, got shape {shape_of(x, 'x')}")
    made = diagonal_copy if rank == 2 else diag_embed
    return made(x, diagonal, out=out, stream=stream, preference=preference)


@entry(ViewScatterPlan)
def diagflat(x: Array, offset: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """A matrix with the elements of x as a diagonal, 0 elsewhere (torch.diagflat)."""
    return diag_embed(raveled(x, stream), offset, out=out, stream=stream, preference=preference)


@entry(ViewScatterPlan)
def diagonal_scatter(
    x: Array, src: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with the diagonal that `diagonal` sees replaced by src (torch.diagonal_scatter)."""
    shape = shape_of(x, "x")
    first, second = place(axis1, len(shape), "axis1"), place(axis2, len(shape), "axis2")
    if first == second:
        raise InvalidProblemError(f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    return _written(x, src, Walk.of(shape).diagonal(whole("offset", offset), first, second), out, stream, preference)


@entry(FillPlan)
def fill_diagonal(x: Array, value: Any, wrap: bool = False, *, stream: Any = None, preference: Any = None) -> Any:
    """x with its main diagonal set to a number, in place (numpy.fill_diagonal); all axes of three or more are as long.

    JAX's arrays stay as they are: of them it is a new one that is returned.

    wrap: in a matrix with more rows than columns the diagonal begins again after each row that it leaves out.
    """
    shape = shape_of(x, "x")
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise InvalidProblemError(f"x must be a matrix, or have axes of one extent, got shape {shape}")
    given = {"stream": stream, "preference": preference}
    if package_name(type(x)) == "jax":
        step = sum(dense_strides(shape))
        end = math.prod(shape) if wrap or len(shape) > 2 else min(math.prod(shape), shape[1] * shape[1])
        places = (len(range(0, end, step)),)
        src = full(places, value, read(x, "x").element, like=x)
        return as_strided_scatter(x, src, places, (step,), **given)
    seen = x
    while len(shape_of(seen, "x")) > 1:
        seen = diagonal(seen, 0, 0, len(shape_of(seen, "x")) - 1)
    fill(seen, value, **given)
    for start in range(shape[1] + 1, shape[0], shape[1] + 1) if wrap and len(shape) == 2 else ():
        fill(diagonal(x, -start), value, **given)
    return x


def _written(x: Array, src: Array, walk: Walk, out: Any, stream: Any, preference: Any) -> Any:
    if shape_of(src, "src") != walk.out_shape:
        raise InvalidProblemError(f"src must have shape {walk.out_shape}, got {shape_of(src, 'src')}")
    return view_scatter(src, x, **walk.fields, out=out, stream=stream, preference=preference)


# ---- one index, slices ---------------------------------------------------------------------------------------------


@entry(ViewScatterPlan)
def select_scatter(
    x: Array, src: Array, axis: int, index: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with what lies at one index of an axis replaced by src (torch.select_scatter)."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    one = whole("index", index, -shape[at], shape[at] - 1) % max(shape[at], 1)
    return _written(x, src, Walk.of(shape).taken(at, one), out, stream, preference)


@entry(ViewScatterPlan)
def slice_scatter(
    x: Array, src: Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with x[start:stop:step] along an axis replaced by src (torch.slice_scatter); step may be below 0."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    walk = Walk.of(shape).sliced(at, *bounds(shape[at], start, stop, step))
    return _written(x, src, walk, out, stream, preference)


@entry(ViewScatterPlan)
def as_strided_scatter(
    x: Array, src: Array, size: Any, stride: Any, storage_offset: int | None = None, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with what a view of these sizes and strides sees of its memory replaced by src (torch.as_strided_scatter).

    x and storage_offset are those of `as_strided_copy`. The view meets no element twice.
    """
    walk = strided_walk(x, size, stride, storage_offset)
    made = _written(raveled(x, stream), src, walk, None if out is None else reshape(out, (-1,)), stream, preference)
    return reshape(made, shape_of(x, "x")) if out is None else out


@entry(ViewCopyPlan)
def as_strided_copy(
    x: Array, size: Any, stride: Any, storage_offset: int | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """What a view of these sizes and strides, in elements, sees of x's memory, copied (torch.as_strided_copy).

    x is dense and row-major, and the view stays inside of x. storage_offset: where the view begins, counted from where
    the memory begins that x is a view of, as in torch; without it where x does.
    """
    walk = strided_walk(x, size, stride, storage_offset)
    return view_copy(raveled(x, stream), **walk.fields, out=out, stream=stream, preference=preference)


as_strided = as_strided_copy


def strided_walk(x: Array, size: Any, stride: Any, offset: int | None) -> Walk:
    """Along the elements of x as one axis; offset: from where the memory begins that x is a view of."""
    sizes, strides = wholes("size", size), wholes("stride", stride, -INT64, INT64, "strides")
    if len(sizes) != len(strides):
        raise InvalidProblemError(f"size and stride must be as many, got {sizes} and {strides}")
    found = read(x, "x")
    if not View(0, found.shape, found.strides, found.element).dense:
        raise InvalidProblemError(
            f"x has strides {found.strides}, so that its elements do not lie in memory as they follow each other, and "
            "strides of its memory are none of x; give the array that it is a view of, or a contiguous copy"
        )
    count, before = math.prod(found.shape), 0 if offset is None else storage_offset(x)
    begin = before if offset is None else whole("storage_offset", offset, 0)
    if begin < before:
        raise InvalidProblemError(
            f"storage_offset {begin} lies {before - begin} elements before x, which is a view that begins {before} "
            "elements into its memory; give the array that it is a view of"
        )
    begin -= before
    groups = tuple(((n, (s,)),) for n, s in zip(sizes, strides, strict=True))
    return Walk((count,), (begin,), groups)


@entry(ViewCopyPlan)
def slice_static(
    x: Array, start_indices: Any, limit_indices: Any, strides: Any = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x[start:limit:stride] along every axis, in memory of its own (jax.lax.slice)."""
    shape = shape_of(x, "x")
    starts, limits = wholes("start_indices", start_indices), wholes("limit_indices", limit_indices)
    steps = (1,) * len(shape) if strides is None else wholes("strides", strides, 1)
    if not len(starts) == len(limits) == len(steps) == len(shape) or any(
        not a <= b <= n for a, b, n in zip(starts, limits, shape, strict=False)
    ):
        raise InvalidProblemError(f"{starts} up to {limits} is no part of shape {shape}, an index for each axis")
    walk = Walk.of(shape)
    for axis, (a, b, step) in enumerate(zip(starts, limits, steps, strict=True)):
        walk = walk.sliced(axis, a, -(-(b - a) // step), step)
    return view_copy(x, **walk.fields, out=out, stream=stream, preference=preference)


# ---- where indices on the device say -------------------------------------------------------------------------------


def _fixed(starts: Any) -> bool:
    """Whether the host knows where the part begins."""
    return isinstance(starts, (list, tuple)) and all(isinstance(one, _integers) for one in starts)


def _on_device(starts: Any) -> Array:
    """The indices as one array."""
    if not isinstance(starts, (list, tuple)):
        return starts
    if any(isinstance(one, _integers) for one in starts):
        raise InvalidProblemError("start_indices must be integers alone, arrays of one index alone, or one array")
    return stack([reshape(one, ()) for one in starts])


def _part(shape: tuple[int, ...], starts: Sequence[Any], sizes: tuple[int, ...]) -> Walk:
    """The walk of a part that the host places, held inside as on the device."""
    if len(starts) != len(shape) or len(sizes) != len(shape) or any(n > m for n, m in zip(sizes, shape, strict=True)):
        raise InvalidProblemError(f"start_indices {starts} and sizes {sizes} must be those of a part of shape {shape}")
    walk = Walk.of(shape)
    for axis, (at, n, m) in enumerate(zip(starts, sizes, shape, strict=True)):
        first = whole(f"start_indices[{axis}]", at)
        walk = walk.sliced(axis, min(max(first + m if first < 0 else first, 0), m - n), n)
    return walk


@entry(DynamicSlicePlan)
def dynamic_slice(
    x: Array, start_indices: Any, slice_sizes: Any, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The part of x of shape `slice_sizes` that begins at start_indices (jax.lax.dynamic_slice).

    start_indices: an array on the device with an index for each axis, arrays of one index each, or integers.
    """
    sizes, more = wholes("slice_sizes", slice_sizes), {"out": out, "stream": stream, "preference": preference}
    if _fixed(start_indices):
        return view_copy(x, **_part(shape_of(x, "x"), start_indices, sizes).fields, **more)
    return slice_at(x, _on_device(start_indices), sizes=sizes, **more)


@entry(DynamicUpdateSlicePlan)
def dynamic_update_slice(
    x: Array, update: Array, start_indices: Any, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with the part that begins at start_indices replaced by update (jax.lax.dynamic_update_slice).

    start_indices as of `dynamic_slice`. out=x writes only the part, but copies x to itself: `write_slice` does not.
    """
    more = {"out": out, "stream": stream, "preference": preference}
    if _fixed(start_indices):
        walk = _part(shape_of(x, "x"), start_indices, shape_of(update, "update"))
        return view_scatter(update, x, **walk.fields, **more)
    return update_slice_at(x, update, _on_device(start_indices), **more)


def _along(x: Array, start: Any, axis: int, sizes: tuple[int, ...]) -> Any:
    """An index along one axis as one for each: the axes that do not move do not look at theirs."""
    rank = len(sizes)
    if isinstance(start, _integers):
        return tuple(start if a == axis else 0 for a in range(rank))
    return broadcast(with_axis(reshape(start, ()), 0, "start_index"), (rank,), "start_index")


@entry(DynamicSlicePlan)
def dynamic_slice_in_dim(
    x: Array, start_index: Any, slice_size: int, axis: int = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """slice_size elements of x along an axis, from an index on the device on (jax.lax.dynamic_slice_in_dim)."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    sizes = (*shape[:at], whole("slice_size", slice_size, 0, shape[at]), *shape[at + 1 :])
    starts = _along(x, start_index, at, sizes)
    return dynamic_slice(x, starts, sizes, out=out, stream=stream, preference=preference)


@entry(DynamicSlicePlan)
def dynamic_index_in_dim(
    x: Array, index: Any, axis: int = 0, keepdims: bool = True, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x at an index of an axis that the device holds; without `keepdims` that axis goes (jax.lax's)."""
    at = place(axis, len(shape_of(x, "x")))
    to = out if out is None or keepdims else with_axis(out, at, "out")
    made = dynamic_slice_in_dim(x, index, 1, at, out=to, stream=stream, preference=preference)
    return out if out is not None else made if keepdims else without_axes(made, (at,), "x")


@entry(DynamicUpdateSlicePlan)
def dynamic_update_slice_in_dim(
    x: Array, update: Array, start_index: Any, axis: int, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with update from an index on the device on, along an axis (jax.lax.dynamic_update_slice_in_dim)."""
    sizes = shape_of(update, "update")
    starts = _along(x, start_index, place(axis, len(shape_of(x, "x"))), sizes)
    return dynamic_update_slice(x, update, starts, out=out, stream=stream, preference=preference)


@entry(DynamicUpdateSlicePlan)
def dynamic_update_index_in_dim(
    x: Array, update: Array, index: Any, axis: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with what lies at an index of an axis replaced, update with that axis or without (jax.lax's)."""
    rank = len(shape_of(x, "x"))
    at = place(axis, rank)
    update = with_axis(update, at, "update") if len(shape_of(update, "update")) == rank - 1 else update
    return dynamic_update_slice_in_dim(x, update, index, at, out=out, stream=stream, preference=preference)


@entry(WriteSlicePlan)
def write_slice(
    x: Array, update: Array, start_indices: Any, axis: int | None = None, *, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with the part that begins at start_indices overwritten by update, in place: a cache that grows.

    start_indices: an array on the device with an index for each axis, or, with `axis`, of one index along it.
    """
    if axis is not None:
        at = place(axis, len(shape_of(x, "x")))
        start_indices = _along(x, start_indices, at, shape_of(update, "update"))
    if _fixed(start_indices):
        raise InvalidProblemError("start_indices must be an array; where the host knows them, copy to a view of x")
    return write_at(x, update, _on_device(start_indices), stream=stream, preference=preference)


slice = slice_static
