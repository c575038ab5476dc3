"""min_gru, min_lstm, rglru, slstm_cell, token_shift and gated_short_conv: against their papers' steps in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
F = torch.nn.functional


def made(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed + 5 * sum(shape))
    return torch.tensor(rng.standard_normal(shape), requires_grad=True)


def g(v: Any) -> Any:
    return torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


def scanned(factors: Any, terms: Any, h: Any) -> tuple[Any, Any]:
    states = []
    for t in range(terms.shape[1]):
        h = factors[:, t] * h + terms[:, t]
        states.append(h)
    return torch.stack(states, 1), h


def same(got: Any, wanted: Any, inputs: Any) -> None:
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    slopes = [torch.ones_like(a) for a in wanted]
    grads = (torch.autograd.grad(one, inputs, slopes) for one in (got, wanted))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_min_gru() -> None:
    gate, hidden, h = made(2, 9, 3), made(2, 9, 3, seed=1), made(2, 3)
    for positive in (True, False):
        z = torch.sigmoid(gate)
        got = bct.min_gru(gate, hidden, h, positive=positive, return_last=True)
        same(got, scanned(1 - z, z * (g(hidden) if positive else hidden), h), (gate, hidden, h))


def test_min_lstm() -> None:
    forget, gate, hidden, h = made(2, 9, 3), made(2, 9, 3, seed=1), made(2, 9, 3, seed=2), made(2, 3)
    f, i = torch.sigmoid(forget), torch.sigmoid(gate)
    got = bct.min_lstm(forget, gate, hidden, h, return_last=True)
    same(got, scanned(f / (f + i), i / (f + i) * g(hidden), h), (forget, gate, hidden, h))


def test_rglru() -> None:
    x, i, r, decay, h = made(2, 7, 3), made(2, 7, 3, seed=1), made(2, 7, 3, seed=2), made(3), made(2, 3)
    a = torch.exp(-8 * F.softplus(decay) * torch.sigmoid(r))
    got = bct.rglru(x, i, r, decay, h, return_last=True)
    same(got, scanned(a, torch.sqrt(1 - a * a) * torch.sigmoid(i) * x, h), (x, i, r, decay, h))


def test_slstm_cell() -> None:
    gates, c, n, m = made(2, 12), made(2, 3), made(2, 3, seed=1), made(2, 3, seed=2)
    i, f, z, o = gates.chunk(4, 1)
    after = torch.maximum(F.logsigmoid(f) + m, i)
    kept, new = torch.exp(F.logsigmoid(f) + m - after), torch.exp(i - after)
    c_next, n_next = kept * c + new * torch.tanh(z), kept * n + new
    wanted = (torch.sigmoid(o) * c_next / n_next, c_next, n_next, after)
    same(bct.slstm_cell(gates, c, n, m), wanted, (gates, c, n, m))


@pytest.mark.parametrize("steps", [1, 5])
def test_token_shift(steps: int) -> None:
    x, mix, state = made(2, steps, 3), made(3), made(2, 3, seed=1)
    before = torch.cat((state[:, None], x[:, :-1]), 1)
    same([bct.token_shift(x, mix, state)], [x * mix + before * (1 - mix)], (x, mix, state))
    same([bct.token_shift(x)], [F.pad(x, (0, 0, 1, -1))], (x,))
    assert bc.token_shift(np.empty((2, 0, 3))).shape == (2, 0, 3)


@pytest.mark.parametrize("layout", ["bld", "bdl"])
def test_gated_short_conv(layout: str) -> None:
    shape = (2, 6, 3) if layout == "bld" else (2, 3, 6)
    b, c, x, w = made(*shape), made(*shape, seed=1), made(*shape, seed=2), made(3, 3)
    product = b * x if layout == "bdl" else (b * x).transpose(1, 2)
    y = F.conv1d(F.pad(product, (2, 0)), w[:, None], groups=3)
    wanted = c * (y if layout == "bdl" else y.transpose(1, 2))
    got = bct.gated_short_conv(b, c, x, w, layout=layout, return_final_states=True)
    same(got, (wanted, product[..., -2:]), (b, c, x, w))


def test_bad_shapes_are_named() -> None:
    x = np.zeros((2, 3, 4))
    with pytest.raises(InvalidProblemError, match="hidden"):
        bc.min_gru(x, x[:, :2])
    with pytest.raises(InvalidProblemError, match="decay"):
        bc.rglru(x, x, x, np.zeros(3))
    with pytest.raises(InvalidProblemError, match="state"):
        bc.token_shift(x, state=np.zeros((2, 3)))
    with pytest.raises(InvalidProblemError, match="gates"):
        bc.slstm_cell(np.zeros((2, 9)), *(np.zeros((2, 3)) for _ in range(3)))
