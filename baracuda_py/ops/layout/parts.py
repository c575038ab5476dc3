"""An array in parts along an axis: views in its own package. JAX, which has none, copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import INT64, shown, whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.views import shape_of, without_axes
from .axes import place
from .views import part


def _cut(x: Array, axis: int, bounds: Sequence[int]) -> list[Array]:
    return [part(x, axis, a, max(a, b)) for a, b in itertools.pairwise(bounds)]


def _axis(x: Array, axis: Any) -> tuple[int, int]:
    """An axis and its extent."""
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    return at, shape[at]


@exported
def split(x: Array, split_size: Any, axis: int = 0) -> list[Array]:
    """Views of x along an axis: of `split_size` elements each, the last of what is left, or of the sizes listed.

    torch.split and jax.lax.split; numpy.split, which counts parts, is `array_split`.
    """
    at, extent = _axis(x, axis)
    if not isinstance(split_size, (int, np.integer)):
        return split_with_sizes(x, split_size, axis)
    size = whole("split_size", split_size, 0 if not extent else 1)
    return _cut(x, at, [*range(0, extent, max(size, 1)), extent] if extent else [0, 0])


@exported
def split_with_sizes(x: Array, sizes: Any, axis: int = 0) -> list[Array]:
    """Views of x along an axis, of these sizes, which are its extent together (torch.split_with_sizes)."""
    at, extent = _axis(x, axis)
    given = _many("sizes", sizes)
    if sum(given) != extent:
        raise InvalidProblemError(f"sizes {given} must be {extent} together, the extent of axis {axis}")
    bounds = [0]
    for size in given:
        bounds.append(bounds[-1] + size)
    return _cut(x, at, bounds)


unsafe_split, unsafe_split_with_sizes = split, split_with_sizes


@exported
def chunk(x: Array, chunks: int, axis: int = 0) -> list[Array]:
    """Up to `chunks` views of x along an axis, of one size but the last, which may have less (torch.chunk)."""
    extent = _axis(x, axis)[1]
    count = whole("chunks", chunks, 1)
    if not extent:
        return [x] * count
    return split(x, -(-extent // count), axis)


unsafe_chunk = chunk


@exported
def tensor_split(x: Array, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Views of x along an axis: so many of nearly one size, the longer ones first, or cut at indices.

    torch.tensor_split and numpy.array_split.
    """
    at, extent = _axis(x, axis)
    if isinstance(indices_or_sections, (int, np.integer)):
        count = whole("indices_or_sections", indices_or_sections, 1)
        size, longer = divmod(extent, count)
        return _cut(x, at, [i * size + min(i, longer) for i in range(count + 1)])
    given = _many("indices_or_sections", indices_or_sections, -INT64)
    held = [min(max(i + extent if i < 0 else i, 0), extent) for i in given]
    bounds = [0, *held, extent]
    return _cut(x, at, bounds)


array_split = tensor_split


def _many(name: str, values: Any, minimum: int = 0) -> list[int]:
    """Integers of which there may be any number."""
    try:
        items = list(values)
    except MemoryError:
        raise
    except Exception:
        raise InvalidProblemError(f"{name} must be an integer or integers, got {shown(values)}") from None
    return [whole(f"{name}[{i}]", one, minimum) for i, one in enumerate(items)]


def _even(x: Array, indices_or_sections: Any, axis: int, rank: int) -> list[Array]:
    shape = shape_of(x, "x")
    if len(shape) < rank:
        raise InvalidProblemError(f"x must have {rank} axes at least, got shape {shape}")
    if isinstance(indices_or_sections, (int, np.integer)) and shape[axis] % whole("sections", indices_or_sections, 1):
        raise InvalidProblemError(f"axis {axis} of {shape} has no {indices_or_sections} equal parts")
    return tensor_split(x, indices_or_sections, axis)


@exported
def hsplit(x: Array, indices_or_sections: Any) -> list[Array]:
    """Equal views of x, or cut at indices, along axis 1, of a vector along its axis (torch.hsplit, numpy.hsplit)."""
    return _even(x, indices_or_sections, min(1, len(shape_of(x, "x")) - 1), 1)


@exported
def vsplit(x: Array, indices_or_sections: Any) -> list[Array]:
    """Equal views of x, or cut at indices, along axis 0 (torch.vsplit, numpy.vsplit)."""
    return _even(x, indices_or_sections, 0, 2)


@exported
def dsplit(x: Array, indices_or_sections: Any) -> list[Array]:
    """Equal views of x, or cut at indices, along axis 2 (torch.dsplit, numpy.dsplit)."""
    return _even(x, indices_or_sections, 2, 3)


@exported
def unbind(x: Array, axis: int = 0) -> list[Array]:
    """The views of x at each index of an axis (torch.unbind, jax.numpy.unstack)."""
    at, extent = _axis(x, axis)
    return [without_axes(part(x, at, i, i + 1), (at,), "x") for i in range(extent)]


unstack = unbind
