"""Special functions by mpmath, as `truth` has the others: f, f', and of those that cancel the terms that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import truth_cylinder
import truth_integrals

mp = mpmath.mp.clone()
mp.dps = 60


def _density(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def _clamped(f: Callable[..., Any], end: float) -> Callable[..., Any]:
    return lambda x: f(max(min(x, mp.mpf(end)), -mp.mpf(end)))


def _erfcx(x: Any) -> Any:
    if x > 10**6:
        return (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6)) / (x * mp.sqrt(mp.pi))
    return mp.exp(max(x, -200) ** 2) * mp.erfc(max(x, -200))


def _erfcinv(q: Any) -> Any:
    """y with erfc(y) = q <= 1/2."""
    log = -mp.log(q)
    y = mp.sqrt(max(log - mp.log(mp.pi * log) / 2, mp.mpf(1) / 4))
    for _ in range(9):
        ratio = _erfcx(y)
        y += (mp.log(ratio) - y * y + log) * ratio * mp.sqrt(mp.pi) / 2
    return y


def _erfinv(x: Any) -> Any:
    if not -1 < x < 1:
        return mp.nan if abs(x) > 1 else mp.sign(x) * mp.inf
    return mp.erfinv(x) if abs(x) <= 0.5 else mp.sign(x) * _erfcinv(1 - abs(x))


def _ndtri(p: Any) -> Any:
    if not 0 < p < 1:
        return mp.nan if p < 0 or p > 1 else mp.inf * (1 if p else -1)
    q = min(p, 1 - p)
    y = _erfcinv(2 * q) if q <= 0.25 else mp.erfinv(1 - 2 * q)
    return mp.sqrt(2) * (-y if p < 0.5 else y)


def _log_ndtr(x: Any) -> Any:
    if x > 0:
        return mp.log1p(-mp.erfc(min(x, 200) / mp.sqrt(2)) / 2)
    return mp.log(_erfcx(-x / mp.sqrt(2)) / 2) - x * x / 2


def _hazard(x: Any) -> Any:  # phi(x) / Phi(x)
    if x < 0:
        return mp.sqrt(2 / mp.pi) / _erfcx(-x / mp.sqrt(2))
    return _density(min(x, 200)) / (1 - mp.erfc(min(x, 200) / mp.sqrt(2)) / 2)


def _pole(x: Any) -> bool:
    return x <= 0 and x == mp.floor(x)


def _reflected(x: Any) -> tuple[Any, Any]:
    return mp.log(mp.pi / abs(mp.sinpi(x))), -mp.loggamma(1 - x)


def _lgamma(x: Any) -> Any:
    if _pole(x):
        return mp.inf
    return mp.loggamma(x) if x > 0 else sum(_reflected(x))


def _digamma_terms(x: Any) -> tuple[Any, Any]:
    if _pole(x):
        return mp.nan, mp.mpf(0)
    return (mp.digamma(x), mp.mpf(0)) if x > 0 else (mp.digamma(1 - x), -mp.pi * mp.cospi(x) / mp.sinpi(x))


def _polygamma(x: Any, n: Any) -> Any:
    sign = 1 if int(n) % 2 else -1
    if _pole(x):
        return sign * mp.inf
    if x > 10**12:
        return sign * mp.gamma(n) / x**n * (1 + n / (2 * x) + n * (n + 1) / (12 * x * x))
    return mp.psi(int(n), x) if x > 0 else sum(_polygamma_terms(x, n))


def _polygamma_terms(x: Any, n: Any) -> tuple[Any, Any]:
    """The poles on both sides, of equal signs where n is odd."""
    sign, f, size = (1 if int(n) % 2 else -1), x - mp.floor(x), mp.gamma(n + 1)
    below = mp.zeta(n + 1, mp.ceil(x) - x) - (mp.zeta(n + 1, 1 - x) if x > -(10**12) else 0)
    return sign * size * mp.zeta(n + 1, f), size * below


def _far(x: Any, pick: Callable[..., Any]) -> Any:
    """√(2πx) times what `pick` makes of exp(-x) I0(x) and exp(-x) I1(x), term by term of their asymptotic series."""
    total, terms = mp.mpf(0), [mp.mpf(1), mp.mpf(1)]
    for k in range(1, 12):
        total += pick(*terms)
        terms = [-t * (4 * order - (2 * k - 1) ** 2) / (8 * k * x) for order, t in enumerate(terms)]
    return total / mp.sqrt(2 * mp.pi * x)


def _scaled(order: int) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        x = abs(x)
        return mp.exp(-x) * mp.besseli(order, x) if x < 10**5 else _far(x, lambda *terms: terms[order])

    return function


_i0e, _i1e = _scaled(0), _scaled(1)


def _difference(x: Any) -> Any:
    x = abs(x)
    return _i0e(x) - _i1e(x) if x < 10**5 else _far(x, lambda a, b: a - b)


def _over(x: Any) -> Any:
    return _i1e(x) / abs(x) if x else mp.mpf(1) / 2


def _unscaled(f: Callable[..., Any]) -> Callable[..., Any]:
    return _clamped(lambda x: f(x) * mp.exp(abs(x)), 12000)


def _halves(t: Any, factor: Any, cosine: Any, sine: Any) -> tuple[Any, Any]:
    """cos(t) / t and -sin(t) / t², near 0 as their sum alone: they cancel there."""
    if abs(t) < 1e-8:
        return factor * (-t / 3 + t**3 / 30), mp.mpf(0)
    cosine, sine = factor * cosine / t, -factor * sine / (t * t)
    return (cosine, sine) if abs(t) > 1 else (cosine + sine, mp.mpf(0))


FORWARD: dict[str, Callable[..., Any]] = {
    "erfcx": _erfcx, "erfinv": _erfinv, "ndtr": _clamped(lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, 200),
    "ndtri": _ndtri, "log_ndtr": _log_ndtr, "lgamma": _lgamma, "digamma": lambda x: sum(_digamma_terms(x)),
    "polygamma": _polygamma, "i0": _unscaled(_i0e), "i1": lambda x: mp.sign(x) * _unscaled(_i1e)(x), "i0e": _i0e,
    "i1e": lambda x: mp.sign(x) * _i1e(x), "sinc": lambda x: mp.sinpi(x) / (mp.pi * x) if x else mp.mpf(1),
    "spherical_bessel_j0": lambda x: mp.sin(x) / x if x else mp.mpf(1),
    "entr": lambda x: -x * mp.log(x) if x > 0 else mp.mpf(0) if x == 0 else -mp.inf,
}  # fmt: skip

SLOPE: dict[str, Callable[..., Any]] = {
    "erfinv": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(_erfinv(x) ** 2) if -1 < x < 1 else mp.nan,
    "ndtri": lambda x: mp.sqrt(2 * mp.pi) * mp.exp(_ndtri(x) ** 2 / 2) if 0 < x < 1 else mp.nan,
    "ndtr": _clamped(_density, 200), "log_ndtr": _hazard, "digamma": lambda x: _polygamma(x, mp.mpf(1)),
    "polygamma": lambda x, n: _polygamma(x, n + 1), "i0": lambda x: mp.sign(x) * _unscaled(_i1e)(x),
    "i1": _unscaled(lambda x: _i0e(x) - _over(x)),
    "i0e": lambda x: -mp.sign(x) * _difference(x) if x else mp.mpf(0),
}  # fmt: skip


TERMS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "erfcx": lambda x: (2 * x * _erfcx(x), -2 / mp.sqrt(mp.pi)) if abs(x) < 10 else (_erfcx_slope(x), mp.mpf(0)),
    "lgamma": _digamma_terms,
    "i1e": lambda x: (_i0e(x), -_i1e(x) - _over(x)) if abs(x) < 33 else (_difference(x), -_over(x)),
    "sinc": lambda x: _halves(mp.pi * x, mp.pi, mp.cospi(x), mp.sinpi(x)) if x else (mp.mpf(0), mp.mpf(0)),
    "spherical_bessel_j0": lambda x: _halves(x, mp.mpf(1), mp.cos(x), mp.sin(x)) if x else (mp.mpf(0), mp.mpf(0)),
    "entr": lambda x: (-mp.log(x), mp.mpf(-1)) if x > 0 else (mp.nan if x < 0 else mp.inf, mp.mpf(0)),
}  # fmt: skip


def _erfcx_slope(x: Any) -> Any:
    """2 x erfcx(x) - 2/√π with as many digits more as the terms lose."""
    if x > 10**6:
        return -(1 - 3 / (2 * x * x) + 15 / (4 * x**4)) / (x * x * mp.sqrt(mp.pi))
    return 2 * x * _erfcx(x) - 2 / mp.sqrt(mp.pi)


SCALE: dict[str, Callable[..., Any]] = {
    "lgamma": lambda x: _lgamma(x) if x > 0 or _pole(x) else sum(map(abs, _reflected(x))),
    "digamma": lambda x: sum(map(abs, _digamma_terms(x))),
    "polygamma": lambda x, n: _polygamma(x, n) if x > 0 or _pole(x) else sum(map(abs, _polygamma_terms(x, n))),
}
"""Of functions with zeros at which float64 loses its digits: the size of the terms that cancel there."""

for one in (truth_cylinder, truth_integrals):
    FORWARD |= one.FORWARD
    SLOPE |= one.SLOPE
    TERMS |= one.TERMS
    SCALE |= one.SCALE
POLES = truth_cylinder.POLES | truth_integrals.POLES
