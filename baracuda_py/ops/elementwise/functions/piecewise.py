"""Activations made of straight pieces. Their slopes at the kinks are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import maximum, ramp
from .row import WITH_INTEGERS, Coefficient, Function, exact, ulps

_LAMBD = Coefficient("lambd", 0.5, low=0)


def _flat(dy: Any, x: Any, lambd: Any) -> Any:
    return np.where((x >= -lambd) & (x <= lambd), 0, dy)


def _softshrink(x: Any, lambd: Any) -> Any:
    return np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0))


def _hardsigmoid_in_torch(torch: Any, x: Any) -> Any:
    return torch.nn.functional.relu6(x + 3) / 6  # the gradient of torch's own has 1/6 in float32


RELU = Function(
    "relu/Relu", lambda x: maximum(x, x.dtype.type(0)), lambda dy, x: np.where(x <= 0, 0, dy),
    elements=WITH_INTEGERS, slope=exact, torch="relu", gate=lambda x, by: maximum(x, x.dtype.type(0)) * by,
)  # fmt: skip
RELU6 = Function(
    "piecewise/Relu6", lambda x: np.clip(x, 0, 6), lambda dy, x: np.where((x <= 0) | (x >= 6), 0, dy),
    elements=WITH_INTEGERS, slope=exact, torch="nn.functional.relu6",
)  # fmt: skip
HARDTANH = Function(
    "piecewise/Hardtanh", np.clip, lambda dy, x, low, high: np.where((x <= low) | (x >= high), 0, dy),
    elements=WITH_INTEGERS, slope=exact, torch="nn.functional.hardtanh", aliases=("hard_tanh",),
    coefficients=(Coefficient.limit("min_val", -1.0, drawn=(-3, 0)), Coefficient.limit("max_val", 1.0, drawn=(0, 3))),
)  # fmt: skip
THRESHOLD = Function(
    "piecewise/Threshold", lambda x, threshold, value: np.where(x <= threshold, value, x),
    lambda dy, x, threshold, value: np.where(x <= threshold, 0, dy),
    elements=WITH_INTEGERS, slope=exact, torch="nn.functional.threshold",
    coefficients=(Coefficient.limit("threshold", None), Coefficient.limit("value", None)),
)  # fmt: skip
LEAKY_RELU = Function(
    "piecewise/LeakyRelu", lambda x, slope: np.where(x > 0, x, x * slope),
    lambda dy, x, slope: np.where(x > 0, dy, dy * slope),
    coefficients=(Coefficient("negative_slope", 0.01),), bound=ulps(1.5, 1.5), torch="nn.functional.leaky_relu",
)  # fmt: skip
HARDSIGMOID = Function(
    "hard/Hardsigmoid", ramp, lambda dy, x: np.where((x > -3) & (x < 3), dy / 6, 0),
    bound=ulps(1.5, 1.5), torch=_hardsigmoid_in_torch, aliases=("hard_sigmoid",),
)  # fmt: skip
HARDSWISH = Function(
    "hard/Hardswish", lambda x: x * ramp(x),
    lambda dy, x: dy * np.where(x <= -3, 0, np.where(x < 3, (2 * x + 3) / 6, 1)),
    bound=ulps(2, 2), torch="nn.functional.hardswish", aliases=("hard_swish", "hard_silu"),
)  # fmt: skip
HARDSHRINK = Function(
    "shrink/Hardshrink", lambda x, lambd: np.where((x >= -lambd) & (x <= lambd), 0, x), _flat,
    coefficients=(_LAMBD,), slope=exact, torch="nn.functional.hardshrink",
)  # fmt: skip
SOFTSHRINK = Function(
    "shrink/Softshrink", _softshrink, _flat,
    coefficients=(_LAMBD,), bound=ulps(1, 1), slope=exact, torch="nn.functional.softshrink",
)  # fmt: skip
