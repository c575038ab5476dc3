"""Faddeeva's function w(z) = exp(-z²) erfc(-iz) and its derivative in NumPy, in the complex dtype that z comes in."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.element import joined
from .complex_formulas import by, divide, exponent, multiply, scaled, turned
from .specials.twofold import product, sum_of
from .unary_formulas import pi

_REMOTE = 2.0**33  # of |z|: beyond it w(z) is i / (√π z)


def _gaussian(z: Any) -> tuple[Any, Any]:
    """exp(-z²) = exp(power) turn: from squares whose rounding errors are kept."""
    x, y = z.real, z.imag
    end = np.sqrt(np.finfo(x.dtype).max) / 2**16
    near = (np.abs(x) < end) & (np.abs(y) < end)
    u, v = np.where(near, x, 0), np.where(near, y, 0)
    (xx, dx), (yy, dy), (xy, dxy) = product(u, u), product(v, v), product(2 * u, v)
    size, low = sum_of(yy, -xx)
    power, low = sum_of(size, low + (dy - dx))
    low = np.where(np.abs(power) < 10000, low, 0)  # beyond, exp(power) is 0 or infinite
    turn = multiply(np.exp(joined(0 * xy, -xy)), np.exp(joined(low, -dxy)))
    angle = np.where(x == 0, 0, 2 * x * y)
    turn = np.where(near, turn, np.exp(joined(np.zeros_like(x), -angle)))
    lost = np.abs(angle) > np.finfo(np.float64).max  # of which no double has the remainder
    return np.where(near, power, (y - x) * (y + x)), np.where(lost, np.nan * turn, turn)


def _times_exp(power: Any, z: Any) -> Any:
    """exp(power) z, where exp(power) alone may leave the range; a part that is 0 stays so."""
    near = np.clip(power, -700, 700)
    rest = np.exp(np.clip(power - near, -20000, 20000) / 2)
    for factor in (np.exp(near), rest, rest):
        z = joined(*(np.where(part == 0, part, part * factor) for part in (z.real, z.imag)))
    return z


def _upper(z: Any, slope: bool) -> Any:
    """w(z), or w'(z), for Im z >= 0 and |z| below `_REMOTE`: the rule of kernels/elementwise/faddeeva.cuh."""
    step = z.real.dtype.type(0.5 if z.real.itemsize <= 8 else 0.25)
    x, y = np.abs(z.real), z.imag
    z = joined(x, y)
    phase = x / step - np.floor(x / step)
    whole = (y < x) & (phase >= 0.25) & (phase <= 0.75)
    total = np.zeros_like(z)
    for k in range(int(7 / step)):
        t = (k + np.where(whole, x.dtype.type(0), x.dtype.type(0.5))) * step
        below, above = 1 / (z - t), 1 / (z + t)
        weight = np.where(t == 0, step / 2, step) * np.exp(-t * t) / pi(x)
        if slope:
            total = total - by(below * below + above * above, weight)
        else:
            pair = np.hypot(x - t, y) * np.hypot(x + t, y)
            size, share = x * x + y * y, 2 * weight / pair / pair
            total = total + joined(share * x * (size - t * t), -share * y * (size + t * t))
    power, turn = _gaussian(z)
    missing = y < pi(x) / step
    sign = np.where(whole, -1, 1).astype(x.dtype)
    q = np.exp(joined(np.where(missing, 2 * pi(x) * y / step, 0), -2 * pi(x) * phase))
    pole = 2 / (1 + by(q, sign))
    more = by(turned(q) * pole * pole, sign * pi(x) / step) - 2 * z * pole if slope else pole
    gaussian = by(turn, np.exp(np.where(missing, power, 0)))
    return turned(total) + np.where(missing, gaussian * more, 0)


def _above(z: Any, slope: bool) -> Any:
    near = np.abs(z) < _REMOTE
    found = _upper(np.where(near, z, 1), slope)
    mirror = joined(-found.real, found.imag) if slope else np.conj(found)
    return np.where(near, np.where(z.real < 0, mirror, found), 0)


def _far(z: Any) -> Any:
    """1 / z, which is the whole of w but for a factor."""
    return divide(np.ones_like(z), z)


def wofz(z: Any) -> Any:
    """w(z); in the lower half plane 2 exp(-z²) - w(-z), on the imaginary axis real, at infinity 0 above it."""
    low, plain = z.imag < 0, np.where(np.isnan(z), 0, z)
    u = np.where(low, -plain, plain)
    root = np.sqrt(pi(z.real))
    value = np.where(np.abs(u) < _REMOTE, _above(u, False), np.where(np.isinf(u), 0, by(turned(_far(u)), 1 / root)))
    power, turn = _gaussian(np.where(low, plain, 0))
    mirrored = np.where(power < -11000, 0, by(_times_exp(power, turn), 2)) - value
    found = np.where(low, mirrored, value)
    found = np.where(z.real == 0, joined(found.real, 0 * root), found)
    return np.where(np.isnan(z), joined(np.nan * z.imag, np.where(z.real == 0, 0, np.nan * root)), found)


def slope(z: Any) -> tuple[Any, Any]:
    """w'(z) = m 2^e as (m, e)."""
    low, plain = z.imag < 0, np.where(np.isnan(z), 0, z)
    u = np.where(low, -plain, plain)
    e = exponent(u)
    s = scaled(u, -e)
    near, root = np.abs(u) < _REMOTE, np.sqrt(pi(z.real))
    far = by(turned(divide(-np.ones_like(s), multiply(s, s))), 1 / root)
    m, k = np.where(near, _above(u, True), np.where(np.isinf(u), 0, far)), np.where(near | np.isinf(u), 0, -2 * e)
    power, turn = _gaussian(np.where(low, plain, 0))
    large = power > 100
    size = np.where(large, np.minimum(power, 1400), 0)
    (h, i), (rest, j) = np.frexp(np.exp(size / 2)), np.frexp(np.exp(np.where(large, np.minimum(power - size, 700), 0)))
    away = multiply(by(turn, -4 * h * h * rest), scaled(plain, -e))
    beside = multiply(_times_exp(np.where(large, 0, power), turn), -4 * np.where(large, 0, plain)) + scaled(m, k)
    beside = np.where(power < -11000, scaled(m, k), beside)
    found = np.where(low, np.where(large, np.where(np.isinf(power), np.inf * away, away), beside), m)
    exponents = np.where(low, np.where(large, e + 2 * i + j, 0), k)
    return np.where(np.isnan(z), np.nan, found), exponents
