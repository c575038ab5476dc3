"""chamfer_distance: how far the points of two clouds are from their nearest in the other (Fan et al. 2017)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.views import broadcast, shape_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ..indexing.gather import gather
from .nearest_points import NearestPointsPlan, nearest_points


@cache
def _mean() -> Any:
    """Σ_d (a_d - b_d)² over the coordinates and points, over the number of points."""
    return reduce("(a - b) * (a - b)", "sum", axis=(1, 2), then="sum / count")


@cache
def _sum() -> Any:
    return elementwise("a + b")


@entry(NearestPointsPlan)
def chamfer_distance(x: Array, y: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Mean squared distances of x [B, N, D] to the nearest of y [B, M, D], and of y to x's, added: [B].

    PyTorch3D's chamfer_distance without its reductions; N and M at least 1. There is no matrix of distances. The
    gradient is that of the distances to the neighbours found.
    """
    shapes, kind = [shape_of(v, n) for v, n in ((x, "x"), (y, "y"))], read(x, "x").element
    if any(len(s) != 3 or s[1] == 0 for s in shapes) or shapes[0][::2] != shapes[1][::2]:
        raise InvalidProblemError(f"x and y must be [B, N, D] and [B, M, D] of 1 point and more, got {shapes}")
    if read(y, "y").element is not kind or not kind.is_float:
        raise InvalidProblemError(f"x and y must be of one floating element, got {kind} and {read(y, 'y').element}")
    options = {"stream": stream, "preference": preference}
    parts = []
    for a, b in ((x, y), (y, x)):
        index = nearest_points(b, a, 1, **options)
        near = gather(b, broadcast(index, shape_of(a, "x"), "index"), axis=1, **options)
        parts.append(_mean()(a=a, b=near, count=shape_of(a, "x")[1], **options))
    return _sum()(a=parts[0], b=parts[1], out=out, **options)
