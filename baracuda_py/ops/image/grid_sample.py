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
from ...core.views import reshaped, shape_of
from ..gemm.gemm import GemmPlan
from ..gemm.matmul import matmul
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.parts import unbind
from ..layout.views import movedim, reshape
from ..segment.gather_scatter import GatherScatterPlan
from .sampling import PADDINGS, TAPS, float_like, formula, images_at, one_of


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
    edges. A place that is NaN reads nothing and gives 0. Gradients for x, sorted sums without atomics, and grid have
    the same bits always. y has its channels last in memory.
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
    if float_like(x) is not read(grid, "grid").element:
        raise InvalidProblemError(f"grid must have x's element, {float_like(x)}, got {read(grid, 'grid').element}")
    return images_at(x, unbind(grid, -1)[::-1], mode, padding, align, out, options, grid=True)


@entry(GatherScatterPlan)
def grid_sampler(
    x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`grid_sample` with numbers for words (torch.grid_sampler): 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2
    reflection.
    """
    mode = tuple(TAPS)[whole("interpolation_mode", interpolation_mode, 0, 2)]
    padding = PADDINGS[whole("padding_mode", padding_mode, 0, 2)]
    return grid_sample(x, grid, mode, padding, align_corners, out=out, stream=stream, preference=preference)


@entry(GatherScatterPlan)
def grid_sampler_2d(
    x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`grid_sampler` of images [N, C, H, W] (torch.grid_sampler_2d)."""
    if len(shape_of(x, "x")) != 4:
        raise InvalidProblemError(f"x must be [N, C, H, W], got shape {shape_of(x, 'x')}")
    options = {"stream": stream, "preference": preference}
    return grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners, out=out, **options)


@entry(GatherScatterPlan)
def grid_sampler_3d(
    x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`grid_sampler` of images [N, C, D, H, W] (torch.grid_sampler_3d)."""
    if len(shape_of(x, "x")) != 5:
        raise InvalidProblemError(f"x must be [N, C, D, H, W], got shape {shape_of(x, 'x')}")
    options = {"stream": stream, "preference": preference}
    return grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners, out=out, **options)


def _along(axis: int, n: int, align: bool) -> str:
    """The formula of coordinates in [-1, 1] of the places of an axis."""
    if align:
        return f"(2 * i{axis} / {n - 1} - 1)" if n > 1 else f"(0 * i{axis})"
    return f"((2 * i{axis} + 1) / {n} - 1)"


@entry(GemmPlan)
def affine_grid(
    theta: Array, size: Any, align_corners: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The grid of `grid_sample` that an affine map makes (torch.nn.functional.affine_grid).

    theta: [N, 2, 3] or [N, 3, 4]; size: (N, C, H, W) or (N, C, D, H, W), of what is sampled. Returns [N, *spatial, 2 or
    3], theta times (x, y, …, 1) of every place, whose coordinates lie in [-1, 1] as align_corners says. One matrix
    product, of which the gradient for theta is another.
    """
    options = {"stream": stream, "preference": preference}
    shape, sizes, align = shape_of(theta, "theta"), wholes("size", size, 1), truth("align_corners", align_corners)
    rank = len(sizes) - 2
    if rank not in (2, 3) or shape != (sizes[0], rank, rank + 1):
        raise InvalidProblemError(
            f"theta must be [N, 2, 3] for a size (N, C, H, W), [N, 3, 4] for one with D, got {shape} for {sizes}"
        )
    float_like(theta, "theta")
    spatial = sizes[2:]
    with beside(theta, stream):
        number = arange(rank + 1, element=read(theta, "theta").element, like=theta)
        along = [arange(n, element=read(theta, "theta").element, like=theta) for n in spatial]
    text = "1"
    for a in range(rank):  # the last axis is coordinate 0
        text = f"where(k == {rank - 1 - a}, {_along(a, spatial[a], align)}, {text})"
    facts = {f"i{a}": reshape(one, (-1, *(1,) * (rank - a))) for a, one in enumerate(along)}
    base = formula(f"{text} + 0 * k")(**facts, k=number, **options)
    rows = reshape(base, (math.prod(spatial), rank + 1))
    to = None if out is None else reshaped(out, (sizes[0], math.prod(spatial), rank), "out")
    made = matmul(rows, movedim(theta, 1, 2), out=to, **options)
    if to is not None:
        return out
    y = reshape(made, (sizes[0], *spatial, rank))
    return y if out is None else copy(y, out=out, **options)


@entry(GemmPlan)
def affine_grid_generator(
    theta: Array, size: Any, align_corners: bool, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`affine_grid` (torch.affine_grid_generator)."""
    return affine_grid(theta, size, align_corners, out=out, stream=stream, preference=preference)
