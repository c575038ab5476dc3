"""Partial derivatives of binary functions by mpmath: textbook formulas of a and b, neither of them 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from truth import _END, _power, exact, mp, wide

LOG2 = mp.log(2)


def _beats(a: Any, b: Any) -> Any:
    return mp.mpf(1) if a > b else mp.mpf(0.5) if a == b else mp.mpf(0)


def _near(x: Any) -> Any:
    return max(min(x, _END), -_END)


def _square(a: Any, b: Any) -> Any:
    return a * a + b * b


PARTIAL: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: 1, lambda a, b: 1), "sub": (lambda a, b: 1, lambda a, b: -1),
    "mul": (lambda a, b: b, lambda a, b: a), "div": (lambda a, b: 1 / b, lambda a, b: -a / b**2),
    "remainder": (lambda a, b: 1, lambda a, b: -mp.floor(a / b)),
    "fmod": (lambda a, b: 1, lambda a, b: -mp.sign(a / b) * mp.floor(abs(a / b))),
    "squared_difference": (lambda a, b: 2 * (a - b), lambda a, b: 2 * (b - a)),
    "absolute_difference": (lambda a, b: mp.sign(a - b), lambda a, b: mp.sign(b - a)),
    "pow": (lambda a, b: b * _power(a, b) / a, lambda a, b: _power(a, b) * mp.log(a) if a > 0 else mp.nan),
    "ldexp": (lambda a, b: mp.mpf(2) ** _near(b), lambda a, b: a * mp.mpf(2) ** _near(b) * LOG2),
    "logaddexp": (lambda a, b: 1 / (1 + mp.exp(_near(b - a))), lambda a, b: 1 / (1 + mp.exp(_near(a - b)))),
    "logaddexp2": (
        lambda a, b: 1 / (1 + mp.mpf(2) ** _near(b - a)), lambda a, b: 1 / (1 + mp.mpf(2) ** _near(a - b)),
    ),
    "xlogy": (lambda a, b: mp.log(b) if b > 0 else mp.nan, lambda a, b: a / b),
    "xlog1py": (lambda a, b: mp.log1p(b) if b > -1 else mp.nan, lambda a, b: a / (1 + b)),
    "atan2": (lambda a, b: b / _square(a, b), lambda a, b: -a / _square(a, b)),
    "hypot": (lambda a, b: a / mp.sqrt(_square(a, b)), lambda a, b: b / mp.sqrt(_square(a, b))),
    "maximum": (_beats, lambda a, b: _beats(b, a)), "minimum": (lambda a, b: _beats(b, a), _beats),
    "fmax": (lambda a, b: int(a >= b), lambda a, b: int(a < b)),
    "fmin": (lambda a, b: int(a <= b), lambda a, b: int(a > b)),
    "copysign": (lambda a, b: mp.sign(a * b), lambda a, b: 0), "nextafter": (lambda a, b: 1, lambda a, b: 0),
    "prelu": (lambda a, b: 1 if a > 0 else b, lambda a, b: 0 if a > 0 else a),
}  # fmt: skip


def partials(name: str, dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dy ∂f/∂a and dy ∂f/∂b in 64 bits."""
    with mp.workdps(1400 if name in ("remainder", "fmod", "logaddexp", "logaddexp2", "squared_difference") else 60):
        found = [
            [wide(exact(d) * mp.mpf(f(exact(x), exact(y)))) for d, x, y in zip(dy, a, b, strict=True)]
            for f in PARTIAL[name]
        ]
    return np.array(found[0]), np.array(found[1])
