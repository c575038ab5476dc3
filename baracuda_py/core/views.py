"""Views of a caller's arrays, in their own package: axes put in, axes broadcast. Nothing is copied but by JAX."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interop.arrays import package_name, read
from .element import ElementKind
from .errors import InvalidProblemError
from .tensor import TensorRef


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


def permuted(x: Any, order: Sequence[int], name: str) -> Any:
    """x with its axes in another order; x itself where that is its own."""
    shape = shape_of(x, name)
    if tuple(order) == tuple(range(len(shape))):
        return x
    if isinstance(x, TensorRef):
        steps = _strides(x)
        return _ref(x, tuple(shape[a] for a in order), tuple(steps[a] for a in order))
    package = _known(x, name)
    return x.permute(tuple(order)) if package == "torch" else x.transpose(tuple(order))


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
