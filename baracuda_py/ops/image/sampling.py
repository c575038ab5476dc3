"""Sampling: images at places that an array tells, as weighted sums of rows; all of their gradients are in a fixed order.

Rows are the channels of an image's places. A place becomes tokens, the rows that it reads, and their weights, formulas of
the coordinates; `gather_scatter` sums them. Its gradient sorts the tokens by row and sums in that order: no atomics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...core.arrays import read
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..layout.creation import arange
from ..layout.views import movedim, reshape
from ..segment.gather_scatter import gather_scatter_sum

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
PADDINGS = ("zeros", "border", "reflection")


@cache
def formula(text: str) -> Any:
    """A formula, made once."""
    return elementwise(text)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """A word among those known, or an error that lists them."""
    if value not in known:
        raise InvalidProblemError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return str(value)


def _reflected(c: str, n: str, align: bool) -> str:
    """c moved back and forth between the outermost places, or with the halves of a place beyond them."""
    low, span = ("0", f"({n} - 1)") if align else ("-0.5", n)
    back = f"abs({c} - ({low}))"
    wide = f"clamp_min({span}, 0.5)"
    return (
        f"clamp(where(remainder(floor({back} / {wide}), 2) == 0, remainder({back}, {wide}), "
        f"{wide} - remainder({back}, {wide})) + ({low}), 0, {n} - 1)"
    )


def padded(c: str, n: str, padding: str, align: bool) -> str:
    """The formula of a coordinate c among n places, inside where the padding moves it there."""
    if padding == "border":
        return f"clamp({c}, 0, {n} - 1)"
    return _reflected(c, n, align) if padding == "reflection" else c


def from_grid(g: str, n: str, align: bool) -> str:
    """The formula of a coordinate among n places from one in [-1, 1]."""
    return f"(({g} + 1) * 0.5 * ({n} - 1))" if align else f"((({g} + 1) * {n} - 1) * 0.5)"


def _tap(c: str, n: str, number: str, mode: str, padding: str, align: bool) -> tuple[str, str]:
    """Formulas of one axis with coordinate c: the place a token reads (a float), and its weight."""
    if mode == "nearest":
        return f"round({padded(c, n, padding, align)})", "1"
    if mode == "bilinear":
        moved = padded(c, n, padding, align)
        t = f"({moved} - floor({moved}))"
        return f"(floor({moved}) + {number})", f"where({number} == 0, 1 - {t}, {t})"
    t = f"({c} - floor({c}))"
    x = f"abs({number} - 1 - {t})"
    near, far = f"((1.25 * {x} - 2.25) * {x} * {x} + 1)", f"(((-0.75 * {x} + 3.75) * {x} - 6) * {x} + 3)"
    return padded(f"(floor({c}) + {number} - 1)", n, padding, align), f"where({x} < 1, {near}, {far})"


@cache
def _formulas(rank: int, mode: str, padding: str, align: bool, grid: bool, narrow: bool) -> tuple[Any, Any]:
    """The row of a token, -1 for none, and its weight, of coordinates c0 …, extents n0 …, batch b and token k."""
    taps, found = TAPS[mode], []
    for a in range(rank):
        c = f"float32(c{a})" if narrow else f"c{a}"
        c = from_grid(c, f"n{a}", align) if grid else c
        found.append(_tap(c, f"n{a}", f"((k // {taps ** (rank - 1 - a)}) % {taps})", mode, padding, align))
    inside = " and ".join(f"({place} >= 0 and {place} <= n{a} - 1)" for a, (place, _) in enumerate(found))
    row = "b"
    for a, (place, _) in enumerate(found):
        row = f"({row} * n{a} + int64({place}))"
    return elementwise(f"{row} if {inside} else -1"), elementwise(" * ".join(weight for _, weight in found))


def places(
    coordinates: Sequence[Any], extents: Sequence[int], mode: str, padding: str, align: bool, batch: Any,
    options: dict[str, Any], grid: bool = False,
) -> tuple[Any, Any | None]:  # fmt: skip
    """Tokens of places: their rows and weights, [places · taps]; no weights of nearest.

    coordinates: an array [*shape] for each axis, all of one shape, with `grid` in [-1, 1]; batch: one that broadcasts
    with them, the images.
    """
    rank = len(extents)
    narrow = read(coordinates[0], "coordinates").element.itemsize < 4
    row, weight = _formulas(rank, mode, padding, align, grid, narrow)
    taps = TAPS[mode] ** rank
    with beside(coordinates[0], options["stream"]):
        number = arange(taps, like=coordinates[0])
    last = len(shape_of(coordinates[0], "coordinates"))
    facts: dict[str, Any] = {f"c{a}": with_axis(c, last, "coordinates") for a, c in enumerate(coordinates)}
    sizes = {f"n{a}": n for a, n in enumerate(extents)}
    if "k" in row.inputs:
        facts["k"] = number
    src = row(**facts, **sizes, b=with_axis(batch, last, "batch"), **options)
    flat = (math.prod(shape_of(src, "src")),)
    if mode == "nearest":
        return reshape(src, flat), None
    used = {name: n for name, n in sizes.items() if name in weight.inputs}
    return reshape(src, flat), reshape(weight(**facts, **used, **options), flat)


def rows_of(x: Any, rank: int, channels: int) -> Any:
    """The channels of every place of images x [*batch, C, *spatial]: [rows, C]."""
    shape = shape_of(x, "x")
    last = movedim(x, len(shape) - rank - 1, -1)
    return reshape(last, (math.prod(shape) // max(channels, 1), channels))


def summed(rows: Any, src: Any, weight: Any, points: int, options: dict[str, Any]) -> Any:
    """What tokens, as many a point, come to: [points, C]."""
    if weight is None:
        return gather_scatter_sum(rows, src, num_segments=points, by="evenly", **options)
    return gather_scatter_sum(rows, src, weight=weight, num_segments=points, by="evenly", **options)


def float_like(x: Any, name: str = "x") -> Any:
    """The element of an image, which must be a float."""
    found = read(x, name).element
    if not found.is_float:
        raise UnsupportedError(f"{name} must be floats, got {found}; cast it first")
    return found
