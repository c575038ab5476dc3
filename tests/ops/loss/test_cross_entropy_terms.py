"""cross_entropy with probabilities, classes along any axis, and further terms: torch's values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(11)
WEIGHT = torch.tensor(RNG.uniform(0.2, 2.0, 5))


def _x(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 4), (2, 5, 3, 4)])
def test_classes_along_axis_1(shape: tuple[int, ...], soft: bool, smoothing: float, reduction: str) -> None:
    x = _x(*shape).requires_grad_()
    target = _x(*shape).softmax(1) if soft else torch.tensor(RNG.integers(0, 5, (shape[0], *shape[2:])))
    target = target.requires_grad_() if soft else target
    given = {"weight": WEIGHT, "label_smoothing": smoothing, "reduction": reduction}
    loss, wanted = bct.cross_entropy(x, target, axis=1, **given), F.cross_entropy(x, target, **given)
    torch.testing.assert_close(loss, wanted)
    leaves = (x, target) if soft else (x,)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), leaves) for one in (loss, wanted)))


def test_the_axis_is_seen_by_the_targets_shape() -> None:
    x = RNG.standard_normal((2, 5, 4))
    last, first = RNG.integers(0, 4, (2, 5)), RNG.integers(0, 5, (2, 4))
    assert bc.cross_entropy(x, last) == bc.cross_entropy(x, last, axis=-1)
    assert bc.cross_entropy(x, first) == bc.cross_entropy(x, first, axis=1)
    loss, dx = bc.cross_entropy(x, first, return_dlogits=True)
    moved, dy = bc.cross_entropy(np.ascontiguousarray(x.swapaxes(1, 2)), first, return_dlogits=True)
    assert loss == moved and np.array_equal(dx, dy.swapaxes(1, 2))


def test_terms() -> None:
    x, t = _x(6, 5).requires_grad_(), torch.tensor([0, 4, -100, 2, 2, 1])
    z = 2.0 * torch.tanh(0.7 * x / 2.0)
    loss, entropy, place = bct.cross_entropy(
        x, t, z_loss=0.01, softcap=2.0, logit_scale=0.7, return_entropy=True, return_argmax=True
    )  # fmt: skip
    wanted = F.cross_entropy(z, t) + 0.01 * (torch.logsumexp(z, 1)[t >= 0] ** 2).mean()
    p = z.log_softmax(1)
    apart = -(p.exp() * p).sum(1)
    torch.testing.assert_close((loss, entropy), (wanted, apart))
    assert torch.equal(place, z.argmax(1))
    ways = _x(6)
    made, theirs = loss + (ways * entropy).sum(), wanted + (ways * apart).sum()
    torch.testing.assert_close(*(torch.autograd.grad(one, x) for one in (made, theirs)))


def test_extremes() -> None:
    inf = np.inf
    far = np.array([[1e6, 1e6 + 2, -inf], [0.0, -1e30, 3.0]])
    soft = np.array([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    loss = bc.cross_entropy(far, soft, reduction="none")
    lse = np.log1p(np.exp(-2.0))
    assert np.allclose(loss, [0.25 * (2 + lse) + 0.75 * lse, 3 + np.log1p(np.exp(-3.0))], rtol=1e-12)
    assert np.isinf(bc.cross_entropy(far[:1], np.array([[0.0, 0.5, 0.5]])))


def test_refusals() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="ignore_index"):
        bc.cross_entropy(x, x, ignore_index=2)
    with pytest.raises(InvalidProblemError, match="return_dlogits=True is for classes"):
        bc.cross_entropy(x, np.array([0, 1]), z_loss=0.1, return_dlogits=True)
    with pytest.raises(InvalidProblemError, match="probabilities"):
        bc.cross_entropy(x, x[:1])
