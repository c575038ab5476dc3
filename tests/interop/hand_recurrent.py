"""Operands of recurrences that are written by hand: rows of `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights(gates: int) -> list[np.ndarray]:
    return [_made(gates * 4, 3), _made(gates * 4, 4), _made(gates * 4, seed=1), _made(gates * 4, seed=2)]


def _network(gates: int, *states: int) -> Call:
    hx = [_made(1, 2, 4, seed=n) for n in states]
    return [_made(3, 2, 3), hx if len(hx) > 1 else hx[0], _weights(gates)], {}


def _cell(gates: int, *states: int) -> Call:
    hx = [_made(2, 4, seed=n) for n in states]
    return [_made(2, 3), hx if len(hx) > 1 else hx[0], *_weights(gates)], {}


RECURRENT: dict[str, Callable[[], Call]] = {
    "causal_conv1d": lambda: ([_made(2, 3, 9), _made(3, 4), _made(3)], {"activation": "silu"}),
    "causal_conv1d_update": lambda: ([_made(2, 3), _made(2, 3, 3), _made(3, 4), _made(3)], {"activation": "silu"}),
    "gated_short_conv_update": lambda: (
        [_made(2, 3), _made(2, 3, seed=1), _made(2, 3, seed=2), _made(2, 3, 3), _made(3, 4), _made(3)], {},
    ),
    "selective_scan": lambda: (
        [_made(2, 4, 5), _made(2, 4, 5, seed=1), -np.abs(_made(4, 3)), _made(2, 2, 3, 5), _made(2, 2, 3, 5, seed=1)],
        {"delta_softplus": True},
    ),
    "selective_state_update": lambda: (
        [_made(2, 4, 3), _made(2, 4), _made(2, 4, seed=1), -np.abs(_made(4, 3)), _made(2, 3), _made(2, 3, seed=1)],
        {"dt_softplus": True},
    ),
    "lstm": lambda: _network(4, 3, 4),
    "gru": lambda: _network(3, 3),
    "rnn_tanh": lambda: _network(1, 3),
    "rnn_relu": lambda: _network(1, 3),
    "lstm_cell": lambda: _cell(4, 3, 4),
    "gru_cell": lambda: _cell(3, 3),
    "rnn_tanh_cell": lambda: _cell(1, 3),
    "rnn_relu_cell": lambda: _cell(1, 3),
    "min_gru": lambda: ([_made(2, 5, 3), _made(2, 5, 3, seed=1)], {}),
    "min_lstm": lambda: ([_made(2, 5, 3), _made(2, 5, 3, seed=1), _made(2, 5, 3, seed=2)], {}),
    "rglru": lambda: ([_made(2, 5, 3), _made(2, 5, 3, seed=1), _made(2, 5, 3, seed=2), _made(3)], {}),
    "slstm_cell": lambda: ([_made(2, 12), _made(2, 3), np.ones((2, 3), np.float32), _made(2, 3, seed=1)], {}),
    "token_shift": lambda: ([_made(2, 5, 3), _made(3)], {}),
    "gated_short_conv": lambda: ([_made(2, 5, 3), _made(2, 5, 3, seed=1), _made(2, 5, 3, seed=2), _made(3, 3)], {}),
}  # fmt: skip
