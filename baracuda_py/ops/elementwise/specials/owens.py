"""Owen's function T."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions.in_torch import unit_integral
from ..special import bell, erf, erfcx
from ..unary_formulas import pi
from .quadrature import integral
from .row import Special, evenly, partial, widely


def _inner(h: Any, a: Any) -> Any:
    """∫ exp(-h² x² / 2) / (1 + x²) dx from 0 to a, for 0 <= a <= 1."""
    end = np.minimum(a, 10 / h)
    return integral(end, lambda x: np.exp(-h * h * x * x / 2) / (1 + x * x))


def _tail(h: Any) -> Any:
    """exp(h² / 2) (1 - Φ(h))."""
    return erfcx(h * np.sqrt(h.dtype.type(0.5))) / 2


def _owens(h: Any, a: Any) -> Any:
    u, size = np.abs(h), np.abs(a)
    beyond = size > 1
    known = (u > 0) & np.isfinite(u) & ~np.isnan(a)
    u = np.where(known, u, u.dtype.type(1))
    v = np.minimum(np.where(beyond, u * size, u), 1e30)
    y = bell(v, 0.5) * _inner(v, np.where(beyond, 1 / np.where(beyond, size, 1), size)) / (2 * pi(u))
    q = _tail(v) * bell(v, 0.5)
    rest = _tail(u) * bell(u, 0.5) * (0.5 - q) + (q / 2 - y)
    found = np.where(known, np.where(beyond, rest, y), np.where(h == 0, np.arctan(size) / (2 * pi(u)), 0))
    return np.where(np.isnan(h) | np.isnan(a), np.nan, np.copysign(found, a))


def _by_h(dy: Any, h: Any, a: Any) -> Any:
    slope = bell(h, 0.5) * erf(h * a / np.sqrt(h.dtype.type(2))) / (2 * np.sqrt(2 * pi(h)))
    return -dy * np.where(np.isnan(h), np.nan, slope)


def _by_a(dy: Any, h: Any, a: Any) -> Any:
    known = np.isfinite(h) & np.isfinite(a)
    u, v = np.where(known, h, h.dtype.type(0)), np.where(known, a, a.dtype.type(0))
    r = np.hypot(v, 1)
    found = dy * bell(u, 0.5) * bell(np.clip(u * v, -1e9, 1e9), 0.5) / r / (2 * pi(h)) / r
    return np.where(np.isnan(h) | np.isnan(a), np.nan, np.where(known, found, dy * 0))


def _in_torch(torch: Any, h: Any, a: Any) -> Any:
    h, a = torch.broadcast_tensors(h, a)

    def integrand(u: Any) -> Any:
        square = 1 + (a[..., None] * u) ** 2
        return torch.exp(-(h[..., None] ** 2) * square / 2) / square

    return a * unit_integral(torch, integrand, a, 128) / (2 * np.pi)


OWENS_T = Special(
    "owens/OwensT", widely(_owens), (evenly(-4, 4), evenly(-4, 4)), (partial("ab", _by_h), partial("ab", _by_a)),
    ulp=16, slope=16, torch=_in_torch,
)  # fmt: skip
