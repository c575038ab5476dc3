"""Sign, powers and roots."""

from __future__ import annotations

import numpy as np

from .. import unary_gradients as slopes
from ..unary_formulas import cbrt
from .row import WITH_INTEGERS, Function, exact, rounded_once, ulps

NEG = Function(
    "Neg", np.negative, lambda dy, x: -dy, elements=WITH_INTEGERS, slope=exact, torch="neg", aliases=("negative",)
)
ABS = Function(
    "Abs", np.abs, lambda dy, x: np.where(x > 0, dy, np.where(x < 0, -dy, dy * 0)),
    elements=WITH_INTEGERS, slope=exact, torch="abs", aliases=("absolute", "fabs"),
)  # fmt: skip
SIGN = Function(
    "Sign", lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    elements=WITH_INTEGERS, torch="sign", aliases=("sgn",),
)  # fmt: skip
RECIPROCAL = Function("Reciprocal", lambda x: 1 / x, slopes.reciprocal, bound=rounded_once, torch="reciprocal")
SQUARE = Function(
    "Square", lambda x: x * x, lambda dy, x: 2 * (dy * x),
    elements=WITH_INTEGERS, bound=rounded_once, torch="square",
)  # fmt: skip
CUBE = Function("Cube", lambda x: x * x * x, slopes.cube, bound=ulps(1.5, 1.5), torch=lambda torch, x: x * x * x)
SQRT = Function(
    "Sqrt", np.sqrt, lambda dy, x: dy / (2 * np.sqrt(x)),
    bound=lambda e: exact(e) if e.itemsize == 2 else rounded_once(e), torch="sqrt",
)  # fmt: skip
RSQRT = Function("Rsqrt", lambda x: 1 / np.sqrt(x), slopes.rsqrt, bound=ulps(2.5, 1.5), torch="rsqrt")
CBRT = Function(
    "Cbrt", cbrt, lambda dy, x: dy / (3 * cbrt(x) ** 2), bound=ulps(1.5, 1.5),
    torch=lambda torch, x: torch.sign(x) * torch.abs(x) ** (1 / 3),
)  # fmt: skip
