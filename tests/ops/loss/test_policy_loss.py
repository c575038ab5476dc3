"""ppo_loss, grpo_loss, clipped_value_loss: the papers' formulas in torch with autograd, known values, masks, errors."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(7)
POLICY, OLD, REFERENCE = (-torch.tensor(RNG.uniform(0.2, 1.2, (4, 9))) for _ in range(3))
ADVANTAGES = torch.tensor(RNG.standard_normal(4))
MASK = torch.tensor(RNG.random((4, 9)) < 0.7)
MASK[1] = False


def _trl(policy, low, high, delta, beta, loss_type, level):
    """TRL's `_compute_loss`, by its names."""
    log_ratio = policy - OLD
    if level == "sequence":
        log_ratio = ((log_ratio * MASK).sum(-1) / MASK.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef_1 = torch.exp(log_ratio)
    coef_2 = torch.clamp(coef_1, 1 - low, 1 + high)
    coef_1 = torch.clamp(coef_1, max=delta) if delta else coef_1
    a = ADVANTAGES.unsqueeze(1)
    loss = -torch.min(coef_1 * a, coef_2 * a)
    kl = torch.exp(REFERENCE - policy) - (REFERENCE - policy) - 1
    loss = loss + beta * kl
    if loss_type == "grpo":
        return ((loss * MASK).sum(-1) / MASK.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "dr_grpo":
        return (loss * MASK).sum() / (loss.size(0) * 20)
    return (loss * MASK).sum() / MASK.sum().clamp(min=1.0)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_grpo_is_the_formula_of_the_field(loss_type: str, level: str) -> None:
    more = {"max_completion_length": 20} if loss_type == "dr_grpo" else {}
    for low, high, delta, beta in ((0.2, 0.28, None, 0.0), (0.1, 0.1, 1.3, 0.07)):
        p, q = POLICY.clone().requires_grad_(), POLICY.clone().requires_grad_()
        ours = bct.grpo_loss(
            p, OLD, ADVANTAGES, REFERENCE, MASK, epsilon_low=low, epsilon_high=high, delta=delta, beta=beta,
            loss_type=loss_type, importance_sampling_level=level, **more,
        )  # fmt: skip
        theirs = _trl(q, low, high, delta, beta, loss_type, level)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(x, y)[0] for x, y in ((ours, p), (theirs, q))))


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_estimators_have_their_own_gradients(kl: str) -> None:
    p = POLICY.clone().requires_grad_()
    zero = torch.zeros(4, dtype=p.dtype)
    loss, mean = bct.grpo_loss(p, OLD, zero, REFERENCE, beta=1.0, kl_estimator=kl, loss_type="bnpo", return_kl=True)
    d = REFERENCE - POLICY
    value, slope = {
        "k1": (-d, torch.ones_like(d)), "k2": (d * d / 2, -d), "k3": (d.exp() - 1 - d, 1 - d.exp())
    }[kl]  # fmt: skip
    torch.testing.assert_close(loss, value.mean())
    torch.testing.assert_close(mean, value.mean())
    torch.testing.assert_close(torch.autograd.grad(loss, p)[0], slope / slope.numel())


def test_ppo_with_entropy_and_what_it_returns() -> None:
    p, entropy = POLICY.clone().requires_grad_(), -OLD.clone().requires_grad_()
    entropy.retain_grad()
    advantages = torch.tensor(RNG.standard_normal((4, 9)))
    loss, clipped, moved = bct.ppo_loss(
        p, OLD, advantages, MASK, entropy, entropy_coef=0.05, return_clip_fraction=True, return_approx_kl=True
    )
    r = (POLICY - OLD).exp()
    a, b = r * advantages, r.clamp(0.8, 1.2) * advantages
    terms = (-torch.minimum(a, b) - 0.05 * -OLD)[MASK]
    torch.testing.assert_close(loss, terms.mean())
    torch.testing.assert_close(clipped, (b < a)[MASK].double().mean())
    torch.testing.assert_close(moved, (r - 1 - (POLICY - OLD))[MASK].mean())
    loss.backward()
    torch.testing.assert_close(entropy.grad, MASK * (-0.05 / MASK.sum().double()))
    assert bool((p.grad[~MASK] == 0).all())


def test_clipped_values() -> None:
    v, w = POLICY.clone().requires_grad_(), POLICY.clone().requires_grad_()
    ours = bct.clipped_value_loss(v, OLD, REFERENCE, MASK, epsilon_low=0.15)
    near = torch.maximum(torch.minimum(w, OLD + 0.15), OLD - 0.15)
    theirs = 0.5 * torch.max((w - REFERENCE) ** 2, (near - REFERENCE) ** 2)[MASK].mean()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(x, y)[0] for x, y in ((ours, v), (theirs, w))))


def test_one_sequence_masks_and_overflow() -> None:
    """Tokens that do not count may be anything; a clipped ratio that overflows has no slope."""
    policy, old = np.array([-1.0, np.nan, 90.0, 800.0]), np.array([-1.0, 0.0, -900.0, 0.0])
    seen, a = np.array([True, False, True, True]), np.array([2.0, 1.0, 1.0, 1.0])
    loss = bc.ppo_loss(policy, old, a, seen, reduction="none")
    np.testing.assert_allclose(loss, [-2.0, 0.0, -1.2, -1.2])
    rows = [x[None] for x in (policy, old, a)]
    d = bc.policy_loss_backward(np.ones((1, 4)), *rows, mask=seen[None], kind="policy", reduction="none")
    np.testing.assert_array_equal(d, [[-2.0, 0.0, 0.0, 0.0]])
    nothing = np.zeros((2, 4), bool)
    assert bc.grpo_loss(np.ones((2, 4)), np.ones((2, 4)), np.ones(2), mask=nothing) == 0
    assert np.isnan(bc.grpo_loss(np.ones((0, 4)), np.ones((0, 4)), np.ones(0)))


def test_refusals() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="reference"):
        bc.grpo_loss(x, x, x, beta=0.1)
    with pytest.raises(InvalidProblemError, match="entropy is required"):
        bc.ppo_loss(x, x, x, entropy_coef=0.1)
    with pytest.raises(InvalidProblemError, match="loss_type must be one of"):
        bc.grpo_loss(x, x, x, loss_type="other")
    with pytest.raises(InvalidProblemError, match="max_completion_length"):
        bc.grpo_loss(x, x, x, max_completion_length=9)
    with pytest.raises(InvalidProblemError, match="mask"):
        bc.ppo_loss(x, x, x, x)
    with pytest.raises(InvalidProblemError, match="advantages"):
        bc.ppo_loss(x, x, np.ones(5, np.float32))
    one = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(Exception, match="old"):
        bct.ppo_loss(one, one, one.detach())


def test_without_whole_logits() -> None:
    """Token log-probabilities by linear_log_prob, and the loss of them: the gradients of the unfused composition."""
    x, w = torch.tensor(RNG.standard_normal((4, 9, 6))), torch.tensor(RNG.standard_normal((11, 6)))
    ids = torch.tensor(RNG.integers(0, 11, (4, 9)))
    held, whole = ([one.clone().requires_grad_() for one in (x, w)] for _ in range(2))
    ours = bct.grpo_loss(bct.linear_log_prob(*held, ids), OLD, ADVANTAGES, REFERENCE, MASK, epsilon_high=0.28, beta=0.0)
    policy = torch.log_softmax(whole[0] @ whole[1].T, -1).gather(-1, ids[..., None])[..., 0]
    theirs = _trl(policy, 0.2, 0.28, None, 0.0, "grpo", "token")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, held), torch.autograd.grad(theirs, whole))
