"""Gradients of a formula's numbers: a 0-d parameter is trained like any other, and the sum has a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional
X = torch.linspace(-2.0, 3.0, 60, dtype=torch.float64).reshape(3, 20)
W, B = torch.linspace(0.5, 1.5, 20, dtype=torch.float64), torch.linspace(-1, 1, 20, dtype=torch.float64)

# A call of an array x and a 0-d number p, and the same in torch.
CALLS = {
    "dynamic_tanh": (lambda x, p: bt.dynamic_tanh(x, W, B, alpha=p), lambda x, p: torch.tanh(p * x) * W + B),
    "squareplus": (lambda x, p: bt.squareplus(x, b=p), lambda x, p: (x + torch.sqrt(x * x + p)) / 2),
    "axpby": (lambda x, p: bt.axpby(x, W, alpha=p, beta=2.0), lambda x, p: p * x + 2 * W),
    "scaled_add": (lambda x, p: bt.scaled_add(x, W, alpha=p), lambda x, p: x + p * W),
    "formula": (lambda x, p: bc.elementwise("x / p + p")(x, p), lambda x, p: x / p + p),
    "reduce": (lambda x, p: bc.reduce("sum(x * exp(p))", axis=1)(x, p), lambda x, p: (x * torch.exp(p)).sum(1)),
    "logsumexp": (
        lambda x, p: bc.reduce("logsumexp(x * p)", axis=1)(x, p), lambda x, p: torch.logsumexp(x * p, 1)
    ),
    "scan": (lambda x, p: bc.scan("cumsum(x * p)", axis=1)(x, p), lambda x, p: torch.cumsum(x * p, 1)),
}  # fmt: skip


def slopes(call: Any, dtype: Any = torch.float64, learned: Any = None) -> tuple[Any, ...]:
    x = X.to(dtype, copy=True).requires_grad_()
    p = torch.tensor(0.7, dtype=learned or dtype).requires_grad_()
    y = call(x, p)
    return (y, *torch.autograd.grad((y.double() * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum(), (x, p)))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_torchs(name: str) -> None:
    ours, theirs = CALLS[name]
    for a, b in zip(slopes(ours), slopes(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("learned", [torch.bfloat16, torch.float32, torch.float64])
def test_a_number_of_another_element_has_a_gradient_of_its_own(dtype: Any, learned: Any) -> None:
    y, dx, dp = slopes(lambda x, p: bt.scaled_add(x, W.to(x.dtype), alpha=p), dtype, learned)
    assert dx.dtype == dtype and dp.dtype == learned and dp.shape == ()
    with torch.no_grad():
        assert y.dtype == bt.scaled_add(X.to(dtype), W.to(dtype), alpha=torch.tensor(0.7, dtype=learned)).dtype
    weights = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype).double()
    torch.testing.assert_close(dp.double(), (weights * W.to(dtype).double()).sum(), rtol=2**-7, atol=0)


def test_the_forward_is_the_same_with_and_without_a_gradient() -> None:
    x, p = X.bfloat16(), torch.tensor(0.7)
    y = bt.dynamic_tanh(x, W.bfloat16(), B.bfloat16(), alpha=p)
    again = bt.dynamic_tanh(x, W.bfloat16(), B.bfloat16(), alpha=p.clone().requires_grad_())
    assert again.requires_grad and y.dtype == again.dtype == torch.bfloat16 and torch.equal(y, again)


def test_only_the_number_and_only_the_arrays() -> None:
    x, p = X.clone().requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (alone,) = torch.autograd.grad(bt.dynamic_tanh(X, W, B, alpha=p).sum(), p)
    (both,) = torch.autograd.grad(bt.dynamic_tanh(x, W, B, alpha=p).sum(), p)
    assert torch.equal(alone, both)
    want = ((1 - torch.tanh(0.7 * X) ** 2) * X * W).sum()
    torch.testing.assert_close(alone, want, rtol=1e-12, atol=0)
    with torch.no_grad():
        assert not bt.dynamic_tanh(x, W, B, alpha=p).requires_grad
    held = torch.utils.checkpoint.checkpoint(lambda p: bt.dynamic_tanh(X, W, B, alpha=p), p, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(held.sum(), p)[0], alone)


def test_an_empty_batch_gives_zero() -> None:
    p = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (dp,) = torch.autograd.grad(bt.dynamic_tanh(X[:0], W, B, alpha=p).sum(), p)
    assert dp.shape == () and dp == 0


def test_vjp_takes_the_number_by_name() -> None:
    x, w = X.numpy(), W.numpy()
    f, p = bc.elementwise("tanh(p * x) * w"), np.array(0.7)
    assert len(f.vjp(np.ones_like(x), p, x, w)) == 2
    dp = f.vjp(np.ones_like(x), p, x, w, wrt="p")
    np.testing.assert_allclose(dp, ((1 - np.tanh(0.7 * x) ** 2) * x * w).sum(), rtol=1e-12)
    assert dp.shape == ()
    dw, again = f.vjp(np.ones_like(x), p, x, w, wrt=("w", "p"))
    np.testing.assert_array_equal(again, dp)
    np.testing.assert_allclose(dw, np.tanh(0.7 * x).sum(0), rtol=1e-12)
    with pytest.raises(bc.InvalidProblemError, match="p has no gradient, as it is a number; give it as a 0-d array"):
        f.vjp(np.ones_like(x), 0.7, x, w, wrt="p")


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    x, w = (jax.numpy.asarray(a.numpy(), "float32") for a in (X, W))
    for run in (lambda f: f, jax.jit):
        got = jax.grad(run(lambda p, x: bj.dynamic_tanh(x, w, w, alpha=p).sum()), (0, 1))(jax.numpy.float32(0.7), x)
        want = jax.grad(lambda p, x: (jax.numpy.tanh(p * x) * w + w).sum(), (0, 1))(jax.numpy.float32(0.7), x)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    mapped = jax.vmap(jax.grad(lambda p: bj.dynamic_tanh(x, w, w, alpha=p).sum()))(jax.numpy.array([0.5, 0.7]))
    np.testing.assert_allclose(mapped[1], got[0], rtol=1e-5)


def test_a_number_of_the_kernel_does_not_lose_its_gradient_in_silence() -> None:
    p = torch.tensor(0.7, requires_grad=True)
    x = X.float()
    for call in (
        lambda: bt.leaky_relu(x, negative_slope=p),
        lambda: bt.elu(x, alpha=p),
        lambda: bt.softplus(x, beta=p),
        lambda: bt.huber_loss(x, x, delta=p),
        lambda: bt.rms_norm(x, eps=p),
        lambda: bt.cross_entropy(x, torch.zeros(3, dtype=torch.int64), label_smoothing=p),
    ):
        with pytest.raises(bc.UnsupportedError, match=r"it requires grad.*\.detach\(\)"):
            call()
        with torch.no_grad():
            call()
