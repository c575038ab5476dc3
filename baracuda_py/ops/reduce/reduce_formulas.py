"""The reductions in NumPy: functions (x, axes) → y in the dtype x comes in, axes being a tuple, maybe of none."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.element import joined

Axes = tuple[int, ...]


def count(x: Any, axes: Axes) -> int:
    """Elements that make one of y."""
    return math.prod(x.shape[a] for a in axes)


PIECE = 2**26
"""Elements that NumPy merges in one call, between which it can be interrupted."""


def once(x: Any, axes: Axes) -> Any:
    """x with one element of every reduced axis along which it repeats itself (a stride of 0)."""
    repeats = [a in axes and x.strides[a] == 0 and x.shape[a] > 1 for a in range(x.ndim)]
    return x[tuple(slice(0, 1) if one else slice(None) for one in repeats)]


def merged(formula: Callable[[Any, Axes], Any], merge: np.ufunc, x: Any, axes: Axes) -> Any:
    """formula(x, axes) of integers: of repeated elements once, merged with itself by doubling, of others in pieces."""
    seen = once(x, axes)
    along = max(axes, key=lambda a: seen.shape[a], default=None)
    if along is None or seen.size <= PIECE or seen.shape[along] == 1:
        y = formula(seen, axes)
    else:
        extent, turned = seen.shape[along], np.moveaxis(seen, along, 0)
        each = max(1, PIECE * extent // seen.size)
        pieces = (np.moveaxis(turned[i : i + each], 0, along) for i in range(0, extent, each))
        y = functools.reduce(merge, (merged(formula, merge, piece, axes) for piece in pieces))
    times, made = count(x, axes) // max(count(seen, axes), 1), None
    while times > 1:
        if times % 2:
            made = y if made is None else merge(made, y)
        y, times = merge(y, y), times // 2
    return y if made is None else merge(made, y)


def total_dtype(x: Any) -> Any:
    """What a total of x is kept in."""
    return x.dtype if x.dtype.kind in "fc" else np.uint64 if x.dtype == np.uint64 else np.int64


def total(x: Any, axes: Axes) -> Any:
    """The sum."""
    return np.sum(x, axis=axes, dtype=total_dtype(x))


def product(x: Any, axes: Axes) -> Any:
    """The product; of complex numbers NaN in both parts where one of them is infinite or NaN.

    Floats are multiplied apart from their powers of two, so that no product on the way leaves the range.
    """
    if x.dtype.kind != "f":
        return np.prod(all_or_nothing(x) if x.dtype.kind == "c" else x, axis=axes, dtype=total_dtype(x))
    part, powers = np.frexp(rows(x, axes))
    power = powers.sum(axis=-1, dtype=np.int64)
    while part.shape[-1] > 1:
        pairs = part.shape[-1] // 2
        made, powers = np.frexp(part[..., :pairs] * part[..., pairs : 2 * pairs])
        part, power = np.concatenate([made, part[..., 2 * pairs :]], axis=-1), power + powers.sum(axis=-1)
    return np.ldexp(np.prod(part, axis=-1), power)


def all_or_nothing(z: Any) -> Any:
    """Complex numbers, NaN in both parts where one is infinite or NaN."""
    return np.where(np.isfinite(z), z, joined(z.real * np.nan, z.real * np.nan))


def near_circle(z: Any) -> Any:
    """Complex numbers for tests of long products, which beyond the range depend on their order: |z| ** 0.01 in size."""
    with np.errstate(all="ignore"):
        size = np.hypot(z.real, z.imag)
        scale = np.where(size == 0, 0, size**-0.99)
        return np.asarray(joined(z.real * scale, z.imag * scale), z.dtype)


def mean(x: Any, axes: Axes) -> Any:
    """The mean of floats or complex numbers."""
    sums, n = total(x, axes), x.real.dtype.type(count(x, axes))
    return joined(sums.real / n, sums.imag / n) if x.dtype.kind == "c" else sums / n


def without_nan(x: Any, value: float = 0.0) -> Any:
    """x with `value` in place of NaN."""
    return np.where(np.isnan(x), x.dtype.type(value), x)


def numbers(x: Any, axes: Axes) -> Any:
    """How many elements are not NaN, in x's dtype."""
    return np.sum(~np.isnan(x), axis=axes).astype(x.dtype)


def nanmean(x: Any, axes: Axes) -> Any:
    """The mean of those that are not NaN."""
    return total(without_nan(x), axes) / numbers(x, axes)


def nan_extreme(find: Callable[..., Any], bottom: float) -> Callable[[Any, Axes], Any]:
    """`find` among those that are not NaN; NaN where all are."""

    def formula(x: Any, axes: Axes) -> Any:
        found = find(without_nan(x, bottom), axis=axes)
        return np.where(numbers(x, axes) == 0, x.dtype.type(np.nan), found)

    return formula


def bits(combine: np.ufunc) -> Callable[[Any, Axes], Any]:
    """The bits of all elements combined."""
    return lambda x, axes: combine.reduce(x, axis=axes)


def peak_to_peak(x: Any, axes: Axes) -> Any:
    """The largest less the smallest."""
    return np.max(x, axis=axes) - np.min(x, axis=axes)


def rows(x: Any, axes: Axes) -> Any:
    """x with the reduced axes as its last one."""
    kept = [a for a in range(x.ndim) if a not in axes]
    return np.transpose(x, (*kept, *axes)).reshape(*(x.shape[a] for a in kept), count(x, axes))


def place(find: Callable[..., Any]) -> Callable[[Any, Axes], Any]:
    """The place that `find` finds in the reduced elements, in their logical order."""
    return lambda x, axes: np.asarray(find(rows(x, axes), axis=-1), np.int64)


def nan_place(find: Callable[..., Any], bottom: float) -> Callable[[Any, Axes], Any]:
    """The same among those that are not NaN; -1 where all are."""

    def formula(x: Any, axes: Axes) -> Any:
        held = rows(x, axes)
        skipped = np.isnan(held)
        wanted = without_nan(held, bottom)
        hidden = skipped & (find(wanted, axis=-1, keepdims=True) == np.arange(held.shape[-1]))
        # NaN counts as the worst value, so that it is found only where every number is as bad: then the first of those.
        first = np.argmax(~skipped, axis=-1)
        found = np.where(hidden.any(axis=-1), first, find(wanted, axis=-1))
        return np.where(skipped.all(axis=-1), -1, found).astype(np.int64)

    return formula


def l2_norm(x: Any, axes: Axes) -> Any:
    """By the power of two of the largest element, or part of one, so that no square leaves the range."""
    if x.dtype.kind == "c":
        x = np.stack([x.real, x.imag])
        axes = (0, *(a + 1 for a in axes))
    top = np.max(np.abs(x), axis=axes, keepdims=True, initial=0)
    exponent = np.where(np.isfinite(top), np.frexp(np.where(np.isfinite(top), top, 1))[1], 0)
    root = np.sqrt(total(np.square(np.ldexp(x, -exponent)), axes))
    return np.ldexp(root, exponent.reshape(root.shape))


def p_norm(x: Any, axes: Axes, p: float) -> Any:
    """(Σ |x|^p)^(1/p), by the largest magnitude for p > 0 and the smallest for p < 0."""
    size = np.abs(x)
    top = np.max(size, axis=axes, keepdims=True, initial=0) if p > 0 else np.min(size, axis=axes, keepdims=True)
    share = np.where(size == top, size.dtype.type(1), size / top)
    found = total(np.power(share, size.dtype.type(p)), axes) ** size.dtype.type(1 / p)
    return np.where(top.reshape(found.shape) == 0, size.dtype.type(0), top.reshape(found.shape) * found)


def logsumexp(x: Any, axes: Axes, by: int = 1) -> Any:
    """log (Σ exp(x) / by)."""
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, x.dtype.type(0))
    found = np.log(total(np.exp(x - shift), axes) / x.dtype.type(by))
    return found + shift.reshape(found.shape)


def logmeanexp(x: Any, axes: Axes) -> Any:
    """log of the mean of exp(x)."""
    return logsumexp(x, axes, count(x, axes))


def first(x: Any, axes: Axes) -> Any:
    """The first element of every row, with an extent of 1 (0 where rows are empty) for every reduced axis."""
    return x[tuple(slice(0, 1) if a in axes else slice(None) for a in range(x.ndim))]


def from_mean(x: Any, axes: Axes) -> Any:
    """x less its mean, by way of the first element: exactly 0 where all elements are equal."""
    apart = x - first(x, axes)
    offset = np.expand_dims(mean(apart, axes), axes)
    return np.where(np.isfinite(offset), apart - offset, x - np.expand_dims(mean(x, axes), axes))


def from_nanmean(x: Any, axes: Axes) -> Any:
    """The same of real numbers where NaN does not count, and is NaN: by way of the smallest number."""
    apart = x - np.fmin.reduce(x, axis=axes, keepdims=True, initial=np.inf)
    offset = np.expand_dims(nanmean(apart, axes), axes)
    return np.where(np.isfinite(offset), apart - offset, x - np.expand_dims(nanmean(x, axes), axes))


def variance(x: Any, axes: Axes, correction: int) -> Any:
    """Σ |x - mean|² / (n - correction)."""
    n = count(x, axes)
    apart = from_mean(x, axes)
    squares = np.square(apart.real) + np.square(apart.imag) if x.dtype.kind == "c" else np.square(apart)
    return total(squares, axes) / squares.dtype.type(max(n - correction, 0))


def nanvar(x: Any, axes: Axes, correction: int) -> Any:
    """The variance of those that are not NaN; NaN where one of them is infinite (numpy.nanvar)."""
    n = numbers(x, axes)
    squares = np.where(np.isnan(x), x.dtype.type(0), np.square(from_nanmean(x, axes)))
    return total(squares, axes) / np.maximum(n - x.dtype.type(correction), 0)
