"""Bessel functions J of whole orders, and spherical Legendre functions, by recurrences over the order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions.cylinder import BESSEL_J0, BESSEL_J1
from ..functions.gamma import LGAMMA
from ..functions.in_torch import unit_integral
from ..unary_formulas import pi
from ..ternary_kinds import Partial
from .row import Special, between, evenly

LIMIT = 65536
"""The largest order or degree; beyond it the result is NaN."""


def _series(x: Any, n: Any, *_: Any) -> Any:
    """J by its power series, for x² <= 4 (n + 1)."""
    total, term = np.ones_like(x), np.ones_like(x)
    for k in range(1, 48):
        term = term * (-x * x / 4) / (k * (n + k))
        total = total + term
    return np.exp(n * (np.log(x) - np.log(x.dtype.type(2))) - LGAMMA.formula(n + 1)) * total


def _upwards(x: Any, n: Any, first: Any, second: Any) -> Any:
    below, here = first, second
    for k in range(1, int(np.max(n, initial=0))):
        above = 2 * k / x * here - below
        below, here = np.where(k < n, here, below), np.where(k < n, above, here)
    return here


def _downwards(x: Any, n: Any, first: Any, second: Any) -> Any:
    begin = n + np.floor(np.sqrt(220 * n)) + 8
    above, here, wanted = np.zeros_like(x), np.ones_like(x), np.zeros_like(x)
    for k in range(int(np.max(begin, initial=0)), 0, -1):
        going = k <= begin
        below = 2 * k / x * here - above
        above, here = np.where(going, here, above), np.where(going, below, here)
        wanted = np.where(k - 1 == n, here, wanted)
        scale = np.where(np.abs(here) > 1e150, here.dtype.type(1e-150), here.dtype.type(1))
        above, here, wanted = above * scale, here * scale, wanted * scale
    return np.where(np.abs(first) > np.abs(second), wanted / here * first, wanted / above * second)


def _bessel(x: Any, n: Any) -> Any:
    """J of whole order n, an infinite x giving 0."""
    x, n = np.broadcast_arrays(x, n)
    order, size = np.abs(n), np.abs(x)
    valid = (n == np.floor(n)) & (order <= LIMIT) & ~np.isnan(x)
    usual = valid & (size > 0) & np.isfinite(size)
    k, v = np.where(usual, order, 0), np.where(usual, size, size.dtype.type(1))
    first, second = BESSEL_J0.formula(v), BESSEL_J1.formula(v)
    near = v * v / 4 <= k + 1
    found: Any = np.where(k == 0, first, second)
    for chosen, function in ((near, _series), (~near & (k > 0) & (k <= v), _upwards), (~near & (k > v), _downwards)):
        if chosen.any():
            found[chosen] = function(*(t[chosen] for t in (v, k, first, second)))
    found = np.where(usual, found, np.where((size == 0) & (order == 0), 1, 0))
    return np.where(valid, np.where((order % 2 != 0) & ((x < 0) != (n < 0)), -found, found), np.nan)


def _bessel_in_torch(torch: Any, x: Any, n: Any) -> Any:
    """Bessel's integral."""
    x, n = torch.broadcast_tensors(x, n)
    wave = lambda u: torch.cos(n[..., None] * np.pi * u - x[..., None] * torch.sin(np.pi * u))  # noqa: E731
    return unit_integral(torch, wave, x, 160)


# ---- spherical Legendre functions -----------------------------------------------------------------------------------


def _legendre(theta: Any, n: Any, m: Any) -> Any:
    """P of degree n and order m at cos θ times √((2n + 1) (n - m)! / (4π (n + m)!)), with the sign (-1)^m."""
    theta, n, m = np.broadcast_arrays(theta, n, m)
    order = np.abs(m)
    whole = (n == np.floor(n)) & (m == np.floor(m)) & (n >= 0) & (n <= LIMIT) & np.isfinite(theta)
    inside = whole & (order <= n)
    l, k = np.where(inside, n, 0), np.where(inside, order, 0)  # noqa: E741
    angle = np.where(inside, theta, theta.dtype.type(1))
    x, sine = np.cos(angle), np.abs(np.sin(angle))
    here, below, last = 1 / np.sqrt(4 * pi(x)) + 0 * x, np.zeros_like(x), np.zeros_like(x)
    exponent = np.zeros(x.shape, np.int64)
    for i in range(1, int(np.max(k, initial=0)) + 1):
        here, shift = np.frexp(np.where(i <= k, -here * sine * np.sqrt(1 + x.dtype.type(0.5) / i), here))
        exponent = exponent + shift
    for i in range(1, int(np.max(l, initial=0)) + 1):
        going = (i > k) & (i <= l)
        t = np.where(going, x.dtype.type(i), k + 1)
        factor = np.sqrt((2 * t - 1) / (t - k) * ((2 * t + 1) / (t + k)))
        above = factor * (x * here - last * below)
        below, last = np.where(going, here, below), np.where(going, 1 / factor, last)
        here, shift = np.frexp(np.where(going, above, here))
        below, exponent = np.ldexp(below, -shift), exponent + shift
    found = np.ldexp(here, np.clip(exponent, -30000, 30000).astype(np.int32))
    found = np.where((m < 0) & (order % 2 != 0), -found, found)
    return np.where(whole, np.where(inside, found, 0), np.nan)


def _slope(dy: Any, theta: Any, n: Any, m: Any) -> Any:
    inside = np.abs(m) <= n
    above, below = np.where(inside, (n - m) * (n + m + 1), 0), np.where(inside, (n + m) * (n - m + 1), 0)
    found = np.sqrt(above) * _legendre(theta, n, m + 1) - np.sqrt(below) * _legendre(theta, n, m - 1)
    return dy * np.where(np.sin(theta) < 0, -found, found) / 2


def _legendre_in_torch(torch: Any, theta: Any, n: Any, m: Any) -> Any:
    """The same recurrences, which torch differentiates."""
    theta, n, m = torch.broadcast_tensors(theta, n, m)
    x, sine, k = torch.cos(theta), torch.sin(theta).abs(), m.abs()
    here, below = torch.full_like(x, 0.5 / np.sqrt(np.pi)), torch.zeros_like(x)
    for i in range(1, int(k.max().item() if k.numel() else 0) + 1):
        here = torch.where(i <= k, -here * sine * np.sqrt(1 + 0.5 / i), here)
    for i in range(1, int(n.max().item() if n.numel() else 0) + 1):
        going = (i > k) & (i <= n)
        t = torch.where(going, torch.full_like(k, i), k + 1)
        factor = torch.sqrt((4 * t * t - 1) / (t * t - k * k))
        before = torch.sqrt(((t - 1) ** 2 - k * k).clamp(min=0) / (4 * (t - 1) ** 2 - 1).abs().clamp(min=1))
        above = factor * (x * here - before * below)
        below, here = torch.where(going, here, below), torch.where(going, above, here)
    return torch.where(k > n, 0, torch.where((m < 0) & (k % 2 != 0), -here, here))


BESSEL_JN = Special(
    "orders/BesselJn", _bessel, (evenly(-40, 40), between(0, 12, whole=True)),
    (Partial("ab", lambda dy, x, n, c, d: dy * ((_bessel(x, n - 1) - _bessel(x, n + 1)) / 2)), None),
    torch=_bessel_in_torch, call="ba", times=16,
)  # fmt: skip
SPH_LEGENDRE_P = Special(
    "orders/SphLegendreP", _legendre, (evenly(0, 3.14), between(0, 12, whole=True), between(-8, 8, whole=True)),
    (Partial("abc", lambda dy, theta, n, m, d: _slope(dy, theta, n, m)), None), torch=_legendre_in_torch, call="bca",
    times=16,
)  # fmt: skip
