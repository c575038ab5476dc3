"""Bessel functions J, Y and K by mpmath, as `truth_special` has the others: f, f', their terms, and their envelope."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath

mp = mpmath.mp.clone()
mp.dps = 60


def _hankel(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y far out, by Hankel's series."""
    p, q, term = mp.mpf(0), mp.mpf(0), mp.mpf(1)
    for k in range(60):
        sign = -1 if k & 2 else 1
        p, q = (p, q + sign * term) if k % 2 else (p + sign * term, q)
        term *= mp.mpf(4 * order - (2 * k + 1) ** 2) / (8 * (k + 1) * x)
    c, s = mp.cos(x), mp.sin(x)
    c, s = (s - c, -s - c) if order else (s + c, s - c)
    return (p * c - q * s) / mp.sqrt(mp.pi * x), (p * s + q * c) / mp.sqrt(mp.pi * x)


@functools.cache
def second(x: Any, order: int, sign: int) -> Any:
    """Y (sign -1) or K (sign 1) for 0 < x < 60, by power series: mpmath's own take long."""
    with mp.workdps(140):
        x = mp.mpf(x)  # of this context, so that products have all digits
        t, harmonic, term = sign * x * x / 4, -mp.euler, mp.mpf(1) if order == 0 else x / 2
        first, rest = mp.mpf(0), mp.mpf(0)
        for k in range(1, 400):
            above = harmonic + mp.mpf(1) / k
            first += term
            rest += term * (harmonic if order == 0 else (harmonic + above) / 2)
            harmonic = above
            term *= t / (k * (k + order))
            if abs(term) < mp.mpf(10) ** -135:
                break
        log, pole = mp.log(x / 2) * first, order / x
        if sign < 0:
            return 2 / mp.pi * (log - rest - pole)
        return pole + log - rest if order else rest - log


@functools.cache
def _j(x: Any, order: int) -> Any:
    size = abs(x)
    found = mp.besselj(order, size) if size < 60 else _hankel(size, order)[0]
    return -found if x < 0 and order else found


@functools.cache
def _y(x: Any, order: int) -> Any:
    if x <= 0:
        return mp.nan if x < 0 else -mp.inf
    if x < 1e-30:
        return -2 / (mp.pi * x) if order else 2 / mp.pi * (mp.log(x / 2) + mp.euler)
    return second(x, order, -1) if x < 60 else _hankel(x, order)[1]


@functools.cache
def _ke(x: Any, order: int) -> Any:
    """exp(x) K(x)."""
    if x <= 0:
        return mp.nan if x < 0 else mp.inf
    if x < 1e-30:
        return 1 / x if order else -mp.log(x / 2) - mp.euler
    if x < 60:
        return mp.exp(x) * second(x, order, 1)
    return _far(x, lambda *terms: terms[order])


def _far(x: Any, pick: Callable[..., Any]) -> Any:
    """What `pick` makes of exp(x) K0(x) and exp(x) K1(x), term by term of their asymptotic series."""
    total, terms = mp.mpf(0), [mp.mpf(1), mp.mpf(1)]
    for k in range(60):
        total += pick(*terms)
        terms = [term * mp.mpf(4 * order - (2 * k + 1) ** 2) / (8 * (k + 1) * x) for order, term in enumerate(terms)]
    return total * mp.sqrt(mp.pi / (2 * x))


def _gap(x: Any) -> Any:
    """exp(x) (K1(x) - K0(x)), which are nearly equal far out."""
    return _ke(x, 1) - _ke(x, 0) if x < 60 else _far(x, lambda a, b: b - a)


def _decayed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: f(x) * mp.exp(-min(max(x, 0), 20000))


def _envelope(order: int, second: bool) -> Callable[..., Any]:
    """The size about which a function's waves are known: its own before the first of them."""

    def size(x: Any) -> Any:
        own = _y(x, order) if second else _j(x, order)
        if x != x or own != own or abs(x) < (0.5 if second else 2):
            return own
        return mp.sqrt(_j(abs(x), order) ** 2 + _y(abs(x), order) ** 2)

    return size


def _k1e_slope(x: Any) -> Any:
    return _gap(x) - _ke(x, 1) / x if x else -mp.inf


@functools.cache
def _airy(x: Any, slope: int) -> Any:
    """Ai or its derivative, NaN where numbers of double lie more than a wave apart."""
    if x != x or (x < -1e10 and (slope or not mp.isinf(x))):
        return mp.nan
    return mp.mpf(0) if mp.isinf(x) or x > 300 else mp.airyai(x, derivative=slope)


def _airy_envelope(x: Any, slope: int) -> Any:
    own = _airy(x, slope)
    return own if own != own or not -1e11 < x < -1 else mp.sqrt(own**2 + mp.airybi(x, derivative=slope) ** 2)


FORWARD: dict[str, Callable[..., Any]] = {
    "airy_ai": lambda x: _airy(x, 0),
    "bessel_j0": lambda x: _j(x, 0), "bessel_j1": lambda x: _j(x, 1), "bessel_y0": lambda x: _y(x, 0),
    "bessel_y1": lambda x: _y(x, 1), "modified_bessel_k0": _decayed(lambda x: _ke(x, 0)),
    "modified_bessel_k1": _decayed(lambda x: _ke(x, 1)), "scaled_modified_bessel_k0": lambda x: _ke(x, 0),
    "scaled_modified_bessel_k1": lambda x: _ke(x, 1),
}  # fmt: skip
SLOPE: dict[str, Callable[..., Any]] = {
    "modified_bessel_k0": _decayed(lambda x: -_ke(x, 1)),
    "modified_bessel_k1": _decayed(lambda x: -_ke(x, 0) - _ke(x, 1) / x if x else -mp.inf),
    "scaled_modified_bessel_k0": lambda x: -_gap(x) if x else -mp.inf,
    "scaled_modified_bessel_k1": _k1e_slope,
}
SCALE: dict[str, Callable[..., Any]] = {
    "airy_ai": lambda x: _airy_envelope(x, 0),
    "bessel_j0": _envelope(0, False), "bessel_j1": _envelope(1, False), "bessel_y0": _envelope(0, True),
    "bessel_y1": _envelope(1, True),
}  # fmt: skip


def waving(value: Any, size: Any) -> tuple[Any, Any]:
    """A slope, and what its error is relative to, as two terms of that sum."""
    half = (abs(size) - abs(value)) / 2 if size == size else mp.nan
    return (value + half if value >= 0 else value - half), (-half if value >= 0 else half)


def _second(f: Callable[..., Any], x: Any, limit: Any) -> tuple[Any, Any]:
    """f0 - f1 / x."""
    value = f(x, 0) - (f(x, 1) / x if x else limit)
    if value != value or mp.isinf(value):
        return value, mp.mpf(0)
    size = abs(f(x, 0)) + abs(f(x, 1) / x if x else limit)
    far = mp.sqrt(_j(abs(x), 0) ** 2 + _y(abs(x), 0) ** 2) if abs(x) > 1 else mp.mpf(0)
    return waving(value, max(size, far))


TERMS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "airy_ai": lambda x: waving(_airy(x, 1), _airy_envelope(x, 1)),
    "bessel_j0": lambda x: waving(-_j(x, 1), _envelope(1, False)(x)),
    "bessel_j1": lambda x: _second(_j, x, mp.mpf(1) / 2),
    "bessel_y0": lambda x: waving(-_y(x, 1), _envelope(1, True)(x)) if x > 0 else (-_y(x, 1), mp.mpf(0)),
    "bessel_y1": lambda x: _second(_y, x, mp.inf) if x > 0 else (mp.nan if x < 0 else mp.inf, mp.mpf(0)),
}
POLES = dict.fromkeys(
    ("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
     "scaled_modified_bessel_k1"), (0,),
)  # fmt: skip
