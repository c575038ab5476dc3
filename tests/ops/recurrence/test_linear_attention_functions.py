"""Linear attention under the names of the field: each against its formula, a step at a time."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

B, T, H, K, V = 2, 6, 3, 4, 5
BOUNDS = np.array([0, 2, 2, 6])


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])


def qkv() -> list[np.ndarray]:
    return [made(B, T, H, d, seed=i) for i, d in enumerate((K, K, V))]


def faded(q, k, v, decay, scale=K**-0.5):
    """decay [B, T, H, K]."""
    y, state = np.zeros(v.shape), np.zeros((B, H, K, V))
    for t in range(T):
        state = decay[:, t, :, :, None] * state + k[:, t, :, :, None] * v[:, t, :, None]
        y[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], state)
    return y, state


def near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_decays_that_a_layer_fixes():
    q, k, v = qkv()
    heads = np.broadcast_to(np.arange(H)[:, None], (B, T, H, K))
    y, state = bc.retention(q, k, v, output_final_state=True)
    for got, want in zip((y, state), faded(q, k, v, 1 - 2.0 ** (-5 - heads)), strict=True):
        near(got, want)
    rate = 8 / H * (1 - 3 / 12)
    near(bc.lightning_attention(q, k, v, 3, 12), faded(q, k, v, np.exp(-rate * heads))[0])


def test_gates_of_the_operands_element_are_cast():
    q, k, v = (x.astype(np.float16) for x in qkv())
    g = -np.abs(made(B, T, H, seed=5)).astype(np.float16)
    wide = bc.simple_gla(q, k, v, g.astype(np.float32))
    np.testing.assert_array_equal(bc.simple_gla(q, k, v, g), wide)
    with pytest.raises(InvalidProblemError):
        bc.simple_gla(q, k, v, g.astype(np.float64))


def test_rwkv6_and_gla():
    q, k, v = qkv()
    w, u = -np.abs(made(B, T, H, K, seed=5)), made(H, K, seed=6)
    near(bc.gla(q, k, v, w, scale=0.3), faded(q, k, v, np.exp(w), 0.3)[0])
    want, state = np.zeros(v.shape), np.zeros((B, H, K, V))
    for t in range(T):
        new = k[:, t, :, :, None] * v[:, t, :, None]
        want[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], state + u[:, :, None] * new)
        state = np.exp(w[:, t])[..., None] * state + new
    near(bc.rwkv6(q, k, v, w, u, scale=1.0), want)


def test_a_delta_rule_in_terms_of_rwkv7():
    q, k, v = qkv()
    g, beta = -np.abs(made(B, T, H, K, seed=5)), np.random.default_rng(6).random((B, T, H))
    want = bc.kda(q, k, v, g, beta, scale=1.0)
    near(bc.rwkv7(q, g, beta[..., None] * k, v, -np.exp(g) * k, beta[..., None] * k), want)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_gated_delta_product(gated, n):
    q = made(B, T, H, K)
    k, v = made(B, T * n, H, K, seed=1), made(B, T * n, H, V, seed=2)
    beta = 2 * np.random.default_rng(3).random((B, T * n, H))
    g = np.where(np.random.default_rng(4).random((B, T, H)) < 0.3, -np.inf, -0.2) if gated else None
    want, state = np.zeros((B, T, H, V)), np.zeros((B, H, K, V))
    for t in range(T):
        if gated:
            state = np.exp(g[:, t])[..., None, None] * state
        for i in range(t * n, t * n + n):
            error = v[:, i] - np.einsum("bhk,bhkv->bhv", k[:, i], state)
            state = state + (beta[:, i, :, None] * k[:, i])[..., None] * error[:, :, None]
        want[:, t] = K**-0.5 * np.einsum("bhk,bhkv->bhv", q[:, t], state)
    y, last = bc.gated_delta_product(q, k, v, g, beta, n, output_final_state=True)
    near(y, want)
    near(last, state)
    with pytest.raises(InvalidProblemError):
        bc.gated_delta_product(q, k, v, g, beta, n + 1)


def test_packed_products_count_steps():
    q = made(1, T, H, K)
    k, v, beta = made(1, T * 2, H, K, seed=1), made(1, T * 2, H, V, seed=2), np.full((1, T * 2, H), 0.5)
    y = bc.gated_delta_product(q, k, v, None, beta, 2, cu_seqlens=BOUNDS)
    near(y[:, 2:], bc.gated_delta_product(q[:, 2:], k[:, 4:], v[:, 4:], None, beta[:, 4:], 2))


@pytest.mark.parametrize("full", [False, True])
def test_mamba2(full):
    groups, n = 1, 4
    x, z = made(B, T, H, V), made(B, T, H, V, seed=1)
    dt, bias, A = made(B, T, H, seed=2), made(H, seed=3), -np.abs(made(H, seed=4))
    Bs, Cs, D = made(B, T, groups, n, seed=5), made(B, T, groups, n, seed=6), made(H, seed=7)
    first = made(B, H, V, n, seed=8)
    more = {"D": D, "z": z, "dt_bias": bias, "dt_softplus": True, "dt_limit": (0.5, 0.9)} if full else {}
    step = np.clip(np.log1p(np.exp(dt + bias)), 0.5, 0.9) if full else dt
    want, state = np.zeros(x.shape), first.copy()
    for t in range(T):
        write = step[:, t, :, None, None] * x[:, t, :, :, None] * Bs[:, t, 0][:, None, None]
        state = np.exp(step[:, t] * A)[..., None, None] * state + write
        want[:, t] = np.einsum("bhpn,bn->bhp", state, Cs[:, t, 0])
    if full:
        want = (want + D[:, None] * x) * (z / (1 + np.exp(-z)))
    y, last = bc.mamba2_ssd(x, dt, A, Bs, Cs, initial_states=first, return_final_states=True, **more)
    near(y, want)
    near(last, state)


def test_hgrn():
    x, g, first = made(B, T, 7), -np.abs(made(B, T, 7, seed=1)), made(B, 7, seed=2)
    want, h = np.zeros(x.shape), first
    for t in range(T):
        h = np.exp(g[:, t]) * h + x[:, t]
        want[:, t] = h
    got, last = bc.hgrn(x, g, first, True)
    near(got, want)
    near(last, h)
