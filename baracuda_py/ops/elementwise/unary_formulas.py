"""NumPy formulas that rows and other pages share, in the dtype their argument comes in, right over its whole range.

The activations of gates take a factor `by` with them: where the activation alone would be subnormal, so that it had
lost digits, its product with a large factor has all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .special import bell, erfcx

SELU_SCALE, SELU_ALPHA = "1.05070098735548049341933498529", "1.67326324235437728481704291672"
FAR = 100  # beyond it the cubic of gelu_tanh only overflows: its sigmoid is 0 or 1, in 80-bit floats too


def half(x: Any) -> Any:
    """1/2 in the dtype of x."""
    return x.dtype.type(0.5)


def maximum(a: Any, b: Any) -> Any:
    """The larger: NaN if either is, and +0 above -0 (IEEE 754-2019 maximum)."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def minimum(a: Any, b: Any) -> Any:
    """The smaller: NaN if either is, and -0 below +0 (IEEE 754-2019 minimum)."""
    return np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b))


def fmax(a: Any, b: Any) -> Any:
    """The larger, or the other one of a NaN; +0 above -0 (IEEE 754-2019 maximumNumber)."""
    return np.where((a == 0) & (b == 0), a + b, np.fmax(a, b))


def fmin(a: Any, b: Any) -> Any:
    """The smaller, or the other one of a NaN; -0 below +0 (IEEE 754-2019 minimumNumber)."""
    return np.where((a == 0) & (b == 0), -(-a - b), np.fmin(a, b))


def by_parts(condition: Any, inside: Callable[..., Any], outside: Callable[..., Any], *given: Any) -> Any:
    """inside(*given) where the condition holds, outside(*given) elsewhere, each computed of its own elements alone."""
    within, *arrays = np.broadcast_arrays(condition, *given)
    found = np.empty(within.shape, arrays[0].dtype)
    for where, function in ((within, inside), (~within, outside)):
        found[where] = function(*(x[where] for x in arrays))
    return found


def cbrt(x: Any) -> Any:
    """The cube root. That of the C library has errors of several ulp, so it is taken in more digits where there are."""
    return np.cbrt(x.astype(np.longdouble)).astype(x.dtype)


def halved(x: Any) -> tuple[Any, Any]:
    """h = exp(-|x| / 2) and r = 1 / (1 + h²): sigmoid(|x|) is r, sigmoid(-|x|) is h² r; h is normal where h² is 0."""
    h = np.exp(-np.abs(x) / 2)
    return h, 1 / (1 + h * h)


def _times(first: Any, second: Any, by: Any) -> Any:
    """first second by, where first by overflows only if all do: by in between where first second has lost digits."""
    y = first * second
    return np.where(np.abs(y) < np.finfo(y.dtype).tiny, first * by * second, y * by)


def sigmoid(x: Any, by: Any = 1) -> Any:
    """by / (1 + exp(-x))."""
    x = np.asarray(x)
    h, r = halved(x)
    part = np.where(x < 0, h, 1)
    return _times(part, part * r, by)


def silu(x: Any, by: Any = 1) -> Any:
    """x sigmoid(x) by."""
    return _times_sigmoid(x, by, *halved(x))


def _times_sigmoid(x: Any, by: Any, h: Any, r: Any) -> Any:
    """x sigmoid(t) by, t of the sign of x, from `halved`."""
    part = np.where(x < 0, h, 1)
    return _times(x * part, part * r, by)


def gelu(x: Any, by: Any = 1) -> Any:
    """x Φ(x) by, Φ the normal distribution function (Hendrycks and Gimpel 2016)."""
    ratio, g = normal(x)
    cdf = np.where(x < 0, ratio * g * g, 1 - ratio * g * g)
    return _times(np.where(x < -1, x * ratio * g, x), np.where(x < -1, g, cdf), by)


def normal(x: Any) -> tuple[Any, Any]:
    """Φ(-|x|) exp(x² / 2) and exp(-x² / 4): neither is subnormal where their product with large numbers is not."""
    return half(x) * erfcx(np.abs(x) * np.sqrt(half(x))), bell(x, half(x) / 2)


def gelu_tanh(x: Any, by: Any = 1) -> Any:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))) by = x sigmoid(x (c₁ + c₂ x²)) by."""
    return _times_sigmoid(x, by, *halved_cubic(x))


def halved_cubic(x: Any) -> tuple[Any, Any]:
    """`halved` of x (c₁ + c₂ x²), which is rounded to two words: the exponential multiplies its error."""
    near = np.clip(x, -FAR, FAR).astype(np.longdouble)
    exact = near * np.sqrt(8 / pi(near)) * (1 + near.dtype.type("0.044715") * near * near)
    t = exact.astype(x.dtype)
    h = halved(t)[0]
    h = h - h * (half(x) * np.sign(t) * (exact - t).astype(x.dtype))
    return h, 1 / (1 + h * h)


def pi(x: Any) -> Any:
    """π in the dtype of x."""
    return 4 * np.arctan(x.dtype.type(1))


def mish(x: Any) -> Any:
    """x tanh(log(1 + exp(x))) = x n / (n + 2), n = e (e + 2), e = exp(x); far down e is applied as two square roots."""
    h = np.exp(np.minimum(x, 40) / 2)  # from 40 on the quotient is 1
    e = h * h
    n = e * (e + 2)
    return np.where(x < 0, x * h * ((e + 2) / (n + 2)) * h, x * (n / (n + 2)))


def selu_constants(x: Any) -> tuple[Any, Any]:
    """Scale and alpha of Klambauer et al. 2017."""
    return x.dtype.type(SELU_SCALE), x.dtype.type(SELU_ALPHA)


def selu(x: Any) -> Any:
    """Scale times x above 0, scale alpha (exp(x) - 1) below (Klambauer et al. 2017)."""
    scale, alpha = selu_constants(x)
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def ramp(x: Any) -> Any:
    """From 0 at -3 to 1 at 3."""
    return np.clip(x + 3, 0, 6) / 6
