"""NumPy formulas of the complex kinds, in the complex dtype their arguments come in.

NumPy's own functions keep to C99 Annex G and are accurate relative to |f(z)|; those that are not, or that leave the
range of the dtype on the way to a result inside of it, are written here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.element import joined


def plain(z: Any) -> Any:
    """z with positive NaN: NumPy's functions give infinities the sign of a NaN, which says nothing."""
    return joined(*(np.where(np.isnan(x), x.dtype.type(np.nan), x) for x in (z.real, z.imag)))


def exponent(z: Any) -> Any:
    """That of the larger part, as far as a number has one."""
    size = np.maximum(np.abs(z.real), np.abs(z.imag))
    return np.frexp(np.where(np.isfinite(size), size, 1))[1]


def scaled(z: Any, exponent: Any) -> Any:
    """z times a power of two, part by part."""
    return joined(np.ldexp(z.real, exponent), np.ldexp(z.imag, exponent))


def _product(z: Any, w: Any) -> Any:
    return joined(z.real * w.real - z.imag * w.imag, z.real * w.imag + z.imag * w.real)


def _beside_infinity(z: Any) -> Any:
    """A number beside an infinity counts by its sign alone."""
    return joined(*(np.where(np.isfinite(x) & (x != 0), np.sign(x), x) for x in (z.real, z.imag)))


def multiply(z: Any, w: Any) -> Any:
    """z w: finite for numbers wherever the product is, also where its terms overflow; infinities as in NumPy."""
    z, w = np.broadcast_arrays(z, w)
    infinite = np.isinf(z) | np.isinf(w)
    a, b = exponent(z), exponent(w)
    far = scaled(_product(scaled(z, -a), scaled(w, -b)), a + b)
    return np.where(infinite, _product(_beside_infinity(z), _beside_infinity(w)), _either(_product(z, w), far))


def _either(near: Any, far: Any) -> Any:
    parts = ((near.real, far.real), (near.imag, far.imag))
    return joined(*(np.where(np.isfinite(x), x, y) for x, y in parts))


def divide(z: Any, w: Any) -> Any:
    """z / w from operands scaled to about 1. By a zero: parts of z over +0; by an infinity 0; else as in NumPy."""
    z, w = np.broadcast_arrays(z, w)
    a, b = exponent(z), exponent(w)
    d = scaled(w, -b)
    y, square = _product(scaled(z, -a), np.conj(d)), d.real * d.real + d.imag * d.imag
    y = scaled(joined(y.real / square, y.imag / square), a - b)
    y = np.where(np.isinf(z), _product(_beside_infinity(z), np.conj(_beside_infinity(w))), y)
    vanishes = np.isfinite(z) & ~np.isnan(w) & ~(np.isinf(w.real) & np.isinf(w.imag))
    y = np.where(np.isinf(w), np.where(vanishes, 0, np.nan * y), y)
    return np.where(w == 0, joined(z.real / np.abs(w.real), z.imag / np.abs(w.real)), y)


def by(z: Any, factor: Any) -> Any:
    """z times a real factor, part by part."""
    return joined(z.real * factor, z.imag * factor)


def turned(z: Any) -> Any:
    """i z."""
    return joined(-z.imag, z.real)


def sinh(z: Any) -> Any:
    """The hyperbolic sine; of an infinity beside what is no number it has the sign of the infinity."""
    z = plain(z)
    return np.where(np.isinf(z.real) & ~np.isfinite(z.imag), joined(z.real, z.imag * 0), np.sinh(z))


def sin(z: Any) -> Any:
    """-i sinh(i z)."""
    z = plain(z)
    special = np.isinf(z.imag) & ~np.isfinite(z.real)
    return np.where(special, joined(z.real * 0, z.imag), np.sin(z))


def log1p(z: Any) -> Any:
    """log(1 + z): from |1 + z|² - 1 where that is small."""
    x, y = z.real, z.imag
    t = x * (2 + x) + y * y
    near = (np.abs(x) < 3) & (np.abs(y) < 3) & (t > -0.5)
    moved = joined(1 + x, y)
    far = np.log(np.where(near, 1, moved))
    return joined(np.where(near, np.log1p(np.where(near, t, 0)) / 2, far.real), np.arctan2(y, 1 + x))


def expm1(z: Any) -> Any:
    """exp(z) - 1: real on the real axis, -1 at -inf."""
    y = np.where(z.real > 40, np.exp(z), np.expm1(np.where(z.real > 40, 0, z)))
    y = np.where(z.real == -np.inf, joined(-np.ones_like(z.real), np.copysign(0 * np.ones_like(z.real), z.imag)), y)
    return np.where(z.imag == 0, joined(np.expm1(z.real), z.imag), y)


def sigmoid(z: Any) -> Any:
    """1 / (1 + exp(-z)), without cancellation beside the poles and far to the left."""
    size = np.exp(-np.abs(z.real))
    half = z.imag / 2
    decay = joined(size * np.cos(z.imag), np.where(z.real >= 0, -size, size) * np.sin(z.imag))
    below = joined(2 * size * np.cos(half) ** 2 - np.expm1(-np.abs(z.real)), decay.imag)
    y = divide(np.where(z.real >= 0, np.ones_like(z), decay), below)
    return np.where(np.isinf(z.real), (z.real > 0).astype(z.dtype), y)


def sgn(z: Any) -> Any:
    """z / |z|, 0 of 0, and the direction of an infinite part."""
    s = scaled(z, -exponent(z))
    size = np.where(s == 0, 1, np.hypot(s.real, s.imag))
    y = np.where(s == 0, s, joined(s.real / size, s.imag / size))
    ways = joined(*(np.where(np.isinf(x), np.sign(x), 0) for x in (z.real, z.imag)))
    return np.where(np.isinf(z), np.where((ways.real != 0) & (ways.imag != 0), np.nan * y, ways), y)


def power(z: Any, w: Any) -> Any:
    """exp(w log z); z⁰ is 1, and 0 to a power with a positive real part 0, with any other NaN."""
    z, w = np.broadcast_arrays(z, w)
    y = np.exp(multiply(w, np.log(np.where(z == 0, 1, z))))
    y = np.where(z == 0, np.where(w.real > 0, 0, np.nan * np.ones_like(y)), y)
    return np.where(w == 0, np.ones_like(z), y)
