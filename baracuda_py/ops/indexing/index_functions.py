"""Advanced indexing as functions: index, index_put, put, gather_nd, scatter_nd, index_add, index_copy and the like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array
from ...calls.functional import functional
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import broadcast, permuted, reshaped, shape_of, with_axis
from ...core.arrays import read
from ..elementwise.binary_functions import mul
from .gather import gather
from .index import IndexPlan
from .index_put import IndexPutPlan
from .indexed import broadcast_together, indices_read
from .key import FULL, Key, broadcast_to, is_array, number_like, numbers_like, trailing
from .positions import unravel_index
from .scatter import ScatterKind, ScatterPlan, scatter
from .scatter_reduce import scatter_reduce

_index = functional(IndexPlan, "index")
_PUT: dict[ScatterKind, Any] = {
    ScatterKind.SET: functional(IndexPutPlan, "index_put", kind=ScatterKind.SET, include_self=True),
    **{kind: functional(IndexPutPlan, "index_put", kind=kind) for kind in ScatterKind if kind is not ScatterKind.SET},
}
_REDUCE = {
    "sum": ScatterKind.ADD, "add": ScatterKind.ADD, "prod": ScatterKind.PROD, "mul": ScatterKind.PROD,
    "mean": ScatterKind.MEAN, "amax": ScatterKind.AMAX, "max": ScatterKind.AMAX, "amin": ScatterKind.AMIN,
    "min": ScatterKind.AMIN,
}  # fmt: skip


@entry(IndexPlan)
def index(
    x: Array, key: Any, *, size: int | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x[key] with index arrays that broadcast together, and slices, integers, None and … mixed, as in NumPy.

    key: one item, or a tuple or list of them. An index array is int64 or int32, negative from the end; where it lies
    out of range the result is 0. An array of bool chooses the elements where it holds, `size` of them (0 behind the
    last, see `nonzero`). One launch, and three for each mask.
    """
    said = Key.of(x, key, size)
    view, axes = said.view(x)
    options = {"out": out, "stream": stream, "preference": preference}
    return _index(view, said.arrays, axes=axes, place=said.place, **options)


@entry(IndexPutPlan)
def index_put(
    x: Array, key: Any, values: Any, *, accumulate: bool = False, size: int | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with `values` written to, or added at (accumulate), x[key] (torch.index_put, jax's x.at[key].set and .add).

    key: as `index` takes it, without None; values: an array that broadcasts to x[key], or a number. Of several values
    for one element the last one in the order of x[key] wins, and sums are made in that order. An index out of range
    writes nothing, nor do the entries behind those that a mask chooses (`size` of them, by default all that may be).
    """
    kind = ScatterKind.ADD if accumulate else ScatterKind.SET
    return _put(kind, x, key, values, size, out=out, stream=stream, preference=preference)


def _put(kind: ScatterKind, x: Any, key: Any, values: Any, size: int | None, **options: Any) -> Any:
    said = Key.of(x, key, size, bounded=True)
    if None in [item if item is None else 0 for item in said.items]:
        raise InvalidProblemError("key must name axes of x, got None: give values the axes of the others")
    stream = options["stream"]
    values = number_like(x, values, stream=stream)
    own = broadcast_together([shape_of(array, "key") for array in said.arrays])
    # Axes taken in part, and their axes in the result, which has those of the indices in one place.
    ranges = {
        a: range(n)[s] for a, (n, s) in enumerate(zip(said.shape, said.items, strict=True)) if isinstance(s, slice)
    }
    kept = list(ranges)
    partial = [a for a in kept if len(ranges[a]) != said.shape[a] or ranges[a].step != 1]
    lead = kept[: said.place]
    shape = (*(len(ranges[a]) for a in lead), *own, *(len(ranges[a]) for a in kept[said.place :]))
    values = broadcast_to(values, shape, "values")
    number = {a: n if n < said.place else n + len(own) for n, a in enumerate(kept)}
    order = [*range(said.place, said.place + len(own)), *(number[a] for a in partial)]
    order += [number[a] for a in kept if a not in partial]
    keys, axes = [], []
    for a, item in enumerate(said.items):
        if is_array(item):
            keys.append(trailing(item, len(partial)))
        elif isinstance(item, int):
            keys.append(numbers_like(x, range(item, item + 1), stream).reshape(()))
        elif a in partial:
            at = partial.index(a)
            keys.append(trailing(numbers_like(x, ranges[a], stream), len(partial) - 1 - at))
        else:
            continue
        axes.append(a)
    return _PUT[kind](x, keys, permuted(values, order, "values"), axes=tuple(axes), place=0, **options)


@entry(IndexPutPlan)
def put(
    x: Array, indices: Array, values: Any, *, accumulate: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with `values` written to, or added at, positions of its elements in row-major order (torch.put, numpy.put).

    values: of the shape of the indices, or what broadcasts to it.
    """
    options = {"stream": stream, "preference": preference}
    shape, places = shape_of(x, "x"), shape_of(indices, "indices")
    values = number_like(x, values, stream=stream)
    values = broadcast_to(values, places, "values")
    kind = _PUT[ScatterKind.ADD if accumulate else ScatterKind.SET]
    size = (math.prod(shape),)
    flat, target = reshaped(x, size, "x"), None if out is None else reshaped(out, size, "out")
    if flat is None or (out is not None and target is None):
        found = unravel_index(indices, dims=shape, **options)
        return kind(x, [found[a] for a in range(len(shape))], values, axes=tuple(range(len(shape))), out=out, **options)
    made = kind(flat, [indices], values, axes=(0,), out=target, **options)
    return reshaped(made, shape, "y") if out is None else out


def _coordinates(indices: Any) -> list[Any]:
    """The index of each axis, of an array whose last axis has one for each."""
    shape = shape_of(indices, "indices")
    if not shape:
        raise InvalidProblemError("indices must have an axis of coordinates, got an array without axes")
    return [indices[..., k] for k in range(shape[-1])]


@entry(IndexPlan)
def gather_nd(
    x: Array, indices: Array, *, batch_dims: int = 0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[b…, i…] = x[b…, *indices[b…, i…]]: slices of x by coordinates (ONNX GatherND, tf.gather_nd).

    The last axis of indices has a coordinate for each of x's axes behind the batch_dims that both begin with.
    """
    keys = _coordinates(indices)
    axes = tuple(range(batch_dims, batch_dims + len(keys)))
    options = {"out": out, "stream": stream, "preference": preference}
    return _index(x, keys, axes=axes, batch=batch_dims, **options)


@entry(IndexPutPlan)
def scatter_nd(
    x: Array, indices: Array, updates: Array, reduction: str = "none", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with updates[i…] at x[indices[i…]]: slices written, or combined, by coordinates (ONNX ScatterND).

    reduction: none (the last one wins), add, mul, max or min.
    """
    keys = _coordinates(indices)
    options = {"out": out, "stream": stream, "preference": preference}
    return put_combined(reduction, x, keys, updates, axes=tuple(range(len(keys))), **options)


def picked_by(x: Any, keys: list[Any], **facts: Any) -> Any:
    """What is at an index for each of `axes`."""
    return _index(x, keys, **facts)


def put_combined(reduction: Any, x: Any, keys: list[Any], updates: Any, **facts: Any) -> Any:
    """x with tokens written (none), or combined by add, mul, max or min, where there is an index for each of `axes`."""
    kind = ScatterKind.SET if reduction == "none" else _named(reduction, ("none", "add", "mul", "max", "min"))
    return _PUT[kind](x, keys, updates, **facts)


def _named(reduce: Any, names: tuple[str, ...]) -> ScatterKind:
    if not isinstance(reduce, str) or reduce not in names:
        raise InvalidProblemError(f"reduce must be one of {', '.join(names)}, got {shown(reduce)}")
    return _REDUCE[reduce]


def _along(x: Any, index: Any, src: Any, axis: Any) -> int:
    """The axis, once index, and src unless None, fit x: the plan below has other names for them."""
    array, found = read(x, "x"), indices_read(index, "index")
    rank = len(array.shape)
    at: int = whole("axis", axis, -rank, rank - 1) % max(rank, 1)
    if src is not None:
        given, wanted = read(src, "src"), (*array.shape[:at], *found.shape, *array.shape[at + 1 :])
        if given.shape != wanted:
            raise InvalidProblemError(
                f"src must have shape {wanted}, that of x with the index along axis {at}, got {given.shape}"
            )
        if given.element is not array.element:
            raise InvalidProblemError(f"src must be {array.element}, as x is, got {given.element}")
    return at


@entry(IndexPutPlan)
def index_add(
    x: Array, index: Array, src: Array, *, axis: int, alpha: float = 1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with the slices of alpha · src added to those that `index` names along `axis` (torch.index_add)."""
    options = {"stream": stream, "preference": preference}
    axis = _along(x, index, src, axis)
    src = src if alpha == 1 else mul(src, alpha, **options)
    return _PUT[ScatterKind.ADD](x, [index], src, axes=(axis,), out=out, **options)


@entry(IndexPutPlan)
def index_copy(
    x: Array, index: Array, src: Array, *, axis: int, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with the slices of src in the place of those that `index` names along `axis` (torch.index_copy)."""
    options = {"out": out, "stream": stream, "preference": preference}
    return _PUT[ScatterKind.SET](x, [index], src, axes=(_along(x, index, src, axis),), **options)


@entry(IndexPutPlan)
def index_fill(
    x: Array, index: Array, value: Any, *, axis: int, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with `value`, a number or an array without axes, in the slices that `index` names along `axis`."""
    axis = _along(x, index, None, axis)
    key = [FULL] * len(shape_of(x, "x"))
    key[axis] = index
    options = {"out": out, "stream": stream, "preference": preference}
    return _put(ScatterKind.SET, x, tuple(key), value, None, **options)


@entry(ScatterPlan)
def index_reduce(
    x: Array, index: Array, src: Array, reduce: str, *, axis: int, include_self: bool = True, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with the slices of src combined with those that `index` names along `axis` (torch.index_reduce).

    reduce: sum, prod, mean, amax or amin. include_self: whether what x has there is one of them. It is
    `scatter_reduce` of an index that all elements of a slice share, and has its gradients.
    """
    if len(found := shape_of(index, "index")) != 1:
        raise InvalidProblemError(f"index must be a vector, got shape {found}")
    axis, shape = _along(x, index, src, axis), shape_of(src, "src")
    for other in range(len(shape)):
        index = index if other == axis else with_axis(index, other, "index")
    index = broadcast_to(index, shape, "index")
    options = {"out": out, "stream": stream, "preference": preference}
    return scatter_reduce(x, index, src, reduce, axis=axis, include_self=include_self, **options)


# ---- along an axis ---------------------------------------------------------------------------------------------------


@entry(ScatterPlan, kind=ScatterKind.SET)
def put_along_axis(
    x: Array, indices: Array, values: Any, axis: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with `values` at positions along `axis` (numpy.put_along_axis, whose result is in place); see `scatter`."""
    values = number_like(x, values, stream=stream)
    shape = list(shape_of(x, "x"))
    places = shape_of(indices, "indices")
    if len(places) != len(shape) or not -len(shape) <= axis < len(shape):
        raise InvalidProblemError(
            f"indices must have the axes of x, {axis} among them; got {places} for {tuple(shape)}"
        )
    shape[axis] = places[axis]
    options = {"out": out, "stream": stream, "preference": preference}
    return scatter(
        x, broadcast_to(indices, shape, "indices"), broadcast_to(values, shape, "values"), axis=axis, **options
    )


def along(x: Any, indices: Any, axis: int | None, **options: Any) -> Any:
    """`take_along_axis`."""
    if axis is None:
        size = math.prod(shape_of(x, "x"))
        flat, places = (
            reshaped(x, (size,), "x"),
            reshaped(indices, (math.prod(shape_of(indices, "indices")),), "indices"),
        )
        if flat is None or places is None:
            raise InvalidProblemError("axis must be given where x or indices are views that cannot be seen as one row")
        return gather(flat, places, axis=0, **options)
    shape, places = list(shape_of(x, "x")), list(shape_of(indices, "indices"))
    if len(places) != len(shape) or not -len(shape) <= axis < len(shape):
        raise InvalidProblemError(f"indices must have the axes of x, {axis} among them; got {places} for {shape}")
    extent, count = shape[axis], places[axis]
    shape[axis] = places[axis] = 1
    try:
        both = list(np.broadcast_shapes(tuple(shape), tuple(places)))
    except ValueError:
        raise InvalidProblemError(f"x and indices must broadcast but for axis {axis}, got {shape}, {places}") from None
    both[axis] = extent
    x = broadcast(x, both, "x")
    both[axis] = count
    return gather(x, broadcast(indices, both, "indices"), axis=axis, **options)
