"""NumPy formulas of the gradients of the complex kinds, in the dtype their arguments come in.

The gradient for a complex number is that for its real part plus i times that for its imaginary part, as in PyTorch; of
a holomorphic f it is dy times the conjugate of f'(z). dy and the slope have any exponent, so that both are scaled to
about 1, and the product once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.element import joined
from . import complex_faddeeva
from .complex_formulas import by, divide, exponent, multiply, scaled, turned
from .complex_formulas import sgn as direction

Gradient = Callable[[Any, Any], Any]


class Slope(NamedTuple):
    """f' = m 2^e, or the inverse of that where it is the simpler number."""

    m: Any
    e: Any = 0
    inverse: bool = False


def _of(slope: Callable[[Any], Slope]) -> Gradient:
    """dy conj(f'(z)), NaN where dy is no number."""

    def gradient(dy: Any, z: Any) -> Any:
        m, e, inverse = slope(z)
        a, b = exponent(dy), exponent(m)
        d, m = scaled(np.where(np.isfinite(dy), dy, np.nan), -a), np.conj(scaled(m, -b))
        if not inverse:
            return scaled(multiply(d, m), a + b + e)
        return np.where((m == 0) & np.isfinite(dy), divide(dy, m), scaled(divide(d, m), a - b - e))

    return gradient


def _inverse(function: Callable[[Any], Any]) -> Gradient:
    """Of a slope 1 / function(z)."""
    return _of(lambda z: Slope(function(z), inverse=True))


def _cis(y: Any) -> Any:
    return joined(np.cos(y), np.sin(y))


def _far(x: Any) -> tuple[Any, Any]:
    """exp(x) = m 2^e for any x."""
    end = np.floor(np.log(np.finfo(x.dtype).max)) - 1
    near = np.clip(x, -end, end)
    rest = np.where(np.isnan(x), 0, np.clip(np.where(np.isnan(x), 0, x) - np.nan_to_num(near), -2 * end, 2 * end))
    (m, e), (h, k) = np.frexp(np.exp(near)), np.frexp(np.exp(rest / 2))
    return m * h * h, e + 2 * k


def _exp(z: Any) -> Slope:
    m, e = _far(z.real)
    return Slope(by(_cis(z.imag), m), e)


def _hyperbolic(function: Any, odd: bool) -> Callable[[Any], Slope]:
    """sinh or cosh, which far out are exponentials."""

    def slope(z: Any) -> Slope:
        x, y = z.real, z.imag
        far = np.abs(x) > 20
        m, e = _far(np.abs(x))
        sign = np.where(x < 0, -m, m) / 2
        outer = joined(sign * np.cos(y), m / 2 * np.sin(y)) if odd else joined(m / 2 * np.cos(y), sign * np.sin(y))
        return Slope(np.where(far, outer, function(np.where(far, 0, z))), np.where(far, e, 0))

    return slope


_sinh, _cosh = _hyperbolic(np.sinh, True), _hyperbolic(np.cosh, False)


def _negative(slope: Callable[[Any], Slope]) -> Callable[[Any], Slope]:
    return lambda z: slope(z)._replace(m=-slope(z).m)


def _cosh_squared(z: Any) -> Slope:
    m, e, _ = _cosh(z)
    return Slope(multiply(m, m), 2 * e, True)


def _sin_slope(z: Any) -> Slope:
    """sin z = -i sinh(i z)."""
    m, e, _ = _sinh(turned(z))
    return Slope(joined(m.imag, -m.real), e)


def _one_less_square(z: Any) -> Slope:
    """1 - z² = (1 - z)(1 + z), far out -z²."""
    e = np.where(np.isfinite(z), np.maximum(exponent(z) - 4, 0), 0)
    s, one = scaled(z, -e), np.ldexp(np.ones_like(z.real), -e)
    return Slope(multiply(joined(one - s.real, -s.imag), joined(one + s.real, s.imag)), 2 * e, True)


def _over_roots(z: Any, plus: bool = False) -> Slope:
    """1 / (√(1 - z) √(1 + z)), or with √(z - 1); far out z is scaled by an even power of two."""
    e = np.where(np.isfinite(z), np.maximum(exponent(z) - 4, 0), 0) & ~1
    s, one = scaled(z, -e), np.ldexp(np.ones_like(z.real), -e)
    first = joined(s.real - one, s.imag) if plus else joined(one - s.real, -s.imag)
    return Slope(multiply(np.sqrt(first), np.sqrt(joined(s.real + one, s.imag))), e, True)


def _square_slope(z: Any) -> Slope:
    return Slope(z, 1)


def _reciprocal_slope(z: Any) -> Slope:
    e = exponent(z)
    s = scaled(z, -e)
    return Slope(-multiply(s, s), 2 * e, True)


def _sigmoid_slope(z: Any) -> Slope:
    """e^-z / (1 + e^-z)², the same with e^z."""
    x, y = z.real, z.imag
    m, e = _far(-np.abs(x))
    decay, size = joined(m * np.cos(y), np.where(x >= 0, -m, m) * np.sin(y)), np.exp(-np.abs(x))
    below = joined(2 * size * np.cos(y / 2) ** 2 - np.expm1(-np.abs(x)), np.where(x >= 0, -size, size) * np.sin(y))
    return Slope(divide(divide(decay, below), below), e)


def _log_in(base: int) -> Gradient:
    def slope(z: Any) -> Slope:
        e = exponent(z)
        return Slope(np.where(np.isfinite(z), by(scaled(z, -e), np.log(z.real.dtype.type(base))), z), e, True)

    return _of(slope)


def neg(dy: Any, z: Any) -> Any:
    """-dy."""
    return -dy


def conj(dy: Any, z: Any) -> Any:
    """The conjugate of dy."""
    return np.conj(dy)


square, reciprocal = _of(_square_slope), _of(_reciprocal_slope)
sqrt = _of(lambda z: Slope(np.sqrt(z), 1, True))
exp, sigmoid = _of(_exp), _of(_sigmoid_slope)
log, log2, log10 = _inverse(lambda z: z), _log_in(2), _log_in(10)
log1p = _inverse(lambda z: joined(1 + z.real, z.imag))
sinh, cosh, tanh = _of(_cosh), _of(_sinh), _of(_cosh_squared)
sin, cos = _of(lambda z: _cosh(turned(z))), _of(_negative(_sin_slope))
tan = _of(lambda z: _cosh_squared(turned(z)))
asin, acos, acosh = _of(_over_roots), _of(_negative(_over_roots)), _of(lambda z: _over_roots(z, True))
asinh = _of(lambda z: _over_roots(turned(z)))
wofz = _of(lambda z: Slope(*complex_faddeeva.slope(z)))
atanh, atan = _of(_one_less_square), _of(lambda z: _one_less_square(turned(z)))


def _size(z: Any) -> tuple[Any, Any]:
    """|z| = m 2^e, 1 of 0."""
    e = exponent(z)
    s = scaled(z, -e)
    return np.where(s == 0, 1, np.hypot(s.real, s.imag)), e


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """a b as a number and its rounding error (Dekker 1971)."""
    half = a.dtype.type(2 ** -(-(np.finfo(a.dtype).nmant + 1) // 2) + 1)
    (p, q), (u, v) = ((h, x - h) for x in (a, b) for h in (half * x - (half * x - x),))
    y = a * b
    return y, ((p * u - y) + p * v + q * u) + q * v


def _cross(u: Any, v: Any) -> Any:
    """u v' - u' v of (u, u') and (v, v'), right to the last digit where the products nearly cancel."""
    (first, more), (second, less) = _product(u.real, v.imag), _product(u.imag, v.real)
    return (first - second) + (more - less)


def sgn(dy: Any, z: Any) -> Any:
    """(dy - Re(dy conj(s)) s) / |z| = i s Im(dy conj(z)) / |z|², s = sgn z; 0 at 0, NaN where dy is no number."""
    s, a, b = direction(z), exponent(dy), exponent(z)
    d, w = scaled(np.where(np.isfinite(dy), dy, np.nan), -a), scaled(z, -b)
    square = np.where(w == 0, 1, w.real * w.real + w.imag * w.imag)
    aside = _cross(w, d) / square
    return scaled(joined(-s.imag * aside, s.real * aside), a - b)


def abs(dy: Any, z: Any) -> Any:
    """dy sgn z."""
    s = direction(z)
    return joined(dy * s.real, dy * s.imag)


def angle(dy: Any, z: Any) -> Any:
    """dy i z / |z|²; 0 at 0."""
    s, a = direction(z), np.frexp(np.where(np.isfinite(dy), dy, 1))[1]
    (m, e), d = _size(z), np.ldexp(dy, -a)
    return scaled(joined(d * -s.imag / m, d * s.real / m), a - e)


def real(dy: Any, z: Any) -> Any:
    """dy, in the real part."""
    return joined(dy, np.zeros_like(dy))


def imag(dy: Any, z: Any) -> Any:
    """dy, in the imaginary part."""
    return joined(np.zeros_like(dy), dy)
