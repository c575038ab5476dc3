"""Losses of routers and adaptive softmax: their definitions in torch, with autograd through them."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(17)


def _x(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape))


def _same(ours, theirs, *operands) -> None:
    held = [one.clone().requires_grad_() for one in operands]
    loss, wanted = ours(*held), theirs(*held)
    torch.testing.assert_close(loss, wanted, check_dtype=False)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), held) for one in (loss, wanted)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lead", [(7,), (3, 5)])
@pytest.mark.parametrize("choices", [0, 1, 3])
def test_load_balancing(choices: int, lead: tuple[int, ...], weighted: bool) -> None:
    logits, weight = _x(*lead, 6), torch.tensor(RNG.integers(0, 2, lead).astype(float)) if weighted else None
    found = logits.argmax(-1, keepdim=True) if choices == 0 else logits.topk(choices).indices
    w = torch.ones(lead, dtype=torch.float64) if weight is None else weight

    def theirs(logits):
        p = (logits.softmax(-1) * w[..., None]).reshape(-1, 6).sum(0) / w.sum()
        f = (F.one_hot(found, 6).sum(-2) * w[..., None]).reshape(-1, 6).sum(0) / w.sum()
        return 6 * (f * p).sum()

    _same(lambda x: bct.load_balancing_loss(x, found if choices else None, weight), theirs, logits)


def test_even_routers_lose_least() -> None:
    even = np.zeros((8, 4), np.float16)
    indices = np.arange(8)[:, None] % 4
    assert bc.load_balancing_loss(even, indices) == 1 and bc.load_balancing_loss(even, indices).dtype == np.float32
    assert bc.load_balancing_loss(even, np.full((8, 1), 9)) == 0  # no such expert


@pytest.mark.parametrize("weighted", [False, True])
def test_router_z(weighted: bool) -> None:
    logits, weight = 5 * _x(3, 5, 6), torch.tensor([[1.0, 0, 1, 1, 1], [0.0] * 5, [1.0] * 5], dtype=torch.float64)

    def theirs(logits):
        z = logits.logsumexp(-1).square()
        return (z * weight).sum() / weight.sum() if weighted else z.mean()

    _same(lambda x: bct.router_z_loss(x, weight if weighted else None), theirs, logits)
    half = logits.half()
    torch.testing.assert_close(bct.router_z_loss(half), half.float().logsumexp(-1).square().mean())


@pytest.mark.parametrize("lead", [(40,), (4, 5), ()])
@pytest.mark.parametrize("cutoffs", [[3], [2, 5, 11]])
@pytest.mark.parametrize("bias", [False, True])
def test_adaptive(lead: tuple[int, ...], cutoffs: list[int], bias: bool) -> None:
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 17, cutoffs, 2.0, head_bias=bias).double()
    x, target = _x(*lead, 8), torch.tensor(RNG.integers(0, 17, lead))
    tails = [(pair[0].weight, pair[1].weight) for pair in module.tail]
    held = (x.requires_grad_(), *module.parameters())
    ours = bct.adaptive_log_softmax_with_loss(x, target, module.head.weight, tails, module.head.bias)
    flat = module(x.reshape(-1, 8), target.reshape(-1))
    torch.testing.assert_close(ours, (flat.output.reshape(lead), flat.loss))
    losses = [one[1] + one[0].sin().sum() for one in (ours, flat)]
    torch.testing.assert_close(*(torch.autograd.grad(one, held, materialize_grads=True) for one in losses))


def test_targets_that_are_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    x, head, tail = (np.ones(shape, np.float32) for shape in ((3, 4), (3, 4), (2, 4)))
    output, loss = bc.adaptive_log_softmax_with_loss(
        x, np.array([-5, 1, 9]), head, [(tail, np.ones((6, 2), np.float32))]
    )  # fmt: skip
    np.testing.assert_allclose(output, [0, -np.log(3), 0], rtol=1e-6)
    np.testing.assert_allclose(loss, np.log(3) / 3, rtol=1e-6)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    for target in (9, -1):
        with pytest.raises(InvalidProblemError, match="targets outside"):
            bc.adaptive_log_softmax_with_loss(x[:1], np.array([target]), head, [(tail, np.ones((6, 2), np.float32))])


def test_refusals() -> None:
    x = np.ones((4, 6), np.float32)
    with pytest.raises(InvalidProblemError, match="indices must have shape"):
        bc.load_balancing_loss(x, np.zeros((3, 1), np.int64))
    with pytest.raises(InvalidProblemError, match="weight must have shape"):
        bc.router_z_loss(x, np.ones(3, np.float32))
    with pytest.raises(InvalidProblemError, match="one expert at least"):
        bc.router_z_loss(x[:, :0])
    target = np.zeros(4, np.int64)
    with pytest.raises(InvalidProblemError, match=r"tails\[0\] must be a pair"):
        bc.adaptive_log_softmax_with_loss(x, target, x, [x])
    with pytest.raises(InvalidProblemError, match=r"tails\[0\] must be a projection"):
        bc.adaptive_log_softmax_with_loss(x, target, x, [(x, x)])
    with pytest.raises(InvalidProblemError, match="head_weight must be"):
        bc.adaptive_log_softmax_with_loss(x, target, x[0])
