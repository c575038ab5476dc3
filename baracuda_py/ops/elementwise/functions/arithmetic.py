"""Sign, powers, roots, angles, and what replaces NaN and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import ElementKind

from .. import unary_gradients as slopes
from ..unary_formulas import cbrt, pi
from .row import EVERY, WITH_INTEGERS, Coefficient, Function, exact, rounded_once, ulps


def _largest(element: ElementKind) -> float:
    return float(element.limits.max) if element.is_float else 0.0


def _nan_to_num(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    if x.dtype.kind != "f":
        return x
    return np.where(np.isnan(x), nan, np.where(x == np.inf, posinf, np.where(x == -np.inf, neginf, x)))


POSITIVE = Function(
    "sign/Positive", lambda x: x, lambda dy, x: dy, elements=WITH_INTEGERS, slope=exact, torch="positive"
)
NEG = Function(
    "sign/Neg", np.negative, lambda dy, x: -dy, elements=WITH_INTEGERS, slope=exact, torch="neg", aliases=("negative",)
)
ABS = Function(
    "sign/Abs", np.abs, lambda dy, x: np.where(x > 0, dy, np.where(x < 0, -dy, dy * 0)),
    elements=WITH_INTEGERS, slope=exact, torch="abs", aliases=("absolute", "fabs"),
)  # fmt: skip
SIGN = Function(
    "sign/Sign", lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    elements=WITH_INTEGERS, torch="sign", aliases=("sgn",),
)  # fmt: skip
RECIPROCAL = Function("power/Reciprocal", lambda x: 1 / x, slopes.reciprocal, bound=rounded_once, torch="reciprocal")
SQUARE = Function(
    "power/Square", lambda x: x * x, lambda dy, x: 2 * (dy * x),
    elements=WITH_INTEGERS, bound=rounded_once, torch="square",
)  # fmt: skip
CUBE = Function("power/Cube", lambda x: x * x * x, slopes.cube, bound=ulps(1.5, 1.5), torch=lambda torch, x: x * x * x)
SQRT = Function(
    "power/Sqrt", np.sqrt, lambda dy, x: dy / (2 * np.sqrt(x)),
    bound=lambda e: exact(e) if e.itemsize == 2 else rounded_once(e), torch="sqrt",
)  # fmt: skip
RSQRT = Function("power/Rsqrt", lambda x: 1 / np.sqrt(x), slopes.rsqrt, bound=ulps(2.5, 1.5), torch="rsqrt")
CBRT = Function(
    "power/Cbrt", cbrt, lambda dy, x: dy / (3 * cbrt(x) ** 2), bound=ulps(1.5, 1.5),
    torch=lambda torch, x: torch.sign(x) * torch.abs(x) ** (1 / 3),
)  # fmt: skip
DEG2RAD = Function(
    "angle/Deg2rad", lambda x: x * (pi(x) / 180), lambda dy, x: dy * (pi(x) / 180),
    bound=ulps(1.5, 1.5), torch="deg2rad", aliases=("radians",),
)  # fmt: skip
RAD2DEG = Function(
    "angle/Rad2deg", lambda x: x * (180 / pi(x)), lambda dy, x: dy * (180 / pi(x)),
    bound=ulps(1.5, 1.5), torch="rad2deg", aliases=("degrees",),
)  # fmt: skip
NAN_TO_NUM = Function(
    "nan_to_num/NanToNum", _nan_to_num, lambda dy, x, *_: dy * np.isfinite(x), elements=EVERY, slope=exact,
    torch="nan_to_num",
    coefficients=(
        Coefficient.limit("nan", 0.0), Coefficient.limit("posinf", _largest),
        Coefficient.limit("neginf", lambda element: -_largest(element)),
    ),
)  # fmt: skip
