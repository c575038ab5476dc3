"""Operands of the affine quantisers that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]
_SHAPES = {
    "": ((), {}), "_per_tensor": ((), {}), "_per_channel": ((8,), {"axis": 1}), "_per_token": ((3,), {}),
    "_per_group": ((3, 2), {"group_size": 4}), "_per_block": ((2, 2), {"block": (2, 4)}),
}  # fmt: skip


def _made(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)


def _steps(*shape: int) -> np.ndarray:
    return np.full(shape, 0.1, np.float32)


def _call(verb: str, scope: str) -> Call:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 8)).astype(np.float32) if verb == "quantize" else np.arange(24, dtype=np.int8)
    shape, facts = _SHAPES[scope]
    return [x.reshape(3, 8), np.asarray(0.05 + rng.random(shape), np.float32)], dict(facts)


AFFINE: dict[str, Callable[[], Call]] = {
    f"{verb}{scope}": lambda verb=verb, scope=scope: _call(verb, scope)
    for verb in ("quantize", "dequantize")
    for scope in _SHAPES
} | {
    "choose_qparams": lambda: ([_made(0)], {"scope": "token"}),
    "dynamic_quantize": lambda: ([_made(0)], {"scope": "group", "group_size": 4}),
    # So many steps that the estimator of the gradient is the derivative.
    "fake_quantize": lambda: ([_made(0).astype(float), 2.0**-50, 3], {"quant_min": -(2**50), "quant_max": 2**50}),
    "fake_quantize_per_tensor_affine": lambda: ([_made(0).astype(float), 2.0**-50, 3, 0, 2**50], {}),
    "fake_quantize_per_channel_affine": lambda: (
        [_made(0).astype(float), np.full(8, 2.0**-50, np.float32), None, 1, -(2**50), 2**50],
        {},
    ),
    "fake_quantize_backward": lambda: ([_made(1), _made(0), 0.02], {}),
    "quantize_backward": lambda: ([_made(1), _made(0), 0.02], {}),
    "fused_moving_avg_obs_fake_quant": lambda: (
        [_made(0), False, True, *[_steps(1)] * 3, np.zeros(1, np.int32), 0.01, -128, 127, 0],
        {},
    ),
    "learnable_fake_quantize": lambda: ([_made(0), _steps(3, 1), _steps(3, 1)], {"grad_factor": 0.5}),
    "fake_quantize_learnable_per_tensor_affine": lambda: ([_made(0), _steps(1), _steps(1), 0, 15], {}),
    "fake_quantize_learnable_per_channel_affine": lambda: ([_made(0), _steps(8), _steps(8), 1, 0, 15], {}),
}
