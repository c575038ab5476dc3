"""Integrals and the gamma function by mpmath, as `truth_special` has the others: f, f', and terms that cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
from truth_cylinder import waving

mp = mpmath.mp.clone()
mp.dps = 60


def _far_exponential(x: Any) -> Any:
    """x exp(-x) Ei(x) far out, of either sign."""
    return sum(mp.factorial(k) / x**k for k in range(30))


def _expi(x: Any) -> Any:
    if x == 0:
        return -mp.inf
    if abs(x) > 300:
        return _far_exponential(x) * mp.exp(max(min(x, 20000), -20000)) / x
    return mp.ei(x) if x > 0 else -mp.e1(-x)


def _exp1(x: Any) -> Any:
    return mp.nan if x < 0 else -_expi(-x)


def _dawsn_far(x: Any) -> Any:
    """2 x D(x) - 1."""
    return sum(mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(1, 40))


def _dawsn(x: Any) -> Any:
    if abs(x) > 12:
        return (1 + _dawsn_far(x)) / (2 * x)
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def _angle(x: Any) -> Any:
    """x² / 2 modulo 2, which is exact for numbers of 64 bits."""
    with mp.workdps(700):
        half = x * x / 2
        return half - 2 * mp.floor(half / 2)


def _fresnel(x: Any, sine: bool) -> Any:
    size = abs(x)
    if size < 60:
        found = mp.fresnels(size) if sine else mp.fresnelc(size)
    else:
        t = 1 / (mp.pi * size * size)
        f = sum((-1) ** m * mp.fac2(4 * m - 1) * t ** (2 * m) for m in range(8)) / (mp.pi * size)
        g = sum((-1) ** m * mp.fac2(4 * m + 1) * t ** (2 * m + 1) for m in range(8)) / (mp.pi * size)
        s, c = mp.sinpi(_angle(size)), mp.cospi(_angle(size))
        found = mp.mpf(1) / 2 + (-f * c - g * s if sine else f * s - g * c)
    return -found if x < 0 else found


def _sici(x: Any, sine: bool) -> Any:
    size = abs(x)
    if size < 100:
        found = mp.si(size) if sine else mp.ci(size)
    else:
        f = sum((-1) ** m * mp.factorial(2 * m) / size ** (2 * m) for m in range(20)) / size
        g = sum((-1) ** m * mp.factorial(2 * m + 1) / size ** (2 * m) for m in range(20)) / size**2
        s, c = mp.sin(size), mp.cos(size)
        found = mp.pi / 2 - f * c - g * s if sine else f * s - g * c
    return -found if x < 0 and sine else found


def _spence(x: Any) -> Any:
    if x < 0:
        return mp.nan
    if x > 2:
        return -(mp.log(x) ** 2) / 2 - _spence(1 / x)
    return mp.re(mp.polylog(2, 1 - x)) if x != 1 else mp.mpf(0)


def _spence_slope(x: Any) -> Any:
    return mp.nan if x < 0 else -mp.mpf(1) if x == 1 else mp.inf if x == 0 else mp.log(x) / (1 - x)


def _pole(x: Any) -> bool:
    return x <= 0 and x == mp.floor(x)


def _gamma(x: Any) -> Any:
    if _pole(x):
        return mp.nan
    return mp.inf if x > 4000 else mp.gamma(x)


def _gamma_terms(x: Any) -> tuple[Any, Any]:
    """Γ(x) ψ(x), of which near the zeros of ψ two terms cancel."""
    if _pole(x):
        return (mp.nan if x else -mp.inf), mp.mpf(0)
    if x > 4000:
        return mp.inf, mp.mpf(0)
    if x > 0:
        return _gamma(x) * mp.digamma(x + 1), -_gamma(x) / x
    return _gamma(x) * mp.digamma(1 - x), -_gamma(x) * mp.pi * mp.cospi(x) / mp.sinpi(x)


def _multigammaln(x: Any, p: Any) -> Any:
    return mp.fsum(_log_gammas(x, p)) if x > (p - 1) / 2 else mp.nan


def _log_gammas(x: Any, p: Any) -> list[Any]:
    return [p * (p - 1) / 4 * mp.log(mp.pi), *(mp.loggamma(x - mp.mpf(j) / 2) for j in range(int(p)))]


def _bernoulli_number(x: Any) -> Any:
    """B(x), B(1) being -1/2; only whole numbers from 0 on have one."""
    if not (x >= 0 and x == mp.floor(x)) or mp.isinf(x):
        return mp.nan
    if x > 2000:  # far beyond every type's range
        return mp.mpf(0) if x % 2 else mp.inf if x % 4 else -mp.inf
    return mp.mpf(-0.5) if x == 1 else mp.bernoulli(int(x))


FORWARD: dict[str, Callable[..., Any]] = {
    "exp1": _exp1, "expi": _expi, "dawsn": _dawsn, "fresnel_s": lambda x: _fresnel(x, True),
    "fresnel_c": lambda x: _fresnel(x, False), "sine_integral": lambda x: _sici(x, True),
    "cosine_integral": lambda x: _sici(x, False), "spence": _spence, "gamma": _gamma,
    "factorial": lambda x: _gamma(x + 1), "multigammaln": _multigammaln,
    "bernoulli_number": _bernoulli_number,
    "gammasgn": lambda x: mp.nan if _pole(x) else mp.mpf(1) if x > 0 or mp.floor(x) % 2 == 0 else -mp.mpf(1),
}  # fmt: skip
SLOPE: dict[str, Callable[..., Any]] = {
    "exp1": lambda x: mp.nan if x < 0 else -mp.exp(-min(x, 20000)) / x if x else -mp.inf,
    "expi": lambda x: mp.exp(max(min(x, 20000), -20000)) / x if x else mp.inf, "spence": _spence_slope,
}  # fmt: skip
TERMS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "dawsn": lambda x: (mp.mpf(1), -2 * x * _dawsn(x)) if abs(x) < 9 else (-_dawsn_far(x), mp.mpf(0)),
    "fresnel_s": lambda x: (mp.sin(mp.pi * x * x / 2), mp.mpf(0)) if abs(x) < 1 else waving(mp.sinpi(_angle(x)), 1),
    "fresnel_c": lambda x: waving(mp.cospi(_angle(x)), 1),
    "sine_integral": lambda x: (mp.sin(x) / x if x else mp.mpf(1), mp.mpf(0)),
    "cosine_integral": lambda x: (mp.cos(x) / x if x else mp.inf, mp.mpf(0)), "gamma": _gamma_terms,
    "factorial": lambda x: _gamma_terms(x + 1),
    "multigammaln": lambda x: (
        (mp.digamma(x) + mp.digamma(x - 0.5), mp.digamma(x - 1)) if x > 1 else (mp.nan, mp.mpf(0))
    ),
}  # fmt: skip
SCALE: dict[str, Callable[..., Any]] = {
    "expi": lambda x: abs(_expi(x)) + (abs(mp.log(x)) + 1 if 0 < x < 2 else 0),
    "cosine_integral": lambda x: 1 / abs(x) if abs(x) > 1 else abs(mp.log(abs(x))) + 1,
    "multigammaln": lambda x, p: mp.fsum(map(abs, _log_gammas(x, p))) if x > (p - 1) / 2 else mp.nan,
}
POLES = {
    "exp1": (0,), "expi": (0,), "cosine_integral": (0,), "gamma": (0,), "gammasgn": (0,), "factorial": (-1,),
    "spence": (0,),
}  # fmt: skip
