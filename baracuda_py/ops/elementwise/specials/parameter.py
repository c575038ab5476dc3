"""Derivatives by the parameter a of the incomplete gamma function and of gamma variates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions import in_torch
from ..functions.gamma import DIGAMMA, bernoulli
from .quadrature import integral
from .row import Special, between, widely

_FAR = 46  # beyond it exp(-s) adds nothing to an integral


def _gap(s: Any) -> Any:
    """exp(s) - 1 - s."""
    near = np.clip(s, -0.5, 0.5)
    total = np.ones_like(near)
    for k in range(20, 2, -1):
        total = total * near / k + 1
    return np.where(np.abs(s) > 0.5, np.expm1(s) - s, near * near / 2 * total)


def _log_over_mean(a: Any, x: Any) -> Any:
    """a (log(x) - ψ(a))."""
    large = np.maximum(a, 10)
    series = sum(bernoulli(large, k) / (2 * k) / large ** (2 * k) for k in range(1, 13))
    d = (x - large) / large
    log = np.where(np.abs(d) < 0.5, np.log1p(np.clip(d, -0.5, 0.5)), np.log(x) - np.log(large))
    near = a * (np.log(x) - DIGAMMA.formula(np.minimum(a, 10) + 1)) + 1
    return np.where(a < 10, near, large * (log + 1 / (2 * large) + series))


def _series(a: Any, x: Any) -> Any:
    """The integral below for x <= 2, from the power series of the incomplete gamma function."""
    first, second, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 40):
        term = term * -x / k
        first, second = first + a * term / (a + k), second + term / (a + k) * (k / (a + k))
    return -((np.log(x) - DIGAMMA.formula(a + 1)) * first + second) * np.exp(x)


def parameter_integral(a: Any, x: Any) -> Any:
    """-∂P/∂a by x^a exp(-x) / Γ(a + 1): a ∫ w |log(t) - ψ(a)|, on that side of x where the logarithm has one sign.

    w is the density of a gamma variate at t by that at x, and t is x exp(±s).
    """
    log = _log_over_mean(a, x)
    below = log < 0
    small = ~below & (x <= 2)
    u, v = np.where(small, 1, a), np.where(small, 3, x)
    sign, c = np.where(below, -1, 1), _FAR / np.where(below, u, 1)
    widest = np.where(below, (c + np.sqrt(c) * np.sqrt(c + 8)) / 2, 0.5 / v + np.sqrt(0.25 / v + 2 * _FAR) / np.sqrt(v))
    narrow = np.where(below == (v < u), _FAR / np.abs(u - v), np.inf)
    rise = np.where(small, 1, sign * log)
    weight = lambda s: np.exp((u - v) * sign * s - v * _gap(sign * s)) * (u * s + rise)  # noqa: E731
    far = integral(np.minimum(widest, narrow), weight)
    return np.where(small, _series(np.where(small, a, 1), np.where(small, x, 1)), far)


def _parts(x: Any, a: Any) -> tuple[Any, Any, Any]:
    """Where both are usual, and both with 1 elsewhere."""
    inside = (x > 0) & (a >= 0) & np.isfinite(x) & np.isfinite(a)
    return inside, np.where(inside, x, x.dtype.type(1)), np.where(inside, a, a.dtype.type(1))


def by_parameter(density: Any) -> Any:
    """∂P/∂a of (x, a), given x^a exp(-x) / Γ(a + 1) of (a, x)."""

    def formula(x: Any, a: Any) -> Any:
        inside, v, u = _parts(x, a)
        found = np.where(inside, -density(u, v) * parameter_integral(u, v), 0)
        outside = ~((a >= 0) & (x >= 0)) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
        return np.where(outside, np.nan, found)

    return formula


def _variate(x: Any, a: Any) -> Any:
    inside, v, u = _parts(x, a)
    found = np.where(inside, v * (parameter_integral(u, v) / u), x)
    return np.where(~((a >= 0) & (x >= 0)) | np.isinf(a) | ((a == 0) & (x == 0)), np.nan, found)


def _in_torch(torch: Any, x: Any, a: Any) -> Any:
    """The derivative of P by a, by that by x."""
    density = torch.exp((a - 1) * torch.log(x) - x - torch.lgamma(a))
    return -in_torch.igamma_grad_a(torch, x, a) / density


RANDOM_GAMMA_GRAD = Special(
    "gamma_parameter/RandomGammaGrad",
    widely(_variate),
    (between(0.1, 40), between(0.2, 18)),
    ulp=64,
    torch=_in_torch,
    call="ba",
)
