"""Recurrences under jit, grad and vmap: bits of the plain call, differences, and a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

BATCH, STEPS, HEADS, KEYS, VALUES = 2, 4, 2, 4, 3


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return 0.4 * np.random.default_rng([seed, *shape]).standard_normal(shape)


def _qkv() -> list[np.ndarray]:
    keys = (BATCH, STEPS, HEADS, KEYS)
    return [_x(*keys), _x(*keys, seed=1), _x(BATCH, STEPS, HEADS, VALUES)]


_G, _CHANNELS = -np.abs(_x(BATCH, STEPS, HEADS)), -np.abs(_x(BATCH, STEPS, HEADS, KEYS))
_BETA, _STATE = np.abs(_x(BATCH, STEPS, HEADS, seed=1)), _x(BATCH, HEADS, KEYS, VALUES)
_TIME = (BATCH, 3, STEPS)


def _weights(gates: int) -> list[np.ndarray]:
    return [_x(gates * 4, 3), _x(gates * 4, 4), _x(gates * 4), _x(gates * 4, seed=1)]


CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "linear_attention": (
        lambda q, k, v, s: bc.linear_attention(q, k, v, initial_state=s, output_final_state=True), [*_qkv(), _STATE],
    ),
    "retention": (bc.retention, _qkv()),
    "gla": (bc.gla, [*_qkv(), _CHANNELS]),
    "gated_delta_rule": (
        lambda *x: bc.gated_delta_rule(*x[:5], initial_state=x[5], output_final_state=True, use_qk_l2norm=True),
        [*_qkv(), _G, _BETA, _STATE],
    ),
    "kda": (bc.kda, [*_qkv(), _CHANNELS, _BETA]),
    "rwkv7": (
        bc.rwkv7, [_qkv()[0], _CHANNELS, *_qkv()[1:], *(_x(BATCH, STEPS, HEADS, KEYS, seed=n) for n in (3, 4))],
    ),
    "mamba2_ssd": (
        lambda *x: bc.mamba2_ssd(*x, dt_softplus=True),
        [_x(BATCH, STEPS, 4, 3), _x(BATCH, STEPS, 4), -np.abs(_x(4)), _x(BATCH, STEPS, 2, 3, seed=1),
         _x(BATCH, STEPS, 2, 3, seed=2)],
    ),
    "selective_scan": (
        lambda u, dt, a, b, c, z: bc.selective_scan(u, dt, a, b, c, z=z, delta_softplus=True, return_last_state=True),
        [_x(*_TIME), _x(*_TIME, seed=1), -np.abs(_x(3, 4)), _x(BATCH, 4, STEPS), _x(BATCH, 4, STEPS, seed=1),
         _x(*_TIME, seed=2)],
    ),
    "causal_conv1d": (
        lambda x, w, b, s: bc.causal_conv1d(
            x, w, b, activation="silu", initial_states=s, return_final_states=True, layout="bld"
        ),
        [_x(BATCH, STEPS, 3), _x(3, 4), _x(3), _x(BATCH, 3, 3)],
    ),
    "token_shift": (bc.token_shift, [_x(BATCH, STEPS, 3), _x(3)]),
    "lstm": (
        lambda x, h, c, *w: bc.lstm(x, (h, c), list(w)),
        [_x(STEPS, BATCH, 3), _x(1, BATCH, 4), _x(1, BATCH, 4, seed=1), *_weights(4)],
    ),
    "gru": (lambda x, h, *w: bc.gru(x, h, list(w)), [_x(STEPS, BATCH, 3), _x(1, BATCH, 4), *_weights(3)]),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def _in_64_bits() -> Any:
    with jax.enable_x64(True):
        yield


def _total(made: Any) -> Any:
    return sum(jnp.sum(jnp.sin(one)) for one in jax.tree.leaves(made))


@EVERY
def test_jit_and_vmap(name: str) -> None:
    function, operands = CASES[name]
    plain = jax.tree.leaves(function(*map(jnp.asarray, operands)))
    for got, wanted in zip(jax.tree.leaves(jax.jit(function)(*operands)), plain, strict=True):
        np.testing.assert_array_equal(got, wanted)
    pairs = [jnp.stack([x, 0.5 * x]) for x in operands]
    mapped = jax.tree.leaves(jax.vmap(function)(*pairs))
    for n in range(2):
        alone = jax.tree.leaves(function(*(x[n] for x in pairs)))
        for got, wanted in zip(mapped, alone, strict=True):
            np.testing.assert_allclose(got[n], wanted, rtol=1e-12, atol=1e-14)


@EVERY
def test_gradients_are_differences(name: str) -> None:
    function, operands = CASES[name]
    total = jax.jit(lambda *x: _total(function(*x)))
    ways = [np.random.default_rng(n).standard_normal(x.shape) for n, x in enumerate(operands)]
    near = [total(*(x + sign * 1e-5 * way for x, way in zip(operands, ways, strict=True))) for sign in (1, -1)]
    derivative = jax.grad(lambda *x: _total(function(*x)), argnums=tuple(range(len(operands))))
    found = sum(jnp.sum(g * way) for g, way in zip(jax.jit(derivative)(*operands), ways, strict=True))
    assert float(found) == pytest.approx(float(near[0] - near[1]) / 2e-5, rel=1e-6, abs=1e-8)
    pairs = [jnp.stack([x, 0.5 * x]) for x in operands]
    both = jax.vmap(derivative)(*pairs)
    for one, alone in zip(both, derivative(*(x[1] for x in pairs)), strict=True):
        np.testing.assert_allclose(one[1], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("first", [np.zeros, jnp.zeros], ids=["numpy", "jax"])
def test_a_list_whose_first_array_alone_is_there(first: Callable[..., Any]) -> None:
    """Also where a call of such arrays, all there, was made before."""
    before, x = first((2, 1, 3)), jnp.ones((2, 2, 3))
    assert bc.concat([before, first((2, 2, 3))], axis=1).shape == (2, 3, 3)
    assert jax.vmap(lambda y: bc.concat([before, y], axis=1))(x[None]).shape == (1, 2, 3, 3)
