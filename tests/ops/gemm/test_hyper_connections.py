"""Hyper-connections and sinkhorn: the papers' formulas in torch, gradients, elements, known values, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).requires_grad_()


def same(got: Any, wanted: Any, leaves: list[Any]) -> None:
    """The results and the gradients of a random way through each."""
    pairs = list(zip(got, wanted, strict=True)) if isinstance(got, tuple) else [(got, wanted)]
    ways = [torch.from_numpy(RNG.standard_normal(tuple(one.shape))) for one, _ in pairs]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    slopes = [
        torch.autograd.grad(sum((pair[i] * way).sum() for pair, way in zip(pairs, ways, strict=True)), leaves)  # type: ignore[arg-type]
        for i in (0, 1)
    ]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("lead", [(2, 3), (), (0,)])
@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("shared", [False, True])
def test_pre_and_post(lead: tuple[int, ...], n: int, shared: bool) -> None:
    of = () if shared else lead
    x, y, pre, post, res = drawn(*lead, n, 5), drawn(*lead, 5), drawn(*of, n), drawn(*of, n), drawn(*of, n, n)
    same(bc.hyper_connection_pre(x, pre), (pre[..., None] * x).sum(-2), [x, pre])
    same(bc.hyper_connection_post(y, x, post, res), res @ x + post[..., None] * y[..., None, :], [y, x, post, res])


def test_halves_are_summed_in_float32_and_rounded_once() -> None:
    import ml_dtypes

    half = ml_dtypes.bfloat16
    x, y = RNG.standard_normal((7, 4, 16)).astype(half), RNG.standard_normal((7, 16)).astype(half)
    post, res = RNG.standard_normal((7, 4)).astype(np.float32), RNG.standard_normal((7, 4, 4)).astype(np.float32)
    exact = res.astype(float) @ x.astype(float) + post[..., None].astype(float) * y.astype(float)[:, None]
    got = bc.hyper_connection_post(y, x, post, res)
    assert got.dtype == half
    np.testing.assert_allclose(got.astype(float), exact, rtol=2**-8, atol=1e-5)
    leaves = [torch.from_numpy(a.astype(np.float32)) for a in (y, x, post, res)]
    leaves = [(a.bfloat16() if i < 2 else a).requires_grad_() for i, a in enumerate(leaves)]
    bc.hyper_connection_post(*leaves).float().sum().backward()
    assert [a.grad.dtype for a in leaves] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    torch.testing.assert_close(leaves[2].grad, leaves[0].detach().float().sum(-1, keepdim=True).expand(7, 4))


def test_outs() -> None:
    x, pre, y = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((3, 4)), RNG.standard_normal((3, 5))
    res, out, streams = RNG.standard_normal((4, 4)), np.empty((3, 5)), np.empty((3, 4, 5))
    assert bc.hyper_connection_pre(x, pre, out=out) is out
    np.testing.assert_array_equal(out, bc.hyper_connection_pre(x, pre))
    assert bc.hyper_connection_post(y, x, pre, res, out=streams) is streams
    np.testing.assert_array_equal(streams, bc.hyper_connection_post(y, x, pre, res))


@pytest.mark.parametrize("lead", [(2, 3), (), (0, 2)])
def test_dynamic_hyper_connections(lead: tuple[int, ...]) -> None:
    n, d = 3, 6
    x, fixed, beta, fn, gn = drawn(*lead, n, d), drawn(n, n + 1), drawn(n), drawn(d, n + 1), drawn(d)
    s, t = drawn(1), drawn(1)
    alpha = torch.tanh(x @ fn) * s + fixed
    wanted = alpha[..., 0], torch.tanh(x @ gn) * t + beta, alpha[..., 1:].mT
    same(bc.hyper_connection_weights(x, fixed, beta, fn, gn, s, t), wanted, [x, fixed, beta, fn, gn, s, t])


def in_torch(x: Any, iterations: int) -> Any:
    m = x.exp()
    for _ in range(iterations):
        m = m / m.sum(-2, keepdim=True)
        m = m / m.sum(-1, keepdim=True)
    return m


@pytest.mark.parametrize("lead", [(2, 3), (), (0,)])
def test_mhc(lead: tuple[int, ...]) -> None:
    n, d = 4, 6
    count = n * (n + 2)
    x, weight, scale, bias = drawn(*lead, n, d), drawn(count, n * d), drawn(3), drawn(count)
    c = torch.nn.functional.rms_norm(x.flatten(-2), (n * d,), eps=1e-3) @ weight.T
    c = c * scale.repeat_interleave(torch.tensor([n, n, n * n])) + bias
    wanted = c[..., :n].sigmoid(), 2 * c[..., n : 2 * n].sigmoid(), in_torch(c[..., 2 * n :].unflatten(-1, (n, n)), 5)
    got = bc.mhc_weights(x, weight, scale, bias, iterations=5, eps=1e-3)
    same(got, wanted, [x, weight, scale, bias])
    held = [a.detach().numpy() for a in (x, weight, scale, bias)]
    outs = tuple(np.empty(tuple(one.shape)) for one in got)
    made = bc.mhc_weights(*held, iterations=5, eps=1e-3, out=outs)
    assert all(a is b for a, b in zip(made, outs, strict=True))
    half = bc.mhc_weights(held[0].astype(np.float16), *(a.astype(np.float32) for a in held[1:]), iterations=5, eps=1e-3)
    for one, other in zip(half, got, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other.detach(), rtol=0.1, atol=0.02)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (0, 4, 4), (1, 1)])
@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_sinkhorn(shape: tuple[int, ...], iterations: int) -> None:
    x = drawn(*shape)
    same(bc.sinkhorn(x, iterations), in_torch(x, iterations), [x])


def test_sinkhorn_of_large_logs_is_doubly_stochastic() -> None:
    x = (200 * RNG.standard_normal((5, 4, 4))).astype(np.float32)
    m = bc.sinkhorn(x, 50)
    assert np.isfinite(m).all()
    np.testing.assert_allclose(m.sum(-1), 1, rtol=1e-5)
    m = bc.sinkhorn(RNG.standard_normal((5, 4, 4)), 60)
    np.testing.assert_allclose(m.sum(-2), 1, rtol=1e-9)
    np.testing.assert_allclose(bc.sinkhorn(np.zeros((3, 3))), np.full((3, 3), 1 / 3), rtol=1e-14)


def test_what_does_not_fit_is_refused() -> None:
    x, w, m = RNG.standard_normal((2, 4, 5)), RNG.standard_normal((2, 4)), RNG.standard_normal((2, 4, 4))
    for function, operands, said in (
        (bc.hyper_connection_pre, (x, w[:, :3]), "pre must have shape"),
        (bc.hyper_connection_pre, (w[0], w), "x must have"),
        (bc.hyper_connection_pre, (np.zeros((9, 5)), np.zeros(9)), "1 to 8 streams"),
        (bc.hyper_connection_pre, (x, w.astype(np.float32)), "pre must hold float64"),
        (bc.hyper_connection_post, (x[:, 0], x, w, m[:, :3]), "res must have shape"),
        (bc.hyper_connection_post, (x[:, 0, :4], x, w, m), "y must have shape"),
        (bc.hyper_connection_post, (x[:, 0].astype(np.float32), x, w, m), "hold float64"),
        (bc.mhc_weights, (x, m, w, w), "weight must have shape"), (bc.sinkhorn, (w[0],), "x must have shape"),
        (bc.sinkhorn, (m, 0), "iterations"),
        (bc.mhc_weights, (x, np.zeros((24, 20)), w[0], np.zeros(24)), "scale must"),
        (bc.hyper_connection_weights, (x, m, w, w, w, w, w), "static_alpha must have shape"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            function(*operands)
    with pytest.raises(bc.InvalidProblemError, match="out must have shape"):
        bc.hyper_connection_pre(x, w, out=np.empty((2, 4)))
