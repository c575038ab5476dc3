"""Views of a caller's arrays, in their own package: axes put in, axes broadcast. Nothing is copied but by JAX."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interop.arrays import package_name, read
from .element import ElementKind
from .errors import InvalidProblemError
from .tensor import TensorRef, merge_axes


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


def _strides(x: TensorRef) -> tuple[int, ...]:
    assert x.strides is not None
    return x.strides


def _ref(x: TensorRef, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorRef:
    return TensorRef.of_checked(x.ptr, shape, strides, ElementKind.of(x.element), x.device)


def _known(x: Any, name: str) -> str:
    package = package_name(type(x))
    if package not in ("cupy", "torch", "jax", "numpy"):
        raise InvalidProblemError(
            f"{name}: no views are made of a {type(x).__name__} here; give an array of CuPy, torch, JAX or NumPy, or "
            "one that has the shape already"
        )
    return package
