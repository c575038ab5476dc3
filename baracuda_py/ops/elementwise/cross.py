"""cross: the cross product of vectors of three."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import shape_of
from ...expressions.elementwise import elementwise
from ..layout.concat import ConcatPlan, stack
from ..layout.parts import unbind


@cache
def _products() -> Any:
    return elementwise("x = a1 * b2 - a2 * b1; y = a2 * b0 - a0 * b2; z = a0 * b1 - a1 * b0")


@entry(ConcatPlan)
def cross(a: Array, b: Array, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a × b of vectors of 3 along `axis` (torch.linalg.cross, numpy.cross); the other axes broadcast.

    a and b have as many axes. Of 16-bit floats products and differences are in float32, rounded once; of others each
    operation is. Two launches.
    """
    shapes = shape_of(a, "a"), shape_of(b, "b")
    rank, at = len(shapes[0]), whole("axis", axis)
    if len(shapes[1]) != rank or not -rank <= at < rank or shapes[0][at] != 3 or shapes[1][at] != 3:
        raise InvalidProblemError(f"a and b must have as many axes, and 3 along axis {shown(axis)}, got {shapes}")
    parts = {f"{name}{i}": part for name, x in (("a", a), ("b", b)) for i, part in enumerate(unbind(x, at))}
    options = {"stream": stream, "preference": preference}
    return stack(list(_products()(**parts, **options)), at, out=out, **options)
