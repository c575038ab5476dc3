"""map_coordinates, remap, warp_affine, warp_perspective: images at places in units of their own places."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, truth, whole, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.parts import unbind
from ..layout.views import reshape
from ..segment.gather_scatter import GatherScatterPlan
from .integers import in_floats, of_integers
from .sampling import (
    PADDINGS, TAPS, float_like, formula, images_at, one_of, reduced, shaped, summed, tap_number, token_formulas,
    tokens,
)  # fmt: skip

_FIXED = {
    "constant": "{i}",
    "nearest": "clamp({i}, 0, {n} - 1)",
    "wrap": "remainder({i}, {n})",
    "mirror": "abs(remainder({i} + ({n} - 1), 2 * clamp_min({n} - 1, 0.5)) - ({n} - 1))",
    "reflect": "floor(abs(remainder(2 * {i} + 1 + 2 * {n}, 4 * {n}) - 2 * {n}) / 2)",
}


@cache
def _formulas(rank: int, order: int, mode: str) -> tuple[Any, Any]:
    found = []
    for a in range(rank):
        c, n = f"c{a}", f"n{a}"
        if order == 0:  # halves away from 0
            place, weight = f"(sign({c}) * floor(abs({c}) + 0.5))", "1"
        else:
            number, t = tap_number(a, 2, rank), f"({c} - floor({c}))"
            place, weight = f"(floor({c}) + {number})", f"where({number} == 0, 1 - {t}, {t})"
        found.append((_FIXED[mode].format(i=place, n=n), weight))
    return token_formulas(found)


@entry(GatherScatterPlan)
def map_coordinates(
    x: Array, coordinates: Any, order: int, mode: str = "constant", cval: float = 0.0, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x at places of any number (jax.scipy.ndimage.map_coordinates): y[…] = x at (coordinates[0][…], …).

    coordinates: an array for each of x's one to four axes, or one whose first axis has them, of a float; order: 0 for
    the nearest place, 1 for lines between places. mode says what lies outside: "constant" (cval), "nearest", "wrap",
    "mirror" (about the outermost places) or "reflect" (about their outer edges). Gradients for x and coordinates have
    the same bits always.
    """
    options = {"stream": stream, "preference": preference}
    shape, order = shape_of(x, "x"), whole("order", order, 0, 1)
    mode, cval = one_of("mode", mode, tuple(_FIXED)), real("cval", cval)
    given = list(coordinates) if isinstance(coordinates, (list, tuple)) else unbind(coordinates, 0)
    if not 1 <= len(shape) <= 4 or len(given) != len(shape) or min(shape) < 1:
        raise InvalidProblemError(
            f"coordinates must be an array for each of one to four axes of x, none of extent 0, got {len(given)} for "
            f"shape {shape}"
        )
    float_like(x)
    points = shape_of(given[0], "coordinates[0]")
    for i, one in enumerate(given):
        if shape_of(one, f"coordinates[{i}]") != points:
            raise InvalidProblemError(f"coordinates must be of one shape, got {[shape_of(g, 'c') for g in given]}")
        if read(one, "coordinates").element not in (float_like(x), float_like(x).acc):
            raise InvalidProblemError(f"coordinates must have x's element, {float_like(x)}; cast them first")
    count = (2 if order else 1) ** len(shape)
    src, weight = tokens(_formulas(len(shape), order, mode), count, given, shape, 0, options)
    cells = shaped(x, (math.prod(shape), 1), options)
    y = reshape(summed(cells, src, weight, math.prod(points), options), points)
    if mode == "constant" and cval:
        outside = formula("w if r < 0 else 0")(w=weight, r=src, **options) if weight is not None else None
        missing = formula("1 if r < 0 else 0")(r=reshape(src, points), **options) if outside is None else None
        if outside is not None:
            y = formula("y + c * m")(y=y, c=cval, m=reduced("sum", outside, -1, options), out=out, **options)
        else:
            y = formula("c if m != 0 else y")(y=y, c=cval, m=missing, out=out, **options)
        return y
    return y if out is None else copy(y, out=out, **options)


def _pixels(x: Any, size: tuple[int, int], options: dict[str, Any]) -> tuple[Any, Any]:
    """Columns [1, 1, W] and rows [1, H, 1] of an image of another size."""
    kind = read(x, "x").element.acc
    with beside(x, options["stream"]):
        rows, columns = (arange(n, element=kind, like=x) for n in size)
    return reshape(columns, (1, 1, size[1])), reshape(rows, (1, size[0], 1))


def _checked(x: Any, m: Any, rows: int, dsize: Any, mode: str, padding_mode: str) -> tuple[Any, str, str]:
    shape, size = shape_of(x, "x"), wholes("dsize", dsize, 1)
    if len(shape) != 4 or shape_of(m, "m") != (shape[0], rows, 3) or len(size) != 2:
        raise InvalidProblemError(
            f"x must be [N, C, H, W], m [N, {rows}, 3] and dsize (height, width), got shapes {shape}, "
            f"{shape_of(m, 'm')} and {dsize}"
        )
    if read(m, "m").element is not float_like(x).acc:
        raise InvalidProblemError(f"m must be {float_like(x).acc} for x of {float_like(x)}; cast it first")
    return size, one_of("mode", mode, tuple(TAPS)), one_of("padding_mode", padding_mode, PADDINGS)


def _numbers(m: Any) -> dict[str, Any]:
    """Every number of matrices [N, rows, 3], as [N, 1, 1]."""
    n = shape_of(m, "m")[0]
    return {
        f"m{i}{j}": reshape(one, (n, 1, 1))
        for i, row in enumerate(unbind(m, 1))
        for j, one in enumerate(unbind(row, 1))
    }


@entry(GatherScatterPlan)
def warp_affine(
    x: Array, m: Array, dsize: Any, mode: str = "bilinear", padding_mode: str = "zeros", *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Images moved by affine maps (kornia.geometry.transform.warp_affine, cv2.warpAffine): place p comes to m (p, 1).

    x: [N, C, H, W]; m: [N, 2, 3] of (x, y) in places, in x's accumulator; dsize: (height, width) of y. mode and
    padding_mode are those of `grid_sample`, reflection about the outermost places. The map is inverted by formula: one
    that is singular reads nothing, 0. Gradients for x and m. Integers of 8 and 16 bits (m of float32) and int32
    (float64) are rounded once, halves to even, within the element.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: warp_affine(wide, m, dsize, mode, padding_mode, **options), x, out, options)
    size, mode, padding = _checked(x, m, 2, dsize, mode, padding_mode)
    u, v = _pixels(x, size, options)
    det = "(m00 * m11 - m01 * m10)"
    facts = {**_numbers(m), "u": u, "v": v}
    column = formula(f"(m11 * (u - m02) - m01 * (v - m12)) / {det}")(**facts, **options)
    row = formula(f"(m00 * (v - m12) - m10 * (u - m02)) / {det}")(**facts, **options)
    return images_at(x, (row, column), mode, padding, True, out, options)


@entry(GatherScatterPlan)
def warp_perspective(
    x: Array, m: Array, dsize: Any, mode: str = "bilinear", padding_mode: str = "zeros", *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Images moved by homographies (kornia.geometry.transform.warp_perspective, cv2.warpPerspective).

    As `warp_affine` with m of [N, 3, 3]: place p comes to m (p, 1), divided by its third number. Integers as there.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        return in_floats(lambda wide: warp_perspective(wide, m, dsize, mode, padding_mode, **options), x, out, options)
    size, mode, padding = _checked(x, m, 3, dsize, mode, padding_mode)
    u, v = _pixels(x, size, options)

    def cofactor(i: int, j: int) -> str:
        a, b, c, d = (f"m{r % 3}{s % 3}" for r in (i - 2, i - 1) for s in (j - 2, j - 1))
        return f"({a} * {d} - {b} * {c})"

    rows = [f"({cofactor(0, k)} * u + {cofactor(1, k)} * v + {cofactor(2, k)})" for k in range(3)]
    facts = {**_numbers(m), "u": u, "v": v}
    column, row = (formula(f"{rows[k]} / {rows[2]}")(**facts, **options) for k in (0, 1))
    return images_at(x, (row, column), mode, padding, True, out, options)


@entry(GatherScatterPlan)
def remap(
    x: Array, map_x: Array, map_y: Array, mode: str = "bilinear", padding_mode: str = "zeros", *,
    align_corners: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Images at places that two maps tell (cv2.remap): y[n, c, i, j] = x[n, c] at column map_x[n, i, j], row map_y.

    x: [N, C, H, W]; maps: [N, height, width], in x's element or its accumulator, in places. mode and padding_mode are
    those of `grid_sample`; align_corners says about what reflection is. Gradients for x and both maps. Integers of 8
    and 16 bits (maps of float32) and int32 (float64) are rounded once, halves to even, within the element.
    """
    options = {"stream": stream, "preference": preference}
    if of_integers(x):
        facts: dict[str, Any] = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
        return in_floats(lambda wide: remap(wide, map_x, map_y, **facts, **options), x, out, options)
    shape, points = shape_of(x, "x"), shape_of(map_x, "map_x")
    if len(shape) != 4 or len(points) != 3 or points[0] != shape[0] or shape_of(map_y, "map_y") != points:
        raise InvalidProblemError(
            f"x must be [N, C, H, W], map_x and map_y [N, height, width], got shapes {shape}, {points} and "
            f"{shape_of(map_y, 'map_y')}"
        )
    for one, name in ((map_x, "map_x"), (map_y, "map_y")):
        if read(one, name).element not in (float_like(x), float_like(x).acc):
            raise InvalidProblemError(f"{name} must have x's element, {float_like(x)}, or its accumulator; cast it")
    mode, padding = one_of("mode", mode, tuple(TAPS)), one_of("padding_mode", padding_mode, PADDINGS)
    return images_at(x, (map_y, map_x), mode, padding, truth("align_corners", align_corners), out, options)
