"""Variates that try until they accept, in NumPy: the twin of `kernels/random/variates.cuh`, all in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..elementwise.special import erfc
from .words import Tries, block_normals, first, second

Variate: TypeAlias = Callable[[Tries, Any, Any, Any], Any]
_HALF_LOG_2PI = 0.9189385332046727


def _until_accepted(tries: Tries, result: Any, count: int, attempt: Callable[[Tries, Any, int], Any]) -> Any:
    """attempt(tries, which, j) → (accepted, value) of the elements `which` that have not been accepted yet."""
    open_ = np.arange(result.size)
    for j in range(count):
        if not open_.size:
            break
        accepted, value = attempt(tries.of(open_), open_, j)
        result[open_[accepted]] = value[accepted]
        open_ = open_[~accepted]
    return result


def _gamma_pair(tries: Tries, base: int, a: Any) -> tuple[Any, Any]:
    """Marsaglia and Tsang 2000."""
    small = a < 1
    d = np.where(small, a + 1, a) - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def attempt(some: Tries, at: Any, j: int) -> Any:
        block = some.block(base + j)
        x, u = block_normals(block)[0], second(block)
        t = c[at] * x + 1
        v = t * t * t
        return (v > 0) & (np.log(u) < 0.5 * x * x + d[at] * (1 - v + np.log(np.where(v > 0, v, 1)))), d[at] * v

    value = _until_accepted(tries, d.copy(), 32, attempt)
    return value, np.where(small, np.log(first(tries.block(base + 32))) / a, 0)


def _gamma(tries: Tries, base: int, a: Any, rate: Any = 1.0) -> Any:
    """Over its rate; the factor in two parts, so that nothing before the end leaves the range of a double."""
    value, factor = _gamma_pair(tries, base, np.where(a > 0, a, 1))
    root = np.exp(0.5 * factor)
    return np.where(a > 0, value * root / rate * root, np.where(a == 0, 0, np.nan) / rate)


def _log_gamma(tries: Tries, base: int, a: Any) -> Any:
    value, factor = _gamma_pair(tries, base, np.where(a > 0, a, 1))
    return np.where(a > 0, np.log(value) + factor, np.where(a == 0, -np.inf, np.nan))


def gamma(tries: Tries, a: Any, rate: Any, _: Any) -> Any:
    """Over its rate."""
    return _gamma(tries, 0, a, rate)


def loggamma(tries: Tries, a: Any, _: Any, __: Any) -> Any:
    """The logarithm of a gamma variate, which may itself be 0 in any float."""
    return _log_gamma(tries, 0, a)


def beta(tries: Tries, a: Any, b: Any, _: Any) -> Any:
    """By the logarithms of two gamma variates."""
    apart = _log_gamma(tries, 64, b) - _log_gamma(tries, 0, a)
    lesser = np.exp(-np.abs(apart))
    return np.where(apart > 0, lesser, 1) / (1 + lesser)


def chi_square(tries: Tries, df: Any, _: Any, __: Any) -> Any:
    """Twice a gamma variate of half the degrees."""
    return _gamma(tries, 0, 0.5 * df, 0.5)


def student_t(tries: Tries, df: Any, loc: Any, scale: Any) -> Any:
    """A normal variate over the root of a chi-square one over its degrees."""
    held = np.where(df > 0, df, np.nan)
    value, factor = _gamma_pair(tries, 0, 0.5 * held)
    near, root = block_normals(tries.block(40))[0] * np.sqrt(0.5 * held / value), np.exp(-0.25 * factor)
    return np.where(near == 0, loc, scale * root * (near * root) + loc)  # that root may be infinite


def f_ratio(tries: Tries, top: Any, bottom: Any, _: Any) -> Any:
    """Of two chi-square variates over their degrees."""
    above, more = _gamma_pair(tries, 0, 0.5 * np.where(top > 0, top, np.nan))
    below, less = _gamma_pair(tries, 64, 0.5 * np.where(bottom > 0, bottom, np.nan))
    root = np.exp(0.5 * (more - less))
    return above / top * bottom / below * root * root


def generalized_normal(tries: Tries, power: Any, _: Any, __: Any) -> Any:
    """The root of a gamma variate with a sign."""
    value, factor = _gamma_pair(tries, 0, 1 / power)
    size = np.exp((np.log(value) + factor) / power)
    return np.where(tries.block(40)[:, 0] & 1, -size, size)


def _length3(tries: Tries) -> Any:
    x, y = block_normals(tries.block(0))
    z, _ = block_normals(tries.block(1))
    return np.sqrt(x * x + y * y + z * z)


def maxwell(tries: Tries, scale: Any, _: Any, __: Any) -> Any:
    """The length of three normal variates."""
    return scale * _length3(tries)


def double_maxwell(tries: Tries, loc: Any, scale: Any, _: Any) -> Any:
    """The same with a sign."""
    size = _length3(tries)
    return loc + scale * np.where(tries.block(2)[:, 0] & 1, -size, size)


def wald(tries: Tries, mean: Any, scale: Any, _: Any) -> Any:
    """Inverse Gaussian (Michael, Schucany, Haas 1976)."""
    block = tries.block(0)
    z = block_normals(block)[0]
    t = mean * z * z / scale
    x = 2 * mean / (2 + t + np.sqrt(t * (4 + t)))
    return np.where(second(block) * (mean + x) <= mean, x, mean * mean / x)


def truncated_normal(tries: Tries, low: Any, high: Any, _: Any) -> Any:
    """By the inverse of the distribution function, on the side of 0 where that is fine; far out by its tail."""
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    below = _normal_cdf(a)
    x = _normal_inverse(first(tries.block(0)) * (_normal_cdf(b) - below) + below)
    far = np.flatnonzero((b < -36) & (b > -np.inf))
    x[far] = _normal_tail(tries.of(far), a[far], b[far])
    y = np.where(x < a, a, np.where(x > b, b, x))
    return np.where(flip, -y, y)


def _normal_tail(tries: Tries, a: Any, b: Any) -> Any:
    """In [a, b] of the lower tail by an exponential variate, cut at a (Robert 1995)."""
    mass = np.expm1(b * (b - a))

    def attempt(some: Tries, at: Any, j: int) -> Any:
        block = some.block(j)
        e = np.log1p(first(block) * mass[at]) / b[at]
        return second(block) <= np.exp(-0.5 * e * e), b[at] - e

    return _until_accepted(tries, b.copy(), 16, attempt)


def _normal_cdf(x: Any) -> Any:
    return erfc(-x / np.sqrt(2)) / 2


def _normal_inverse(p: Any) -> Any:
    """By bisection of the lower half, then Newton's steps on the logarithm, which is concave."""
    p = np.asarray(p, np.float64)
    lower = np.minimum(p, 1 - p)
    safe = np.where((lower > 0) & (lower <= 0.5), lower, 0.5)
    low, high = np.full(safe.shape, -39.0), np.zeros(safe.shape)
    for _ in range(14):
        middle = (low + high) / 2
        under = _normal_cdf(middle) < safe
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    x = (low + high) / 2
    for _ in range(4):
        mass = _normal_cdf(x)
        x = x - np.log(mass / safe) * mass * np.sqrt(2 * np.pi) * np.exp(x * x / 2)
    x = np.where(lower == 0, -np.inf, np.where(lower == lower, x, np.nan))
    return np.where(p > 0.5, -x, x)


_RESTS = np.array([
    0.081061466795327258220, 0.041340695955409294094, 0.027677925684998339148, 0.020790672103765093111,
    0.016644691189821192163, 0.013876128823070747999, 0.011896709945891770095, 0.010411265261972096497,
    0.0092554621827127329178, 0.0083305634333631262146,
])  # fmt: skip


def _stirling_rest(k: Any) -> Any:
    """log k! - (k + 1/2) log(k + 1) + (k + 1) - log(2π) / 2."""
    k = np.maximum(k, 0)
    r = 1 / (k + 1)
    s = r * r
    series = (1 / 12 - (1 / 360 - (1 / 1260 - s / 1680) * s) * s) * r
    return np.where(k < 10, _RESTS[np.where(k < 10, k, 9).astype(np.int64)], series)  # of NaN the series, NaN


def _inversion(u: Any, p: Any, step: Callable[[Any, Any, Any], Any], most: Any) -> Any:
    """k = 0, 1, … while the uniform passes the probabilities p of each; step(p, k, which): the next probability."""
    k, open_ = np.zeros(u.shape), np.arange(u.size)
    u, p = u.copy(), p.copy()
    while open_.size:
        on = (u[open_] > p[open_]) & (k[open_] < most[open_])
        open_ = open_[on]
        u[open_] -= p[open_]
        k[open_] += 1
        p[open_] = step(p[open_], k[open_], open_)
    return k


def _poisson_density(k: Any, rate: Any) -> Any:
    """The logarithm of a Poisson rate's probability of k >= 0; no large terms cancel, log1p(δ) - δ is small itself."""
    after = k + 1
    delta = (rate - after) / after
    grown = np.log1p(delta)
    return after * (grown - delta) - grown - 0.5 * np.log(after) - _HALF_LOG_2PI - _stirling_rest(k)


def _poisson(tries: Tries, base: int, rate: Any) -> Any:
    """Inversion below a rate of 10, else PTRS (Hörmann 1993)."""
    result = np.where(rate == 0, 0.0, np.nan)
    few = np.flatnonzero((rate > 0) & (rate < 10))
    lam = rate[few]
    u = first(tries.of(few).block(base))
    result[few] = _inversion(u, np.exp(-lam), lambda p, k, at: p * (lam[at] / k), np.full(few.shape, 200.0))
    many = np.flatnonzero(rate >= 10)
    result[many] = _rejected_poisson(tries.of(many), base, rate[many])
    return result


def _rejected_poisson(tries: Tries, base: int, rate: Any) -> Any:
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse, sure = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def attempt(some: Tries, at: Any, j: int) -> Any:
        block = some.block(base + j)
        u, v = first(block) - 0.5, second(block)
        edge = 0.5 - np.abs(u)
        k = np.floor((2 * a[at] / edge + b[at]) * u + rate[at] + 0.43)
        density = _poisson_density(np.maximum(k, 0), rate[at])
        fits = np.log(v * inverse[at] / (a[at] / (edge * edge) + b[at])) <= density
        possible = (k >= 0) & ~((edge < 0.013) & (v > edge))
        return ((edge >= 0.07) & (v <= sure[at])) | (possible & fits), k

    return _until_accepted(tries, np.floor(rate), 64, attempt)


def poisson(tries: Tries, rate: Any, _: Any, __: Any) -> Any:
    """Of a rate."""
    return _poisson(tries, 0, rate)


def negative_binomial(tries: Tries, count: Any, p: Any, _: Any) -> Any:
    """A Poisson variate of a gamma rate: failures before `count` successes."""
    return _poisson(tries, 64, _gamma(tries, 0, count) * ((1 - p) / p))


def _binomial_half(tries: Tries, n: Any, p: Any) -> Any:
    """Of p <= 1/2: inversion below a mean of 10, else BTRS (Hörmann 1993)."""
    result = np.empty(n.shape)
    few = np.flatnonzero(n * p < 10)
    trials, odds = n[few], p[few] / (1 - p[few])
    u, none = first(tries.of(few).block(0)), np.exp(trials * np.log1p(-p[few]))
    step = lambda q, k, at: q * (((trials[at] + 1) / k - 1) * odds[at])  # noqa: E731
    result[few] = _inversion(u, none, step, np.minimum(trials, 200))
    many = np.flatnonzero(n * p >= 10)
    result[many] = _rejected_binomial(tries.of(many), n[many], p[many])
    return result


def _rejected_binomial(tries: Tries, n: Any, p: Any) -> Any:
    q = 1 - p
    deviation = np.sqrt(n * p * q)
    b = 1.15 + 2.53 * deviation
    a, center, sure = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5, 0.92 - 4.2 / b
    alpha, mode = (2.83 + 5.1 / b) * deviation, np.floor((n + 1) * p)

    def attempt(some: Tries, at: Any, j: int) -> Any:
        block = some.block(j)
        u, v = first(block) - 0.5, second(block)
        edge = 0.5 - np.abs(u)
        k = np.floor((2 * a[at] / edge + b[at]) * u + center[at])
        possible = (k >= 0) & (k <= n[at])
        held, m, N, mean, rest = np.where(possible, k, 0), mode[at], n[at], n[at] * p[at], n[at] * q[at]
        ratio = (
            _poisson_density(held, mean) + _poisson_density(N - held, rest) - _poisson_density(m, mean)
            - _poisson_density(N - m, rest)
        )  # fmt: skip
        fits = np.log(v * alpha[at] / (a[at] / (edge * edge) + b[at])) <= ratio
        return possible & (((edge >= 0.07) & (v <= sure[at])) | fits), k

    return _until_accepted(tries, mode.copy(), 64, attempt)


def binomial(tries: Tries, count: Any, p: Any, _: Any) -> Any:
    """Successes of `count` trials."""
    n = np.floor(count)
    known = (n >= 0) & (n < np.inf) & (p >= 0) & (p <= 1)
    trials, chance = np.where(known, n, 0), np.where(known, p, 0)
    k = _binomial_half(tries, trials, np.minimum(chance, 1 - chance))
    return np.where(known, np.where(chance <= 0.5, k, trials - k), np.nan)


def geometric(tries: Tries, p: Any, _: Any, __: Any) -> Any:
    """Trials up to the first success."""
    known = (p > 0) & (p < 1)
    k = np.floor(np.log(first(tries.block(0))) / np.log1p(-np.where(known, p, 0.5))) + 1
    return np.where(known, k, np.where(p == 1, 1.0, np.nan))
