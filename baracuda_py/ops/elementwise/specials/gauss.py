"""Gauss's function F(a, b; c; x) = 2F1, in pairs of numbers whose sum is not rounded.

Up to 1/2 by its power series; beyond, its differential equation is followed from 1/2 towards 1 by Taylor's series, each
of which halves the distance from 1 or ends at x (kernels/elementwise/hypergeometric_gauss.cuh).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions import in_torch
from ..functions.gamma import LGAMMA
from .combinatorics import gamma_sign
from .row import Special, between, evenly, partial, widely
from .twofold import Twofold, over, plus, sum_of, times

_MOST, _LARGEST, _NEAREST = 16384, 1024, 2.0**-70


def _exactly(x: Any) -> Twofold:
    return x, np.zeros_like(x)


def _negated(a: Twofold) -> Twofold:
    return -a[0], -a[1]


def _either(chosen: Any, a: Twofold, b: Twofold) -> Twofold:
    return np.where(chosen, a[0], b[0]), np.where(chosen, a[1], b[1])


def _ends(a: Twofold) -> Any:
    return (a[0] <= 0) & (a[1] == 0) & (a[0] == np.floor(a[0]))


def _largest(*given: Twofold) -> Any:
    return np.max([np.abs(one[0]) for one in given], axis=0)


def _settled(value: Twofold, slope: Twofold, top: Any) -> tuple[Twofold, Twofold]:
    """NaN where terms of the sum cancelled by more than 2^40."""
    lost = ~(np.abs(value[0]) >= 2.0**-40 * top)
    return (np.where(lost, np.nan, value[0]), value[1]), (np.where(lost, np.nan, slope[0]), slope[1])


def _series(a: Twofold, b: Twofold, c: Twofold, z: Twofold) -> tuple[Twofold, Twofold]:
    """The power series at z, and z times its slope."""
    value = term = _exactly(np.ones_like(z[0]))
    slope = _exactly(np.zeros_like(z[0]))
    least, top, going = 2 * _largest(a, b, c), np.ones_like(z[0]), np.ones(z[0].shape, bool)
    for k in range(_MOST):
        step, after = _exactly(np.full_like(z[0], k)), _exactly(np.full_like(z[0], k + 1))
        numerator = times(plus(a, step), plus(b, step))
        going &= numerator[0] != 0
        if not going.any():
            break
        made = times(term, over(times(numerator, z), times(plus(c, step), after)))
        term = _either(going, made, term)
        value, slope = _either(going, plus(value, term), value), _either(going, plus(slope, times(term, after)), slope)
        size = np.abs(term[0])
        top = np.maximum(top, size)
        small = (k + 1) * size <= np.maximum(2.0**-72 * np.abs(value[0]), 2.0**-120 * top)
        going &= ~((k >= least) & small)
    return _settled(value, slope, np.where(going, np.inf, top))


def _step(
    f: tuple[Twofold, Twofold, Twofold], value: Twofold, slope: Twofold, d: float, rho: Twofold
) -> tuple[Twofold, Twofold]:
    """From a distance d to (1 - rho) d: the function, and its slope times the distance."""
    a, b, c = f
    zero = np.zeros_like(rho[0])
    at, gap = _exactly(zero + (1 - zero.dtype.type(d))), _exactly(zero + zero.dtype.type(d))
    total = plus(plus(a, b), _exactly(zero + 1))
    line, across = plus(c, _negated(times(total, at))), zero.dtype.type(2 * d) - 1
    by_next, by_this = over(_negated(rho), at), times(times(rho, rho), over(gap, at))
    here: Twofold = value
    following: Twofold = times(slope, rho)
    value, slope = plus(here, following), following
    least, going = 4 * _largest(a, b, c), np.ones(zero.shape, bool)
    top: Any = np.maximum(np.abs(here[0]), np.abs(following[0]))
    for n in range(_MOST):
        number, after = _exactly(zero + n), _exactly(zero + (n + 2))
        ahead = times(plus(line, _exactly(zero + across * n)), times(by_next, following))
        pair = times(plus(a, number), plus(b, number))
        behind = over(times(times(pair, by_this), here), _exactly(zero + (n + 1)))
        here, following = following, over(plus(ahead, behind), after)
        value = _either(going, plus(value, following), value)
        slope = _either(going, plus(slope, times(following, after)), slope)
        size: Any = np.maximum(np.abs(here[0]), np.abs(following[0]))
        top = np.where(going, np.maximum(top, size), top)
        small = (n + 2) * size <= np.maximum(2.0**-72 * np.abs(value[0]), 2.0**-120 * top)
        going &= ~((n >= least) & small) & np.isfinite(size)
        if not going.any():
            break
    slope = times(slope, over(plus(_exactly(zero + 1), _negated(rho)), rho))
    return _settled(value, slope, np.where(going, np.inf, top))


def _follow(f: tuple[Twofold, Twofold, Twofold], value: Twofold, slope: Twofold, d: Twofold) -> Twofold:
    """From z = 1/2 to distances d from 1; below `_NEAREST` the function is A + B d^(c - a - b)."""
    distance = 0.5
    while distance > _NEAREST and (d[0] < distance).any():
        left = _exactly(np.full_like(d[0], distance))
        part = plus(left, _negated(d))
        rho = _either(d[0] >= distance / 2, (part[0] / distance, part[1] / distance), _exactly(np.full_like(d[0], 0.5)))
        active = (d[0] < distance) & (rho[0] > 0)
        made = _step(f, value, slope, distance, _either(active, rho, _exactly(np.full_like(d[0], 0.5))))
        value, slope = _either(active, made[0], value), _either(active, made[1], slope)
        distance /= 2
    beyond = d[0] < distance
    s = plus(f[2], _negated(plus(f[0], f[1])))[0]
    log = np.log(np.where(beyond, d[0], 1) / np.where(beyond, distance, 1))
    rest = np.where(s == 0, log, np.expm1(s * log) / np.where(s == 0, 1, s))
    return _either(beyond, plus(value, _exactly(-slope[0] * rest)), value)


def _at_one(c: Any, rest: Any, left: Any, right: Any) -> Any:
    sign = gamma_sign(c) * gamma_sign(left) * gamma_sign(right)
    return sign * np.exp((LGAMMA.formula(c) - LGAMMA.formula(left)) + (LGAMMA.formula(rest) - LGAMMA.formula(right)))


def _chosen(mask: Any, *given: Twofold) -> tuple[Twofold, ...]:
    return tuple((one[0][mask], one[1][mask]) for one in given)


def _gauss(a: Twofold, b: Twofold, c: Twofold, x: Any) -> Any:
    """F(a, b; c; x)."""
    known = (_largest(a, b, c) <= _LARGEST) & np.isfinite(x)
    before = (_ends(a) & (a[0] >= c[0])) | (_ends(b) & (b[0] >= c[0]))
    whole = _ends(a) | _ends(b)
    known &= ~(_ends(c) & ~before) & np.where(whole, np.abs(x) <= 2.0**256, x <= 1)
    a, b, c = (_either(known, one, _exactly(np.ones_like(x))) for one in (a, b, c))
    x, whole = np.where(known, x, 0), whole & known
    one, d = _exactly(np.ones_like(x)), sum_of(np.ones_like(x), -x)
    left, right = plus(c, _negated(a)), plus(c, _negated(b))
    rest = plus(left, _negated(b))
    turned = ~whole & (_ends(left) | _ends(right)) & (x >= -(2.0**256))
    end = ~whole & ~turned & (x == 1)
    below = ~whole & ~turned & (x < 0)
    first = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] <= b[1]))
    kept, other = _either(first, a, b), _either(first, right, left)
    f = _either(below, kept, _either(turned, left, a)), _either(below, other, _either(turned, right, b)), c
    power = _either(below, _negated(kept), _either(turned, rest, _exactly(np.zeros_like(x))))
    x = np.where(end, x.dtype.type(0.25), x)
    z, gap = _either(below, over(_exactly(-x), d), _exactly(x)), _either(below, over(one, d), d)
    beyond = ~whole & ~turned & (z[0] > 0.5)
    value, slope = _series(*f, _either(beyond, _exactly(np.full_like(x, 0.5)), z))
    if beyond.any():
        parts = _chosen(beyond, *f, value, slope, gap)
        found = _follow((parts[0], parts[1], parts[2]), *parts[3:])
        value[0][beyond], value[1][beyond] = found
    some = power[0] != 0
    base = np.where(some, d[0], 1)
    more = np.where(some & (base != 0), power[0] * (d[1] / base) + power[1] * np.log(np.where(base == 0, 1, base)), 0)
    y = value[0] * np.power(base, power[0]) * (1 + more)
    limit = np.where(rest[0] > 0, _at_one(*(np.where(end, t[0], 1.5) for t in (c, rest, left, right))), np.inf)
    limit = np.where(rest[0] > 0, limit, limit * gamma_sign(a[0]) * gamma_sign(b[0]) * gamma_sign(c[0]))
    return np.where(known, np.where(end, limit, y), np.nan)


def _hyp2f1(x: Any, a: Any, b: Any, c: Any) -> Any:
    return _gauss(_exactly(a), _exactly(b), _exactly(c), x)


def _slope(dy: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    """dy a b / c F(a + 1, b + 1; c + 1; x), 0 where a or b is 0."""
    one = np.ones_like(x)
    flat = (a * b == 0) & np.isfinite(x)
    found = a * b / c * _gauss(sum_of(a, one), sum_of(b, one), sum_of(c, one), x)
    level = 0 * _hyp2f1(x, a, b, c) if flat.any() else 0
    return dy * np.where(flat, level, np.where(c == 0, np.nan, found))


HYP2F1 = Special(
    "hypergeometric_gauss/Hyp2f1", widely(_hyp2f1),
    (evenly(-1.2, 0.65), between(0.3, 4), between(0.3, 4), between(0.5, 6)),
    (partial("abcd", _slope), None), ulp=16, slope=32, torch=in_torch.hyp2f1, call="bcda",
)  # fmt: skip
