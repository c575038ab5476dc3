"""Relative entropies, and the transformations of Box and Cox."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ternary_kinds import Partial
from .row import Special, between, partial, widely


def log_gap(d: Any) -> Any:
    """d - log(1 + d), near 0 by the series of the inverse hyperbolic tangent of d / (2 + d)."""
    near = np.clip(d, -0.5, 0.5)
    s = near / (2 + near)
    total = np.zeros_like(s)
    for k in range(47, 1, -2):
        total = total * s * s + 1 / s.dtype.type(k)
    return np.where(np.abs(d) < 0.5, s * near - 2 * s * s * s * total, d - np.log1p(np.where(np.abs(d) < 0.5, 1, d)))


def _log_ratio(p: Any, q: Any) -> Any:
    """log(p / q) of positive numbers, near 1 from the difference."""
    ratio = p / q
    near = (ratio > 0.5) & (ratio < 2)
    return np.where(near, np.log1p(np.where(near, (p - q) / q, 0)), np.log(np.where(near, 1, ratio)))


def _divergence(inside: Any, at_zero: Any) -> Any:
    """`inside` of positive numbers, at_zero for p = 0, NaN of a NaN, an infinity elsewhere."""

    def formula(p: Any, q: Any) -> Any:
        positive = (p > 0) & (q > 0)
        found = inside(np.where(positive, p, 1), np.where(positive, q, 1))
        found = np.where(positive, found, np.where((p == 0) & (q >= 0), at_zero(q), np.inf))
        return np.where(np.isnan(p) | np.isnan(q), np.nan, found)

    return widely(formula)


def _kl(p: Any, q: Any) -> Any:
    d = (q - p) / p
    near = np.abs(d) < 0.5
    return np.where(near, p * log_gap(np.where(near, d, 0)), p * _log_ratio(p, q) - p + q)


def _slope(inside: Any, at_zero: Any) -> Partial:
    """A gradient of them: of positive numbers, and for p = 0; NaN elsewhere."""

    def formula(dy: Any, p: Any, q: Any, *_: Any) -> Any:
        positive = (p > 0) & (q > 0)
        found = inside(dy, np.where(positive, p, 1), np.where(positive, q, 1))
        return np.where(positive, found, np.where((p == 0) & (q >= 0), at_zero(dy, q), np.nan))

    return Partial("ab", formula)


def _minus_infinity(dy: Any, q: Any) -> Any:
    return -dy * np.inf


def _boxcox(log: Any, power: Any) -> Any:
    def formula(x: Any, factor: Any) -> Any:
        logarithm, whole = log(x), np.abs(factor) < 1e-290
        lam = np.where(whole, 1, factor)
        t = lam * logarithm
        near = np.abs(t) < 1
        found = np.where(near, np.expm1(np.where(near, t, 0)), power(x, lam) - 1) / lam
        return np.where(whole, logarithm, found)

    return widely(formula)


def _boxcox_by_factor(log: Any, power: Any) -> Any:
    """dy log(x)² h(t), t = λ log(x) and h(t) = ((t - 1) exp(t) + 1) / t²; near 0 the series of h."""

    def formula(dy: Any, x: Any, factor: Any) -> Any:
        logarithm = log(x)
        t = factor * logarithm
        near = np.abs(t) < 1
        small = np.where(near, t, 0)
        e = power(x, factor)
        lam = np.where(near, 1, factor)
        far = np.where(e == 0, 1, (t - 1) * e + 1) / lam / lam
        return dy * np.where(near, logarithm * logarithm * _bend(small), far)

    return partial("ab", formula)


def _bend(t: Any) -> Any:
    """The sum of (k + 1) t^k / (k + 2)!."""
    total, term = np.zeros_like(t), np.ones_like(t) / 2
    for k in range(26):
        total = total + (k + 1) * term
        term = term * t / (k + 3)
    return total


def _power(x: Any, factor: Any) -> Any:
    return np.where(x < 0, np.nan, np.power(np.where(x < 0, 1, x), factor))


def _power1p(x: Any, factor: Any) -> Any:
    """(1 + x) to the factor, by what 1 + x was rounded off."""
    y = 1 + x
    low = np.where(np.abs(x) <= 1, x - (y - 1), 1 - (y - x))
    with_low = np.where(np.isfinite(y) & (y > 0), factor * low / np.where(y > 0, y, 1), 0)
    return _power(y, factor) * (1 + with_low)


_POSITIVE = between(0.01, 100)
REL_ENTR = Special(
    "divergence/RelEntr", _divergence(lambda p, q: p * _log_ratio(p, q), lambda q: q * 0), (_POSITIVE, _POSITIVE),
    (
        _slope(lambda dy, p, q: dy * (_log_ratio(p, q) + 1), _minus_infinity),
        _slope(lambda dy, p, q: -dy * (p / q), lambda dy, q: dy * 0),
    ), ulp=8,
    torch=lambda torch, p, q: p * (torch.log(p) - torch.log(q)),
)  # fmt: skip
KL_DIV = Special(
    "divergence/KlDiv", _divergence(_kl, lambda q: q), (_POSITIVE, _POSITIVE),
    (
        _slope(lambda dy, p, q: dy * _log_ratio(p, q), _minus_infinity),
        _slope(lambda dy, p, q: dy * ((q - p) / q), lambda dy, q: dy),
    ), ulp=64,
    torch=lambda torch, p, q: p * (torch.log(p) - torch.log(q)) - p + q,
)  # fmt: skip
_FACTOR = between(0.05, 3)
BOXCOX = Special(
    "divergence/Boxcox", _boxcox(np.log, _power), (_POSITIVE, _FACTOR),
    (
        partial("ab", lambda dy, x, factor: dy * _power(x, factor - 1)), _boxcox_by_factor(np.log, _power),
    ), ulp=16, slope=64,
    torch=lambda torch, x, factor: (x**factor - 1) / factor,
)  # fmt: skip
BOXCOX1P = Special(
    "divergence/Boxcox1p", _boxcox(np.log1p, _power1p), (_POSITIVE, _FACTOR),
    (
        partial("ab", lambda dy, x, factor: dy * _power1p(x, factor - 1)), _boxcox_by_factor(np.log1p, _power1p),
    ), ulp=16, slope=64,
    torch=lambda torch, x, factor: torch.expm1(torch.log1p(x) * factor) / factor,
)  # fmt: skip
