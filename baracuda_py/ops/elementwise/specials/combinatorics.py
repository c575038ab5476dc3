"""Beta and its logarithm, rising factorials, binomials, Hurwitz' zeta function, exponential integrals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions import in_torch
from ..functions.cylinder import EULER
from ..functions.gamma import DIGAMMA, LGAMMA, bernoulli
from ..unary_formulas import pi
from .row import Special, between, partial, widely

lgamma, digamma = LGAMMA.formula, DIGAMMA.formula


def stirling(a: Any) -> Any:
    """log Γ(a) less (a - 1/2) log(a) - a + log(2π) / 2, for a >= 10."""
    far = np.maximum(a, 10)
    total = np.zeros_like(far)
    for k in range(13, 0, -1):
        total = total / far / far + bernoulli(far, k) / (2 * k * (2 * k - 1))
    return total / far


def gamma_sign(x: Any) -> Any:
    """The sign of Γ(x)."""
    return np.where((x < 0) & (np.floor(x) % 2 != 0), -1, 1)


def log_beta(a: Any, b: Any) -> Any:
    """log |B(a, b)|; of a large number without the cancellation of logarithms of Γ."""
    swap = np.abs(a) < np.abs(b)
    low, high = np.where(swap, a, b), np.where(swap, b, a)
    apart = (low > 0) & (high >= 10)
    plain = lgamma(low) + lgamma(high) - lgamma(low + high)
    u, v = np.where(apart, low, 1), np.where(apart & np.isfinite(high), high, 10)
    total, rest = u + v, stirling(v) - stirling(u + v)
    long = np.log(2 * pi(u)) / 2 - np.log(v) / 2 + stirling(u) + rest
    long = long + (u - 0.5) * np.log(u / total) - v * np.log1p(u / v)
    short = lgamma(u) + (u - u * np.log(total) - (v - 0.5) * np.log1p(u / v)) + rest
    beyond = np.where(np.isinf(low), -high, lgamma(u) - u * high)
    return np.where(apart, np.where(np.isinf(high), beyond, np.where(u >= 10, long, short)), plain)


def _beta(a: Any, b: Any) -> Any:
    sign = gamma_sign(a) * gamma_sign(b) * gamma_sign(a + b)
    return sign * np.exp(log_beta(a, b))


def _log_poch(z: Any, m: Any) -> Any:
    """log |Γ(z + m) / Γ(z)|."""
    far = (z >= 10) & (z + m >= 10)
    u, v = np.where(far, z, 20), np.where(far, m, 1)
    apart = (u - 0.5) * np.log1p(v / u) + v * (np.log(u + v) - 1) + (stirling(u + v) - stirling(u))
    return np.where(far, apart, lgamma(z + m) - lgamma(z))


def _poch(z: Any, m: Any) -> Any:
    few = (m == np.floor(m)) & (m >= 0) & (m <= 32)
    product = np.ones_like(z)
    for k in range(32):
        product = np.where(few & (k < m), product * (z + k), product)
    pole, start = ((x <= 0) & (np.floor(x) == x) for x in (z + m, z))
    found = gamma_sign(z) * gamma_sign(z + m) * np.exp(_log_poch(z, m))
    found = np.where(pole, np.where(start, np.nan, np.inf), np.where(start, 0, found))
    return np.where(few, product, found)


def _comb(n: Any, k: Any) -> Any:
    other = n - k
    from_k = (k == np.floor(k)) & ((k <= other) | (other != np.floor(other)))
    few = np.where(from_k, k, other)
    short = (few == np.floor(few)) & (few <= 64) & (few >= 0)
    product = np.ones_like(n)
    for i in range(1, 65):
        product = np.where(short & (i <= few), product * ((n - few + i) / i), product)
    product = np.where((n == np.floor(n)) & (product < 2.0**53), np.rint(product), product)
    inside = (k >= 0) & (n >= k)
    u, v = np.where(inside, other, 1), np.where(inside, k, 1)
    found = np.where(short, product, np.exp(-np.log1p(np.where(inside, n, 1)) - log_beta(u + 1, v + 1)))
    return np.where(np.isnan(n) | np.isnan(k), np.nan, np.where(inside, found, 0))


# ---- zeta -----------------------------------------------------------------------------------------------------------


def _hurwitz(s: Any, q: Any) -> Any:
    """Σ (q + k)^-s for s > 1 and q > 0, by Euler's and Maclaurin's formula from s + 16 on; a large s ends it before."""
    total, done = np.zeros_like(s), np.isinf(q)
    q = np.where(done, 1, q)
    while True:
        going = ~done & (q < s + 16)
        if not going.any():
            break
        term = np.where(going, np.power(q, -s), 0)
        total = total + term
        done = done | (going & ~(term > 1e-22 * total))
        q = np.where(going, q + 1, q)
    term = s / (2 * q)
    tail = 0.5 + bernoulli(q, 1) * term
    for k in range(2, 13):
        term = term * ((s + 2 * k - 3) / (2 * k - 1)) * ((s + 2 * k - 2) / (2 * k)) / q / q
        tail = tail + bernoulli(q, k) * term
    return np.where(done, total, total + np.power(q, 1 - s) * (tail / q + 1 / (s - 1)))


def _zeta(q: Any, s: Any) -> Any:
    whole = np.floor(q)
    pole = (q <= 0) & (q == whole)
    below = (q < 0) & ~pole
    outside = np.isnan(s) | np.isnan(q) | (s < 1) | (below & ((s != np.floor(s)) | np.isinf(s))) | (q == -np.inf)
    fine = ~outside & ~pole & (s > 1)
    t, order = np.where(fine & ~below, q, 1), np.where(fine, s, 2)
    u = np.where(fine & below, q, -0.5)
    sign = np.where(order % 2 == 0, 1, -1)
    two_sided = _hurwitz(order, u - np.floor(u)) + sign * (_hurwitz(order, np.ceil(u) - u) - _hurwitz(order, 1 - u))
    found = np.where(below, two_sided, _hurwitz(order, t))
    return np.where(outside, np.nan, np.where(pole | (s == 1), np.inf, found))


# ---- exponential integrals ------------------------------------------------------------------------------------------


def _fraction(x: Any, n: Any) -> Any:
    """exp(x) E_n(x) for x >= 1."""
    b, c = x + n, np.full_like(x, 1e300)
    d = 1 / b
    y, going = d, np.ones(x.shape, bool)
    for i in range(1, 4000):
        a = -i * (n - 1 + i)
        b = b + 2
        d, c = 1 / (a * d + b), b + a / c
        y = np.where(going, y * c * d, y)
        going = going & ~(np.abs(c * d - 1) < 1e-19)
        if not going.any():
            break
    return y


def _near(x: Any, n: Any) -> Any:
    """E_n(x) for 0 < x <= 1, n > 0."""
    total, term = np.where(n == 1, 0, 1 / np.where(n == 1, 1, n - 1)), -np.ones_like(x)
    for k in range(1, 28):
        term = term * -x / k
        total = total + np.where(k == n - 1, 0, term / np.where(k == n - 1, 1, k + 1 - n))
    psi, power = -x.dtype.type(EULER) - np.log(x), np.ones_like(x)
    for k in range(1, 28):
        psi, power = np.where(k < n, psi + 1 / x.dtype.type(k), psi), np.where(k < n, power * -x / k, power)
    return total + np.where(n < 28, power * psi, 0)


def expn(x: Any, n: Any) -> Any:
    """E_n(x), NaN for x < 0 and n that is no whole number from 0 on."""
    inside = (x >= 0) & (n >= 0) & (n == np.floor(n))
    usual = inside & (x > 0) & (n > 0) & np.isfinite(x) & np.isfinite(n)
    order, near, far = np.where(usual, n, 1), np.where(usual & (x <= 1), x, 1), np.where(usual & (x > 1), x, 1)
    t = np.where(inside, x, 1)
    h = np.exp(-t / 2)
    found = np.where(x <= 1, _near(near, order), _fraction(far, order) * h * h)
    found = np.where(usual, found, np.where(n == 0, h / t * h, 0))
    end = np.where(n < 2, np.inf, 1 / np.where(n < 2, 1, n - 1))
    return np.where(inside, np.where(x == 0, end, found), np.nan)


def _expn_slope(dy: Any, x: Any, n: Any) -> Any:
    h = np.exp(-x / 2)
    first = h * ((1 / x + 1 / x / x) * h)
    return -dy * np.where(n == 0, np.where(x >= 0, first, np.nan), expn(x, np.where(n == 0, 1, n - 1)))


def _beta_slope(logarithm: bool, first: bool) -> Any:
    def formula(dy: Any, a: Any, b: Any) -> Any:
        slope = digamma(a if first else b) - digamma(a + b)
        return dy * (slope if logarithm else _beta(a, b) * slope)

    return partial("ab", formula)


_FEW, _SHARE = between(0.2, 30), between(0.05, 0.5)
BETA = Special(
    "combinatorics/Beta", widely(_beta), (_FEW, _FEW), (_beta_slope(False, True), _beta_slope(False, False)),
    ulp=512, slope=2048,
    torch=lambda torch, a, b: torch.exp(in_torch.betaln(torch, a, b)),
)  # fmt: skip
BETALN = Special(
    "combinatorics/Betaln", widely(log_beta), (_SHARE, _SHARE), (_beta_slope(True, True), _beta_slope(True, False)),
    ulp=64, slope=256,
    torch=in_torch.betaln,
)  # fmt: skip
POCH = Special(
    "combinatorics/Poch", widely(_poch), (between(2, 30), _FEW),
    (
        partial("ab", lambda dy, z, m: dy * (_poch(z, m) * (digamma(z + m) - digamma(z)))),
        partial("ab", lambda dy, z, m: dy * (_poch(z, m) * digamma(z + m))),
    ), ulp=512, slope=4096,
    torch=lambda torch, z, m: torch.exp(torch.lgamma(z + m) - torch.lgamma(z)),
)  # fmt: skip
COMB = Special(
    "combinatorics/Comb", widely(_comb), (between(20, 60), between(0.5, 20)), ulp=512,
    torch=lambda torch, n, k: torch.exp(-torch.log1p(n) - in_torch.betaln(torch, n - k + 1, k + 1)),
)  # fmt: skip
ZETA = Special(
    "combinatorics/Zeta", widely(_zeta), (between(0.1, 30), between(1.1, 20)),
    (partial("ab", lambda dy, q, s: -dy * (s * _zeta(q, s + 1))), None), ulp=64, slope=64,
    torch=lambda torch, q, s: torch.special.zeta(s, q), call="ba",
)  # fmt: skip
EXPN = Special(
    "combinatorics/Expn", widely(expn), (between(0.01, 30), between(0, 9, whole=True)),
    (partial("ab", _expn_slope), None), ulp=128, slope=128,
    torch=in_torch.expn, call="ba",
)  # fmt: skip
