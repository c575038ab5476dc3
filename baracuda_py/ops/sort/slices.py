"""The slices of an array along an axis told apart by one number each: their order, and runs of equal neighbours."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import ElementKind, registry
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import constant, cut, reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..elementwise.ternary_functions import where
from ..indexing.take import take
from ..layout.concat import concat
from ..layout.creation import arange, zeros
from ..layout.pad import pad
from ..layout.views import movedim, part
from .searchsorted import searchsorted
from .sort import sort

MOST = 2**30
"""Slices that have an order: pairs of their ranks are numbers of 64 bits."""


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def order_numbers(x: Any, axis: int, equal_nan: bool, options: dict[str, Any]) -> Any:
    """A row of numbers that are ordered, and equal, as the slices of x along `axis` are in lexicographic order.

    Every element of a slice becomes its rank among those in its place, then neighbouring ranks become one number, and
    that its rank, until one is left: sorts of 2 m n keys in log₂ m rounds for n slices of m elements.
    """
    shape, x = shape_of(x, "x"), constant(x)
    n, size = shape[axis], math.prod(shape[:axis] + shape[axis + 1 :])
    if n > MOST:
        raise InvalidProblemError(f"axis {axis} of x has {n} slices; at most 2^30 are put in order")
    if not n or not size:
        with beside(x, options["stream"]):
            return zeros((n,), ElementKind.I64, like=x)
    rows = movedim(x, axis, -1)
    if size == 1:
        return _seen(rows, (n,))
    ranks = _seen(_ranks(rows, equal_nan, n, options), (size, n))
    while True:
        even = size - size % 2
        high, low = (cut(ranks, [slice(first, even, 2)], "ranks") for first in (0, 1))
        keys = _formula("high * k + low")(high=high, low=low, k=2 * n, **options)
        if size == 2:
            return _seen(keys, (n,))
        made = searchsorted(sort(keys, return_indices=False, **options), keys, **options)
        ranks = concat([made, part(ranks, 0, even, size)], axis=0, **options) if size % 2 else made
        size = size - even // 2


def _ranks(rows: Any, equal_nan: bool, n: int, options: dict[str, Any]) -> Any:
    """The place of each element's like in its sorted row; a NaN, unless they are equal, has one of its own behind."""
    found = searchsorted(sort(rows, return_indices=False, **options), rows, **options)
    if equal_nan or not read(rows, "x").element.is_float:
        return found
    with beside(rows, options["stream"]):
        own = arange(n, 2 * n, like=rows)
    return _formula("where(x != x, own, rank)")(x=rows, own=own, rank=found, **options)


def run_numbers(x: Any, axis: int, equal_nan: bool, options: dict[str, Any]) -> Any:
    """A row of numbers that change where a slice of x along `axis` differs from the one before."""
    shape, x = shape_of(x, "x"), constant(x)
    n, others = shape[axis], tuple(a for a in range(len(shape)) if a != axis)
    if n < 2 or not math.prod(shape):
        with beside(x, options["stream"]):
            return zeros((n,), ElementKind.I64, like=x)
    apart = equal_nan and read(x, "x").element.is_float
    text = "(a != b) and (a == a or b == b)" if apart else "a != b"
    differ = _formula(text)(a=part(x, axis, 1, n), b=part(x, axis, 0, n - 1), **options)
    changed = registry.public("any")(differ, axis=others, **options) if others else differ
    begins = _formula("int64(c)")(c=pad(changed, (1, 0), **options), **options)
    return registry.public("cumsum")(begins, axis=0, **options)


def slices_at(x: Any, axis: int, first: Any, number: Any, fill: Any, out: Any, options: dict[str, Any]) -> Any:
    """The slices of x at the places `first`, those from `number` on full of `fill`, if it is given."""
    if fill is None:
        return take(x, first, axis=axis, out=out, **options)
    count, rank = shape_of(first, "first")[0], len(shape_of(x, "x"))
    with beside(first, options["stream"]):
        own = arange(count, like=first)
    there = _formula("i < n")(i=own, n=number, **options)
    for _ in range(rank - 1 - axis):
        there = with_axis(there, -1, "first")
    return where(there, take(x, first, axis=axis, **options), fill, out=out, **options)


def _seen(x: Any, shape: tuple[int, ...]) -> Any:
    """x, of which at most one axis moves or which is dense, in another shape."""
    made = reshaped(x, shape, "x")
    assert made is not None
    return made
