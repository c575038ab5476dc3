"""comba and comba_decode: against their step in float64, their gradients against differences along a direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

B, T, H, K, V = 2, 7, 2, 5, 3
BOUNDS = np.array([0, 2, 2, 7])


def drawn(repeat: int = 1, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    states = H * repeat
    q, k, p = rng.standard_normal((3, B, T, H, K)) / 2
    g = np.where(rng.random((B, T, states)) < 0.2, -np.inf, -rng.random((B, T, states)))
    return {
        "q": q, "k": k, "v": rng.standard_normal((B, T, states, V)), "p": p, "g": g,
        "beta": rng.uniform(-0.5, 2, (B, T, states)), "d": rng.standard_normal(H),
        "initial_state": rng.standard_normal((B, states, K, V)),
    }  # fmt: skip


def stepped(case: dict[str, Any], scale: float = K**-0.5, normalise: bool = False) -> tuple[Any, Any]:
    q, k, v, p, g, beta, d, state = (case.get(n) for n in ("q", "k", "v", "p", "g", "beta", "d", "initial_state"))
    p = k if p is None else p
    q = q if d is None else q - d[:, None] * p
    if normalise:
        q, k, p = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k, p))
    q, k, p = (np.repeat(x, v.shape[2] // x.shape[2], 2) for x in (q, k, p))
    y = np.zeros(v.shape)
    state = np.zeros((len(v), v.shape[2], k.shape[3], v.shape[3])) if state is None else state
    for t in range(v.shape[1]):
        error = v[:, t] - np.einsum("bhk,bhkv->bhv", p[:, t], state)
        error = error if beta is None else beta[:, t, :, None] * error
        state = np.exp(g[:, t])[..., None, None] * state + k[:, t, :, :, None] * error[:, :, None]
        y[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], state)
    return y, state


def near(got: Any, want: Any, rtol: float = 1e-11) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("absent", [(), ("p", "beta"), ("d", "initial_state")])
def test_its_step(repeat: int, normalise: bool, absent: tuple[str, ...]) -> None:
    case = {name: None if name in absent else x for name, x in drawn(repeat).items()}
    got = bc.comba(**case, scale=-0.7, use_qk_l2norm=normalise, output_final_state=True)
    near(got, stepped(case, -0.7, normalise))


def test_packed_sequences_each_have_a_state() -> None:
    case = {name: x[:1] if name not in ("d", "initial_state") else x for name, x in drawn().items()}
    case["initial_state"] = np.random.default_rng(3).standard_normal((3, H, K, V))
    y, last = bc.comba(**case, cu_seqlens=BOUNDS, output_final_state=True)
    for n in range(3):
        rows = slice(BOUNDS[n], BOUNDS[n + 1])
        one = {name: x if name == "d" else x[:, rows] for name, x in case.items() if name != "initial_state"}
        near((y[:, rows], last[n : n + 1]), stepped({**one, "initial_state": case["initial_state"][n : n + 1]}))


@pytest.mark.parametrize("normalise", [False, True])
def test_decoding_has_the_bits_of_the_steps(normalise: bool) -> None:
    case = drawn(2, seed=1)
    y, last = bc.comba(**case, use_qk_l2norm=normalise, stepwise=True, output_final_state=True)
    state = np.zeros((4, *case["initial_state"].shape[1:]))
    slots = np.array([3, 1], np.int32)
    state[slots] = case.pop("initial_state")
    d = case.pop("d")
    for begin, end in ((0, 1), (1, 4), (4, T)):
        piece = [case[name][:, begin:end] for name in ("q", "k", "v", "p", "g", "beta")]
        made, states = bc.comba_decode(*piece, state, d, slots=slots, use_qk_l2norm=normalise, return_states=True)
        np.testing.assert_array_equal(made, y[:, begin:end])
        np.testing.assert_array_equal(states[:, -1], state[slots])
    np.testing.assert_array_equal(state[slots], last)
    assert not state[[0, 2]].any()
    skipped = bc.comba_decode(*piece, state, d, slots=np.array([4, -1]), use_qk_l2norm=normalise)
    assert not skipped.any() and (state[slots] == last).all()


@pytest.mark.parametrize("normalise", [False, True])
def test_gradients_are_differences(normalise: bool) -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    case = {**drawn(2), "g": -np.random.default_rng(4).random((B, T, 2 * H))}
    rng = np.random.default_rng(5)
    slopes = [rng.standard_normal(x.shape) for x in stepped(case)]
    x = {name: torch.tensor(value, requires_grad=True) for name, value in case.items()}
    outs = bct.comba(**x, use_qk_l2norm=normalise, output_final_state=True)
    found = torch.autograd.grad(outs, list(x.values()), [torch.tensor(s) for s in slopes])
    for (name, value), slope in zip(case.items(), found, strict=True):
        way = rng.standard_normal(value.shape)
        ends = [
            sum(float((s * y).sum()) for s, y in zip(slopes, stepped({**case, name: value + e * way},
                                                                     normalise=normalise), strict=True))
            for e in (1e-6, -1e-6)
        ]  # fmt: skip
        np.testing.assert_allclose(float((slope.numpy() * way).sum()), (ends[0] - ends[1]) / 2e-6, rtol=2e-7, atol=1e-7)


def test_16_bits_are_near() -> None:
    case = {name: x.astype(np.float16 if name in "qkvp" else np.float32) for name, x in drawn(2).items()}
    wide = {name: x.astype(np.float64) for name, x in case.items()}
    got = bc.comba(**case, use_qk_l2norm=True, output_final_state=True)
    assert got[0].dtype == np.float16 and got[1].dtype == np.float32
    near(got, stepped(wide, normalise=True), 2e-2)


def test_no_steps_leave_the_state() -> None:
    case = {name: x if name in ("d", "initial_state") else x[:, :0] for name, x in drawn().items()}
    y, last = bc.comba(**case, output_final_state=True)
    assert y.shape == (B, 0, H, V)
    np.testing.assert_array_equal(last, case["initial_state"])


@pytest.mark.parametrize("name", ["k", "p", "g", "beta", "d", "v"])
def test_operands_that_do_not_fit_are_named(name: str) -> None:
    case = drawn()
    cut = case["d"][:1] if name == "d" else np.zeros((B, T, 3, V)) if name == "v" else case[name][:, :, :1]
    with pytest.raises(InvalidProblemError, match="g must" if name == "v" else f"{name} must"):
        bc.comba(**{**case, name: cut})
    with pytest.raises(InvalidProblemError, match="p must hold"):
        bc.comba(**{**case, "p": case["p"].astype(np.float32)})
