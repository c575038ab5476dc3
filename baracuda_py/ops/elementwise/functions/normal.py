"""The error function, the normal distribution, and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import unary_gradients as slopes
from ..special import bell, erf, erfc, erfcx
from ..unary_formulas import half, normal, pi
from ..unary_gradients import where_defined
from .row import Function, in_double, slope_in_double, ulps


def _erfcx(x: Any) -> Any:
    """exp(x²) erfc(x)."""
    below = np.minimum(x, 0)
    return np.where(x < 0, 2 * bell(below, -1) - erfcx(-below), erfcx(np.maximum(x, 0)))


def _erfcx_slope(dy: Any, x: Any) -> Any:
    """dy (2 x erfcx(x) - 2/√π); from x = 10 on, where both terms are nearly equal, by its asymptotic series."""
    far, near = np.maximum(x, 10), np.clip(x, -20, 10)
    s = 1 / (2 * far * far)
    term = total = np.ones_like(x)
    for n in range(2, 30):
        term = -term * (2 * n - 1) * s
        total = total + term
    middle = dy * (2 * (near * _erfcx(near) - 1 / np.sqrt(pi(x))))
    quarter = bell(np.minimum(x, 0), -0.25)
    below = dy * quarter * quarter * (4 * x) * quarter * quarter  # 4 x exp(x²), in which the rest is lost
    below = np.where(dy == 0, dy * x, below)  # the exponential is infinite at -∞ alone
    return np.where(x < -20, below, np.where(x > 10, -dy / far / far * (total / np.sqrt(pi(x))), middle))


def _centre(x: Any) -> Any:
    """y with erf(y) = x, |x| <= 1/2, by Newton's method."""
    y = x
    for _ in range(6):
        y = y - (erf(y) - x) / (2 / np.sqrt(pi(x)) * np.exp(-y * y))
    return y


def _tail(q: Any) -> Any:
    """y with erfc(y) = q, 0 <= q <= 1/2, by Newton's method for log erfc."""
    log = -np.log(np.where(q == 0, half(q), q))
    y = np.sqrt(np.maximum(log - np.log(pi(q) * log) / 2, 0.25))
    for _ in range(8):
        ratio = erfcx(y)
        y = y + (np.log(ratio) - y * y + log) * ratio * np.sqrt(pi(q)) / 2
    return np.where(q == 0, np.inf, y)


def _erfinv(x: Any) -> Any:
    size = np.minimum(np.abs(x), 1)
    y = np.where(size <= 0.5, _centre(np.minimum(size, 0.5)), _tail(np.minimum(1 - size, 0.5)))
    return where_defined(np.abs(x) <= 1, np.copysign(y, x), x)


def _ndtri(p: Any) -> Any:
    """x with Φ(x) = p."""
    inside = (p >= 0) & (p <= 1)
    q = np.where(inside, np.minimum(p, 1 - p), half(p))
    y = np.where(q > 0.25, _centre(np.clip(1 - 2 * q, 0, 0.5)), _tail(np.minimum(2 * q, 0.5)))
    return np.where(inside, np.sqrt(p.dtype.type(2)) * np.where(p < 0.5, -y, y), np.nan)


def _times_quotient(dy: Any, rest: Any, q: Any) -> Any:
    """dy rest / q: a small dy is divided first, so that it keeps its digits, others last, so as not to overflow."""
    y = np.where(np.abs(dy) < 1e-290, dy / q * rest, dy * rest / q)
    return np.where(q == 0, dy * np.inf, y)


def _erfinv_slope(dy: Any, x: Any) -> Any:
    """dy √π/2 exp(y²), and exp(y²) is erfcx(y) / erfc(y)."""
    q = 1 - np.minimum(np.abs(x), 1)
    rest = np.sqrt(pi(x)) / 2 * _erfcx(np.abs(np.where(np.abs(x) < 1, _erfinv(x), 0)))
    return where_defined(np.abs(x) <= 1, _times_quotient(dy, rest, q), x)


def _ndtri_slope(dy: Any, p: Any) -> Any:
    """dy √(2π) exp(x²/2), and exp(x²/2) is erfcx(|x|/√2) / (2 Φ(-|x|))."""
    inside = (p >= 0) & (p <= 1)
    q = np.where(inside, np.minimum(p, 1 - p), half(p))
    y = np.abs(np.where(q > 0, _ndtri(np.where(inside, p, half(p))), 0)) * np.sqrt(half(p))
    return np.where(inside, _times_quotient(dy, np.sqrt(pi(p) / 2) * erfcx(y), q), np.nan)


def _ndtr(x: Any) -> Any:
    """Φ(x)."""
    ratio, g = normal(x)
    return np.where(x < 0, ratio * g * g, 1 - ratio * g * g)


def _ndtr_slope(dy: Any, x: Any) -> Any:
    g = bell(x, half(x) / 2)
    return dy * g / np.sqrt(2 * pi(x)) * g


def _log_ndtr(x: Any) -> Any:
    ratio, g = normal(x)
    return np.where(x < 0, np.log(ratio) - x * x / 2, np.log1p(-ratio * g * g))


def _log_ndtr_slope(dy: Any, x: Any) -> Any:
    """dy φ(x) / Φ(x); below 0 both have the factor exp(-x²/2)."""
    ratio, g = normal(x)
    scale = 1 / np.sqrt(2 * pi(x))
    below = np.where(x < -1e10, -x, scale / ratio)
    return np.where(x < 0, dy * below, dy * g * (scale / (1 - ratio * g * g)) * g)


ERF = Function("error_function/Erf", erf, slopes.bell_slope(2), bound=ulps(2.5, 2.5), torch="erf")
ERFC = Function("error_function/Erfc", erfc, slopes.bell_slope(-2), bound=ulps(4.5, 5.5, bfloat16=0.52), torch="erfc")
ERFCX = Function(
    "Erfcx", _erfcx, _erfcx_slope, bound=in_double(5.5), slope=slope_in_double(None), kernel="unary_special",
    torch="special.erfcx",
)  # fmt: skip
ERFINV = Function(
    "Erfinv", _erfinv, _erfinv_slope, bound=in_double(5.5), slope=slope_in_double(16), kernel="unary_special",
    torch="erfinv", aliases=("erf_inv",),
)  # fmt: skip
NDTR = Function(
    "Ndtr", _ndtr, _ndtr_slope, bound=in_double(6.5), slope=slope_in_double(8), kernel="unary_special",
    torch="special.ndtr",
)  # fmt: skip
NDTRI = Function(
    "Ndtri", _ndtri, _ndtri_slope, bound=in_double(8), slope=slope_in_double(16), kernel="unary_special",
    torch="special.ndtri",
)  # fmt: skip
LOG_NDTR = Function(
    "LogNdtr", _log_ndtr, _log_ndtr_slope, bound=in_double(8), slope=slope_in_double(16), kernel="unary_special",
    torch="special.log_ndtr",
)  # fmt: skip
