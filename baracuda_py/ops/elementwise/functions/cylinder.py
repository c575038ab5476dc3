"""Bessel functions J, Y and modified K of orders 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import ElementKind, Relative, Ulp
from ....core.element import HALVES
from ....core.error_bound import ErrorBound
from ..unary_formulas import by_parts, pi
from . import in_torch
from .row import Function, beyond_zeros, in_double, slope_in_double, linearised

EULER = "0.57721566490153286060651209008240243"
_FAR = 25  # from here on Hankel's series; before it power series, then a recurrence
_LAST = 88  # the order that the recurrence begins from


def _powers(x: Any, terms: int, sign: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Of order 0 and 1: J or I (sign -1 or 1), and the same sum with every term times -γ and so many 1/k, as K has."""
    t, half = sign * x * x / 4, x / 2
    term, harmonic = np.ones_like(x), -x.dtype.type(EULER)
    found = [[np.zeros_like(x) for _ in range(2)] for _ in range(2)]
    for k in range(terms):
        above = harmonic + 1 / x.dtype.type(k + 1)
        parts = (term, term * harmonic), (term * half / (k + 1), term * half / (k + 1) * (harmonic + above) / 2)
        found = [[total + part for total, part in zip(*both, strict=True)] for both in zip(found, parts, strict=True)]
        term, harmonic = term * t / ((k + 1) * (k + 1)), above
    return (found[0][0], found[0][1]), (found[1][0], found[1][1])


def _log_half(x: Any) -> Any:
    """log(x / 2), also where x / 2 is no normal number."""
    return np.where(x < 1, np.log(x) - np.log(x.dtype.type(2)), np.log(x / 2))


def _near(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for 0 <= x <= 2, by power series."""
    j, rest = _powers(x, 24, -1)[order]
    pole = 1 / x if order else np.zeros_like(x)
    return j, 2 / pi(x) * (_log_half(x) * j - rest - pole)


def _middle(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for 2 <= x <= 25: the recurrence of J from a high order down, and Y as a series of J (Neumann)."""
    above, here = np.zeros_like(x), np.full_like(x, 1e-60)
    total, series, wanted = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    first = here
    for n in range(_LAST, -1, -1):  # here is J of order n, up to a factor
        if n % 2 == 0:
            total = total + (2 if n else 1) * here
        k = (n - order) // 2
        if n % 2 == order % 2 and k > 0:
            series = series + (-1) ** k * here * x.dtype.type(n) / (k * (k + order))
        wanted, first = (here if n == order else wanted), here
        above, here = here, 2 * n * here / x - above
    j, shift = wanted / total, x.dtype.type(EULER) - order
    y = (_log_half(x) + shift) * j - series / total - (first / total / x if order else 0)
    return j, 2 / pi(x) * y


def _hankel(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for x >= 25, by their asymptotic series of a cosine and a sine."""
    p, q, term = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(36):
        sign = -1 if k & 2 else 1
        p, q = (p, q + sign * term) if k % 2 else (p + sign * term, q)
        term = term * (4 * order - (2 * k + 1) ** 2) / (8 * (k + 1)) / x
    t = np.where(np.isinf(x), 0, x)
    sine, cosine, size = np.sin(t), np.cos(t), np.sqrt(pi(x)) * np.sqrt(x)
    c, s = (sine - cosine, -sine - cosine) if order else (sine + cosine, sine - cosine)
    return (p * c - q * s) / size, (p * s + q * c) / size


def _waves(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y for x >= 0."""
    near, middle = _near(np.minimum(x, 2), order), _middle(np.clip(x, 2, _FAR), order)
    far = _hankel(np.maximum(x, _FAR), order)
    j, y = (np.where(x < 2, a, np.where(x < _FAR, b, c)) for a, b, c in zip(near, middle, far, strict=True))
    return j, y


def _j(x: Any, order: int) -> Any:
    found = _waves(np.abs(x), order)[0]
    return np.where(x < 0, -found, found) if order else found


def _y(x: Any, order: int) -> Any:
    found = _waves(np.abs(x), order)[1]
    return np.where(x < 0, np.nan, np.where(x == 0, -np.inf, found))


def _j0_slope(dy: Any, x: Any) -> Any:
    return np.where(np.abs(x) < 1e-8, -(dy / 2) * x, -dy * _j(x, 1))


def _j1_slope(dy: Any, x: Any) -> Any:
    t = np.where(np.abs(x) < 1e-8, 1, x)
    return np.where(np.abs(x) < 1e-8, dy / 2, dy * (_j(x, 0) - _j(t, 1) / t))


_TINY = 1e-20  # below it Y1 is -2 / (π x), and K1 is 1 / x


def _y0_slope(dy: Any, x: Any) -> Any:
    tiny = (x >= 0) & (x < _TINY)
    return np.where(tiny, dy / np.abs(x) * (2 / pi(x)), -dy * _y(np.where(tiny, 1, x), 1))


def _y1_slope(dy: Any, x: Any) -> Any:
    tiny = (x >= 0) & (x < _TINY)
    t = np.where(tiny, 1, x)
    return np.where(tiny, dy / np.abs(x) / np.abs(x) * (2 / pi(x)), dy * (_y(t, 0) - _y(t, 1) / t))


# ---- K, in long double ----------------------------------------------------------------------------------------------


def integral_of_k(x: Any, weight: Callable[[Any], Any]) -> Any:
    """∫ exp(-x (cosh t - 1)) weight(cosh t - 1) dt from 0 on, for x >= 1: the trapezoidal rule has all digits."""
    first = 2 * np.sinh(x.dtype.type(0.1) / np.sqrt(x)) ** 2  # the step's cosh - 1
    before, rise, total = first, np.zeros_like(x), np.zeros_like(x)
    for k in range(60):
        total = total + (1 if k else x.dtype.type(0.5)) * np.exp(-x * rise) * weight(rise)
        before, rise = rise, 2 * (1 + first) * rise + 2 * first - before
    return np.where(np.isinf(x), 0, total * x.dtype.type(0.2) / np.sqrt(x))


def _series(x: Any, order: int) -> Any:
    """K for 0 < x <= 1."""
    i, rest = _powers(x, 20, 1)[order]
    return 1 / x + _log_half(x) * i - rest if order else rest - _log_half(x) * i


def _k(x: Any, order: int) -> Any:
    """exp(x) K(x); NaN below 0, an infinity at 0."""

    def near(x: Any) -> Any:
        t = np.maximum(x, 0)
        return np.exp(t) * _series(t, order)

    found = by_parts(x < 1, near, lambda x: integral_of_k(x, lambda r: r + 1 if order else 1), x)
    return np.where(x < 0, np.nan, np.where(x == 0, np.inf, found))


def widely(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in long double."""
    return lambda *given: function(*(np.asarray(x, np.longdouble) for x in given)).astype(given[0].dtype)


def _decayed(y: Any, x: Any) -> Any:
    """y exp(-x), x > 0."""
    h = np.exp(-np.where(x > 0, x, 0) / 2)
    return y * h * h


def _minus_k1(dy: Any, x: Any) -> Any:
    """-dy exp(x) K1(x)."""
    tiny = (x >= 0) & (x < _TINY)
    return -np.where(tiny, dy / np.abs(x), dy * _k(np.where(tiny, 1, x), 1))


def _minus_k2(dy: Any, x: Any) -> Any:
    """-dy exp(x) (K0(x) + K1(x) / x)."""
    tiny = (x >= 0) & (x < _TINY)
    t = np.where(tiny, 1, x)
    return -np.where(tiny, dy / np.abs(x) / np.abs(x), dy * (_k(t, 0) + _k(t, 1) / t))


def _falling(dy: Any, x: Any, slope: Any) -> Any:
    """The slope of a function that falls, where dy is infinite and the terms of the slope would cancel."""
    return np.where(np.isinf(dy) & (x >= 0), -dy, slope)


def _k0e_slope(dy: Any, x: Any) -> Any:
    """dy exp(x) (K0(x) - K1(x))."""

    def near(dy: Any, x: Any) -> Any:
        return _falling(dy, x, _minus_k1(dy, x) + dy * _k(np.where(x > 0, x, 1), 0))

    return by_parts(x < 1, near, lambda dy, x: -dy * integral_of_k(x, lambda r: r), dy, x)


def _k1e_slope(dy: Any, x: Any) -> Any:
    """dy exp(x) (K1(x) - K0(x) - K1(x) / x)."""

    def near(dy: Any, x: Any) -> Any:
        return _falling(dy, x, _minus_k2(dy, x) + dy * _k(np.where(x > _TINY, x, 1), 1) * (x > _TINY))

    return by_parts(x < 1, near, lambda dy, x: dy * (integral_of_k(x, lambda r: r) - _k(x, 1) / x), dy, x)


def _two_waves(element: ElementKind) -> ErrorBound:
    """Of a difference of two functions that wave: double has no relative bound near its zeros, nor float after it."""
    return Ulp(0.51) if element in HALVES else Relative(2)


def _cylinder(letter: str, order: int, gradient: Any, points: tuple[float, ...]) -> Function:
    function, names = (_j if letter == "J" else _y), ("bessel_y0", "bessel_y1")

    def slope(special: Any, x: Any) -> Any:
        zero, one = (getattr(special, name)(x) for name in names)
        return zero - one / x if order else -one

    return Function(
        f"Bessel{letter}{order}", lambda x: function(x, order), gradient, bound=beyond_zeros,
        slope=_two_waves if order else slope_in_double(None), kernel="unary_bessel", points=(8.0, 25.0, *points),
        torch=in_torch.bessel_j(order) if letter == "J" else linearised(names[order], slope),
    )  # fmt: skip


def _modified(cpp: str, formula: Any, gradient: Any, slope: float, torch: str, slope_in_torch: Any) -> Function:
    return Function(
        cpp, widely(formula), widely(gradient), bound=in_double(8), slope=slope_in_double(slope),
        kernel="unary_bessel", points=(708.0, 745.0), torch=linearised(torch, slope_in_torch),
    )  # fmt: skip


BESSEL_J0 = _cylinder("J", 0, _j0_slope, (2.404825557695773, 5.520078110286311, 30.634606468431975))
BESSEL_J1 = _cylinder("J", 1, _j1_slope, (3.8317059702075125, 1.8411837813406593, 25.903672087618382))
BESSEL_Y0 = _cylinder("Y", 0, _y0_slope, (0.8935769662791675, 3.957678419314858, 29.060300))
BESSEL_Y1 = _cylinder("Y", 1, _y1_slope, (2.197141326031017, 3.6830228565851775, 27.474000))
MODIFIED_BESSEL_K0 = _modified(
    "ModifiedBesselK0", lambda x: _decayed(_k(x, 0), x), lambda dy, x: _decayed(_minus_k1(dy, x), x), 8,
    "modified_bessel_k0", lambda special, x: -special.modified_bessel_k1(x),
)  # fmt: skip
MODIFIED_BESSEL_K1 = _modified(
    "ModifiedBesselK1", lambda x: _decayed(_k(x, 1), x), lambda dy, x: _decayed(_minus_k2(dy, x), x), 8,
    "modified_bessel_k1", lambda special, x: -special.modified_bessel_k0(x) - special.modified_bessel_k1(x) / x,
)  # fmt: skip
SCALED_MODIFIED_BESSEL_K0 = _modified(
    "ScaledModifiedBesselK0", lambda x: _k(x, 0), _k0e_slope, 64, "scaled_modified_bessel_k0",
    lambda special, x: special.scaled_modified_bessel_k0(x) - special.scaled_modified_bessel_k1(x),
)  # fmt: skip
SCALED_MODIFIED_BESSEL_K1 = _modified(
    "ScaledModifiedBesselK1", lambda x: _k(x, 1), _k1e_slope, 32, "scaled_modified_bessel_k1",
    lambda special, x: special.scaled_modified_bessel_k1(x) * (1 - 1 / x) - special.scaled_modified_bessel_k0(x),
)  # fmt: skip
