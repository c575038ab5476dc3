"""grid_cells: the cell of a regular grid that each point is in (torch_cluster.grid_cluster, voxels of a cloud)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import floor, inf, prod
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, without_axes
from ...expressions.elementwise import elementwise
from ..elementwise.unary import UnaryPlan
from ..layout.views import part

_DIMS, _CELLS = 4, 2**53  # axes; cells, whose numbers floats have


@cache
def _formula(dims: int) -> Any:
    """Σ_d floor((x_d - low_d) / size_d) stride_d where all are in the grid, else -1."""
    axes = [str(d) for d in range(dims)]
    cell = {d: f"floor((x{d} - low{d}) / size{d})" for d in axes}
    inside = " and ".join(f"{cell[d]} >= 0 and {cell[d]} < cells{d}" for d in axes)
    return elementwise(f"where({inside}, {' + '.join(f'int64({cell[d]}) * stride{d}' for d in axes)}, int64(-1))")


def _each(name: str, value: Any, dims: int) -> list[float]:
    """A number for all axes, or one for each."""
    many = list(value) if isinstance(value, Sequence) or (hasattr(value, "tolist") and shape_of(value, name)) else None
    found = [float(v) for v in (many if many is not None else [value] * dims)]
    if len(found) != dims or not all(-inf < v < inf for v in found):
        raise InvalidProblemError(f"{name} must be a finite number or {dims} of them, got {value}")
    return found


@entry(UnaryPlan)
def grid_cells(
    points: Array, size: Any, low: Any, high: Any, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """The cell [...] int64 of points [..., D], D up to 4, on a grid of cells of `size` from low to high; outside -1.

    size, low and high are numbers, or D of them on the host. Axis d has floor((high - low) / size) + 1 cells, and the
    last axis counts fastest: voxels by `segment_reduce` or `unique` of the cells. torch_cluster.grid_cluster counts the
    first axis fastest and does not leave out what is outside. A point with a NaN coordinate is outside.
    """
    shape, kind = shape_of(points, "points"), read(points, "points").element
    if not shape or not 1 <= shape[-1] <= _DIMS or not kind.is_float:
        raise InvalidProblemError(f"points must be floating [..., D] of D = 1 to {_DIMS}, got {kind} of shape {shape}")
    dims = shape[-1]
    sizes, lows, highs = (_each(n, v, dims) for n, v in (("size", size), ("low", low), ("high", high)))
    if any(s <= 0 for s in sizes) or any(a > b for a, b in zip(lows, highs, strict=True)):
        raise InvalidProblemError(f"size must be above 0 and low at most high, got {size}, {low} and {high}")
    cells = [floor((b - a) / s) + 1 for a, b, s in zip(lows, highs, sizes, strict=True)]
    if prod(cells) > _CELLS:
        raise InvalidProblemError(f"the grid has {cells} cells; it may have 2^53 in all")
    given: dict[str, Any] = {}
    for d in range(dims):
        given[f"x{d}"] = without_axes(part(points, len(shape) - 1, d, d + 1), [len(shape) - 1], "points")
        given |= {f"low{d}": lows[d], f"size{d}": sizes[d], f"cells{d}": cells[d], f"stride{d}": prod(cells[d + 1 :])}
    return _formula(dims)(**given, out=out, stream=stream, preference=preference)
