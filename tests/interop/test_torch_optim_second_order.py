"""L-BFGS, SparseAdam and averages of weights against torch's; the two loops against NumPy and a full inverse."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402


def pairs(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A gradient, steps, and changes of the gradient of a bowl along them."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n, n))
    bowl = half @ half.T / n + np.eye(n)
    steps = [rng.standard_normal(n) for _ in range(m)]
    return rng.standard_normal(n), steps, [bowl @ s for s in steps]


@pytest.mark.parametrize("m", [0, 1, 2, 5])
@pytest.mark.parametrize("gamma", [None, 0.3])
def test_the_two_loops_are_the_updated_inverse(m: int, gamma: float | None) -> None:
    """H ← (I - ρ s yᵀ) H (I - ρ y sᵀ) + ρ s sᵀ, pair after pair."""
    g, steps, changes = pairs(7, m)
    first = gamma if gamma is not None else steps[-1] @ changes[-1] / (changes[-1] @ changes[-1]) if m else 1.0
    h = first * np.eye(7)
    for s, y in zip(steps, changes, strict=True):
        rho = 1 / (s @ y)
        left = np.eye(7) - rho * np.outer(s, y)
        h = left @ h @ left.T + rho * np.outer(s, s)
    np.testing.assert_allclose(bc.lbfgs_direction(g, steps, changes, gamma=gamma), -h @ g, rtol=1e-11, atol=1e-12)
    out = np.empty(7)
    rho = [np.asarray(1 / (s @ y)) for s, y in zip(steps, changes, strict=True)]
    assert bc.lbfgs_direction(g, steps, changes, gamma=gamma, rho=rho, out=out) is out
    np.testing.assert_allclose(out, -h @ g, rtol=1e-11, atol=1e-12)


def test_what_the_loops_refuse() -> None:
    g, steps, changes = pairs(4, 2)
    with pytest.raises(InvalidProblemError, match="changes must be a list of as many"):
        bc.lbfgs_direction(g, steps, changes[:1])
    with pytest.raises(InvalidProblemError, match=r"steps\[1\] must have shape"):
        bc.lbfgs_direction(g, [steps[0], steps[1][:3]], changes)
    with pytest.raises(InvalidProblemError, match=r"grad must be \[n\]"):
        bc.lbfgs_direction(g.reshape(2, 2), steps, changes)
    with pytest.raises(UnsupportedError, match="float32 or float64"):
        bc.lbfgs_direction(g.astype(np.float16), [], [])


def rosenbrock(p: Any) -> Any:
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


def walked(made: Any, p: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):

        def closure() -> Any:
            made.zero_grad()
            loss = rosenbrock(p)
            loss.backward()
            return loss

        found.append(float(made.step(closure).detach()))
    return found


WALKS: list[dict[str, Any]] = [
    {"line_search_fn": "strong_wolfe", "max_iter": 8},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 4},
    {"lr": 1e-3, "max_iter": 5}, {"lr": 0.5, "line_search_fn": "strong_wolfe", "max_eval": 7},
    {"line_search_fn": "strong_wolfe", "tolerance_grad": 10.0, "max_iter": 9}, {"max_iter": 1, "lr": 1e-2},
]  # fmt: skip


@pytest.mark.parametrize("given", WALKS, ids=str)
def test_lbfgs_is_that_of_torch(given: dict[str, Any]) -> None:
    found = []
    for m in (optim, torch.optim):
        p = torch.nn.Parameter(torch.linspace(-1.2, 1.0, 6, dtype=torch.float64))
        made = m.LBFGS([p], **given)
        found.append((walked(made, p, 3), p.detach(), made.state_dict()["state"][0]))
    (losses, p, state), (wanted, q, other) = found
    np.testing.assert_allclose(losses, wanted, rtol=1e-7)
    torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-8)
    assert state["n_iter"] == other["n_iter"] and state["func_evals"] == other["func_evals"]
    assert set(other) - {"al"} <= set(state)


def test_lbfgs_finds_the_least_and_loads_torchs_state() -> None:
    p = torch.nn.Parameter(torch.linspace(-1.2, 1.0, 6))
    made = optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=60, history_size=6)
    walked(made, p, 2)
    torch.testing.assert_close(p.detach(), torch.ones(6), rtol=1e-3, atol=1e-3)
    for first, second in ((optim, torch.optim), (torch.optim, optim)):
        begun = torch.nn.Parameter(torch.linspace(-1.2, 1.0, 6, dtype=torch.float64))
        one = first.LBFGS([begun], line_search_fn="strong_wolfe", max_iter=3)
        walked(one, begun, 2)
        moved = torch.nn.Parameter(begun.detach().clone())
        other = second.LBFGS([moved])
        other.load_state_dict(copy.deepcopy(one.state_dict()))
        np.testing.assert_allclose(walked(one, begun, 2), walked(other, moved, 2), rtol=1e-9)


def test_lbfgs_refuses_and_leaves_to_torch() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(InvalidProblemError, match="line_search_fn"):
        walked(optim.LBFGS([p], line_search_fn="armijo"), p, 1)
    half = torch.nn.Parameter(torch.linspace(-1.2, 1.0, 4, dtype=torch.bfloat16))
    walked(optim.LBFGS([half], max_iter=2, lr=1e-3), half, 1)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_the_signature_is_torchs(name: str) -> None:
    assert inspect.signature(getattr(optim, name)) == inspect.signature(getattr(torch.optim, name))


def sparse_walk(made: Any, params: list[Any], steps: int) -> None:
    rng = np.random.default_rng(0)
    for step in range(steps):
        for i, p in enumerate(params):
            if step == 1 and i == 1:
                p.grad = None
                continue
            lead = 2 if p.dim() > 2 else 1
            count = int(rng.integers(0, 7))
            places = torch.tensor(np.stack([rng.integers(0, p.shape[k], count) for k in range(lead)]))
            values = torch.tensor(rng.standard_normal((count, *p.shape[lead:]))).to(p.dtype)
            p.grad = torch.sparse_coo_tensor(places, values, p.shape)
        made.step()


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_is_that_of_torch(maximize: bool) -> None:
    found = []
    for m in (optim, torch.optim):
        generator = torch.Generator().manual_seed(0)
        params = [
            torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64))
            for s in ((9, 4), (5,), (3, 4, 2))
        ]
        made = m.SparseAdam(params, lr=0.1, betas=(0.8, 0.95), maximize=maximize)
        sparse_walk(made, params, 6)
        found.append(([p.detach() for p in params], made.state_dict()))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found[0][1]["state"], found[1][1]["state"], rtol=1e-11, atol=1e-12)


def test_sparse_adam_of_16_bits_and_what_it_refuses() -> None:
    p = torch.nn.Parameter(torch.ones(6, 3, dtype=torch.bfloat16))
    made = optim.SparseAdam([p], lr=0.1)
    p.grad = torch.sparse_coo_tensor(torch.tensor([[1, 4]]), torch.ones(2, 3, dtype=torch.bfloat16), p.shape)
    made.step()
    assert made.state[p]["exp_avg"].dtype == torch.float32
    assert (p.detach()[[0, 2, 3, 5]] == 1).all() and (p.detach()[[1, 4]] < 1).all()
    p.grad = torch.ones(6, 3, dtype=torch.bfloat16)
    with pytest.raises(UnsupportedError, match="sparse gradients"):
        made.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["get_ema_multi_avg_fn", "get_swa_multi_avg_fn"])
def test_averages_of_a_model_are_torchs(name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)).to(dtype)
    buffers = "ema" in name  # torch's mean of integers raises
    averaged = [
        torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=getattr(m, name)(), use_buffers=buffers)
        for m in (optim, torch.optim.swa_utils)
    ]
    for step in range(4):
        for p in net.parameters():
            p.data.add_(torch.randn_like(p), alpha=0.1)
        net[1].num_batches_tracked += step
        for one in averaged:
            one.update_parameters(net)
    bound = 1e-6 if dtype == torch.float32 else 1e-2
    for a, b in zip(averaged[0].parameters(), averaged[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=bound, atol=bound)
    counted = [torch.tensor(3)]
    optim.get_swa_multi_avg_fn()(counted, [torch.tensor(9)], torch.tensor(1))
    assert int(counted[0]) == 6
    with pytest.raises(InvalidProblemError, match="decay"):
        optim.get_ema_multi_avg_fn(1.5)
