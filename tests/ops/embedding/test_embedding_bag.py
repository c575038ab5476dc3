"""embedding_bag and embedding_renorm against torch on the CPU: modes, offsets, weights, padding, gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(12)
torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")


def table(rows=9, dim=6):
    return torch.from_numpy(RNG.standard_normal((rows, dim))).requires_grad_()


def ours_and_theirs(indices, weight, offsets, **facts):
    """Both results, with the gradients of weight and of per_sample_weights."""
    for function in (bct.embedding_bag, torch.nn.functional.embedding_bag):
        own = dict(facts)
        leaves = [weight.detach().clone().requires_grad_()]
        if "per_sample_weights" in own:
            own["per_sample_weights"] = own["per_sample_weights"].detach().clone().requires_grad_()
            leaves.append(own["per_sample_weights"])
        y = function(indices, leaves[0], offsets, **own)
        yield y, torch.autograd.grad((y * y.detach().cos()).sum(), leaves)


def check(*call, **facts):
    (y, grads), (wanted, others) = ours_and_theirs(*call, **facts)
    torch.testing.assert_close(y, wanted)
    for grad, other in zip(grads, others, strict=True):
        torch.testing.assert_close(grad, other)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("include", [False, True])
def test_bags_by_offsets(mode, padding, include):
    indices = torch.from_numpy(RNG.integers(0, 9, 20))
    offsets = torch.tensor([0, 3, 3, 7, 12, 20][: 6 if include else 5])
    check(indices, table(), offsets, mode=mode, padding_idx=padding, include_last_offset=include)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_length(mode):
    check(torch.from_numpy(RNG.integers(0, 9, (5, 4))), table(), None, mode=mode)


def test_gradient_by_frequency():
    """Against its definition: torch's on the CPU divides by how often another row is named."""
    indices, weight, grads = torch.from_numpy(RNG.integers(0, 9, (5, 4))), table(), []
    for scaled in (False, True):
        y = bct.embedding_bag(indices, weight, mode="mean", scale_grad_by_freq=scaled)
        grads.append(torch.autograd.grad(y.sum(), weight)[0])
    n = torch.bincount(indices.reshape(-1), minlength=9).clamp(min=1)[:, None]
    torch.testing.assert_close(grads[1], grads[0] / n)


@pytest.mark.parametrize("flat", [False, True])
def test_weights_of_samples(flat):
    indices, weights = torch.from_numpy(RNG.integers(0, 9, (5, 4))), torch.from_numpy(RNG.standard_normal((5, 4)))
    if flat:
        check(indices.reshape(-1), table(), torch.arange(0, 20, 4), mode="sum", per_sample_weights=weights.reshape(-1))
    else:
        check(indices, table(), None, mode="sum", per_sample_weights=weights)


def test_indices_out_of_range_have_no_part():
    weight = RNG.standard_normal((4, 3))
    y = bc.embedding_bag(np.array([[0, -1, 4], [9, 9, 9]]), weight, mode="mean")
    np.testing.assert_array_equal(y, [weight[0], np.zeros(3)])


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0, np.inf])
def test_renorm(order):
    weight, indices = RNG.standard_normal((9, 6)), RNG.integers(0, 9, (2, 4))
    wanted = torch.from_numpy(weight.copy())
    if order == 0:  # which torch cannot
        named = np.unique(indices)
        wanted[named] *= 1.5 / (6 + 1e-7)
    else:
        torch.embedding_renorm_(wanted, torch.from_numpy(indices.reshape(-1)), 1.5, float(order))
    held = weight.copy()
    bc.embedding_renorm(held, indices, max_norm=1.5, norm_type=order)
    np.testing.assert_allclose(held, wanted.numpy(), rtol=1e-12)


def test_max_norm_and_frequency_of_a_look_up():
    indices = torch.from_numpy(RNG.integers(0, 9, (3, 4)))
    dy, made = torch.from_numpy(RNG.standard_normal((3, 4, 6))), []
    first = table()
    for function in (bct.embedding, torch.nn.functional.embedding):
        weight = first.detach().clone().requires_grad_()
        y = function(indices, weight, max_norm=1.5, scale_grad_by_freq=True, padding_idx=3)
        made.append((y, weight, torch.autograd.grad(y, weight, dy)[0]))
    for ours, theirs in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_refusals():
    weight, indices = RNG.standard_normal((4, 3)), np.zeros(5, np.int64)
    with pytest.raises(InvalidProblemError, match="mode must be one of sum, mean, max"):
        bc.embedding_bag(indices, weight, np.array([0]), mode="prod")
    with pytest.raises(InvalidProblemError, match="without offsets"):
        bc.embedding_bag(indices, weight)
    with pytest.raises(InvalidProblemError, match="offsets must be None"):
        bc.embedding_bag(indices[None], weight, np.array([0]))
    with pytest.raises(InvalidProblemError, match="per_sample_weights must have shape"):
        bc.embedding_bag(indices[None], weight, None, np.zeros(5))
    with pytest.raises(InvalidProblemError, match="indices must be int64 or int32, got int16"):
        bc.embedding_bag(indices[None].astype(np.int16), weight)
    with pytest.raises(InvalidProblemError, match="offsets must be int64 or int32, got float64"):
        bc.embedding_bag(indices, weight, np.zeros(2))
    with pytest.raises(InvalidProblemError, match=r"weight must be \[rows, columns\], got shape \(4,\)"):
        bc.embedding_bag(indices[None], weight[:, 0])


def test_every_option_at_once():
    for mode, include, padding in itertools.product(("sum", "mean", "max"), (False, True), (None, 1)):
        indices = RNG.integers(-2, 11, 30)
        offsets = np.array([0, 0, 8, 9, 30, 30][: 6 if include else 5], np.int32)
        weight, own = RNG.standard_normal((9, 5)).astype(np.float32), RNG.standard_normal(30).astype(np.float32)
        y = bc.embedding_bag(indices, weight, offsets, own, mode=mode, include_last_offset=include, padding_idx=padding)
        for bag, (begin, end) in enumerate(itertools.pairwise(np.append(offsets[:5], 30))):
            part = [t for t in range(begin, end) if 0 <= indices[t] < 9 and indices[t] != padding]
            rows = np.array([weight[indices[t]].astype(np.float64) * own[t] for t in part]).reshape(-1, 5)
            wanted = getattr(rows, mode)(axis=0) if part else np.zeros(5)
            np.testing.assert_allclose(y[bag], wanted, rtol=1e-5, atol=1e-6)
