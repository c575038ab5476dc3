"""mesa_net: against a system solved at every step in float64; gradients against differences along a direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

B, T, H, K, V = 2, 7, 2, 5, 3


def drawn(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, B, T, H, K))
    root = rng.standard_normal((B, H, K, K))
    return {
        "q": q, "k": k / np.linalg.norm(k, axis=-1, keepdims=True), "v": rng.standard_normal((B, T, H, V)),
        "g": -rng.random((B, T, H)), "beta": rng.random((B, T, H)), "lamb": 0.25 + rng.random((H, K)),
        "h_kk_init": root @ root.swapaxes(2, 3) / K, "h_kv_init": rng.standard_normal((B, H, K, V)),
    }  # fmt: skip


def solved(
    q: Any, k: Any, v: Any, g: Any, beta: Any, lamb: Any, h_kk_init: Any = None, h_kv_init: Any = None
) -> tuple[Any, Any, Any]:
    kk = np.zeros((len(q), H, K, K)) if h_kk_init is None else h_kk_init
    kv = np.zeros((len(q), H, K, V)) if h_kv_init is None else h_kv_init
    y = np.zeros(v.shape)
    for t in range(q.shape[1]):
        decay, key = np.exp(g[:, t])[..., None, None], (beta[:, t, :, None] * k[:, t])[..., None]
        kk, kv = decay * kk + key * k[:, t, :, None], decay * kv + key * v[:, t, :, None]
        x = np.linalg.solve(kk + np.eye(K) * lamb[:, :, None], q[:, t][..., None])
        y[:, t] = (kv.swapaxes(2, 3) @ x)[..., 0]
    return y, kk, kv


def near(got: Any, want: Any, tolerance: float = 1e-9) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rounds", [K, 30])
@pytest.mark.parametrize("states", [False, True])
def test_solves_the_system_of_every_step(states: bool, rounds: int) -> None:
    case = drawn()
    case = case if states else {name: x for name, x in case.items() if not name.startswith("h_")}
    near(bc.mesa_net(**case, output_final_state=True, max_cg_iterations=rounds), solved(**case))


def test_few_iterations_are_those_of_conjugate_gradients() -> None:
    case = drawn(1)
    first, second = (bc.mesa_net(**case, max_cg_iterations=n) for n in (1, 2))
    want = solved(**case)[0]
    assert abs(second - want).max() < abs(first - want).max()
    _, kk, kv = solved(**{n: x[:, :1] if n in ("q", "k", "v", "g", "beta") else x for n, x in case.items()})
    q = case["q"][:, 0]
    image = np.einsum("bhij,bhj->bhi", kk, q) + case["lamb"] * q
    x = q * ((q * q).sum(-1) / (q * image).sum(-1))[..., None]
    near([first[:, 0]], [np.einsum("bhk,bhkv->bhv", x, kv)])


def test_it_goes_on_from_its_states_and_packs_sequences() -> None:
    case = drawn(2)
    along = ("q", "k", "v", "g", "beta")
    y, kk, kv = bc.mesa_net(**case, output_final_state=True)
    outs = np.empty_like(y[:, :3]), np.empty_like(kk), np.empty_like(kv)
    made = bc.mesa_net(**case | {n: case[n][:, :3] for n in along}, output_final_state=True, out=outs)
    assert all(a is b for a, b in zip(made, outs, strict=True))
    rest = {n: case[n][:, 3:] for n in along} | {"h_kk_init": outs[1], "h_kv_init": outs[2], "lamb": case["lamb"]}
    near((outs[0], *bc.mesa_net(**rest, output_final_state=True)), (y[:, :3], y[:, 3:], kk, kv))
    packed = {n: case[n].reshape(1, B * T, *case[n].shape[2:]) for n in along}
    rest = {n: x for n, x in case.items() if n not in along}
    near([bc.mesa_net(**packed, **rest, cu_seqlens=np.array([0, T, B * T]))], [y.reshape(1, B * T, H, V)])


def test_gradients_are_differences() -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    case, rng = drawn(3), np.random.default_rng(4)
    slopes = [rng.standard_normal(x.shape) for x in solved(**case)]
    x = {name: torch.tensor(value, requires_grad=True) for name, value in case.items()}
    outs = bct.mesa_net(**x, output_final_state=True, max_cg_iterations=K)
    found = torch.autograd.grad(outs, list(x.values()), [torch.tensor(s) for s in slopes])
    for (name, value), slope in zip(case.items(), found, strict=True):
        way = rng.standard_normal(value.shape)
        way = way + way.swapaxes(2, 3) if name == "h_kk_init" else way
        ends = []
        for e in (1e-6, -1e-6):
            made = solved(**case | {name: value + e * way})
            ends.append(sum(float((s * y).sum()) for s, y in zip(slopes, made, strict=True)))
        np.testing.assert_allclose(float((slope.numpy() * way).sum()), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


def test_queries_of_zeros_and_16_bits() -> None:
    case = drawn(5)
    want = solved(**case)
    half = {name: x.astype(np.float16 if name in "qkv" else np.float32) for name, x in case.items()}
    got = bc.mesa_net(**half, output_final_state=True)
    assert [x.dtype for x in got] == [np.float16, np.float32, np.float32]
    near(got, want, 2e-2)
    none = bc.mesa_net(**case | {"q": np.zeros_like(case["q"])})
    assert not none.any()


@pytest.mark.parametrize("name", ["k", "v", "g", "beta", "lamb"])
def test_operands_that_do_not_fit_are_named(name: str) -> None:
    case = drawn()
    case[name] = case[name][:1] if name == "lamb" else case[name][:, 1:]
    with pytest.raises(InvalidProblemError, match=f"{name} must have shape"):
        bc.mesa_net(**case)
    with pytest.raises(InvalidProblemError, match="max_cg_iterations"):
        bc.mesa_net(**drawn(), max_cg_iterations=0)
