"""NumPy formulas of dy f'(x) that take more than a line.

dy is part of each formula, because f'(x) may leave the range of the dtype where dy f'(x) does not: factors are applied
in an order in which nothing on the way overflows that the result does not, and nothing loses digits that it has.
Outside its domain, where f is NaN, so is the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .functions.row import Gradient
from .special import bell
from .unary_formulas import FAR, half, halved, halved_cubic, normal, pi, selu_constants


def within(x: Any, base: Any = None) -> tuple[Any, Any]:
    """x as far as base^x (e^x), and half of it, is a normal number, and what it lies beyond."""
    end = np.floor(np.log(np.finfo(x.dtype).max) / (1 if base is None else np.log(x.dtype.type(base)))) - 3
    near = np.clip(x, -end, end)
    return near, np.clip(x - near, -2 * end, 2 * end)


def times_exp(y: Any, rest: Any, exp: Any = np.exp) -> Any:
    """y exp(rest), as two square roots."""
    h = exp(rest / 2)
    return np.where(rest == 0, y, y * h * h)


def exponential(dy: Any, x: Any) -> Any:
    """dy exp(x)."""
    near, rest = within(x)
    return times_exp(dy * np.exp(near), rest)


def power_of(base: int, exp: Any) -> Gradient:
    """dy log(base) base^x, where exp(x) is base^x."""

    def gradient(dy: Any, x: Any) -> Any:
        near, rest = within(x, base)
        return times_exp(dy * (np.log(x.dtype.type(base)) * exp(near)), rest, exp)

    return gradient


def hyperbolic(function: Any) -> Gradient:
    """dy sinh(x) or dy cosh(x), which far out are ± exp(|x|) / 2."""

    def gradient(dy: Any, x: Any) -> Any:
        near, rest = within(x)
        return times_exp(dy * function(near), np.abs(rest))

    return gradient


def has_square(x: Any) -> Any:
    """Whether x², 1 / x² and √x / x are normal numbers.

    There they come first: a subnormal dy would lose digits in a product that is subnormal again. Elsewhere dy goes
    first, and either leaves the subnormals at once or only shrinks.
    """
    end = np.exp2(half(x) * (1 - np.finfo(x.dtype).minexp))
    return (np.abs(x) < end) & (np.abs(x) > 1 / end)


def reciprocal(dy: Any, x: Any) -> Any:
    """-dy / x²."""
    return -np.where(has_square(x), dy / (x * x), dy / x / x)


def rsqrt(dy: Any, x: Any) -> Any:
    """-dy / (2 x √x)."""
    r = -half(x) / np.sqrt(x)
    return np.where(has_square(x), dy * (r / x), dy * r / x)


def cube(dy: Any, x: Any) -> Any:
    """3 dy x²."""
    return np.where(has_square(x), dy * (3 * (x * x)), 3 * (dy * x * x))


def log10(dy: Any, x: Any) -> Any:
    """dy / (x log 10): a small dy is divided first, so that it keeps its digits, others last, so as not to overflow."""
    scale, small = 1 / np.log(x.dtype.type(10)), np.abs(dy) < 1e-20
    quotient = np.where(small, dy, dy * scale) / x
    return where_defined(x >= 0, np.where(small, quotient * scale, quotient), x)


def where_defined(inside: Any, y: Any, x: Any) -> Any:
    """y, and NaN outside the domain."""
    return np.where(inside | np.isnan(x), y, x.dtype.type(np.nan))


def tan(dy: Any, x: Any) -> Any:
    """dy / cos(x)²."""
    c = np.cos(x)
    return dy / (c * c)


def tanh(dy: Any, x: Any) -> Any:
    """dy / cosh(x)²."""
    h = np.exp(-np.abs(x))
    sech = 2 * h / (1 + h * h)
    return dy * sech * sech


def sigmoid(dy: Any, x: Any) -> Any:
    """dy s (1 - s), s the sigmoid."""
    h, r = halved(x)
    return dy * (h * r) * (h * r)


def softplus(dy: Any, x: Any) -> Any:
    """dy / (1 + exp(-x))."""
    h, r = halved(x)
    return np.where(x < 0, dy * h * (h * r), dy * r)


def bell_slope(factor: float) -> Gradient:
    """dy ± 2/√π exp(-x²)."""

    def gradient(dy: Any, x: Any) -> Any:
        g = bell(x, half(x))
        return factor / np.sqrt(pi(x)) * (dy * g * g)

    return gradient


def logistic(dy: Any, x: Any, h: Any, r: Any, slope: Any) -> Any:
    """dy (s + x s (1 - s) slope), s = sigmoid, from `halved`: for x < 0 it is h² r (1 + x r slope)."""
    outer, other = np.where(x < 0, h, 1), np.where(x < 0, r, h * h * r)
    return dy * outer * (r * (1 + x * other * slope)) * outer


def silu(dy: Any, x: Any) -> Any:
    """dy (s + x s (1 - s)), s the sigmoid."""
    return logistic(dy, x, *halved(x), 1)


def gelu_tanh(dy: Any, x: Any) -> Any:
    """That of x sigmoid(t), t the cubic."""
    near = np.clip(x, -FAR, FAR)
    slope = np.sqrt(8 / pi(x)) * (1 + 3 * x.dtype.type("0.044715") * near * near)
    return logistic(dy, near, *halved_cubic(x), slope) + (x - x)


def gelu(dy: Any, x: Any) -> Any:
    """dy (Φ + x φ); below 0 both have the factor exp(-x² / 2)."""
    ratio, g = normal(x)
    density = x / np.sqrt(2 * pi(x))
    return np.where(x < 0, dy * g * (ratio + density) * g, dy * (1 + (density - ratio) * g * g))


def mish(dy: Any, x: Any) -> Any:
    """With t = n / (n + 2) as in mish, 1 - t² = 4 (n + 1) / (n + 2)² and n + 1 = (1 + e)²; all has the factor e."""
    h = np.exp(np.minimum(x, 40) / 2)
    e = h * h
    r = 1 / (e * (e + 2) + 2)
    rest = (e + 2) * r + x * (4 * r * ((1 + e) * r))
    return np.where(x > 40, dy, np.where(x < 0, dy * h * (rest * h), dy * (rest * e)))


def elu(dy: Any, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    """Above 0 dy scale; below dy alpha scale input_scale exp(input_scale x)."""
    return np.where(x <= 0, _below(dy, np.minimum(x, 0) * input_scale, alpha * scale * input_scale), dy * scale)


def celu(dy: Any, x: Any, alpha: Any) -> Any:
    """Above 0 dy; below dy exp(x / alpha)."""
    return np.where(x <= 0, _below(dy, np.minimum(x, 0) / alpha, x.dtype.type(1)), dy)


def _below(dy: Any, t: Any, factor: Any) -> Any:
    """dy factor exp(t), the exponential as two square roots."""
    h = np.exp(t / 2)
    return dy * h * (factor * h)


def selu(dy: Any, x: Any) -> Any:
    """dy times scale, and below 0 times alpha exp(x)."""
    scale, alpha = selu_constants(x)
    return np.where(x <= 0, _below(dy, np.minimum(x, 0), scale * alpha), scale * dy)
