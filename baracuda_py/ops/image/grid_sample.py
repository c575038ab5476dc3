"""grid_sample and affine_grid: images at places that a grid tells, as PyTorch has them."""

from __future__ import annotations

import math
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import truth, whole, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import broadcast, shape_of, with_axis
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.parts import unbind
from ..layout.views import movedim, reshape
from ..segment.gather_scatter import GatherScatterPlan
from .sampling import PADDINGS, TAPS, float_like, formula, one_of, places, rows_of, summed


@entry(GatherScatterPlan)
def grid_sample(
    x: Array, grid: Array, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[n, c, …] = x at grid[n, …], a place with coordinates in [-1, 1] (torch.nn.functional.grid_sample).

    x: [N, C, H, W] or [N, C, D, H, W]; grid: [N, *points, 2 or 3], the last axis' coordinate first; y: [N, C, *points].
    mode: "bilinear" (in three axes trilinear), "nearest" (halves to even), "bicubic" (two axes, a = -¾). padding_mode:
    what is read outside, "zeros", "border", "reflection" (about the outermost places, or with align_corners=False the
    halves of a place beyond them). -1 and 1 are the outermost places' centres with align_corners, else their outer
    edges. A place that is NaN reads nothing and gives 0. Gradients for x, sorted sums without atomics, and grid have the
    same bits always. y has its channels last in memory.
    """
    options = {"stream": stream, "preference": preference}
    shape, points = shape_of(x, "x"), shape_of(grid, "grid")
    rank = len(shape) - 2
    if rank not in (2, 3) or len(points) != rank + 2 or points[-1] != rank or points[0] != shape[0]:
        raise InvalidProblemError(
            f"x must be [N, C, H, W] and grid [N, *points, 2], or with D before H 3, got shapes {shape} and {points}"
        )
    mode, padding = one_of("mode", mode, tuple(TAPS)), one_of("padding_mode", padding_mode, PADDINGS)
    align = truth("align_corners", align_corners)
    if mode == "bicubic" and rank == 3:
        raise InvalidProblemError('mode "bicubic" is for images of two axes; give "bilinear" or "nearest"')
    if min(shape[2:]) < 1:
        raise InvalidProblemError(f"x must have spatial axes of 1 or more, got shape {shape}")
    if float_like(x) is not read(grid, "grid").element:
        raise InvalidProblemError(f"grid must have x's element, {float_like(x)}, got {read(grid, 'grid').element}")
    coordinates = unbind(grid, -1)[::-1]
    with beside(x, stream):
        images = arange(shape[0], like=x)
    for _ in points[1:-1]:
        images = with_axis(images, len(shape_of(images, "n")), "n")
    src, weight = places(coordinates, shape[2:], mode, padding, align, images, options, grid=True)
    count = math.prod(points[:-1])
    y = summed(rows_of(x, rank, shape[1]), src, weight, count, options)
    made = movedim(reshape(y, (*points[:-1], shape[1])), -1, 1)
    return made if out is None else copy(made, out=out, **options)


_AFFINE = {
    2: ("t00 * u + t01 * v + t02", "t10 * u + t11 * v + t12"),
    3: (
        "t00 * u + t01 * v + t02 * w + t03", "t10 * u + t11 * v + t12 * w + t13", "t20 * u + t21 * v + t22 * w + t23",
    ),
}  # fmt: skip
