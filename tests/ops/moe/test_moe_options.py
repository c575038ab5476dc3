"""moe over random options against a loop in float64: units, orders, strides, experts that are none or have no token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

UNITS = {
    "swiglu": lambda g, u: g / (1 + np.exp(-g)) * u,
    "reglu": lambda g, u: np.maximum(g, 0) * u,
    "swiglu_oai": lambda g, u: (h := np.minimum(g, 7)) / (1 + np.exp(-1.702 * h)) * (np.clip(u, -7, 7) + 1),
    "relu": lambda g, u: np.maximum(g, 0),
}


def loop(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, biases: Any, unit: str, order: str, most: Any) -> Any:
    """A token's choice at a time, of which an expert takes the first `most`."""
    y, taken = np.zeros((len(x), down.shape[1])), np.zeros(len(gate_up), int)
    for t, j in np.ndindex(ids.shape):
        e = ids[t, j]
        if not 0 <= e < len(gate_up) or (most is not None and taken[e] >= most):
            continue
        taken[e] += 1
        h = gate_up[e] @ x[t] + (0 if biases is None else biases[0][e])
        gate, up = (h, h) if unit == "relu" else bc.halves(h, order)
        y[t] += weights[t, j] * (down[e] @ UNITS[unit](gate, up) + (0 if biases is None else biases[1][e]))
    return y


@pytest.mark.parametrize("seed", range(10))
def test_moe_and_moe_decode(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, k, count = (int(rng.integers(1, most)) for most in (40, 4, 9))
    d, f, d_out = (int(rng.integers(1, 20)) for _ in range(3))
    unit, order = str(rng.choice(list(UNITS))), str(rng.choice(("gate_first", "gate_last", "interleaved")))
    rows = f if unit == "relu" else 2 * f
    x, weights = rng.standard_normal((tokens, 2 * d))[:, ::2], rng.standard_normal((k, tokens)).T.copy()
    ids = rng.integers(-2, count + 2, (tokens, k)).astype(np.int32 if seed % 2 else np.int64)
    ids = np.where(ids == count // 2, -(2**31) if seed % 3 else 2**31 - 1, ids)  # an expert without tokens
    gate_up = rng.standard_normal((count, d, rows)).transpose(0, 2, 1)
    down = rng.standard_normal((count, 2 * d_out, f))[:, ::2]
    biases = (rng.standard_normal((count, rows)), rng.standard_normal((count, d_out))) if seed % 2 else None
    most = int(rng.integers(0, 4)) if seed % 4 == 0 else None
    wanted = loop(x, ids, weights, gate_up, down, biases, unit, order, most)
    made = bc.moe(x, ids, weights, gate_up, down, *(biases or ()), activation=unit, order=order, capacity=most)
    np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-9)
    if most is not None:
        return
    # Few tokens take routing operands in any strides.
    apart = {"indices": np.asfortranarray(ids), "weights": np.asfortranarray(weights)}
    act = {"swiglu": "silu", "reglu": "relu"}.get(unit, unit)
    gate, up = (gate_up, None) if unit == "relu" else bc.halves(gate_up, order, 1)
    given = {"gate": gate, "up": up, "down": down, "activation": act}
    if biases is not None:
        of = (biases[0], None) if unit == "relu" else bc.halves(biases[0], order)
        given |= {"gate_bias": of[0], "up_bias": of[1], "down_bias": biases[1]}
    np.testing.assert_allclose(bc.moe_decode(x, **apart, **given), wanted, rtol=1e-9, atol=1e-9)
