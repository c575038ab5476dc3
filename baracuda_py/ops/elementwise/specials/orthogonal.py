"""Orthogonal polynomials of degree n, by their recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ternary_kinds import Partial
from .row import Special, between, evenly

LIMIT = 65536
"""The largest degree; beyond it the result is NaN."""

Step = Callable[[Any, Any, Any, Any], Any]
"""The polynomial of degree k + 1 from x, k, and those of degree k and k - 1."""
Rise = Callable[[Any, Any], Any]
"""What the derivative of a step has beside the step of the derivatives, from k and the polynomial of degree k."""
Waves = Callable[[Any, Any], Any]
"""Where x lies among the zeros of the polynomial of degree n, so that an overflow has no known sign."""


def _nowhere(x: Any, n: Any) -> Any:
    return np.zeros(x.shape, bool)


def _polynomial(step: Step, first: Callable[[Any], Any], waves: Waves, falls: bool, shifted: bool) -> Any:
    def formula(x: Any, n: Any) -> Any:
        x, n = np.broadcast_arrays(2 * x - 1 if shifted else x, np.trunc(n))
        below, here = np.ones_like(x), np.where(n == 0, 1, first(x)).astype(x.dtype)
        valid = ~np.isnan(x) & (n <= LIMIT)
        going = valid & np.isfinite(here)
        for k in range(1, int(np.max(np.where(valid, n, 0), initial=0))):
            going = going & (k < n) & np.isfinite(here)
            if not going.any():
                break
            above = step(x, x.dtype.type(k), here, below)
            below, here = np.where(going, here, below), np.where(going, above, here)
        odd = n % 2 != 0
        sign = np.where(odd & ((x > 0) == falls), -1, 1)
        end = np.where(waves(x, n), np.nan, sign * np.inf)
        found = np.where(np.isfinite(here), here, end)
        return np.where(valid | (n < 0) & ~np.isnan(x), np.where(n < 0, 0, found), np.nan).astype(x.dtype)

    return formula


def _slope(step: Step, rise: Rise, first: Callable[[Any], Any], first_slope: float, shifted: bool) -> Any:
    """dy times the derivative by x: the recurrence differentiated, beside it."""

    def formula(dy: Any, x: Any, n: Any, *_: Any) -> Any:
        x, n = np.broadcast_arrays(2 * x - 1 if shifted else x, np.trunc(n))
        below, here = np.ones_like(x), np.where(n == 0, 1, first(x)).astype(x.dtype)
        slope_below, found = np.zeros_like(x), np.where(n < 1, 0, x.dtype.type(first_slope))
        valid = ~np.isnan(x) & (n <= LIMIT)
        going = valid & np.isfinite(here)
        for i in range(1, int(np.max(np.where(valid, n, 0), initial=0))):
            going = going & (i < n) & np.isfinite(here) & np.isfinite(found)
            if not going.any():
                break
            k = x.dtype.type(i)
            above, slope = step(x, k, here, below), step(x, k, found, slope_below) + rise(k, here)
            below, here = np.where(going, here, below), np.where(going, above, here)
            slope_below, found = np.where(going, found, slope_below), np.where(going, slope, found)
        found = np.where((np.isfinite(here) & np.isfinite(found)) | (n < 1), found, np.nan)
        return dy * (np.where(valid | ((n < 0) & ~np.isnan(x)), found, np.nan) * (2 if shifted else 1)).astype(x.dtype)

    return formula


def _in_torch(step: Step, first: Callable[[Any], Any], shifted: bool) -> Any:
    """The recurrence, which torch differentiates; its own functions it does not."""

    def formula(torch: Any, x: Any, n: Any) -> Any:
        x, n = torch.broadcast_tensors(2 * x - 1 if shifted else x, torch.trunc(n))
        below, here = torch.ones_like(x), torch.where(n == 0, torch.ones_like(x), first(x))
        for k in range(1, int(n.clamp(max=LIMIT).max().item() if n.numel() else 0)):
            above = torch.where(k < n, step(x, k, here, below), here)
            below, here = torch.where(k < n, here, below), above
        return torch.where(n < 0, torch.zeros_like(x), here)

    return formula


def _chebyshev(x: Any, k: Any, here: Any, below: Any) -> Any:
    return (x + x) * here - below


def _row(
    cpp: str, step: Step, rise: Rise, first: Callable[[Any], Any], first_slope: float, waves: Waves = _nowhere,
    falls: bool = False, shifted: bool = False, low: float = -1.2, high: float = 1.2,
) -> Special:  # fmt: skip
    return Special(
        f"orthogonal/{cpp}", _polynomial(step, first, waves, falls, shifted),
        (evenly(low, high), between(0, 12, whole=True)),
        (Partial("ab", _slope(step, rise, first, first_slope, shifted)), None), torch=_in_torch(step, first, shifted),
    )  # fmt: skip


def _kinds_of_chebyshev(shifted: bool) -> tuple[Special, ...]:
    firsts = {"T": lambda x: x, "U": lambda x: x + x, "V": lambda x: x + x - 1, "W": lambda x: x + x + 1}
    return tuple(
        _row(f"{'Shifted' if shifted else ''}ChebyshevPolynomial{letter}", _chebyshev, lambda k, here: here + here,
             first, 1 if letter == "T" else 2, shifted=shifted, low=-0.1 if shifted else -1.2,
             high=1.1 if shifted else 1.2)
        for letter, first in firsts.items()
    )  # fmt: skip


CHEBYSHEV_T, CHEBYSHEV_U, CHEBYSHEV_V, CHEBYSHEV_W = _kinds_of_chebyshev(False)
SHIFTED_T, SHIFTED_U, SHIFTED_V, SHIFTED_W = _kinds_of_chebyshev(True)
HERMITE_H = _row(
    "HermitePolynomialH", lambda x, k, here, below: (x + x) * here - (k + k) * below, lambda k, here: here + here,
    lambda x: x + x, 2, lambda x, n: x * x < 2 * n + 2, low=-3, high=3,
)  # fmt: skip
HERMITE_HE = _row(
    "HermitePolynomialHe", lambda x, k, here, below: x * here - k * below, lambda k, here: here, lambda x: x, 1,
    lambda x, n: x * x < 4 * n + 2, low=-3, high=3,
)  # fmt: skip
LAGUERRE = _row(
    "LaguerrePolynomialL", lambda x, k, here, below: ((k + k + 1 - x) * here - k * below) / (k + 1),
    lambda k, here: -here / (k + 1), lambda x: 1 - x, -1, lambda x, n: (x > 0) & (x < 4 * n + 2), falls=True, low=-2,
    high=20,
)  # fmt: skip
LEGENDRE = _row(
    "LegendrePolynomialP", lambda x, k, here, below: ((k + k + 1) * x * here - k * below) / (k + 1),
    lambda k, here: (k + k + 1) * here / (k + 1), lambda x: x, 1,
)  # fmt: skip
