"""Exponential, sine and cosine integrals, Dawson's and Fresnel's, the dilogarithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import by_parts, pi
from ..unary_gradients import where_defined
from . import in_torch
from .bessel import SPHERICAL_BESSEL_J0
from .cylinder import EULER, widely
from .gamma import bernoulli, cospi, sinpi
from .row import Function, beyond_zeros, in_double, slope_in_double

# ---- exponential integrals ------------------------------------------------------------------------------------------


def _series(x: Any, terms: int) -> Any:
    """Σ x^k / (k k!)."""
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, terms):
        term = term * x / k
        total = total + term / k
    return total


def _exp1(x: Any) -> Any:
    """E1(x): up to 1 by its power series, then by a continued fraction from its 150th step up."""

    def near(x: Any) -> Any:
        t = np.maximum(x, 0)
        return -x.dtype.type(EULER) - np.log(t) - _series(-t, 30)

    def far(x: Any) -> Any:
        rest = x
        for k in range(150, 0, -1):
            rest = x + k / (1 + k / rest)
        h = np.exp(-x / 2)
        return h / rest * h

    found = by_parts(x <= 1, near, far, x)
    return np.where(x < 0, np.nan, np.where(np.isinf(x), 0, found))


_FAR = 50  # from here on the asymptotic series of Ei


def _expi(x: Any) -> Any:
    """Ei(x): up to 50 by its power series, then asymptotically; below 0 as -E1(-x)."""
    near, far = np.clip(x, 0, _FAR), np.maximum(x, _FAR)
    total, term = np.zeros_like(far), np.ones_like(far)
    for k in range(1, 46):
        total, term = total + term, term * k / far
    h = np.exp(np.minimum(far, 20000) / 2)
    beyond = np.where(np.isinf(x), np.inf, total / far * h * h)
    found = np.where(x < _FAR, x.dtype.type(EULER) + np.log(near) + _series(near, 200), beyond)
    return np.where(x < 0, -_exp1(-x), found)


def _expi_slope(dy: Any, x: Any) -> Any:
    """dy exp(x) / x."""
    h = np.exp(np.clip(x, -20000, 20000) / 2)
    return np.where(x == np.inf, dy * np.inf, np.where(x == -np.inf, dy * 0, dy / x * h * h))


def _exp1_slope(dy: Any, x: Any) -> Any:
    """-dy exp(-x) / x."""
    return np.where(x < 0, np.nan, _expi_slope(dy, -np.abs(x)))


# ---- Dawson's integral ----------------------------------------------------------------------------------------------


def _dawsn_far(x: Any) -> tuple[Any, Any]:
    """x D(x), and (2 x D(x) - 1) 2 x², for |x| >= 9, by their asymptotic series."""
    s = 0.5 / np.maximum(np.abs(x), 9) ** 2
    total, term = np.zeros_like(s), np.ones_like(s)
    for k in range(1, 40):
        total = total + term
        term = term * (2 * k + 1) * s
    return (1 + s * total) / 2, total


def _dawsn_near(x: Any) -> Any:
    """D(x) for |x| < 9: near 0 a power series, else Rybicki's sum of exponentials."""
    t = np.minimum(np.abs(x), 0.6)
    total, term = np.zeros_like(t), t
    for k in range(1, 40):
        total, term = total + term, term * (-2 * t * t) / (2 * k + 1)
    h = x.dtype.type(0.2)
    size = np.minimum(np.abs(x), 9)
    whole = 2 * np.rint(size / (2 * h))
    sum_ = np.zeros_like(size)
    for k in range(-39, 41, 2):
        sum_ = sum_ + np.exp(-((size - (whole + k) * h) ** 2)) / (whole + k)
    return np.copysign(np.where(np.abs(x) < 0.6, total, sum_ / np.sqrt(pi(x))), x)


def _dawsn(x: Any) -> Any:
    t = np.where(np.isfinite(x), x, 1)
    far = _dawsn_far(t)[0] / np.where(np.abs(t) < 9, 9, t)
    found = np.where(np.abs(t) < 9, _dawsn_near(t), far)
    return np.where(np.isinf(x), np.copysign(0, x), np.where(np.isnan(x), x, found))


def _dawsn_slope(dy: Any, x: Any) -> Any:
    t = np.where(np.isfinite(x), x, 1)
    far = np.where(np.abs(t) < 9, 9, t)
    y = np.where(np.abs(t) < 9, dy * (1 - 2 * t * _dawsn_near(t)), -dy / far * _dawsn_far(t)[1] / 2 / far)
    return np.where(np.isinf(x), dy * 0, np.where(np.isnan(x), x, y))


# ---- Fresnel's integrals --------------------------------------------------------------------------------------------


def _half_square(x: Any) -> Any:
    """x² / 2 modulo 2, from a square that is exact: of 26 digits of x, and of the rest."""
    size = np.where(np.abs(x) < 2.0**54, np.abs(x), 0)  # beyond it x² is a multiple of 4
    mantissa, exponent = np.frexp(size)
    high = np.ldexp(np.rint(np.ldexp(mantissa, 26)), exponent - 26)
    low = size - high
    return (np.fmod(high * high, 4) + np.fmod(2 * high * low, 4) + np.fmod(low * low, 4)) / 2


def _auxiliary(x: Any) -> tuple[Any, Any]:
    """f and g, x >= 1.6: integrals of a bell over 1 + u⁴, by the trapezoidal rule."""
    f, g = np.zeros_like(x), np.zeros_like(x)
    for k in range(44):
        u = k * x.dtype.type(0.14) / x
        square = u * u
        part = (1 if k else x.dtype.type(0.5)) * np.exp(-pi(x) * (u * x) ** 2 / 2) / (1 + square * square)
        f, g = f + part, g + part * square
    scale = np.sqrt(x.dtype.type(2)) / pi(x) * x.dtype.type(0.14) / x
    return scale * f, scale * g


def _fresnel(x: Any, sine: bool) -> Any:
    size = np.where(np.isfinite(x), np.abs(x), 1)

    def near(x: Any) -> Any:
        t = pi(x) / 2 * x * x
        term, total, first = np.ones_like(t) * (t if sine else 1), np.zeros_like(t), 1 if sine else 0
        for k in range(26):
            total = total + term / (4 * k + 2 * first + 1)
            term = term * -t * t / ((2 * k + first + 1) * (2 * k + first + 2))
        return x * total

    def far(x: Any) -> Any:
        f, g = _auxiliary(np.minimum(x, 1e30))
        angle = _half_square(x)
        s, c = sinpi(angle), cospi(angle)
        return x.dtype.type(0.5) + (-f * c - g * s if sine else f * s - g * c)

    found = by_parts(size < 1.6, near, far, size)
    found = np.where(np.isinf(x), 0.5, np.where(np.isnan(x), x, found))
    return np.copysign(found, x)


def _fresnel_slope(wave: Any, dy: Any, x: Any) -> Any:
    t = np.where(np.isfinite(x), x, 0)
    small = (np.abs(t) < 1e-6) & (wave is sinpi)  # where x² may vanish and dy x² does not
    y = np.where(small, dy * t * (pi(t) / 2 * t), dy * wave(_half_square(t)))
    return np.where(np.isfinite(x), y, np.nan)


# ---- sine and cosine integrals --------------------------------------------------------------------------------------


def _waves(x: Any) -> tuple[Any, Any]:
    """f and g for x >= 4: exp(ix) E1(ix) = g - i f, by a continued fraction from its 120th step up."""
    z = 1j * x
    rest = z + 0
    for k in range(120, 0, -1):
        rest = z + k / (1 + k / rest)
    found = 1 / rest
    return -found.imag, found.real


def _sici(x: Any, sine: bool) -> Any:
    size = np.where(np.isfinite(x), np.abs(x), 1)

    def near(x: Any) -> Any:
        first, total = (1 if sine else 2), np.zeros_like(x)
        term = x if sine else -x * x / 2
        for k in range(24):
            n = 2 * k + first
            total = total + term / n
            term = term * -x * x / ((n + 1) * (n + 2))
        return total if sine else x.dtype.type(EULER) + np.log(x) + total

    def far(x: Any) -> Any:
        f, g = _waves(np.minimum(x, 1e12))
        f, g = np.where(x > 1e12, 1 / x, f), np.where(x > 1e12, 1 / x / x, g)
        s, c = np.sin(x), np.cos(x)
        return pi(x) / 2 - f * c - g * s if sine else f * s - g * c

    found = by_parts(size < 4, near, far, size)
    if sine:
        return np.copysign(np.where(np.isinf(x), pi(x) / 2, np.where(np.isnan(x), x, found)), x)
    return np.where(np.isnan(x) | (x == -np.inf), np.nan, np.where(x == np.inf, 0, found))


def _ci_slope(dy: Any, x: Any) -> Any:
    t = np.where(np.isfinite(x), x, 1)
    return np.where(np.isnan(x) | (x == -np.inf), np.nan, np.where(np.isinf(x), dy * 0, dy * np.cos(t) / t))


# ---- the dilogarithm ------------------------------------------------------------------------------------------------


def _dilogarithm(u: Any) -> Any:
    """Li2(1 - exp(-u)) for |u| <= log 2: Σ B(k) u^(k + 1) / (k + 1)!."""
    total, power = u - u * u / 4, u
    for k in range(1, 14):
        power = power * u * u / (2 * k * (2 * k + 1))
        total = total + bernoulli(u, k) * power
    return total


def _spence(x: Any) -> Any:
    inside = (x > 0) & np.isfinite(x)
    t = np.where(inside, x, 1)
    large = t > 2
    w = np.where(large, 1 / t, t)
    small = w < 0.5
    v = np.where(small, w, 0.25)
    log = np.log(v)
    reflected = pi(x) * pi(x) / 6 - log * np.log1p(-v) - _dilogarithm(-np.log1p(-v))
    middle = np.where(small, 1, w)
    log1p = np.where(np.abs(middle - 1) < 0.5, np.log1p(middle - 1), np.log(middle))
    found = np.where(small, reflected, _dilogarithm(-log1p))
    found = np.where(large, -(np.log(t) ** 2) / 2 - found, found)
    found = np.where(inside, found, np.where(x == 0, pi(x) * pi(x) / 6, -np.inf))
    return where_defined(x >= 0, found, x)


def _spence_slope(dy: Any, x: Any) -> Any:
    """dy log(x) / (1 - x)."""
    near = np.abs(x - 1) < 0.5
    t = np.where(near & (x != 1), x - 1, 0.25)
    far = np.where(near, 2, x)
    found = np.where(near, -np.log1p(t) / t, np.log(far) / (1 - far))
    found = np.where(x == 1, -1, np.where(x == np.inf, 0, found))
    return where_defined(x >= 0, dy * found, x)


_KERNEL = "unary_integral"
EXP1 = Function(
    "Exp1", widely(_exp1), widely(_exp1_slope), bound=in_double(16), slope=slope_in_double(8), kernel=_KERNEL,
    points=(708.0, 738.0),
    torch=in_torch.exp1,
)  # fmt: skip
EXPI = Function(
    "Expi", _expi, widely(_expi_slope), bound=beyond_zeros, slope=slope_in_double(8), kernel=_KERNEL,
    points=(0.372507410781, 6.0, 12.0, 24.0, 48.0, 716.3),
    torch=in_torch.expi,
)  # fmt: skip
DAWSN = Function(
    "Dawsn", widely(_dawsn), _dawsn_slope, bound=in_double(8), slope=slope_in_double(None), kernel=_KERNEL,
    points=(0.9241388730, 3.5, 7.0),
    torch=in_torch.scaled(lambda torch, x, u: torch.exp(x * x * (u * u - 1))),
)  # fmt: skip
FRESNEL_S = Function(
    "FresnelS", widely(lambda x: _fresnel(x, True)), lambda dy, x: _fresnel_slope(sinpi, dy, x), bound=in_double(12),
    slope=slope_in_double(None), kernel=_KERNEL,
    torch=in_torch.scaled(lambda torch, x, u: torch.sin(np.pi / 2 * (x * u) ** 2)),
)  # fmt: skip
FRESNEL_C = Function(
    "FresnelC", widely(lambda x: _fresnel(x, False)), lambda dy, x: _fresnel_slope(cospi, dy, x), bound=in_double(12),
    slope=slope_in_double(None), kernel=_KERNEL,
    torch=in_torch.scaled(lambda torch, x, u: torch.cos(np.pi / 2 * (x * u) ** 2)),
)  # fmt: skip
SINE_INTEGRAL = Function(
    "SineIntegral", widely(lambda x: _sici(x, True)), lambda dy, x: dy * SPHERICAL_BESSEL_J0.formula(x),
    bound=in_double(8), slope=slope_in_double(None), kernel=_KERNEL, points=(4.0, 8.0),
    torch=in_torch.scaled(lambda torch, x, u: torch.sinc(x * u / np.pi)),
)  # fmt: skip
COSINE_INTEGRAL = Function(
    "CosineIntegral", lambda x: _sici(x, False), _ci_slope, bound=beyond_zeros, slope=slope_in_double(None),
    kernel=_KERNEL, points=(0.6165054856, 3.384180423, 4.0, 8.0),
    torch=in_torch.cosine_integral,
)  # fmt: skip
SPENCE = Function(
    "Spence", widely(_spence), widely(_spence_slope), bound=in_double(8), slope=slope_in_double(8), kernel=_KERNEL,
    torch=in_torch.spence,
)  # fmt: skip
