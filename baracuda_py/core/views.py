"""Views of a caller's arrays, in their own package: axes put in, taken out, broadcast, exchanged, merged; diagonals.

Nothing is copied but by JAX.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..interop.packages import package_name
from .arrays import read
from .element import ElementKind
from .errors import InvalidProblemError
from .tensor import TensorRef, View, addressable, dense_strides, merge_axes


def shape_of(x: Any, name: str) -> tuple[int, ...]:
    """The shape."""
    return read(x, name).shape


def with_axis(x: Any, axis: int, name: str) -> Any:
    """x with an axis of extent 1 at `axis` (from the end: -1 is behind the last)."""
    shape = shape_of(x, name)
    at = len(shape) + 1 + axis if axis < 0 else axis
    if isinstance(x, TensorRef):
        strides = _strides(x)
        return _ref(x, (*shape[:at], 1, *shape[at:]), (*strides[:at], 1, *strides[at:]))
    _known(x, name)
    return x[(slice(None),) * at + (None,)]


def broadcast(x: Any, shape: Sequence[int], name: str) -> Any:
    """x as a view of a shape that it broadcasts to; x itself where it has that shape."""
    own, wanted = shape_of(x, name), tuple(shape)
    if own == wanted:
        return x
    if isinstance(x, TensorRef):
        added = len(wanted) - len(own)
        steps = [0 if n != m else s for n, m, s in zip(own, wanted[added:], _strides(x), strict=True)]
        return _ref(x, wanted, (*((0,) * added), *steps))
    package = _known(x, name)
    if package == "torch":
        return x.expand(wanted)
    if package == "jax":
        return sys.modules["jax"].numpy.broadcast_to(x, wanted)
    return np.broadcast_to(x, wanted) if package == "numpy" else sys.modules["cupy"].broadcast_to(x, wanted)


def transposed(x: Any, name: str) -> Any:
    """x with its last two axes exchanged."""
    shape = shape_of(x, name)
    if len(shape) < 2:
        raise InvalidProblemError(f"{name} must have at least two axes, got shape {shape}")
    if isinstance(x, TensorRef):
        *lead, m, n = _strides(x)
        return _ref(x, (*shape[:-2], shape[-1], shape[-2]), (*lead, n, m))
    package = _known(x, name)
    return x.transpose(-1, -2) if package == "torch" else x.swapaxes(-1, -2)


def rows_of(x: Any, name: str) -> Any:
    """x as a matrix of its last axis, or None where its rows are no even steps apart and that needs a copy."""
    found = read(x, name)
    *lead, cols = found.shape
    merged, (steps,) = merge_axes(tuple(lead), [found.strides[:-1]])
    if len(merged) > 1:
        return None
    rows = math.prod(lead)
    if isinstance(x, TensorRef):
        return _ref(x, (rows, cols), (steps[0] if steps else cols, found.strides[-1]))
    _known(x, name)
    return x.reshape(rows, cols)


def halves(x: Any, name: str) -> tuple[Any, Any]:
    """The halves of x along its first axis."""
    shape = shape_of(x, name)
    if not shape or shape[0] % 2:
        raise InvalidProblemError(f"{name} must have two halves along its first axis, got shape {shape}")
    half = shape[0] // 2
    if isinstance(x, TensorRef):
        strides, size = _strides(x), ElementKind.of(x.element).itemsize
        second = TensorRef.of_checked(
            x.ptr + half * strides[0] * size, (half, *shape[1:]), strides, ElementKind.of(x.element), x.device
        )
        return _ref(x, (half, *shape[1:]), strides), second
    if _known(x, name) == "torch":
        first, second = x.unflatten(0, (2, half)).unbind()  # autograd puts the two gradients together at once
        return first, second
    return x[:half], x[half:]


def permuted(x: Any, order: Sequence[int], name: str) -> Any:
    """x with its axes in another order; x itself where that is its own."""
    if len(x.shape) != len(order):
        raise InvalidProblemError(f"{name} must have {len(order)} axes, got shape {tuple(x.shape)}")
    if list(order) == list(range(len(order))):
        return x
    if isinstance(x, TensorRef):
        strides = _strides(x)
        return _ref(x, tuple([x.shape[axis] for axis in order]), tuple([strides[axis] for axis in order]))
    return x.permute(*order) if _known(x, name) == "torch" else x.transpose(tuple(order))


def without_axes(x: Any, axes: Collection[int], name: str) -> Any:
    """x without some axes, all of extent 1."""
    if not axes:
        return x
    kept = [axis for axis in range(len(shape_of(x, name))) if axis not in axes]
    if isinstance(x, TensorRef):
        strides = _strides(x)
        return _ref(x, tuple([x.shape[axis] for axis in kept]), tuple([strides[axis] for axis in kept]))
    _known(x, name)
    index = (slice(None) if axis in kept else 0 for axis in range(len(kept) + len(axes)))
    place = (*index, ...)  # with the dots NumPy gives an array even where no axis is left
    return x[place]


def diagonal(x: Any, first: int, second: int, name: str) -> Any:
    """x[…, i, …, i, …] of two axes as long, i in the place of the first of them."""
    view = read(x, name)
    shape = [n for axis, n in enumerate(view.shape) if axis != second]
    package = "" if isinstance(x, TensorRef) else _known(x, name)
    if package in ("torch", "jax"):
        taken = x.diagonal(0, first, second)  # which is last
        order = [axis for axis in range(len(shape) - 1) if axis < first]
        return permuted(taken, [*order, len(shape) - 1, *range(len(order), len(shape) - 1)], name)
    strides = list(view.strides)
    strides[first] += strides[second]
    return _restrided(x, tuple(shape), tuple(strides[:second] + strides[second + 1 :]))


def reshaped(x: Any, shape: Sequence[int], name: str) -> Any:
    """x as a view of another shape, its elements in the same order; None where no strides say so."""
    package = "" if isinstance(x, TensorRef) else _known(x, name)
    if package == "jax":
        return x.reshape(tuple(shape))
    if package == "torch":
        try:
            return x.view(tuple(shape))
        except (RuntimeError, ValueError):  # the second in a trace
            return None
    view = read(x, name)
    if 0 in view.shape:
        return _restrided(x, tuple(shape), dense_strides(shape))
    made = View(0, view.shape, view.strides, view.element).reshaped(tuple(shape))
    return None if made is None else _restrided(x, made.shape, made.strides)


def cut(x: Any, cuts: Sequence[slice], name: str) -> Any:
    """x[cuts], a slice with steps above 0 for each of the first axes."""
    if isinstance(x, TensorRef):
        shape, strides, ptr = list(read(x, name).shape), list(_strides(x)), x.ptr
        size = ElementKind.of(x.element).itemsize
        for axis, one in enumerate(cuts):
            start, stop, step = one.indices(shape[axis])
            shape[axis] = len(range(start, stop, step))
            ptr += start * strides[axis] * size if shape[axis] else 0
            strides[axis] *= step
        return TensorRef.of_checked(ptr, tuple(shape), tuple(strides), ElementKind.of(x.element), x.device)
    _known(x, name)
    place = (*cuts, ...)  # with the dots NumPy gives an array even where no axis is left
    return x[place]


def windows(x: Any, axis: int, size: int, step: int, name: str) -> Any:
    """x as windows along an axis, the place within a window being a last axis; None of JAX, which has no views."""
    package = "" if isinstance(x, TensorRef) else _known(x, name)
    if package == "jax":
        return None
    if package == "torch":
        return x.unfold(axis, size, step)
    view = read(x, name)
    shape, strides = list(view.shape), list(view.strides)
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return _restrided(x, (*shape, size), (*strides, view.strides[axis]))


def storage_offset(x: Any) -> int:
    """How many elements lie before x in the memory that it is a view of: of NumPy and CuPy the array that it came from.

    An array of another package, and one over memory that is no array, begins its memory.
    """
    package = package_name(type(x))
    if package == "torch":
        return int(x.storage_offset())
    base = getattr(x, "base", None) if package in ("numpy", "cupy") else None
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = base.base
    if package_name(type(base)) != package:
        return 0
    whole = read(base, "x")
    first = addressable(whole.ptr, whole.shape, whole.strides, x.itemsize)[0]
    return (read(x, "x").ptr - whole.ptr - first) // int(x.itemsize)


def constant(x: Any) -> Any:
    """x as nothing that is differentiated."""
    package = package_name(type(x))
    if package == "torch":
        return x.detach()
    return sys.modules["jax"].lax.stop_gradient(x) if package == "jax" else x


def _restrided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The memory of a NumPy or CuPy array, or a TensorRef, with strides in elements."""
    if isinstance(x, TensorRef):
        return _ref(x, shape, strides)
    steps = tuple([stride * x.itemsize for stride in strides])
    if isinstance(x, np.ndarray):
        if x.dtype.isbuiltin == 1:
            return np.lib.stride_tricks.as_strided(x, shape, steps)
        # NumPy's array interface has no name for elements of other packages: words of as many bytes stand for them.
        return np.lib.stride_tricks.as_strided(x.view(f"u{x.itemsize}"), shape, steps).view(x.dtype)
    return type(x)(shape, x.dtype, x.data, steps)


def _strides(x: TensorRef) -> tuple[int, ...]:
    assert x.strides is not None
    return x.strides


def _ref(x: TensorRef, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorRef:
    return TensorRef.of_checked(x.ptr, shape, strides, ElementKind.of(x.element), x.device)


def _known(x: Any, name: str) -> str:
    package = package_name(type(x))
    if package not in VIEWED:
        raise no_views(x, name)
    return package


VIEWED = ("cupy", "torch", "jax", "numpy")
"""The packages whose arrays make views of themselves."""


def no_views(x: Any, name: str) -> InvalidProblemError:
    """The error for an array of another package where a view is needed."""
    return InvalidProblemError(
        f"{name}: no views are made of a {type(x).__name__} here; give an array of CuPy, torch, JAX or NumPy, or "
        "one that has the shape already"
    )
