"""Functions of complex numbers by mpmath, and points over the whole range of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from baracuda_py.core.element import ElementKind, joined
from baracuda_py.ops.elementwise.complex_kinds import POINTS
from baracuda_py.testing.draw import everywhere

mp = mpmath.mp.clone()
mp.dps = 60

FORWARD: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda z: 1 / z, "square": lambda z: z * z, "sqrt": mp.sqrt, "exp": mp.exp,
    "expm1": lambda z: mp.exp(z) - 1, "log": mp.log, "log2": lambda z: mp.log(z) / mp.log(2),
    "log10": lambda z: mp.log(z) / mp.log(10), "log1p": lambda z: mp.log(1 + z), "sin": mp.sin, "cos": mp.cos,
    "tan": mp.tan, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh,
    "tanh": mp.tanh, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "sigmoid": lambda z: 1 / (1 + mp.exp(-z)), "sgn": lambda z: z / abs(z), "abs": lambda z: mp.mpc(abs(z)),
    "angle": lambda z: mp.mpc(mp.arg(z)), "wofz": lambda z: faddeeva(z),
}  # fmt: skip

SLOPE: dict[str, Callable[[Any], Any]] = {
    "reciprocal": lambda z: -1 / (z * z), "square": lambda z: 2 * z, "sqrt": lambda z: 1 / (2 * mp.sqrt(z)),
    "exp": mp.exp, "expm1": mp.exp, "log": lambda z: 1 / z, "log2": lambda z: 1 / (z * mp.log(2)),
    "log10": lambda z: 1 / (z * mp.log(10)), "log1p": lambda z: 1 / (1 + z), "sin": mp.cos,
    "cos": lambda z: -mp.sin(z), "tan": lambda z: 1 / mp.cos(z) ** 2,
    "asin": lambda z: 1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z)), "acos": lambda z: -1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z)),
    "atan": lambda z: 1 / (1 + z * z), "sinh": mp.cosh, "cosh": mp.sinh, "tanh": lambda z: 1 / mp.cosh(z) ** 2,
    "asinh": lambda z: 1 / (mp.sqrt(1 - 1j * z) * mp.sqrt(1 + 1j * z)),
    "acosh": lambda z: 1 / (mp.sqrt(z - 1) * mp.sqrt(z + 1)), "atanh": lambda z: 1 / (1 - z * z),
    "sigmoid": lambda z: mp.exp(-z) / (1 + mp.exp(-z)) ** 2, "wofz": lambda z: faddeeva(z, slope=True),
}  # fmt: skip


def faddeeva(z: Any, slope: bool = False) -> Any:
    """w(z) by mpmath, or w'(z); far out in the upper half plane by the fraction 1 / (z - 1/2 / (z - 1 / (z - …)))."""
    if z.imag < 0:
        away = 2 * mp.exp(-z * z)
        return -2 * z * away + faddeeva(-z, True) if slope else away - faddeeva(-z)
    if abs(z) < 40:
        with mp.workdps(mp.dps + 20):
            w = mp.exp(-z * z) * mp.erfc(-1j * z)
            return -2 * z * w + 2j / mp.sqrt(mp.pi) if slope else w
    square = 1 / (2 * z * z)
    term, total = mp.mpc(1), mp.mpc(0)
    for k in range(40):
        total += (2 * k + 1) * term if slope else term
        term *= (2 * k + 1) * square
    return -1j / mp.sqrt(mp.pi) * total / z / z if slope else 1j / mp.sqrt(mp.pi) * total / z


_EXPONENTIALS = ("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid")


def points(element: ElementKind, count: int, seed: int = 0) -> np.ndarray:
    """`count` numbers of every size, as many about 1, as many about 10."""
    rng = np.random.default_rng(seed)
    usual = [size * (rng.standard_normal(count) + 1j * rng.standard_normal(count)) for size in (1, 10)]
    return np.concatenate([everywhere(element, (count,), rng, POINTS), *(x.astype(element.dtype) for x in usual)])


def corners(element: ElementKind) -> np.ndarray:
    """Pairs of zeros, ones, infinities, NaN, and ends of the range."""
    largest, smallest = element.limits.max, element.part.limits.tiny
    values = [0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, smallest, largest, np.pi / 2, 100]
    parts = np.array(values).astype(element.part.dtype)
    return joined(np.repeat(parts, parts.size), np.tile(parts, parts.size))


def inside(name: str, z: np.ndarray) -> np.ndarray:
    """Points at which textbook formulas serve: finite, off cuts and poles on the axes, not far out in exponentials."""
    keep = np.isfinite(z) & (z.real != 0) & (z.imag != 0)
    if name == "wofz":  # below the real axis an exponential
        keep &= (z.imag > 0) | ((np.abs(z.real) < 3000) & (np.abs(z.imag) < 3000))
    if name in _EXPONENTIALS:
        keep &= (np.abs(z.real) < 3000) & (np.abs(z.imag) < 3000)
    return z[keep]


def evaluate(function: Callable[[Any], Any], z: np.ndarray, dy: np.ndarray | None = None) -> np.ndarray:
    """function(z), or dy times its conjugate, in 64 bits: with digits that outlast 1 + z for every z."""
    found = []
    for i, value in enumerate(z):
        spread = max(abs(np.log10(float(abs(part)))) for part in (value.real, value.imag))
        with mp.workdps(60 + 3 * int(spread)):
            y = mp.mpc(function(mp.mpc(complex(value))))
            y = y if dy is None else mp.mpc(complex(dy[i])) * mp.conj(y)
            found.append((wide(y.real), wide(y.imag)))
    return joined(*np.array(found, np.longdouble).reshape(-1, 2).T)


def wide(value: Any) -> np.longdouble:
    if value == 0 or not mp.isfinite(value):
        return np.longdouble(float(value))
    mantissa, exponent = mp.frexp(value)
    if abs(exponent) > 16000:
        return np.longdouble(np.copysign(np.inf if exponent > 0 else 0.0, float(mantissa)))
    high = float(mantissa)
    return np.ldexp(np.longdouble(high) + np.longdouble(float(mantissa - high)), int(exponent))
