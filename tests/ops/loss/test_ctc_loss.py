"""ctc_loss: all paths by enumeration, torch's CPU for long ones, policies, gradients, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(7)


def _log_probs(*shape: int) -> np.ndarray:
    x = RNG.standard_normal(shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _spelled(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(c for c, _ in itertools.groupby(path) if c != blank)


def _enumerated(log_probs: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the sum over every path."""
    steps, classes = log_probs.shape
    found = [
        math.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
        for path in itertools.product(range(classes), repeat=steps)
        if _spelled(path, blank) == tuple(labels)
    ]
    return -math.log(math.fsum(found)) if found else math.inf


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [[], [1], [1, 1], [1, 3, 1], [3, 3, 3], [1, 1, 1, 1]])
def test_enumeration(labels: list[int], blank: int) -> None:
    log_probs = _log_probs(5, 1, 4)
    targets = np.array([labels + [0] * (5 - len(labels))])
    loss = bc.ctc_loss(
        log_probs, targets, np.array([5]), np.array([len(labels)]), blank=blank, reduction="none"
    )  # fmt: skip
    wanted = _enumerated(log_probs[:, 0], labels, blank)
    assert loss[0] == wanted or abs(loss[0] - wanted) < 1e-12 * max(1, wanted)


def _problem(together: bool) -> tuple[np.ndarray, ...]:
    log_probs, lengths = _log_probs(60, 4, 9), np.array([20, 0, 7, 13])
    padded = RNG.integers(1, 9, (4, 20))
    targets = np.concatenate([row[:n] for row, n in zip(padded, lengths, strict=True)]) if together else padded
    return log_probs, targets, np.array([60, 60, 31, 55]), lengths


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_torch(reduction: str, together: bool) -> None:
    torch, bct = pytest.importorskip("torch"), pytest.importorskip("baracuda_py.torch")
    log_probs, *rest = (torch.tensor(one) for one in _problem(together))
    log_probs.requires_grad_()
    more = {"max_target_length": 20} if together else {}
    loss = bct.ctc_loss(log_probs, *rest, reduction=reduction, **more)
    wanted = torch.nn.functional.ctc_loss(log_probs, *rest, reduction=reduction)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), log_probs) for one in (loss, wanted)))


def test_infinite_losses() -> None:
    torch, bct = pytest.importorskip("torch"), pytest.importorskip("baracuda_py.torch")
    log_probs = torch.tensor(_log_probs(3, 2, 4)).requires_grad_()
    rest = (torch.tensor([[1, 1, 2], [1, 2, 3]]), torch.tensor([3, 3]), torch.tensor([3, 3]))
    assert bct.ctc_loss(log_probs, *rest, reduction="none").isinf().tolist() == [True, False]
    loss, wanted = (f(log_probs, *rest, zero_infinity=True) for f in (bct.ctc_loss, torch.nn.functional.ctc_loss))
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one, log_probs) for one in (loss, wanted)))


def test_one_sequence_without_a_batch() -> None:
    log_probs = _log_probs(6, 4)
    alone = bc.ctc_loss(log_probs, np.array([1, 2]), np.array(6), np.array(2), reduction="none")
    batch = bc.ctc_loss(log_probs[:, None], np.array([[1, 2]]), np.array([6]), np.array([2]), reduction="none")
    assert np.shape(alone) == () and alone == batch[0]


def test_policies() -> None:
    log_probs, one = _log_probs(4, 1, 3), np.array([4])
    assert np.isinf(bc.ctc_loss(log_probs, np.array([[7]]), one, np.array([1])))  # no such class
    assert np.isnan(bc.ctc_loss(log_probs, np.array([[1, 2]]), one, np.array([2]), max_target_length=1))
    empty = bc.ctc_loss(log_probs, np.zeros((1, 0), np.int64), np.array([0]), np.array([0]), reduction="none")
    assert empty[0] == 0


def test_refusals() -> None:
    log_probs, lengths = _log_probs(4, 2, 3), np.array([4, 4])
    with pytest.raises(InvalidProblemError, match="blank must be in"):
        bc.ctc_loss(log_probs, np.ones((2, 2), np.int64), lengths, np.array([1, 1]), blank=3)
    with pytest.raises(InvalidProblemError, match="targets must have shape"):
        bc.ctc_loss(log_probs, np.ones((3, 2), np.int64), lengths, np.array([1, 1]))
    with pytest.raises((InvalidProblemError, bc.UnsupportedError), match="targets"):
        bc.ctc_loss(log_probs, np.ones((2, 2)), lengths, np.array([1, 1]))
    with pytest.raises(InvalidProblemError, match="log_probs must have shape"):
        bc.ctc_loss(log_probs[0, 0], np.ones((2, 2), np.int64), lengths, np.array([1, 1]))
