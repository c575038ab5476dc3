"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import unary_gradients as slopes
from ..unary_gradients import where_defined
from .row import Function, ulps


def _root(x: Any) -> Any:
    return np.sqrt((1 - x) * (1 + x))


def _acosh_slope(dy: Any, x: Any) -> Any:
    return dy / (np.sqrt(x - 1) * np.sqrt(x + 1))


def _atan_slope(dy: Any, x: Any) -> Any:
    return np.where(np.abs(x) > 1e10, dy / x / x, dy / (1 + x * x))


def _atanh_slope(dy: Any, x: Any) -> Any:
    return where_defined(np.abs(x) <= 1, dy / ((1 - x) * (1 + x)), x)


SIN = Function("trigonometric/Sin", np.sin, lambda dy, x: dy * np.cos(x), bound=ulps(2.5, 2.5), torch="sin")
COS = Function("trigonometric/Cos", np.cos, lambda dy, x: -dy * np.sin(x), bound=ulps(2.5, 2.5), torch="cos")
TAN = Function("trigonometric/Tan", np.tan, slopes.tan, bound=ulps(4.5, 2.5), torch="tan")
ASIN = Function(
    "arc/Asin", np.arcsin, lambda dy, x: dy / _root(x), bound=ulps(2.5, 2.5), torch="asin", aliases=("arcsin",)
)
ACOS = Function(
    "arc/Acos", np.arccos, lambda dy, x: -dy / _root(x), bound=ulps(2.5, 2.5), torch="acos", aliases=("arccos",)
)
ATAN = Function("arc/Atan", np.arctan, _atan_slope, bound=ulps(2.5, 2.5), torch="atan", aliases=("arctan",))
SINH = Function("hyperbolic/Sinh", np.sinh, slopes.hyperbolic(np.cosh), bound=ulps(3.5, 2.5), torch="sinh")
COSH = Function("hyperbolic/Cosh", np.cosh, slopes.hyperbolic(np.sinh), bound=ulps(2.5, 1.5), torch="cosh")
TANH = Function("tanh/Tanh", np.tanh, slopes.tanh, bound=ulps(2.5, 2.5), torch="tanh")
ASINH = Function(
    "hyperbolic/Asinh",
    np.arcsinh,
    lambda dy, x: dy / np.hypot(x, 1),
    bound=ulps(3.5, 3.5),
    torch="asinh",
    aliases=("arcsinh",),
)
ACOSH = Function(
    "hyperbolic/Acosh", np.arccosh, _acosh_slope, bound=ulps(4.5, 2.5), torch="acosh", aliases=("arccosh",)
)
ATANH = Function(
    "hyperbolic/Atanh", np.arctanh, _atanh_slope, bound=ulps(3.5, 2.5), torch="atanh", aliases=("arctanh",)
)
