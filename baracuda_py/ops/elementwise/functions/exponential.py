"""Exponentials and logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import unary_gradients as slopes
from ..unary_gradients import where_defined
from .row import Function, crosses_zero, ulps


def _exp10(x: Any) -> Any:
    return np.power(x.dtype.type(10), x)


def _log2_slope(dy: Any, x: Any) -> Any:
    return where_defined(x >= 0, dy / x / np.log(x.dtype.type(2)), x)


def _entr(x: Any) -> Any:
    return np.where(x > 0, -x * np.log(np.where(x > 0, x, 1)), np.where(x == 0, 0, np.where(x < 0, -np.inf, x)))


def _entr_slope(dy: Any, x: Any) -> Any:
    return where_defined(x >= 0, -dy * (1 + np.log(x)), x)


EXP = Function("exponential/Exp", np.exp, slopes.exponential, bound=ulps(1.5, 1.5), torch="exp")
EXP2 = Function("exponential/Exp2", np.exp2, slopes.power_of(2, np.exp2), bound=ulps(2.5, 1.5), torch="exp2")
EXP10 = Function(
    "exponential/Exp10",
    _exp10,
    slopes.power_of(10, _exp10),
    bound=ulps(2.5, 1.5),
    torch=lambda torch, x: torch.pow(10.0, x),
)
EXPM1 = Function("exponential/Expm1", np.expm1, slopes.exponential, bound=ulps(1.5, 1.5), torch="expm1")
LOG = Function(
    "logarithm/Log", np.log, lambda dy, x: where_defined(x >= 0, dy / x, x), bound=ulps(1.5, 1.5), torch="log"
)
LOG2 = Function("logarithm/Log2", np.log2, _log2_slope, bound=ulps(1.5, 1.5), torch="log2")
LOG10 = Function("logarithm/Log10", np.log10, slopes.log10, bound=ulps(2.5, 1.5), torch="log10")
LOG1P = Function(
    "logarithm/Log1p",
    np.log1p,
    lambda dy, x: where_defined(x >= -1, dy / (1 + x), x),
    bound=ulps(1.5, 1.5),
    torch="log1p",
)
ENTR = Function("logarithm/Entr", _entr, _entr_slope, bound=ulps(2.5, 2.5), slope=crosses_zero, torch="special.entr")
