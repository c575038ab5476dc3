"""Operands for linear attention under the names of the field: see `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return 0.4 * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _qkv() -> list[np.ndarray]:
    return [_x(1, 5, 2, 4), _x(1, 5, 2, 4, seed=1), _x(1, 5, 2, 3, seed=2)]


_G, _CHANNELS = -np.abs(_x(1, 5, 2, seed=3)), -np.abs(_x(1, 5, 2, 4, seed=3))
_BETA = np.abs(_x(1, 5, 2, seed=4))


def _mamba() -> Call:
    operands = [_x(1, 5, 2, 3), np.abs(_x(1, 5, 2, seed=1)), -np.abs(_x(2, seed=2)), _x(1, 5, 1, 4, seed=3)]
    return [*operands, _x(1, 5, 1, 4, seed=4)], {"D": _x(2, seed=5), "z": _x(1, 5, 2, 3, seed=6)}


def _product() -> Call:
    q, *pairs = (np.repeat(x, 2, axis=1) for x in (*_qkv(), _BETA))
    return [q[:, ::2], pairs[0], pairs[1], _G, pairs[2], 2], {}


RECURRENCE: dict[str, Callable[[], Call]] = {
    "linear_attention": lambda: (_qkv(), {}),
    "retention": lambda: (_qkv(), {}),
    "lightning_attention": lambda: ([*_qkv(), 1, 4], {}),
    "simple_gla": lambda: ([*_qkv(), _G], {}),
    "gla": lambda: ([*_qkv(), _CHANNELS], {}),
    "delta_rule": lambda: ([*_qkv(), _BETA], {"use_qk_l2norm": True}),
    "gated_delta_rule": lambda: ([*_qkv(), _G, _BETA], {}),
    "gated_delta_product": _product,
    "kda": lambda: ([*_qkv(), _CHANNELS, _BETA], {}),
    "rwkv6": lambda: ([*_qkv(), _CHANNELS, _x(2, 4, seed=5)], {}),
    "rwkv7": lambda: (
        [_qkv()[0], _CHANNELS, *_qkv()[1:], _x(1, 5, 2, 4, seed=5), _x(1, 5, 2, 4, seed=6)], {"scale": 0.7},
    ),
    "comba": lambda: ([*_qkv(), _x(1, 5, 2, 4, seed=5), _G, _BETA, _x(2, seed=6)], {"use_qk_l2norm": True}),
    "comba_decode": lambda: ([*_qkv(), _x(1, 5, 2, 4, seed=5), _G, _BETA, _x(1, 2, 4, 3, seed=6)], {}),
    "mesa_net": lambda: ([*_qkv(), _G, _BETA, 0.5 + np.abs(_x(2, 4, seed=5))], {"max_cg_iterations": 3}),
    "mamba2_ssd": _mamba,
    "mlstm": lambda: ([*_qkv(), _x(1, 5, 2, seed=3), 2 + _x(1, 5, 2, seed=4)], {}),
    "hgrn": lambda: ([_x(1, 5, 3), -np.abs(_x(1, 5, 3, seed=1))], {}),
}  # fmt: skip
RECURRENCE["ssd_chunk_scan"] = _mamba
