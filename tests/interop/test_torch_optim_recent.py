"""AdEMAMix, Sophia, schedule-free AdamW, Prodigy and CAME against loops in float64 NumPy after the papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baracuda_py import InvalidProblemError

torch = pytest.importorskip("torch")
from baracuda_py.torch import optim  # noqa: E402

SHAPES = ((4, 3), (5,))


def began(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s) for s in SHAPES]


def slope(p: np.ndarray, i: int, step: int) -> np.ndarray:
    """Of a bowl with noise."""
    return (1 + 0.3 * i) * p + 0.5 * np.random.default_rng((i, step)).standard_normal(p.shape)


def walked(make: Callable[[list[Any]], Any], steps: int, each: Callable[[Any, int], None] | None = None) -> list[Any]:
    params = [torch.nn.Parameter(torch.from_numpy(x)) for x in began()]
    one = make(params)
    for step in range(1, steps + 1):
        for i, p in enumerate(params):
            p.grad = torch.from_numpy(slope(p.detach().numpy(), i, step))
        if each is not None:
            each(one, step)
        one.step()
    return [p.detach().numpy() for p in params]


def zeros() -> list[np.ndarray]:
    return [np.zeros(s) for s in SHAPES]


def agree(ours: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("warmup", [None, 400])
def test_ademamix(warmup: int | None) -> None:
    lr, b1, b2, b3, eps, decay, most = 0.01, 0.9, 0.99, 0.999, 1e-8, 0.1, 3.0
    ours = walked(
        lambda p: optim.AdEMAMix(p, lr, (b1, b2, b3), eps, decay, alpha=most, warmup=warmup), 1000
    )  # fmt: skip
    p, m, n, v = began(), zeros(), zeros(), zeros()
    for t in range(1, 1001):
        share = 1.0 if warmup is None else min(t / warmup, 1.0)
        alpha, slow = most * share, b3
        if share < 1:
            slow = math.exp(math.log(b1) * math.log(b3) / ((1 - share) * math.log(b3) + share * math.log(b1)))
        for i, x in enumerate(p):
            g = slope(x, i, t)
            m[i] = b1 * m[i] + (1 - b1) * g
            n[i] = slow * n[i] + (1 - slow) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            u = (m[i] / (1 - b1**t) + alpha * n[i]) / (np.sqrt(v[i] / (1 - b2**t)) + eps)
            p[i] = x - lr * (u + decay * x)
    agree(ours, p)


def test_sophia() -> None:
    lr, b1, b2, rho, decay = 0.01, 0.965, 0.9, 0.04, 0.1

    def sampled(one: Any, step: int) -> None:
        if step % 10 == 1:
            kept = [p.grad for p in one.param_groups[0]["params"]]
            for p in one.param_groups[0]["params"]:
                p.grad = p.grad * 0.7
            one.update_hessian()
            for p, g in zip(one.param_groups[0]["params"], kept, strict=True):
                p.grad = g

    ours = walked(lambda p: optim.Sophia(p, lr, (b1, b2), rho, decay, batch_size=4.0), 1000, sampled)
    p, m, h = began(), zeros(), zeros()
    for t in range(1, 1001):
        for i, x in enumerate(p):
            g = slope(x, i, t)
            if t % 10 == 1:
                h[i] = b2 * h[i] + (1 - b2) * (0.7 * g) ** 2
            m[i] = b1 * m[i] + (1 - b1) * g
            p[i] = x * (1 - lr * decay) - lr * np.clip(m[i] / np.maximum(rho * 4 * h[i], 1e-15), -1, 1)
    agree(ours, p)


@pytest.mark.parametrize("given", [{}, {"warmup": 50, "r": 1.0, "weight_decay": 0.1}], ids=str)
def test_without_a_schedule(given: dict[str, Any]) -> None:
    """Written with x and z, as the paper has it; y is what gradients are taken at."""
    lr, b1, b2, eps = 0.05, 0.9, 0.99, 1e-8
    held: list[Any] = []

    def make(params: list[Any]) -> Any:
        held.append((optim.AdamWScheduleFree(params, lr, (b1, b2), eps, **given), params))
        return held[0][0]

    ours = [x.copy() for x in walked(make, 1000)]
    x, z, v = began(), began(), zeros()
    weights = largest = 0.0
    for t in range(1, 1001):
        rate = lr * min(1.0, t / given["warmup"] if "warmup" in given else 1.0)
        largest = max(largest, rate)
        weight = t ** given.get("r", 0.0) * largest**2
        weights += weight
        for i in range(len(x)):
            y = b1 * x[i] + (1 - b1) * z[i]
            g = slope(y, i, t)
            v[i] = b2 * v[i] + (1 - b2) * g * g
            u = g / (np.sqrt(v[i] / (1 - b2**t)) + eps) + given.get("weight_decay", 0.0) * y
            z[i] = z[i] - rate * u
            x[i] = x[i] + weight / weights * (z[i] - x[i])
    agree(ours, [b1 * a + (1 - b1) * b for a, b in zip(x, z, strict=True)])
    one, params = held[0]
    one.eval()
    one.eval()
    agree([p.detach().numpy() for p in params], x)
    with pytest.raises(InvalidProblemError, match=r"call train\(\)"):
        one.step()
    one.train()
    agree([p.detach().numpy() for p in params], ours)


@pytest.mark.parametrize(
    "given", [{}, {"weight_decay": 0.1, "bias_correction": True, "safeguard_warmup": True, "growth_rate": 1.5}], ids=str
)
def test_prodigy(given: dict[str, Any]) -> None:
    b1, b2, eps, steps = 0.9, 0.99, 1e-8, 300
    held: list[Any] = []

    def make(params: list[Any]) -> Any:
        halves = [{"params": params[:1]}, {"params": params[1:]}]
        held.append(optim.Prodigy(halves, 1.0, (b1, b2), eps, d0=1e-4, **given))
        return held[0]

    ours = walked(make, steps)
    p, start, m, v, s = began(), began(), zeros(), zeros(), zeros()
    d0 = d = most = 1e-4
    above, b3 = 0.0, math.sqrt(b2)
    for t in range(1, steps + 1):
        rate = d * (math.sqrt(1 - b2**t) / (1 - b1**t) if "bias_correction" in given else 1.0)
        above *= b3
        for i, x in enumerate(p):
            g = slope(x, i, t)
            above += d / d0 * rate * float((g * (start[i] - x)).sum())
            m[i] = b1 * m[i] + d * (1 - b1) * g
            v[i] = b2 * v[i] + d * d * (1 - b2) * g * g
            s[i] = b3 * s[i] + d / d0 * (d if "safeguard_warmup" in given else rate) * g
        found = above / sum(float(np.abs(one).sum()) for one in s)
        if d == d0:
            d = max(d, found)
        most = max(most, found)
        d = min(most, d * given.get("growth_rate", math.inf))
        for i, x in enumerate(p):
            p[i] = x * (1 - given.get("weight_decay", 0.0) * rate) - rate * m[i] / (np.sqrt(v[i]) + d * eps)
    agree(ours, p)
    assert float(held[0].param_groups[0]["d"]) == pytest.approx(d) and d > 100 * d0
    again = optim.Prodigy([{"params": group["params"]} for group in held[0].param_groups])
    again.load_state_dict(held[0].state_dict())
    assert float(again.param_groups[0]["d"]) == pytest.approx(d)


def test_came() -> None:
    lr, (b1, b2, b3), (least, unsure), decay, clip = 0.01, (0.9, 0.99, 0.995), (1e-30, 1e-16), 0.1, 1.0
    ours = walked(lambda p: optim.CAME(p, lr, (b1, b2, b3), (least, unsure), decay, clip=clip), 300)
    (p, q), (m, n) = began(), zeros()
    row, column, r, c, v = np.zeros((4, 1)), np.zeros((1, 3)), np.zeros((4, 1)), np.zeros((1, 3)), np.zeros(5)
    for t in range(1, 301):
        g, h = slope(p, 0, t), slope(q, 1, t)
        row = b2 * row + (1 - b2) * (g * g + least).mean(1, keepdims=True)
        column = b2 * column + (1 - b2) * (g * g + least).mean(0, keepdims=True)
        u = g / np.sqrt(row @ column / row.mean())
        u /= max(1.0, np.sqrt((u * u).mean()) / clip)
        m = b1 * m + (1 - b1) * u
        r = b3 * r + (1 - b3) * ((u - m) ** 2 + unsure).mean(1, keepdims=True)
        c = b3 * c + (1 - b3) * ((u - m) ** 2 + unsure).mean(0, keepdims=True)
        p = p * (1 - lr * decay) - lr * m / np.sqrt(r @ c / r.mean())
        v = b2 * v + (1 - b2) * (h * h + least)
        w = h / np.sqrt(v)
        w /= max(1.0, np.sqrt((w * w).mean()) / clip)
        n = b1 * n + (1 - b1) * w
        q = q * (1 - lr * decay) - lr * n
    agree(ours, [p, q])


def test_states_are_saved_and_loaded() -> None:
    for name in ("AdEMAMix", "Sophia", "AdamWScheduleFree", "CAME"):
        params = [torch.nn.Parameter(torch.from_numpy(x)) for x in began()]
        others = [torch.nn.Parameter(p.detach().clone()) for p in params]
        one = getattr(optim, name)(params)
        for p in params:
            p.grad = torch.ones_like(p)
        one.step()
        again = getattr(optim, name)(others)
        for p, q in zip(params, others, strict=True):
            q.data.copy_(p.detach())
            q.grad = torch.ones_like(q)
        again.load_state_dict(one.state_dict())
        one.step()
        again.step()
        assert all(map(torch.equal, [p.detach() for p in params], [q.detach() for q in others])), name


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.AdEMAMix(p, warmup=0),
        lambda p: optim.AdEMAMix(p, betas=(0.9, 0.99, 1.0)),
        lambda p: optim.Sophia(p, rho=-1.0),
        lambda p: optim.AdamWScheduleFree(p, betas=(0.0, 0.9)),
        lambda p: optim.Prodigy(p, d0=0.0),
        lambda p: optim.CAME(p, clip=0.0),
    ],
)
def test_what_is_refused(make: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidProblemError):
        make([torch.nn.Parameter(torch.ones(2))])
