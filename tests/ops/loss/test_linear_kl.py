"""linear_kl against the divergences of whole logits in float64: rules, temperature, ignored rows, chunks, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(4)
X, W, B = RNG.standard_normal((7, 5)), RNG.standard_normal((9, 5)), RNG.standard_normal(9)
TX, TW = RNG.standard_normal((7, 3)), RNG.standard_normal((9, 3))


def _soft(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _rows(rule: str, t: float, beta: float = 0.5) -> np.ndarray:
    p, q = _soft((X @ W.T + B) / t), _soft(TX @ TW.T / t)
    m = beta * q + (1 - beta) * p
    if rule == "jsd":
        return t * t * (beta * q * np.log(q / m) + (1 - beta) * p * np.log(p / m)).sum(1)
    return t * t * ((q * np.log(q / p)) if rule == "forward" else (p * np.log(p / q))).sum(1)


@pytest.mark.parametrize("rule", ["forward", "reverse", "jsd"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_against_the_definition(rule: str, temperature: float) -> None:
    targets = np.array([1, -100, 3, 0, -100, 8, 2])
    facts = {"divergence": rule, "temperature": temperature, "beta": 0.3}
    expected = _rows(rule, temperature, 0.3)
    for chunk in (0, 2, 7):
        loss = bc.linear_kl(X, W, TX, TW, None, B, reduction="none", chunk=chunk, **facts)
        np.testing.assert_allclose(loss, expected, rtol=1e-11)
    counted = expected * (targets >= 0)
    np.testing.assert_allclose(bc.linear_kl(X, W, TX, TW, targets, B, **facts), counted.sum() / 5, rtol=1e-11)
    np.testing.assert_allclose(
        bc.linear_kl(X, W, TX, TW, targets, B, reduction="sum", **facts), counted.sum(), rtol=1e-11
    )


@pytest.mark.parametrize("rule", ["forward", "reverse", "jsd"])
def test_autograd(rule: str) -> None:
    """Against torch's of the unfused formula; the fused gradients are those of an upstream gradient of 1."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, w, b = (torch.from_numpy(v.copy()).requires_grad_() for v in (X, W, B))
    tx, tw = torch.from_numpy(TX), torch.from_numpy(TW)
    loss = bt.linear_kl(x, w, tx, tw, None, b, divergence=rule, temperature=2.0, chunk=3)
    lp = torch.log_softmax((x @ w.T + b) / 2, -1)
    lq = torch.log_softmax(tx @ tw.T / 2, -1)
    m = (lp.exp() + lq.exp()) / 2
    rows = {
        "forward": lq.exp() * (lq - lp),
        "reverse": lp.exp() * (lp - lq),
        "jsd": (lq.exp() * (lq - m.log()) + lp.exp() * (lp - m.log())) / 2,
    }[rule]
    expected = 4 * rows.sum(-1).mean()
    torch.testing.assert_close(loss, expected, rtol=1e-11, atol=0)
    wanted = torch.autograd.grad(3 * expected, (x, w, b))
    found = torch.autograd.grad(3 * loss, (x, w, b))
    fused = bc.linear_kl(
        X, W, TX, TW, None, B, divergence=rule, temperature=2.0, return_dx=True, return_dweight=True, return_dbias=True
    )[1:]
    for ours, one, theirs in zip(found, fused, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(3 * one, theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_classes_a_model_rules_out() -> None:
    """q = 0 adds nothing to the forward divergence; p = 0 where q is not makes it infinite."""
    low = np.where(np.arange(9) == 4, -np.inf, 0.0)
    forward = bc.linear_kl(X, W, TX, TW, None, B, low, reduction="none")
    assert np.isfinite(forward).all()
    assert np.isposinf(bc.linear_kl(X, W, TX, TW, None, B + low, reduction="none")).all()
    assert np.isfinite(bc.linear_kl(X, W, TX, TW, None, B + low, low, divergence="jsd", reduction="none")).all()


def test_refusals() -> None:
    with pytest.raises(InvalidProblemError, match="beta must be in"):
        bc.linear_kl(X, W, TX, TW, divergence="jsd", beta=1.0)
    with pytest.raises(InvalidProblemError, match="temperature"):
        bc.linear_kl(X, W, TX, TW, temperature=0.0)
    assert np.isnan(bc.linear_kl(X[:0], W, TX[:0], TW))
