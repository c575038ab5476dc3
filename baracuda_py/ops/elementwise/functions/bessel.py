"""Bessel functions, and sin(πx) / (πx)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import pi
from .gamma import cospi, sinpi
from .row import Function, in_double, slope_in_double

_NEAR = 32  # up to here power series, beyond asymptotic ones


def _series(x: Any, order: int) -> Any:
    """I(x) exp(-x) of order 0 or 1, 0 <= x <= 32, by its power series."""
    t = x * x / 4
    term = total = np.ones_like(x)
    for k in range(1, 90):
        term = term * t / (k * (k + order))
        total = total + term
    return np.exp(-x) * (total if order == 0 else x / 2 * total)


def _terms(order: int) -> list[float]:
    """The coefficients of √(2πx) I(x) exp(-x) in powers of 1/x."""
    found = [1.0]
    for k in range(1, 32):
        found.append(-found[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return found


def _in_powers(w: Any, terms: Any) -> Any:
    total = np.zeros_like(w)
    for term in reversed(list(terms)):
        total = total * w + w.dtype.type(term)
    return total


def _scaled(x: Any, order: int) -> Any:
    """I(x) exp(-x) of order 0 or 1, x >= 0, in long double: the series has many terms."""
    return _scaled_as_is(x.astype(np.longdouble), order).astype(x.dtype)


def _scaled_as_is(x: Any, order: int) -> Any:
    far = np.maximum(x, _NEAR)
    asymptotic = _in_powers(1 / far, _terms(order)) / (np.sqrt(2 * pi(x)) * np.sqrt(far))
    return np.where(x <= _NEAR, _series(np.minimum(x, _NEAR), order), np.where(np.isinf(x), 0, asymptotic))


def _difference(x: Any) -> Any:
    """(I0(x) - I1(x)) exp(-x), x >= 0, in long double: both are nearly equal."""
    return _difference_as_is(x.astype(np.longdouble)).astype(x.dtype)


def _difference_as_is(x: Any) -> Any:
    near, far = np.minimum(x, _NEAR), np.maximum(x, _NEAR)
    terms = [a - b for a, b in zip(_terms(0)[1:], _terms(1)[1:], strict=True)]
    asymptotic = _in_powers(1 / far, terms) / ((np.sqrt(2 * pi(x)) * np.sqrt(far)) * far)
    difference = _series(near, 0) - _series(near, 1)
    return np.where(x <= _NEAR, difference, np.where(np.isinf(x), 0, asymptotic))


def _unscaled(y: Any, x: Any) -> Any:
    """y exp(x), the exponential as two square roots; it overflows for x > 1490 as they do."""
    h = np.exp(x / 2)
    return y * h * h


def _i0(x: Any) -> Any:
    a = np.abs(x)
    return np.where(np.isinf(x), a, _unscaled(_scaled(a, 0), a))


def _i1(x: Any) -> Any:
    a = np.abs(x)
    return np.copysign(np.where(np.isinf(x), a, _unscaled(_scaled(a, 1), a)), x)


def _over_x(x: Any) -> Any:
    """I1(x) exp(-x) / x, x >= 0."""
    small = x < 1e-8
    return np.where(small, np.exp(-x) / 2, _scaled(x, 1) / np.where(small, 1, x))


def _times_exp(dy: Any, y: Any, x: Any) -> Any:
    """dy y exp(x), x >= 0: in one product while it can be, then with two square roots of the exponential around it."""
    h = np.exp(np.minimum(x, 20000) / 2)
    whole = y * h * h
    found = np.where(np.isfinite(whole), dy * whole, dy * h * (y * h))
    return np.where(dy == 0, dy * y, found)  # h may be infinite, the exponential is not


def _i0_slope(dy: Any, x: Any) -> Any:
    a = np.abs(x)
    return np.where(np.isinf(x), dy * x, _times_exp(dy, np.copysign(1, x) * _scaled(a, 1), a))


def _i1_slope(dy: Any, x: Any) -> Any:
    """I1' = I0 - I1 / x."""
    a = np.abs(x)
    return np.where(np.isinf(x), dy * np.inf, _times_exp(dy, _scaled(a, 0) - _over_x(a), a))


def _i0e_slope(dy: Any, x: Any) -> Any:
    return -dy * np.copysign(1, x) * np.where(x == 0, 0, _difference(np.abs(x)))


def _i1e_slope(dy: Any, x: Any) -> Any:
    a = np.abs(x)
    return dy * (_difference_as_is(a) - _over_x(a))


def _sinc(x: Any) -> Any:
    t = np.where(np.isfinite(x), x, 0.5)
    return np.where(x == 0, 1, np.where(np.isfinite(x), sinpi(t) / (pi(x) * np.where(x == 0, 1, t)), np.nan))


def _bend(t: Any) -> Any:
    """(cos(t) - sin(t) / t) / t² near 0: the sum of (-1)^k t^(2k - 2) 2k / (2k + 1)!."""
    total, term = np.zeros_like(t), np.full_like(t, -1) / 6
    for k in range(1, 16):
        total = total + 2 * k * term
        term = term * -t * t / ((2 * k + 2) * (2 * k + 3))
    return total


def _sinc_slope(dy: Any, x: Any) -> Any:
    """dy (cos(πx) - sinc(x)) / x, near 0 by its power series."""
    t = np.where(np.isfinite(x) & (x != 0), x, 1)
    near = pi(x) * pi(x) * t * _bend(pi(x) * np.clip(t, -0.5, 0.5))
    y = dy * np.where(np.abs(t) < 0.5, near, (cospi(t) - _sinc(t)) / t)
    return np.where(x == 0, dy * 0, np.where(np.isfinite(x), y, np.nan))


def _spherical_j0(x: Any) -> Any:
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    t = np.where(np.isfinite(x) & (x != 0), x, 1)
    return np.where(x == 0, 1, np.where(np.isinf(x), 0, np.where(np.isnan(x), x, np.sin(t) / t)))


def _spherical_j0_slope(dy: Any, x: Any) -> Any:
    """dy (cos(x) - sin(x) / x) / x, near 0 by its power series."""
    t = np.where(np.isfinite(x) & (x != 0), x, 1)
    y = np.where(np.abs(t) < 1.5, t * _bend(np.clip(t, -1.5, 1.5)), (np.cos(t) - np.sin(t) / t) / t)
    return np.where((x == 0) | np.isinf(x), dy * 0, np.where(np.isnan(x), x, dy * y))


def _spherical_j0_in_torch(torch: Any, x: Any) -> Any:
    return torch.where(x == 0, 1, torch.sin(x) / x)  # torch's own has no gradient


I0 = Function(
    "I0", _i0, _i0_slope, bound=in_double(5), slope=slope_in_double(8), kernel="unary_special", torch="i0",
    points=(8.0, 713.98), aliases=("modified_bessel_i0",),
)  # fmt: skip
I0E = Function(
    "I0e", lambda x: _scaled(np.abs(x), 0), _i0e_slope, bound=in_double(5), slope=slope_in_double(64),
    kernel="unary_special", torch="special.i0e", points=(8.0,), aliases=("bessel_i0e",),
)  # fmt: skip
I1 = Function(
    "I1", _i1, _i1_slope, bound=in_double(5), slope=slope_in_double(16), kernel="unary_special",
    torch="special.i1", points=(8.0, 713.98), aliases=("modified_bessel_i1",),
)  # fmt: skip
I1E = Function(
    "I1e", lambda x: np.copysign(_scaled(np.abs(x), 1), x), _i1e_slope, bound=in_double(5),
    slope=slope_in_double(None), kernel="unary_special", torch="special.i1e", points=(8.0,), aliases=("bessel_i1e",),
)  # fmt: skip
SINC = Function(
    "Sinc", _sinc, _sinc_slope, bound=in_double(4), slope=slope_in_double(None), kernel="unary_special",
    torch="sinc", points=(4.5, 10.0),
)  # fmt: skip
SPHERICAL_BESSEL_J0 = Function(
    "SphericalBesselJ0", _spherical_j0, _spherical_j0_slope, bound=in_double(4), slope=slope_in_double(None),
    kernel="unary_special", torch=_spherical_j0_in_torch,
)  # fmt: skip
