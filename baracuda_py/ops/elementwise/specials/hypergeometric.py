"""Kummer's function M(a, b, x) = 1F1(a; b; x) by its power series, in pairs of numbers whose sum is not rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions import in_torch
from .row import Special, between, evenly, partial, widely
from .twofold import Twofold, over, plus, sum_of, times

_REACH, _MOST = 5000, 65536
_BEYOND, _FAR_BEYOND = 3, 20  # steps of 2^512: more than a double holds, and more than exp(-5000) brings back


def _series(a: Twofold, b: Twofold, x: Any) -> Any:
    """M(a, b, x), by exp(x) M(b - a, b, -x) for x < 0; NaN where terms cancel by more than 2^40.

    A sum that leaves the range for good ends there: terms of one sign make it infinite, others are not known.
    """
    turned, zero = x < 0, np.zeros_like(x)
    other = plus(b, (-a[0], -a[1]))
    a = np.where(turned, other[0], a[0]), np.where(turned, other[1], a[1])
    z = np.abs(x), zero
    total, term = (np.ones_like(x), zero), (np.ones_like(x), zero)
    top, scale, going = np.ones_like(x), np.zeros(x.shape, np.int32), np.ones(x.shape, bool)
    endless, unknown = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
    for k in range(_MOST):
        step = np.full_like(x, k), zero
        start, end = plus(a, step), plus(b, step)
        ratio = over(times(start, z), times(end, (step[0] + 1, zero)))
        made = times(term, ratio)
        term = np.where(going, made[0], term[0]), np.where(going, made[1], term[1])
        made = plus(total, term)
        total = np.where(going, made[0], total[0]), np.where(going, made[1], total[1])
        top = np.maximum(top, np.abs(term[0]))
        large = going & (np.abs(term[0]) > 2.0**500)
        by = np.where(large, x.dtype.type(2.0**-512), x.dtype.type(1))
        term, total, top = (term[0] * by, term[1] * by), (total[0] * by, total[1] * by), top * by
        scale, size = scale + large, np.abs(term[0])
        grows = (start[0] > 0) & (end[0] > 0)  # all terms from here on have the sign of this one
        lost = going & (scale >= np.where(grows & ~turned, _BEYOND, _FAR_BEYOND))
        alike = grows & (term[0] * total[0] > 0)
        steady = grows & (np.abs(ratio[0]) < 0.5)
        ends = (size == 0) | (steady & (size <= np.maximum(2.0**-75 * np.abs(total[0]), 2.0**-120 * top)))
        endless |= lost & alike
        unknown |= lost & ~alike & ~ends
        going &= ~(lost | ends)
        if not going.any():
            break
    power = 512 * scale
    root = np.exp(np.where(turned, x, 0) / 2)
    y = np.ldexp(total[0] * root, power) * root
    unknown |= going | ~(np.abs(total[0]) >= 2.0**-40 * top)
    return np.where(endless, np.copysign(np.inf, total[0]), np.where(unknown, np.nan, y))


def _pole(b: Any) -> Any:
    return (b <= 0) & (b == np.floor(b))


def _at(more: int, x: Any, a: Any, b: Any) -> Any:
    """M(a + more, b + more, x)."""
    known = np.isfinite(a) & np.isfinite(b) & (np.abs(x) <= _REACH) & ~_pole(b)
    x, a, b = (np.where(known, one, one.dtype.type(1)) for one in (x, a, b))
    shift = x.dtype.type(more)
    return np.where(known, _series(sum_of(a, shift), sum_of(b, shift), x), np.nan)


def _hyp1f1(x: Any, a: Any, b: Any) -> Any:
    return _at(0, x, a, b)


def _slope(dy: Any, x: Any, a: Any, b: Any) -> Any:
    return dy * (a / b) * _at(1, x, a, b)


HYP1F1 = Special(
    "hypergeometric/Hyp1f1", widely(_hyp1f1), (evenly(-20, 20), between(0.2, 8), between(0.2, 8)),
    (partial("abc", _slope), None), ulp=8, slope=16, torch=in_torch.hyp1f1, call="bca",
)  # fmt: skip
