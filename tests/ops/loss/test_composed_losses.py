"""Losses that are a few calls or a formula: their definitions in torch, with autograd through them."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(13)


def _x(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape))


A, B, C, D = (-torch.tensor(RNG.uniform(0.2, 3.0, 6)) for _ in range(4))


def _same(ours, theirs, *operands) -> None:
    held = [one.clone().requires_grad_() for one in operands]
    loss, wanted = ours(*held), theirs(*held)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), held) for one in (loss, wanted)))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_dpo(reduction: str) -> None:
    def theirs(a, b, c, d):
        h = 0.3 * ((a - b) - (c - d))
        terms = -0.9 * F.logsigmoid(h) - 0.1 * F.logsigmoid(-h)
        return terms if reduction == "none" else terms.mean()

    _same(lambda *o: bct.dpo_loss(*o, beta=0.3, label_smoothing=0.1, reduction=reduction), theirs, A, B, C, D)
    _same(lambda *o: bct.dpo_loss(*o, kind="ipo"), lambda a, b, c, d: ((a - b - c + d - 5) ** 2).mean(), A, B, C, D)
    _same(lambda *o: bct.dpo_loss(*o, kind="hinge"), lambda a, b, c, d: F.relu(1 - 0.1 * (a - b - c + d)).mean(),
          A, B, C, D)  # fmt: skip


def test_simpo_orpo_kto() -> None:
    def simpo(a, b):
        return -F.logsigmoid(2.5 * (a - b) - 0.4).mean()

    _same(lambda a, b: bct.simpo_loss(a, b, beta=2.5, gamma=0.4), simpo, A, B)

    def cpo(a, b, c):
        return (-0.9 * F.logsigmoid(0.3 * (a - b)) - 0.1 * F.logsigmoid(-0.3 * (a - b)) + 0.5 * c).mean()

    _same(lambda *o: bct.cpo_loss(*o, beta=0.3, label_smoothing=0.1, alpha=0.5), cpo, A, B, C)
    _same(lambda *o: bct.cpo_loss(*o, kind="ipo"), lambda a, b: ((a - b - 5) ** 2).mean(), A, B)
    _same(lambda *o: bct.cpo_loss(*o, kind="hinge"), lambda a, b: F.relu(1 - 0.1 * (a - b)).mean(), A, B)

    def odds(a, b):
        return -0.2 * F.logsigmoid((a - torch.log1p(-a.exp())) - (b - torch.log1p(-b.exp()))).mean()

    _same(lambda a, b: bct.orpo_loss(a, b, beta=0.2), odds, A, B)
    good = torch.tensor([1.0, 0, 1, 1, 0, 0], dtype=torch.float64)

    def kto(a, b):
        h = 0.5 * (a - b - 0.1)
        return torch.where(good > 0, 1 - h.sigmoid(), 2 * (1 - (-h).sigmoid())).mean()

    _same(lambda a, b: bct.kto_loss(a, b, good, kl=0.1, beta=0.5, undesirable_weight=2.0), kto, A, B)


def test_clipped_policy() -> None:
    def theirs(a, b, c, d):
        r = (a - b).exp()
        terms = -torch.minimum(r * c, r.clamp(0.8, 1.3) * c) + 0.04 * ((d - a).exp() - (d - a) - 1)
        return terms.mean()

    ours = lambda a, b, c, d: bct.clipped_policy_loss(a, b, c, d, clip_high=0.3, beta=0.04)  # noqa: E731
    _same(ours, theirs, A, B, _x(6), D)


def test_overlaps() -> None:
    x, t = _x(2, 3, 7).sigmoid(), (_x(2, 3, 7) > 0).double()
    both, sizes = (x * t).sum(-1), (x + t).sum(-1)
    torch.testing.assert_close(bct.dice_loss(x, t, axis=-1), (1 - (2 * both + 1) / (sizes + 1)).mean())
    torch.testing.assert_close(
        bct.jaccard_loss(x, t, axis=-1, smooth=0.5, reduction="none"), 1 - (both + 0.5) / (sizes - both + 0.5)
    )
    ones = np.ones(100_000, np.float16)
    assert abs(bc.dice_loss(ones, ones, smooth=0.0)) < 1e-6  # whose sums leave the range of the element


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_total_variation(axis: int, reduction: str) -> None:
    def theirs(x, t):
        each = (x - t).abs().sum(axis) / 2
        return each if reduction == "none" else getattr(each, reduction)()

    p, q = (_x(3, 4, 5).softmax(axis) for _ in range(2))
    _same(lambda x, t: bct.tvd_loss(x, t, axis=axis, reduction=reduction), theirs, p, q)
    apart = np.eye(2, 3, dtype=np.float16)
    np.testing.assert_array_equal(bc.tvd_loss(apart, apart[::-1], reduction="none"), np.ones(2, np.float32))
    with pytest.raises(InvalidProblemError, match="reduction must be"):
        bc.tvd_loss(apart, apart, reduction="batchmean")


def test_contrastive_and_distillation() -> None:
    q, k = _x(4, 8), _x(6, 8)

    def nce(q, k):
        similar = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).T
        return F.cross_entropy(similar / 0.2, torch.arange(4))

    _same(lambda q, k: bct.info_nce_loss(q, k, temperature=0.2), nce, q, k)

    def distilled(s, t):
        p, q = F.log_softmax(s / 3, -1), F.log_softmax(t / 3, -1)
        return 9 * F.kl_div(p, q, log_target=True, reduction="batchmean")

    _same(lambda s, t: bct.distillation_loss(s, t, temperature=3.0), distilled, _x(4, 8), _x(4, 8))


def test_triplets_of_any_distance_and_log_probabilities() -> None:
    a, p, n = _x(4, 6), _x(4, 6), _x(4, 6)
    far = lambda x, y: (x - y).abs().sum(-1)  # noqa: E731
    for swap in (False, True):
        given = {"distance_function": far, "swap": swap, "margin": 2.0}
        torch.testing.assert_close(
            bct.triplet_margin_with_distance_loss(a, p, n, **given),
            F.triplet_margin_with_distance_loss(a, p, n, **given),
        )
    index = torch.tensor([0, 5, 2, 2])
    wanted = (1.5 * a).log_softmax(-1)[torch.arange(4), index]
    torch.testing.assert_close(bct.selective_log_softmax(a, index, logit_scale=1.5), wanted)


def test_refusals() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="kind must be one of"):
        bc.dpo_loss(x, x, x, x, kind="other")
    with pytest.raises(InvalidProblemError, match="m >= n"):
        bc.info_nce_loss(x, x[:1])
    with pytest.raises(InvalidProblemError, match="temperature must be above 0"):
        bc.distillation_loss(x, x, temperature=0.0)
    with pytest.raises(InvalidProblemError, match="reduction must be"):
        bc.simpo_loss(x, x, reduction="all")
    for index in (np.zeros(2, np.float32), np.zeros(3, np.int64)):
        with pytest.raises(InvalidProblemError, match="index must be int32 or int64 of the shape"):
            bc.selective_log_softmax(x, index)
