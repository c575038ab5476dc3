"""NumPy formulas of dy f'(x), and their error bounds.

dy is part of each formula, because f'(x) may leave the range of the dtype where dy f'(x) does not: factors are applied
in an order in which nothing on the way overflows that the result does not, and nothing loses digits that it has.
Outside its domain, where f is NaN, so is the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core import ElementKind, Exact, Ulp
from ...core.element import HALVES
from ...core.error_bound import ErrorBound, Relative
from .special import bell
from .unary_formulas import FAR, cbrt, half, halved, halved_cubic, normal, pi, selu_constants
from .unary_kinds import UnaryKind as K

Gradient = Callable[[Any, Any, Any], Any]


def _within(x: Any, exp: Any = np.exp) -> tuple[Any, Any]:
    """x as far as exp(x), and half of it, is a normal number, and what it lies beyond."""
    end = np.floor(np.log(np.finfo(x.dtype).max) / (1 if exp is np.exp else np.log(2))) - 3
    near = np.clip(x, -end, end)
    return near, np.clip(x - near, -2 * end, 2 * end)


def _times_exp(y: Any, rest: Any, exp: Any = np.exp) -> Any:
    """y exp(rest), as two square roots."""
    h = exp(rest / 2)
    return np.where(rest == 0, y, y * h * h)


def _exponential(dy: Any, x: Any, exp: Any = np.exp, scale: Any = 1) -> Any:
    near, rest = _within(x, exp)
    return _times_exp(dy * (scale * exp(near)), rest, exp)


def _hyperbolic(function: Any) -> Gradient:
    """dy sinh(x) or dy cosh(x), which far out are ± exp(|x|) / 2."""

    def gradient(dy: Any, x: Any, _: Any) -> Any:
        near, rest = _within(x)
        return _times_exp(dy * function(near), np.abs(rest))

    return gradient


def _has_square(x: Any) -> Any:
    """Whether x², 1 / x² and √x / x are normal numbers.

    There they come first: a subnormal dy would lose digits in a product that is subnormal again. Elsewhere dy goes
    first, and either leaves the subnormals at once or only shrinks.
    """
    end = np.exp2(half(x) * (1 - np.finfo(x.dtype).minexp))
    return (np.abs(x) < end) & (np.abs(x) > 1 / end)


def _reciprocal(dy: Any, x: Any, _: Any) -> Any:
    return -np.where(_has_square(x), dy / (x * x), dy / x / x)


def _rsqrt(dy: Any, x: Any, _: Any) -> Any:
    r = -half(x) / np.sqrt(x)
    return np.where(_has_square(x), dy * (r / x), dy * r / x)


def _cube(dy: Any, x: Any, _: Any) -> Any:
    return np.where(_has_square(x), dy * (3 * (x * x)), 3 * (dy * x * x))


def _log10(dy: Any, x: Any, _: Any) -> Any:
    """dy / (x log 10): a small dy is divided first, so that it keeps its digits, others last, so as not to overflow."""
    scale, small = 1 / np.log(x.dtype.type(10)), np.abs(dy) < 1e-20
    quotient = np.where(small, dy, dy * scale) / x
    return _where_defined(x >= 0, np.where(small, quotient * scale, quotient), x)


def _where_defined(inside: Any, y: Any, x: Any) -> Any:
    return np.where(inside | np.isnan(x), y, x.dtype.type(np.nan))


def _tan(dy: Any, x: Any, _: Any) -> Any:
    c = np.cos(x)
    return dy / (c * c)


def _tanh(dy: Any, x: Any, _: Any) -> Any:
    h = np.exp(-np.abs(x))
    sech = 2 * h / (1 + h * h)
    return dy * sech * sech


def _sigmoid(dy: Any, x: Any, _: Any) -> Any:
    h, r = halved(x)
    return dy * (h * r) * (h * r)


def _softplus(dy: Any, x: Any, _: Any) -> Any:
    h, r = halved(x)
    return np.where(x < 0, dy * h * (h * r), dy * r)


def _bell(factor: float) -> Gradient:
    """dy ± 2/√π exp(-x²)."""

    def gradient(dy: Any, x: Any, _: Any) -> Any:
        g = bell(x, half(x))
        return factor / np.sqrt(pi(x)) * (dy * g * g)

    return gradient


def _logistic(dy: Any, x: Any, h: Any, r: Any, slope: Any) -> Any:
    """dy (s + x s (1 - s) slope), s = sigmoid, from `halved`: for x < 0 it is h² r (1 + x r slope)."""
    outer, other = np.where(x < 0, h, 1), np.where(x < 0, r, h * h * r)
    return dy * outer * (r * (1 + x * other * slope)) * outer


def _silu(dy: Any, x: Any, _: Any) -> Any:
    return _logistic(dy, x, *halved(x), 1)


def _gelu_tanh(dy: Any, x: Any, _: Any) -> Any:
    near = np.clip(x, -FAR, FAR)
    slope = np.sqrt(8 / pi(x)) * (1 + 3 * x.dtype.type("0.044715") * near * near)
    return _logistic(dy, near, *halved_cubic(x), slope) + (x - x)


def _gelu(dy: Any, x: Any, _: Any) -> Any:
    """dy (Φ + x φ); below 0 both have the factor exp(-x² / 2)."""
    ratio, g = normal(x)
    density = x / np.sqrt(2 * pi(x))
    return np.where(x < 0, dy * g * (ratio + density) * g, dy * (1 + (density - ratio) * g * g))


def _mish(dy: Any, x: Any, _: Any) -> Any:
    """With t = n / (n + 2) as in mish, 1 - t² = 4 (n + 1) / (n + 2)² and n + 1 = (1 + e)²; all has the factor e."""
    h = np.exp(np.minimum(x, 40) / 2)
    e = h * h
    r = 1 / (e * (e + 2) + 2)
    rest = (e + 2) * r + x * (4 * r * ((1 + e) * r))
    return np.where(x > 40, dy, np.where(x < 0, dy * h * (rest * h), dy * (rest * e)))


def _elu(dy: Any, x: Any, a: Any) -> Any:
    h = np.exp(np.minimum(x, 0) / 2)
    return np.where(x <= 0, dy * h * (a * h), dy)


def _selu(dy: Any, x: Any, _: Any) -> Any:
    scale, alpha = selu_constants(x)
    return np.where(x <= 0, _elu(dy, x, scale * alpha), scale * dy)


GRADIENT: Mapping[K, Gradient] = {
    K.NEG: lambda dy, x, a: -dy,
    K.ABS: lambda dy, x, a: np.where(x > 0, dy, np.where(x < 0, -dy, dy * 0)),
    K.RECIPROCAL: _reciprocal,
    K.SQUARE: lambda dy, x, a: 2 * (dy * x),
    K.CUBE: _cube,
    K.SQRT: lambda dy, x, a: dy / (2 * np.sqrt(x)),
    K.RSQRT: _rsqrt,
    K.CBRT: lambda dy, x, a: dy / (3 * cbrt(x) ** 2),
    K.EXP: lambda dy, x, a: _exponential(dy, x),
    K.EXP2: lambda dy, x, a: _exponential(dy, x, np.exp2, np.log(x.dtype.type(2))),
    K.EXPM1: lambda dy, x, a: _exponential(dy, x),
    K.LOG: lambda dy, x, a: _where_defined(x >= 0, dy / x, x),
    K.LOG2: lambda dy, x, a: _where_defined(x >= 0, dy / x / np.log(x.dtype.type(2)), x),
    K.LOG10: _log10,
    K.LOG1P: lambda dy, x, a: _where_defined(x >= -1, dy / (1 + x), x),
    K.SIN: lambda dy, x, a: dy * np.cos(x),
    K.COS: lambda dy, x, a: -dy * np.sin(x),
    K.TAN: _tan,
    K.ASIN: lambda dy, x, a: dy / np.sqrt((1 - x) * (1 + x)),
    K.ACOS: lambda dy, x, a: -dy / np.sqrt((1 - x) * (1 + x)),
    K.ATAN: lambda dy, x, a: np.where(np.abs(x) > 1e10, dy / x / x, dy / (1 + x * x)),
    K.SINH: _hyperbolic(np.cosh),
    K.COSH: _hyperbolic(np.sinh),
    K.TANH: _tanh,
    K.ASINH: lambda dy, x, a: dy / np.hypot(x, 1),
    K.ACOSH: lambda dy, x, a: dy / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    K.ATANH: lambda dy, x, a: _where_defined(np.abs(x) <= 1, dy / ((1 - x) * (1 + x)), x),
    K.ERF: _bell(2),
    K.ERFC: _bell(-2),
    K.FRAC: lambda dy, x, a: dy,
    K.SIGMOID: _sigmoid,
    K.LOG_SIGMOID: lambda dy, x, a: _softplus(dy, -x, a),
    K.LOGIT: lambda dy, x, a: _where_defined((x >= 0) & (x <= 1), dy / (x * (1 - x)), x),
    K.RELU: lambda dy, x, a: np.where(x <= 0, 0, dy),
    K.RELU6: lambda dy, x, a: np.where((x <= 0) | (x >= 6), 0, dy),
    K.LEAKY_RELU: lambda dy, x, a: np.where(x > 0, dy, dy * a),
    K.ELU: _elu,
    K.SELU: _selu,
    K.GELU: _gelu,
    K.GELU_TANH: _gelu_tanh,
    K.SILU: _silu,
    K.MISH: _mish,
    K.SOFTPLUS: _softplus,
    K.SOFTSIGN: lambda dy, x, a: dy / (1 + np.abs(x)) / (1 + np.abs(x)),
    K.HARDTANH: lambda dy, x, a: np.where((x <= -1) | (x >= 1), 0, dy),
    K.HARDSIGMOID: lambda dy, x, a: np.where((x > -3) & (x < 3), dy / 6, 0),
    K.HARDSWISH: lambda dy, x, a: dy * np.where(x <= -3, 0, np.where(x < 3, (2 * x + 3) / 6, 1)),
    K.HARDSHRINK: lambda dy, x, a: np.where((x >= -a) & (x <= a), 0, dy),
    K.SOFTSHRINK: lambda dy, x, a: np.where((x >= -a) & (x <= a), 0, dy),
}
"""Kinds that are not here (sign, floor, ceil, round, trunc) have derivative 0 wherever they have one."""


def gated_gradient(kind: K, dy: Any, up: Any, gate: Any) -> Any:
    """dy up act'(gate). Where dy up overflows, the slope may bring it back: there both are scaled down first."""
    product = dy * up
    large = np.isinf(product)
    down = np.exp2(half(gate) * np.finfo(gate.dtype).minexp - 1)
    found = GRADIENT[kind](np.where(large, dy * down * (up * down), product), gate, None)
    return np.where(large, found / down / down, found)


_SELECTS = (
    K.NEG, K.ABS, K.FRAC, K.RELU, K.RELU6, K.HARDTANH, K.HARDSHRINK, K.SOFTSHRINK,
)  # fmt: skip
_CROSSES_ZERO = (K.GELU, K.GELU_TANH, K.SILU, K.MISH)  # the slope does, so no bound relative to it can hold


def slope_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of a backward kind; gradients that are dy, -dy or 0 are exact."""
    if kind in _SELECTS:
        return Exact()
    if kind in _CROSSES_ZERO:
        return Relative(2)
    return Ulp(0.51) if element in HALVES else Ulp(8)
