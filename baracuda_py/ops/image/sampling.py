"""Sampling: images at places that an array tells, as weighted sums of rows, in a fixed order.

Rows are the channels of an image's places. A place becomes tokens, the rows that it reads, and their weights, formulas
of the coordinates; `gather_scatter` sums them. Its gradient sorts the tokens by row and sums in that order: no atomics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...core import registry
from ...core.arrays import read
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.views import movedim, reshape, seen_as, sizes
from ..segment.gather_scatter import gather_scatter_sum

TAPS = {"bilinear": 2, "nearest": 1, "bicubic": 4}  # in the order of torch's numbers
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


def shaped(x: Any, shape: Sequence[int], options: dict[str, Any]) -> Any:
    """`reshape`, of which a copy, if strides need one, is made in the order of the stream that is given."""
    return seen_as(x, sizes(shape, math.prod(shape_of(x, "x"))), **options)


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


def token_formulas(taps: Sequence[tuple[str, str]]) -> tuple[Any, Any]:
    """The row of a token, -1 for none, and its weight, from formulas of each axis: the place it reads, and its weight.

    They may name coordinates c0 …, extents n0 …, and the token's number k; b is the image.
    """
    inside = " and ".join(f"({place} >= 0 and {place} <= n{a} - 1)" for a, (place, _) in enumerate(taps))
    row = "b"
    for a, (place, _) in enumerate(taps):
        row = f"({row} * n{a} + int64({place}))"
    return elementwise(f"{row} if {inside} else -1"), elementwise(" * ".join(weight for _, weight in taps))


def tap_number(axis: int, taps: int, rank: int) -> str:
    """The formula of which tap of an axis token k is, the last axis moving fastest."""
    return f"((k // {taps ** (rank - 1 - axis)}) % {taps})"


@cache
def _formulas(rank: int, mode: str, padding: str, align: bool, grid: bool, narrow: bool) -> tuple[Any, Any]:
    found = []
    for a in range(rank):
        c = f"float32(c{a})" if narrow else f"c{a}"
        c = from_grid(c, f"n{a}", align) if grid else c
        found.append(_tap(c, f"n{a}", tap_number(a, TAPS[mode], rank), mode, padding, align))
    return token_formulas(found)


def tokens(
    formulas: tuple[Any, Any], count: int, coordinates: Sequence[Any], extents: Sequence[int], batch: Any,
    options: dict[str, Any],
) -> tuple[Any, Any | None]:  # fmt: skip
    """The tokens of places, `count` each: their rows and weights, [*places, count]; None for weights of 1.

    coordinates: an array for each axis; batch: a number, or an array that broadcasts with them.
    """
    row, weight = formulas
    with beside(coordinates[0], options["stream"]):
        number = arange(count, like=coordinates[0])
    last = len(shape_of(coordinates[0], "coordinates"))
    facts: dict[str, Any] = {f"c{a}": with_axis(c, last, "coordinates") for a, c in enumerate(coordinates)}
    facts |= {f"n{a}": n for a, n in enumerate(extents)}
    facts |= {"k": number, "b": batch if isinstance(batch, int) else with_axis(batch, -1, "batch")}

    def made(one: Any) -> Any:
        return one(**{name: fact for name, fact in facts.items() if name in one.inputs}, **options)

    return made(row), made(weight) if "c0" in weight.inputs else None


def places(
    coordinates: Sequence[Any], extents: Sequence[int], mode: str, padding: str, align: bool, batch: Any,
    options: dict[str, Any], grid: bool = False,
) -> tuple[Any, Any | None]:  # fmt: skip
    """`tokens` of a mode and a padding; with `grid` coordinates lie in [-1, 1]."""
    narrow = read(coordinates[0], "coordinates").element.itemsize < 4
    formulas = _formulas(len(extents), mode, padding, align, grid, narrow)
    return tokens(formulas, TAPS[mode] ** len(extents), coordinates, extents, batch, options)


def images_at(
    x: Any, coordinates: Sequence[Any], mode: str, padding: str, align: bool, out: Any, options: dict[str, Any],
    grid: bool = False,
) -> Any:  # fmt: skip
    """Images x [N, C, *spatial] at places [N, *points] of each axis: [N, C, *points], channels last in memory."""
    shape, points = shape_of(x, "x"), shape_of(coordinates[0], "coordinates")
    rank = len(coordinates)
    if min(shape[2:]) < 1:
        raise InvalidProblemError(f"x must have spatial axes of 1 or more, got shape {shape}")
    with beside(x, options["stream"]):
        images = reshape(arange(shape[0], like=x), (shape[0], *(1,) * (len(points) - 1)))
    src, weight = places(coordinates, shape[2:], mode, padding, align, images, options, grid)
    y = summed(rows_of(x, rank, shape[1], options), src, weight, math.prod(points), options)
    made = movedim(reshape(y, (*points, shape[1])), -1, 1)
    return made if out is None else copy(made, out=out, **options)


def rows_of(x: Any, rank: int, channels: int, options: dict[str, Any]) -> Any:
    """The channels of every place of images x [*batch, C, *spatial]: [rows, C]."""
    shape = shape_of(x, "x")
    last = movedim(x, len(shape) - rank - 1, -1)
    return shaped(last, (math.prod(shape) // max(channels, 1), channels), options)


def summed(rows: Any, src: Any, weight: Any, points: int, options: dict[str, Any]) -> Any:
    """What tokens, as many a point, come to: [points, C]."""
    flat, given = (math.prod(shape_of(src, "src")),), {}
    if weight is not None:
        given["weight"] = shaped(weight, flat, options)
    return gather_scatter_sum(rows, shaped(src, flat, options), num_segments=points, by="evenly", **given, **options)


def float_like(x: Any, name: str = "x") -> Any:
    """The element of an image, which must be a float."""
    found = read(x, name).element
    if not found.is_float:
        raise UnsupportedError(f"{name} must be floats, got {found}: write cast({name}, 'float32')")
    return found


def reduced(name: str, x: Any, axis: Any, options: dict[str, Any], **more: Any) -> Any:
    """A reduction of the table by its name."""
    return registry.public(name)(x, axis=axis, **more, **options)
