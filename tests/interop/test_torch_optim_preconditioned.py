"""Shampoo, SOAP and GaLore against loops in float64 NumPy after the papers, over 50 steps; states, what is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

SHAPES = ((4, 3), (5,), (2, 3, 4), (), (2,))
STEPS = 50


def began() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s) for s in SHAPES]


def slope(p: np.ndarray, i: int, step: int) -> np.ndarray:
    """Of a bowl with noise."""
    return (1 + 0.3 * i) * p + 0.5 * np.random.default_rng((i, step)).standard_normal(p.shape)


def walked(one: Any, params: list[Any], steps: int = STEPS, first: int = 1) -> list[np.ndarray]:
    for step in range(first, first + steps):
        for i, p in enumerate(params):
            p.grad = torch.from_numpy(np.asarray(slope(p.detach().double().numpy(), i, step))).to(p.dtype)
        one.step()
    return [p.detach().numpy().copy() for p in params]


def fresh(dtype: Any = torch.float64) -> list[Any]:
    return [torch.nn.Parameter(torch.from_numpy(np.asarray(x)).to(dtype)) for x in began()]


def unfolded(g: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(g, axis, 0).reshape(g.shape[axis], -1)


def along(x: np.ndarray, q: np.ndarray, axis: int) -> np.ndarray:
    """Σ x[…, i, …] q[i, j]."""
    return np.moveaxis(np.tensordot(x, q, ((axis,), (0,))), -1, axis)


def root(a: np.ndarray, power: float) -> np.ndarray:
    w, v = np.linalg.eigh(a)
    return np.asarray((v * w**power) @ v.T)


@pytest.mark.parametrize("given", [
    {}, {"momentum": 0.9, "weight_decay": 0.1, "update_freq": 3}, {"beta2": 0.9, "precondition_1d": False},
    {"max_precond_dim": 3},
])  # fmt: skip
def test_shampoo(given: dict[str, Any]) -> None:
    params = fresh()
    ours = walked(optim.Shampoo(params, 0.05, **given), params)
    momentum, decay, every = given.get("momentum", 0.0), given.get("weight_decay", 0.0), given.get("update_freq", 1)
    beta2, most, eps = given.get("beta2"), given.get("max_precond_dim", 8192), 1e-4
    keep, share = (1.0, 1.0) if beta2 is None else (beta2, 1 - beta2)
    p = began()
    for i, x in enumerate(p):
        axes = [k for k in range(x.ndim) if 1 < x.shape[k] <= most]
        axes = [] if x.ndim == 1 and not given.get("precondition_1d", True) else axes
        grams = {k: eps * np.eye(x.shape[k]) for k in axes}
        roots: dict[int, np.ndarray] = {}
        square, m = np.zeros_like(x), np.zeros_like(x)
        for t in range(1, STEPS + 1):
            g = slope(x, i, t)
            u = g
            for k in axes:
                grams[k] = keep * grams[k] + share * unfolded(g, k) @ unfolded(g, k).T
                if (t - 1) % every == 0:
                    roots[k] = root(grams[k], -1 / (2 * len(axes)))
                u = along(u, roots[k], k)
            if not axes:
                square = keep * square + share * g * g
                u = g / (np.sqrt(square) + eps)
            m = momentum * m + u
            x = x * (1 - 0.05 * decay) - 0.05 * m
        np.testing.assert_allclose(ours[i], x, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("given", [
    {}, {"weight_decay": 0.1, "precondition_frequency": 4, "precondition_1d": True}, {"shampoo_beta": 0.8},
    {"max_precond_dim": 3, "correct_bias": False, "betas": (0.9, 0.8)},
])  # fmt: skip
def test_soap(given: dict[str, Any]) -> None:
    params = fresh()
    ours = walked(optim.SOAP(params, 0.02, **given), params)
    b1, b2 = given.get("betas", (0.95, 0.95))
    beta, most = given.get("shampoo_beta", b2), given.get("max_precond_dim", 10000)
    every, decay, eps = given.get("precondition_frequency", 10), given.get("weight_decay", 0.01), 1e-8
    for i, x in enumerate(began()):
        axes = [k for k in range(x.ndim) if 1 < x.shape[k] <= most]
        axes = [] if x.ndim == 1 and not given.get("precondition_1d") else axes
        if axes and x.shape == (5,):
            continue  # the first matrix has rank 1, and eigenvectors of its many zeros are anyone's
        grams = {k: np.zeros((x.shape[k],) * 2) for k in axes}
        bases: dict[int, np.ndarray] = {}
        m, v, t = np.zeros_like(x), np.zeros_like(x), 0  # m is in the parameter's own coordinates
        for step in range(1, STEPS + 1):
            g = slope(x, i, step)
            if axes and not bases:
                for k in axes:
                    grams[k] = (1 - beta) * unfolded(g, k) @ unfolded(g, k).T
                    bases[k] = np.linalg.eigh(grams[k])[1][:, ::-1]
                continue
            t += 1
            m = b1 * m + (1 - b1) * g
            turned, mean = g, m
            for k in axes:
                turned, mean = along(turned, bases[k], k), along(mean, bases[k], k)
            v = b2 * v + (1 - b2) * turned**2
            u = mean / (np.sqrt(v) + eps)
            for k in axes:
                u = along(u, bases[k].T, k)
            rate = 0.02 * (np.sqrt(1 - b2**t) / (1 - b1**t) if given.get("correct_bias", True) else 1.0)
            x = x * (1 - 0.02 * decay) - rate * u
            for k in axes:
                grams[k] = beta * grams[k] + (1 - beta) * unfolded(g, k) @ unfolded(g, k).T
                if t % every == 0:
                    order = np.argsort(-np.diag(bases[k].T @ grams[k] @ bases[k]))
                    v = np.take(v, order, axis=k)
                    bases[k] = np.linalg.qr(grams[k] @ bases[k][:, order])[0]
        np.testing.assert_allclose(ours[i], x, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["Shampoo", "SOAP"])
def test_states_are_saved_and_loaded(name: str) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        params = fresh(dtype)
        one = getattr(optim, name)(params, lr=0.02)
        for step in range(1, 13):
            for i, p in enumerate(params):
                p.grad = torch.from_numpy(np.asarray(slope(p.detach().double().numpy(), i, step))).to(dtype)
            one.step()
        moved = [torch.nn.Parameter(p.detach().clone()) for p in params]
        other = getattr(optim, name)(moved, lr=0.5)
        other.load_state_dict(copy.deepcopy(one.state_dict()))
        for a, b in zip(one.state.values(), other.state.values(), strict=True):
            assert {n: x.dtype for n, x in a.items()} == {n: x.dtype for n, x in b.items()}
        for each, held in ((one, params), (other, moved)):
            for i, p in enumerate(held):
                p.grad = torch.full_like(p, 0.3 + i)
            each.step()
        for a, b in zip(params, moved, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_inverse_root() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((2, 3, 5, 5))
    a = half @ np.swapaxes(half, -1, -2) + 0.1 * np.eye(5)
    for order in (1, 2, 4):
        x = bc.inverse_root(a, order)
        np.testing.assert_allclose(np.linalg.matrix_power(x, order) @ a, np.broadcast_to(np.eye(5), a.shape), atol=1e-9)
    out = np.empty((3, 3), np.float32)
    assert bc.inverse_root(np.diag([4.0, 0.0, 1.0]).astype(np.float32), eps=0.25, out=out) is out
    np.testing.assert_allclose(out, np.diag([0.5, 2.0, 1.0]), atol=1e-6)
    assert bc.inverse_root(np.zeros((0, 3, 3))).shape == (0, 3, 3)
    with pytest.raises(InvalidProblemError, match="square"):
        bc.inverse_root(np.zeros((2, 3)))
    with pytest.raises(UnsupportedError, match="float32 or float64"):
        bc.inverse_root(np.zeros((3, 3), np.float16))
    with pytest.raises(InvalidProblemError, match="order"):
        bc.inverse_root(np.eye(3), 0)


@pytest.mark.parametrize("kind", ["std", "reverse_std", "left", "right"])
def test_galore_is_adamw_in_a_subspace(kind: str) -> None:
    lr, b1, b2, eps, decay, scale, rank, gap = 0.02, 0.9, 0.99, 1e-8, 0.1, 0.25, 2, 7
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((6, 4)), rng.standard_normal((3, 5))]
    params = [torch.nn.Parameter(torch.from_numpy(x.copy())) for x in start]
    made = optim.GaLore(
        params, optim.AdamW, rank=rank, update_proj_gap=gap, scale=scale, proj_type=kind, lr=lr, betas=(b1, b2),
        weight_decay=decay,
    )  # fmt: skip
    ours = walked(made, params)
    for i, x in enumerate(start):
        right = kind == "right" or ((kind == "std") == (x.shape[0] >= x.shape[1]) and kind != "left")
        m = v = 0.0
        for t in range(1, STEPS + 1):
            g = slope(x, i, t)
            if (t - 1) % gap == 0:
                u, _, vh = np.linalg.svd(g, full_matrices=False)
                q = vh[:rank].T if right else u[:, :rank]
            low = g @ q if right else q.T @ g
            m, v = b1 * m + (1 - b1) * low, b2 * v + (1 - b2) * low * low
            step = -lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
            x = x * (1 - lr * decay) + scale * (step @ q.T if right else q @ step)
        np.testing.assert_allclose(ours[i], x, rtol=1e-7, atol=1e-8)
    assert next(iter(made.inner.state.values()))["exp_avg"].numel() < start[0].size


def test_galore_around_others_with_schedules_and_states() -> None:
    def made(params: list[Any]) -> Any:
        groups = [{"params": params[:1], "rank": 2, "weight_decay": 0.1}, {"params": params[1:]}]
        return optim.GaLore(groups, optim.Lion, lr=0.01, update_proj_gap=3, svd="lowrank")

    params = fresh()
    one = made(params)
    schedule = torch.optim.lr_scheduler.StepLR(one, 1, 0.5)
    walked(one, params, 4)
    schedule.step()
    assert one.param_groups[0]["lr"] == 0.005
    moved = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = made(moved)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for a, b in zip(walked(one, params, 5, 9), walked(other, moved, 5, 9), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert one.inner.param_groups[0]["lr"] == 0.005


def test_galore_refuses() -> None:
    params = fresh()
    with pytest.raises(UnsupportedError, match="LAMB"):
        optim.GaLore(params, optim.LAMB, rank=2)
    with pytest.raises(InvalidProblemError, match="weight_decay"):
        optim.GaLore(params, optim.AdamW, rank=2)
    for wrong in ({"svd": "qr"}, {"rank": 0}, {"proj_type": "up"}, {"update_proj_gap": 0}):
        with pytest.raises(InvalidProblemError, match=next(iter(wrong))):
            optim.GaLore(params[:1], optim.SGD, **wrong)
    with pytest.raises(UnsupportedError, match="groups"):
        optim.GaLore(params[:1], optim.SGD, rank=2).add_param_group({"params": params[1:]})
    for name, wrong in (("Shampoo", {"eps": 0.0}), ("SOAP", {"precondition_frequency": 0})):
        with pytest.raises(InvalidProblemError, match=next(iter(wrong))):
            getattr(optim, name)(params, **wrong)
