"""rnnt_loss: torchaudio's known values, all paths by enumeration, clamps, lengths, policies, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(7)
BASIC = [
    [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1], [0.1, 0.1, 0.2, 0.8, 0.1]],
    [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.1, 0.1], [0.7, 0.1, 0.2, 0.1, 0.1]],
]
GRADIENTS = [
    [
        [-0.13116688, -0.3999269, 0.17703125, 0.17703125, 0.17703125],
        [-0.18572757, 0.12247056, -0.18168412, 0.12247056, 0.12247056],
        [-0.32091254, 0.06269141, 0.06928472, 0.12624499, 0.06269141],
    ],
    [
        [0.05456069, -0.21824276, 0.05456069, 0.05456069, 0.05456069],
        [0.12073959, 0.12073959, -0.48295835, 0.12073959, 0.12073959],
        [-0.6925882, 0.16871116, 0.18645467, 0.16871116, 0.16871116],
    ],
]


def test_known_values() -> None:
    """Those of torchaudio's own tests, of HawkAaron's warp-transducer: the blank is class 0."""
    torch, bct = pytest.importorskip("torch"), pytest.importorskip("baracuda_py.torch")
    logits = torch.tensor([BASIC], dtype=torch.float64, requires_grad=True)
    rest = (torch.tensor([[1, 2]]), torch.tensor([2]), torch.tensor([2]))
    loss = bct.rnnt_loss(logits, *rest, blank=0)
    loss.backward()
    np.testing.assert_allclose(loss.item(), 4.495666773770733, rtol=1e-7)
    np.testing.assert_allclose(logits.grad[0], GRADIENTS, atol=1e-6)
    cut = torch.tensor([BASIC], dtype=torch.float64, requires_grad=True)
    (2 * bct.rnnt_loss(cut, *rest, blank=0, clamp=0.1, reduction="sum")).backward()
    np.testing.assert_allclose(cut.grad[0], 2 * np.clip(GRADIENTS, -0.1, 0.1), atol=1e-6)


def _enumerated(p: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the sum over every order of the blanks and the labels; the last is a blank."""
    steps, found = p.shape[0], []
    for places in itertools.combinations(range(steps - 1 + len(labels)), len(labels)):
        t, u, total = 0, 0, 0.0
        for k in range(steps - 1 + len(labels)):
            if k in places:
                total, u = total + p[t, u, labels[u]], u + 1
            else:
                total, t = total + p[t, u, blank], t + 1
        found.append(math.exp(total + p[t, u, blank]))
    return -math.log(math.fsum(found))


@pytest.mark.parametrize("blank", [0, -1])
@pytest.mark.parametrize("labels", [[], [1], [1, 1], [2, 1, 2]])
def test_enumeration(labels: list[int], blank: int) -> None:
    logits = RNG.standard_normal((1, 4, len(labels) + 1, 4))
    p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    given = (np.array([labels], np.int32).reshape(1, -1), np.array([4]), np.array([len(labels)]))
    wanted = _enumerated(p[0], labels, blank)
    np.testing.assert_allclose(bc.rnnt_loss(logits, *given, blank=blank), wanted, rtol=1e-12)
    plain = bc.rnnt_loss(p, *given, blank=blank, fused_log_softmax=False, reduction="none")
    np.testing.assert_allclose(plain, [wanted], rtol=1e-12)


def test_what_lies_beyond_the_lengths_does_not_matter() -> None:
    torch, bct = pytest.importorskip("torch"), pytest.importorskip("baracuda_py.torch")
    whole, counts, lengths = RNG.standard_normal((3, 6, 5, 7)), [6, 3, 1], [2, 4, 0]
    targets = RNG.integers(0, 6, (3, 4))
    spoiled = whole.copy()
    for n, (t, u) in enumerate(zip(counts, lengths, strict=True)):
        spoiled[n, t:] = spoiled[n, :, u + 1 :] = np.nan
    held = torch.tensor(spoiled, requires_grad=True)
    losses = bct.rnnt_loss(held, *(torch.tensor(x) for x in (targets, counts, lengths)), reduction="none")
    losses.sum().backward()
    for n, (t, u) in enumerate(zip(counts, lengths, strict=True)):
        alone = torch.tensor(whole[n : n + 1, :t, : u + 1], requires_grad=True)
        loss = bct.rnnt_loss(alone, torch.tensor(targets[n : n + 1, :u]), torch.tensor([t]), torch.tensor([u]))
        loss.backward()
        assert losses[n].item() == loss.item()
        assert torch.equal(held.grad[n, :t, : u + 1], alone.grad[0])
        assert not held.grad[n, t:].any() and not held.grad[n, :, u + 1 :].any()


def test_policies() -> None:
    logits, one = RNG.standard_normal((1, 3, 2, 4)), np.array([1])
    assert np.isinf(bc.rnnt_loss(logits, np.array([[9]]), np.array([3]), one))  # no such class
    assert np.isinf(bc.rnnt_loss(logits, np.array([[1]]), np.array([0]), one))
    assert bc.rnnt_loss(logits, np.array([[1]]), np.array([0]), np.array([0])) == 0
    longer = bc.rnnt_loss(logits, np.array([[1]]), np.array([7]), np.array([5]))
    assert longer == bc.rnnt_loss(logits, np.array([[1]]), np.array([3]), one)
    assert np.isnan(bc.rnnt_loss(logits[:0], np.zeros((0, 1), int), one[:0], one[:0]))


def test_refusals() -> None:
    logits, lengths = RNG.standard_normal((2, 4, 3, 5)), np.array([4, 4])
    with pytest.raises(InvalidProblemError, match="blank must be in"):
        bc.rnnt_loss(logits, np.ones((2, 2), np.int64), lengths, np.array([1, 1]), blank=5)
    with pytest.raises(InvalidProblemError, match="logits must have shape"):
        bc.rnnt_loss(logits, np.ones((2, 3), np.int64), lengths, np.array([1, 1]))
    with pytest.raises((InvalidProblemError, bc.UnsupportedError), match="targets"):
        bc.rnnt_loss(logits, np.ones((2, 2)), lengths, np.array([1, 1]))
    with pytest.raises(InvalidProblemError, match="reduction"):
        bc.rnnt_loss(logits, np.ones((2, 2), np.int64), lengths, np.array([1, 1]), reduction="all")
