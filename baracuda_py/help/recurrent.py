"""Examples of recurrences and of what they are made of: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_CONV = f"""{_RNG}x = rng.standard_normal((2, 8, 16), dtype=np.float32)
weight = rng.standard_normal((8, 4), dtype=np.float32)
"""
_LAYER = f"""{_RNG}x = rng.standard_normal((6, 2, 3), dtype=np.float32)
h, c = np.zeros((2, 1, 2, 4), np.float32)
"""


def _weights(gates: int) -> str:
    return f"params = [rng.standard_normal(s, dtype=np.float32) for s in (({4 * gates}, 3), ({4 * gates}, 4))]\n"


_GATES = f"{_RNG}gates, values, more = rng.standard_normal((3, 2, 6, 4), dtype=np.float32)\n"

RECURRENT: dict[str, str] = {
    "causal_conv1d": f"""{_CONV}y, state = bc.causal_conv1d(x, weight, activation="silu", return_final_states=True)""",
    "causal_conv1d_update": f"""{_CONV}state = np.zeros((2, 8, 3), np.float32)
y = bc.causal_conv1d_update(x[..., 0], state, weight, activation="silu")""",
    "selective_scan": f"""{_RNG}u, delta = rng.standard_normal((2, 1, 4, 16), dtype=np.float32)
B, C = rng.standard_normal((2, 1, 8, 16), dtype=np.float32)
A = -rng.uniform(0.5, 1, (4, 8)).astype(np.float32)
y = bc.selective_scan(u, delta, A, B, C, delta_softplus=True)""",
    "selective_scan_complex": f"""{_RNG}u, delta = rng.standard_normal((2, 1, 4, 16), dtype=np.float32)
b, c = rng.standard_normal((2, 1, 1, 8, 16, 2), dtype=np.float32)  # the last axis: real and imaginary parts
a = -rng.uniform(0.5, 1, (4, 8, 2)).astype(np.float32)
y = bc.selective_scan_complex(u, delta, a, b, c, softplus=True)""",
    "selective_state_update": f"""{_RNG}x, dt = rng.standard_normal((2, 2, 4), dtype=np.float32)
B, C = rng.standard_normal((2, 2, 8), dtype=np.float32)
A, state = -np.ones((4, 8), np.float32), np.zeros((2, 4, 8), np.float32)
y = bc.selective_state_update(state, x, dt, A, B, C, dt_softplus=True)""",
    "selective_state_update_complex": f"""{_RNG}u, delta = rng.standard_normal((2, 2, 4), dtype=np.float32)
b, c = rng.standard_normal((2, 2, 1, 8, 2), dtype=np.float32)  # the last axis: real and imaginary parts
a, state = -rng.uniform(0.5, 1, (4, 8, 2)).astype(np.float32), np.zeros((2, 4, 8, 2), np.float32)
y = bc.selective_state_update_complex(state, u, delta, a, b, c, softplus=True)""",
    "lstm": f"{_LAYER}{_weights(4)}y, h, c = bc.lstm(x, (h, c), params, has_biases=False)",
    "gru": f"{_LAYER}{_weights(3)}y, h = bc.gru(x, h, params, has_biases=False)",
    "rnn_tanh": f"{_LAYER}{_weights(1)}y, h = bc.rnn_tanh(x, h, params, has_biases=False)",
    "rnn_relu": f"{_LAYER}{_weights(1)}y, h = bc.rnn_relu(x, h, params, has_biases=False)",
    "lstm_cell": f"{_LAYER}{_weights(4)}h, c = bc.lstm_cell(x[0], (h[0], c[0]), *params)",
    "gru_cell": f"{_LAYER}{_weights(3)}h = bc.gru_cell(x[0], h[0], *params)",
    "rnn_tanh_cell": f"{_LAYER}{_weights(1)}h = bc.rnn_tanh_cell(x[0], h[0], *params)",
    "rnn_relu_cell": f"{_LAYER}{_weights(1)}h = bc.rnn_relu_cell(x[0], h[0], *params)",
    "min_gru": f"{_GATES}h = bc.min_gru(gates, values)",
    "min_lstm": f"{_GATES}h = bc.min_lstm(gates, more, values)",
    "rglru": f"{_GATES}h = bc.rglru(values, gates, more, np.ones(4, np.float32))",
    "slstm_cell": f"""{_RNG}gates = rng.standard_normal((2, 16), dtype=np.float32)
c, n, m = np.ones((3, 2, 4), np.float32)
h, c, n, m = bc.slstm_cell(gates, c, n, m)""",
    "token_shift": f"{_GATES}y = bc.token_shift(values, np.full(4, 0.5, np.float32))",
    "gated_short_conv_update": f"""{_RNG}b, c, x = rng.standard_normal((3, 2, 8), dtype=np.float32)
state, weight = np.zeros((2, 8, 3), np.float32), rng.standard_normal((8, 4), dtype=np.float32)
y = bc.gated_short_conv_update(b, c, x, state, weight)""",
    "gated_short_conv": f"{_GATES}y = bc.gated_short_conv(gates, more, values, np.ones((4, 3), np.float32))",
}
