"""Orthogonal polynomials of degree n, by their recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .row import Special, between, evenly

LIMIT = 65536
"""The largest degree; beyond it the result is NaN."""

Step = Callable[[Any, Any, Any, Any], Any]
"""The polynomial of degree k + 1 from x, k, and those of degree k and k - 1."""
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


def _chebyshev(x: Any, k: Any, here: Any, below: Any) -> Any:
    return (x + x) * here - below


def _row(
    cpp: str, torch: str, step: Step, first: Callable[[Any], Any], waves: Waves = _nowhere, falls: bool = False,
    shifted: bool = False, low: float = -1.2, high: float = 1.2,
) -> Special:  # fmt: skip
    return Special(
        f"orthogonal/{cpp}", _polynomial(step, first, waves, falls, shifted),
        (evenly(low, high), between(0, 12, whole=True)), torch=f"special.{torch}",
    )  # fmt: skip


def _kinds_of_chebyshev(shifted: bool) -> tuple[Special, ...]:
    cpp, torch = ("Shifted", "shifted_") if shifted else ("", "")
    firsts = {"t": lambda x: x, "u": lambda x: x + x, "v": lambda x: x + x - 1, "w": lambda x: x + x + 1}
    return tuple(
        _row(f"{cpp}ChebyshevPolynomial{letter.upper()}", f"{torch}chebyshev_polynomial_{letter}", _chebyshev, first,
             shifted=shifted, low=-0.1 if shifted else -1.2, high=1.1 if shifted else 1.2)
        for letter, first in firsts.items()
    )  # fmt: skip


CHEBYSHEV_T, CHEBYSHEV_U, CHEBYSHEV_V, CHEBYSHEV_W = _kinds_of_chebyshev(False)
SHIFTED_T, SHIFTED_U, SHIFTED_V, SHIFTED_W = _kinds_of_chebyshev(True)
HERMITE_H = _row(
    "HermitePolynomialH", "hermite_polynomial_h", lambda x, k, here, below: (x + x) * here - (k + k) * below,
    lambda x: x + x, lambda x, n: x * x < 2 * n + 2, low=-3, high=3,
)  # fmt: skip
HERMITE_HE = _row(
    "HermitePolynomialHe", "hermite_polynomial_he", lambda x, k, here, below: x * here - k * below, lambda x: x,
    lambda x, n: x * x < 4 * n + 2, low=-3, high=3,
)  # fmt: skip
LAGUERRE = _row(
    "LaguerrePolynomialL", "laguerre_polynomial_l",
    lambda x, k, here, below: ((k + k + 1 - x) * here - k * below) / (k + 1), lambda x: 1 - x,
    lambda x, n: (x > 0) & (x < 4 * n + 2), falls=True, low=-2, high=20,
)  # fmt: skip
LEGENDRE = _row(
    "LegendrePolynomialP", "legendre_polynomial_p",
    lambda x, k, here, below: ((k + k + 1) * x * here - k * below) / (k + 1), lambda x: x,
)  # fmt: skip
