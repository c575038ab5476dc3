"""apply_over_axes and apply_along_axis: functions of an array and an axis, or of each of its lines (NumPy's)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import MAX_AXES, shown, wholes
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.views import cut, shape_of, with_axis, without_axes
from .axes import place
from .concat import stack
from .views import moveaxis, reshape


@exported
def apply_over_axes(func: Callable[..., Any], x: Array, axes: Any) -> Array:
    """func(x, axis=axis) for each of several axes in turn, whose result has that axis, of extent 1, or lacks it.

    numpy.apply_over_axes. func: a function of this package, such as `sum`, whose name for the axis is `axis`.
    """
    rank = len(shape_of(x, "x"))
    given = (axes,) if isinstance(axes, (int, np.integer)) else wholes("axes", axes, -MAX_AXES, MAX_AXES - 1, "axes")
    for axis in [place(one, rank) for one in given]:
        made = func(x, axis=axis)
        shape = shape_of(made, "func's result")
        if len(shape) == rank - 1:
            made = with_axis(made, axis, "func's result")
        elif len(shape) != rank:
            raise InvalidProblemError(f"func must keep the {rank} axes of x or lack one, got shape {shape}")
        x = made
    return x


@exported
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Array, *args: Any, **kwargs: Any) -> Array:
    """func1d(line, *args, **kwargs) of every line along an axis, whose results take its place (numpy.apply_along_axis).

    func1d: takes a vector, a view of arr, and returns an array, of the same shape each time. It is called for each line
    in turn, so a function that takes an axis is much faster; jax.numpy's traces it once. Gradients are those of func1d.
    """
    shape = shape_of(arr, "arr")
    at = place(axis, len(shape))
    others = shape[:at] + shape[at + 1 :]
    if not callable(func1d):
        raise InvalidProblemError(f"func1d must be a function of a line, got {shown(func1d)}")
    if 0 in others:
        raise InvalidProblemError(f"arr must have a line along axis {at}, got shape {shape}")
    made = []
    for index in np.ndindex(others):
        picked: list[Any] = [slice(i, i + 1) for i in index]
        picked.insert(at, slice(None))
        line = without_axes(cut(arr, tuple(picked), "arr"), tuple(i for i in range(len(shape)) if i != at), "arr")
        made.append(func1d(line, *args, **kwargs))
    own = {shape_of(one, "func1d's result") for one in made}
    if len(own) > 1:
        raise InvalidProblemError(f"func1d must return arrays of one shape, got {sorted(own)}")
    (each,) = own
    whole = reshape(stack(made, 0), *others, *each)
    return moveaxis(whole, tuple(range(len(others), len(others) + len(each))), tuple(range(at, at + len(each))))
