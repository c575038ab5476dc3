"""f, f' and binary functions by mpmath at 60 digits: textbook formulas, which no rounding can spoil at that precision.

`points` are values over all exponents, subnormals, the ends of the range, and neighbours of every special point.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

import truth_special

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.testing.tolerance import ulp

mp = mpmath.mp.clone()
mp.dps = 60
_END = 10000  # beyond it exponentials are 0 or infinite in every type
PI = math.pi

# Zeros, ends of domains, kinks, zeros of slopes, poles, and where exponentials leave the range of a type.
SPECIAL = (
    0, 0.25, 0.5, 0.75, 0.7518, 1, 1.1924, 1.2784, 1.5, 2, 3, 6, 8, 13, 20, 38, 64,
    *(k * PI / 4 for k in (1, 2, 3, 4, 6, 8, 22, 710)), 2.0**15, 1e10,
    *(limit * k for limit in (16.6, 43.7, 87.34, 88.72, 103.97, 127, 149, 372.5, 708.4, 709.78, 745.13, 1022, 1074)
      for k in (0.5, 1, 2)),
)  # fmt: skip


@functools.cache
def points(kind: ElementKind, count: int, own: tuple[float, ...] = ()) -> np.ndarray:
    """About `count` values of each sort, both signs, without NaN and infinities."""
    if kind.itemsize == 2 and count >= 2**16:
        every = np.arange(2**16, dtype=np.uint16).view(kind.dtype)
        with np.errstate(invalid="ignore"):
            return every[every - every == 0]
    rng, word = np.random.default_rng(kind.bits), np.dtype(f"u{kind.itemsize}")
    last = int(cast(np.array(kind.limits.max), kind).view(word))
    spread = np.linspace(0, last, count).astype(word) + rng.integers(0, 97, count).astype(word)
    near = cast(np.array([*SPECIAL, *own, kind.limits.max, 2.0**kind.limits.min_exponent]), kind).view(word)
    around = near.astype(object)[:, None] + np.array([-3, -1, 0, 1, 40], object)
    codes = np.concatenate([spread.astype(object), around.reshape(-1)])
    sizes = np.clip(codes, 0, last).astype(word).view(kind.dtype)
    usual = cast(np.concatenate([rng.standard_normal(count), rng.uniform(0, 100, count)]), kind)
    return np.concatenate([sizes, -sizes, usual, -usual])


def cotangents(kind: ElementKind, count: int) -> np.ndarray:
    """Factors for so many values: of all exponents, many subnormal or the largest there is."""
    rng = np.random.default_rng(1)
    found = rng.choice(points(kind, 2000), count)
    sort = rng.random(count)
    few = cast(rng.integers(1, 50, count) * kind.limits.tiny, kind)
    found = np.where(sort < 0.3, cast(rng.standard_normal(count), kind), np.where(sort < 0.5, few, found))
    return np.where(sort > 0.95, kind.dtype.type(kind.limits.max), found)


def within_terms(kind: ElementKind, got: np.ndarray, wanted: np.ndarray, scale: np.ndarray) -> str | None:
    """As `check`, for sums of terms that may cancel: 8 ulp, in 16 bits half of one, and some of the terms."""
    with np.errstate(all="ignore"):
        value = got.astype(np.longdouble)
        edge = np.longdouble(kind.limits.max) + np.longdouble(ulp(kind.limits.max, kind))
        error = np.abs(np.where(np.isinf(value), np.copysign(edge, value), value) - wanted)
        beyond = np.maximum(1, scale / np.longdouble(kind.limits.max))  # terms may leave the range that their sum is in
        steps, terms = (0.51, 2.0**-14 * scale) if kind.itemsize == 2 else (8, 16 * ulp(scale, kind) * beyond)
        same = (np.isnan(wanted) & np.isnan(value)) | (np.isinf(value) & (wanted * np.sign(value) >= edge))
        bad = ~((error <= steps * ulp(wanted, kind) + terms) | same)
    at = int(np.argmax(bad))
    return f"{kind}: {bad.sum()} of {bad.size} outside; at ({at},): {got[at]}, not {wanted[at]}" if bad[at] else None


def wide(value: Any) -> np.longdouble:
    """An mpmath number in 64 bits."""
    if isinstance(value, float) or not mp.isfinite(value):
        return np.longdouble(float(value))
    mantissa, exponent = mp.frexp(value)
    if exponent > 16000:
        return np.longdouble(np.copysign(np.inf, float(mantissa)))
    if exponent < -16000 or value == 0:
        return np.longdouble(0)
    high = float(mantissa)
    return np.ldexp(np.longdouble(high) + np.longdouble(float(mantissa - high)), exponent)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _cdf(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _density(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def _inner(x: Any) -> Any:  # twice the argument of the tanh
    return 2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)


def _inner_slope(x: Any) -> Any:
    return 2 * mp.sqrt(2 / mp.pi) * (1 + 3 * mp.mpf("0.044715") * x**2)


def _near(f: Callable[..., Any], end: float = _END) -> Callable[..., Any]:
    """f of a clamped argument: what it is beyond makes no difference to any type."""
    return lambda x: f(max(min(x, mp.mpf(end)), -mp.mpf(end)))


def _of(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


def _inside(f: Callable[..., Any], domain: Callable[..., bool]) -> Callable[..., Any]:
    return lambda x: f(x) if domain(x) else mp.nan


def _pole(f: Callable[..., Any], *poles: float) -> Callable[..., Any]:
    """f, which is checked elsewhere at its poles: None there."""
    return lambda x: None if x in poles else f(x)


_SELU = mp.mpf("1.05070098735548049341933498529"), mp.mpf("1.67326324235437728481704291672")
_positive = lambda x: x > 0  # noqa: E731
_within = lambda x: -1 < x < 1  # noqa: E731

FORWARD: dict[str, Callable[..., Any]] = {
    "positive": _of(lambda x: x), "deg2rad": _of(lambda x: x * mp.pi / 180), "rad2deg": _of(lambda x: x * 180 / mp.pi),
    "nan_to_num": lambda x, *_: x, "exp10": _near(lambda x: mp.mpf(10) ** x),
    "tanhshrink": _of(lambda x: x - mp.tanh(x) if abs(x) > 1e-8 else x**3 / 3 - 2 * x**5 / 15 + 17 * x**7 / 315),
    "isnan": _of(lambda x: mp.mpf(0)), "isinf": _of(lambda x: mp.mpf(0)), "isposinf": _of(lambda x: mp.mpf(0)),
    "isneginf": _of(lambda x: mp.mpf(0)), "isfinite": _of(lambda x: mp.mpf(1)), "isreal": _of(lambda x: mp.mpf(1)),
    "iscomplex": _of(lambda x: mp.mpf(0)),
    "signbit": _of(lambda x: mp.mpf(x < 0)), "logical_not": _of(lambda x: mp.mpf(x == 0)),
    "neg": _of(lambda x: -x), "abs": _of(abs), "sign": _of(mp.sign), "square": _of(lambda x: x * x),
    "reciprocal": _of(_pole(lambda x: 1 / x, 0)), "cube": _of(lambda x: x**3),
    "sqrt": _inside(mp.sqrt, lambda x: x >= 0), "rsqrt": _inside(lambda x: 1 / mp.sqrt(x), _positive),
    "cbrt": _of(lambda x: mp.sign(x) * mp.cbrt(abs(x))),
    "exp": _near(mp.exp), "exp2": _near(lambda x: mp.mpf(2) ** x), "expm1": _near(mp.expm1),
    "log": _inside(mp.log, _positive), "log2": _inside(lambda x: mp.log(x, 2), _positive),
    "log10": _inside(mp.log10, _positive), "log1p": _inside(mp.log1p, lambda x: x > -1),
    "sin": _of(mp.sin), "cos": _of(mp.cos), "tan": _of(mp.tan),
    "asin": _inside(mp.asin, lambda x: -1 <= x <= 1), "acos": _inside(mp.acos, lambda x: -1 <= x <= 1),
    "atan": _of(mp.atan), "sinh": _near(mp.sinh), "cosh": _near(mp.cosh), "tanh": _near(mp.tanh),
    "asinh": _of(mp.asinh), "acosh": _inside(mp.acosh, lambda x: x >= 1), "atanh": _inside(mp.atanh, _within),
    "erf": _near(mp.erf, 200), "erfc": _near(mp.erfc, 200),
    "floor": _of(mp.floor), "ceil": _of(mp.ceil), "round": lambda x, d: mp.nint(x * mp.mpf(10) ** d) / mp.mpf(10) ** d,
    "trunc": _of(lambda x: mp.floor(x) if x > 0 else mp.ceil(x)),
    "frac": _of(lambda x: x - (mp.floor(x) if x > 0 else mp.ceil(x))),
    "sigmoid": _near(_sigmoid), "log_sigmoid": lambda x: -mp.log1p(mp.exp(-x)) if x > -_END else x,
    "logit": lambda x, eps: mp.log(x) - mp.log1p(-x) if 0 < x < 1 else mp.nan,
    "relu": _of(lambda x: max(x, 0)), "relu6": _of(lambda x: min(max(x, 0), 6)),
    "leaky_relu": lambda x, a: x if x > 0 else a * x,
    "elu": lambda x, a, s, i: s * (x if x > 0 else a * mp.expm1(max(i * x, -_END))),
    "celu": lambda x, a: x if x > 0 else a * mp.expm1(max(x / a, -_END)),
    "selu": _of(lambda x: _SELU[0] * (x if x > 0 else _SELU[1] * mp.expm1(max(x, -_END)))),
    "gelu": _of(lambda x: x * _cdf(max(min(x, 200), -200))),
    "gelu_tanh": _of(lambda x: x * _sigmoid(_inner(max(min(x, 60), -60)))),
    "silu": _of(lambda x: x * _sigmoid(max(min(x, _END), -_END))),
    "mish": _of(lambda x: x * mp.tanh(mp.log1p(mp.exp(max(min(x, _END), -_END))))),
    "softplus": lambda x, b, t: mp.log1p(mp.exp(max(b * x, -_END))) / b if b * x <= t else x,
    "softsign": _of(lambda x: x / (1 + abs(x))), "hardtanh": lambda x, low, high: min(max(x, low), high),
    "hardsigmoid": _of(lambda x: min(max(x + 3, 0), 6) / 6), "hardswish": _of(lambda x: x * min(max(x + 3, 0), 6) / 6),
    "hardshrink": lambda x, a: x if abs(x) > a else mp.mpf(0),
    "softshrink": lambda x, a: mp.sign(x) * max(abs(x) - a, 0), "threshold": lambda x, t, v: v if x <= t else x,
}  # fmt: skip
FORWARD |= truth_special.FORWARD

SLOPE: dict[str, Callable[..., Any]] = {
    "positive": _of(lambda x: mp.mpf(1)), "nan_to_num": lambda x, *_: mp.mpf(1), "deg2rad": _of(lambda x: mp.pi / 180),
    "rad2deg": _of(lambda x: 180 / mp.pi), "exp10": _near(lambda x: mp.mpf(10) ** x * mp.log(10)),
    "tanhshrink": _of(lambda x: mp.tanh(x) ** 2),
    "neg": _of(lambda x: mp.mpf(-1)), "abs": _of(mp.sign), "square": _of(lambda x: 2 * x),
    "reciprocal": _of(_pole(lambda x: -1 / x**2, 0)), "cube": _of(lambda x: 3 * x**2),
    "sqrt": _inside(lambda x: 1 / (2 * mp.sqrt(x)), _positive),
    "rsqrt": _inside(lambda x: -1 / (2 * x * mp.sqrt(x)), _positive),
    "cbrt": _of(_pole(lambda x: 1 / (3 * mp.cbrt(abs(x)) ** 2), 0)),
    "exp": _near(mp.exp), "exp2": _near(lambda x: mp.mpf(2) ** x * mp.log(2)), "expm1": _near(mp.exp),
    "log": _inside(lambda x: 1 / x, _positive), "log2": _inside(lambda x: 1 / (x * mp.log(2)), _positive),
    "log10": _inside(lambda x: 1 / (x * mp.log(10)), _positive),
    "log1p": _inside(lambda x: 1 / (1 + x), lambda x: x > -1),
    "sin": _of(mp.cos), "cos": _of(lambda x: -mp.sin(x)), "tan": _of(lambda x: mp.sec(x) ** 2),
    "asin": _inside(lambda x: 1 / mp.sqrt(1 - x * x), _within),
    "acos": _inside(lambda x: -1 / mp.sqrt(1 - x * x), _within), "atan": _of(lambda x: 1 / (1 + x * x)),
    "sinh": _near(mp.cosh), "cosh": _near(mp.sinh), "tanh": _near(lambda x: mp.sech(x) ** 2),
    "asinh": _of(lambda x: 1 / mp.sqrt(1 + x * x)),
    "acosh": _inside(lambda x: 1 / mp.sqrt(x * x - 1), lambda x: x > 1),
    "atanh": _inside(lambda x: 1 / (1 - x * x), _within),
    "erf": _near(lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), 200),
    "erfc": _near(lambda x: -2 / mp.sqrt(mp.pi) * mp.exp(-x * x), 200), "frac": _of(lambda x: mp.mpf(1)),
    "sigmoid": _near(lambda x: _sigmoid(x) * _sigmoid(-x)), "log_sigmoid": _near(lambda x: _sigmoid(-x)),
    "logit": lambda x, eps: 1 / (x * (1 - x)) if 0 < x < 1 else mp.nan,
    "relu": _of(lambda x: mp.mpf(x > 0)), "relu6": _of(lambda x: mp.mpf(0 < x < 6)),
    "leaky_relu": lambda x, a: mp.mpf(1) if x > 0 else a,
    "elu": lambda x, a, s, i: s * (mp.mpf(1) if x > 0 else a * i * mp.exp(max(i * x, -_END))),
    "celu": lambda x, a: mp.mpf(1) if x > 0 else mp.exp(max(x / a, -_END)),
    "selu": _of(lambda x: _SELU[0] * (1 if x > 0 else _SELU[1] * mp.exp(max(x, -_END)))),
    "softplus": lambda x, b, t: _sigmoid(max(b * x, -_END)) if b * x <= t else mp.mpf(1),
    "softsign": _of(lambda x: 1 / (1 + abs(x)) ** 2),
    "hardtanh": lambda x, low, high: mp.mpf(low < x < high), "hardsigmoid": _of(lambda x: mp.mpf(-3 < x < 3) / 6),
    "hardswish": _of(lambda x: mp.mpf(0) if x <= -3 else (2 * x + 3) / 6 if x < 3 else mp.mpf(1)),
    "hardshrink": lambda x, a: mp.mpf(abs(x) > a), "softshrink": lambda x, a: mp.mpf(abs(x) > a),
    "threshold": lambda x, t, v: mp.mpf(x > t),
}  # fmt: skip

SLOPE |= truth_special.SLOPE


def _mish_terms(x: Any) -> tuple[Any, Any]:
    softplus = mp.log1p(mp.exp(x))
    return mp.tanh(softplus), x * _sigmoid(x) * mp.sech(softplus) ** 2


# Slopes that cross zero, as two terms: their bound is relative to the sum of magnitudes.
TERMS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "silu": lambda x: (_sigmoid(x), x * _sigmoid(x) * _sigmoid(-x)),
    "gelu": lambda x: (_cdf(x), x * _density(x)),
    "gelu_tanh": lambda x: (_sigmoid(_inner(x)), x * _sigmoid(_inner(x)) * _sigmoid(-_inner(x)) * _inner_slope(x)),
    "mish": _mish_terms,
} | truth_special.TERMS
GATES = _FARTHEST = {"silu": _END, "gelu": 200, "gelu_tanh": 60, "mish": _END}


def terms(name: str, x: Any) -> tuple[Any, Any]:
    """The two terms of a slope that crosses zero."""
    end = mp.mpf(_FARTHEST.get(name, mp.inf))
    return TERMS[name](max(min(x, end), -end))


def exact(x: Any) -> Any:
    """A float as an mpmath number."""
    return x if isinstance(x, mp.mpf) else mp.mpf(float(x))


def forward(name: str, x: np.ndarray, *coefficients: float) -> np.ndarray:
    """f(x) in 64 bits; NaN outside the domain and at poles, which `defined` leaves out."""
    given = [mp.mpf(c) for c in coefficients]
    return np.array([wide(_number(FORWARD[name](exact(v), *given))) for v in x])


def scale(name: str, x: np.ndarray, *coefficients: float) -> np.ndarray:
    """The size of the terms of f(x) that may cancel."""
    given = [mp.mpf(c) for c in coefficients]
    return np.array([abs(wide(_number(truth_special.SCALE[name](exact(v), *given)))) for v in x])


def gradient(name: str, dy: Any, x: np.ndarray, *coefficients: float) -> tuple[np.ndarray, np.ndarray]:
    """dy f'(x), and |dy| times what its bound is relative to: the slope, or its two terms' magnitudes."""
    given = [mp.mpf(c) for c in coefficients]
    found, scale = [], []
    for d, v in zip(dy, x, strict=True):
        parts = terms(name, exact(v)) if name in TERMS else (_number(SLOPE[name](exact(v), *given)), mp.mpf(0))
        found.append(wide(exact(d) * (parts[0] + parts[1])))
        scale.append(wide(abs(exact(d)) * (abs(parts[0]) + abs(parts[1]))))
    return np.array(found), np.array(scale)


def _number(value: Any) -> Any:
    return mp.nan if value is None else mp.mpf(value)


POLES: dict[str, tuple[float, ...]] = {
    "digamma": (0,), "lgamma": (0,), "polygamma": (0,), "erfinv": (-1, 1), "ndtri": (0, 1), "entr": (0,),
    "signbit": (0,),  # mpmath's zero has no sign
    "reciprocal": (0,), "rsqrt": (0,), "log": (0,), "log2": (0,), "log10": (0,), "log1p": (-1,), "atanh": (-1, 1),
    "logit": (0, 1), "sqrt": (0,), "cbrt": (0,), "asin": (-1, 1), "acos": (-1, 1), "acosh": (1,),
} | truth_special.POLES  # fmt: skip


def off_poles(name: str, x: np.ndarray) -> np.ndarray:
    """The points at which f and f' are finite or undefined: poles have a test of their own."""
    return x[~np.isin(x.astype(np.float64), POLES.get(name, ()))]


def _quotient(a: Any, b: Any) -> Any:
    return mp.floor(a / b)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "pow": lambda a, b: _power(a, b), "maximum": max, "minimum": min, "fmax": max, "fmin": min,
    "floor_divide": _quotient, "remainder": lambda a, b: a - b * _quotient(a, b),
    "fmod": lambda a, b: mp.sign(a) * (abs(a) - abs(b) * _quotient(abs(a), abs(b))),
    "atan2": lambda a, b: mp.atan2(a, b), "hypot": lambda a, b: mp.sqrt(a * a + b * b),
    "copysign": lambda a, b: abs(a) if b > 0 else -abs(a),
    "trunc_divide": lambda a, b: mp.sign(a / b) * _quotient(abs(a), abs(b)),
    "squared_difference": lambda a, b: (a - b) ** 2, "absolute_difference": lambda a, b: abs(a - b),
    "ldexp": lambda a, b: a * mp.mpf(2) ** max(min(b, _END), -_END),
    "logaddexp": lambda a, b: max(a, b) + mp.log1p(mp.exp(max(-abs(a - b), -_END))),
    "logaddexp2": lambda a, b: max(a, b) + mp.log1p(mp.mpf(2) ** max(-abs(a - b), -_END)) / mp.log(2),
    "xlogy": lambda a, b: a * mp.log(b) if b > 0 else mp.nan,
    "xlog1py": lambda a, b: a * mp.log1p(b) if b > -1 else mp.mpf("-inf") * mp.sign(a) if b == -1 else mp.nan,
    "heaviside": lambda a, b: mp.mpf(a > 0), "prelu": lambda a, b: a if a > 0 else a * b,
}  # fmt: skip
LONG = (
    "floor_divide", "trunc_divide", "remainder", "fmod", "add", "sub", "squared_difference", "absolute_difference",
    "logaddexp", "logaddexp2",
)  # fmt: skip
"""Binary functions that need sums and quotients in full."""


def _power(a: Any, b: Any) -> Any:
    if a < 0 and b != mp.floor(b):
        return mp.nan
    exponent = b * mp.log(abs(a))
    size = mp.exp(max(min(exponent, _END), -_END))
    return -size if a < 0 and mp.floor(b / 2) * 2 != b else size


def binary(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f(a, b) in 64 bits, for a and b that are not 0."""
    digits = 1400 if name in LONG else 60
    with mp.workdps(digits):
        return np.array([wide(mp.mpf(BINARY[name](exact(x), exact(y)))) for x, y in zip(a, b, strict=True)])
