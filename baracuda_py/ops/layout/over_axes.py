"""apply_over_axes: a function of an array and an axis, called for one axis after the other (numpy.apply_over_axes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import MAX_AXES, wholes
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.views import shape_of, with_axis
from .axes import place


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
