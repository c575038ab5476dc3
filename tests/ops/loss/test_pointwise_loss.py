"""The losses of elements: torch's functions with every option, both passes, broadcasting, extremes, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(3)


def _x(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape))


X, Y, POSITIVE = _x(4, 5), _x(4, 5), torch.tensor(RNG.uniform(0.2, 2.0, (4, 5)))
SIGNS, PARTS = Y.sign(), Y.sigmoid()
CASES = [
    ("mse_loss", (X, Y), {}), ("mse_loss", (X, Y), {"weight": POSITIVE}), ("l1_loss", (X, Y), {"weight": POSITIVE}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.4}), ("smooth_l1_loss", (X, Y), {"beta": 0.0}),
    ("huber_loss", (X, Y), {"delta": 0.6, "weight": POSITIVE}), ("binary_cross_entropy", (X.sigmoid(), PARTS), {}),
    ("binary_cross_entropy", (X.sigmoid(), PARTS), {"weight": POSITIVE[0]}),
    ("binary_cross_entropy_with_logits", (X, PARTS), {"pos_weight": POSITIVE[0], "weight": POSITIVE[:, :1]}),
    ("poisson_nll_loss", (X, POSITIVE), {"full": True}), ("soft_margin_loss", (X, SIGNS), {}),
    ("poisson_nll_loss", (POSITIVE, POSITIVE), {"log_input": False, "eps": 0.1}),
    ("gaussian_nll_loss", (X, Y, POSITIVE), {"full": True, "eps": 0.5}),
    ("gaussian_nll_loss", (X, Y, POSITIVE[:, 0]), {}),
    ("gaussian_nll_loss", (X, Y, 0.3), {}), ("hinge_embedding_loss", (X, SIGNS), {"margin": 0.3}),
]  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "operands", "options"), CASES)
def test_torchs_value_and_gradients(name: str, operands: tuple, options: dict, reduction: str) -> None:
    def run(module):
        held = [one.clone().requires_grad_(i != 1) if torch.is_tensor(one) else one for i, one in enumerate(operands)]
        loss = getattr(module, name)(*held, reduction=reduction, **options)
        leaves = [one for one in held if torch.is_tensor(one) and one.requires_grad]
        return loss, torch.autograd.grad((loss * 1.5).sum(), leaves)

    (loss, grads), (wanted, theirs) = run(bct), run(F)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(grads, theirs)


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "batchmean"])
def test_kl_div(reduction: str, log_target: bool) -> None:
    p = Y.softmax(-1).log() if log_target else Y.softmax(-1)
    x, t = X.log_softmax(-1).requires_grad_(), p.clone().requires_grad_()
    loss, wanted = (f(x, t, reduction=reduction, log_target=log_target) for f in (bct.kl_div_loss, F.kl_div))
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), (x, t)) for one in (loss, wanted)))


def test_margin_ranking_with_gradients_of_all_three() -> None:
    held = [one.clone().requires_grad_() for one in (X, Y, SIGNS[:, :1])]
    loss = bct.margin_ranking_loss(held[0], held[1], held[2], margin=0.2)
    wanted = F.margin_ranking_loss(held[0], held[1], held[2], margin=0.2)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one, held) for one in (loss, wanted)))


def test_sums_of_halves_do_not_leave_the_range_and_are_not_rounded() -> None:
    x, y = np.full(4096, 200, np.float16), np.zeros(4096, np.float16)
    loss = bc.mse_loss(x, y, reduction="sum")
    assert loss.dtype == np.float32 and loss == 4096 * 40000.0
    assert bc.mse_loss(x, y, reduction="none").dtype == np.float16
    tiny = np.full(3000, 0.01, np.float16)
    assert abs(bc.l1_loss(tiny, 0 * tiny, reduction="sum") / (3000 * float(np.float16(0.01))) - 1) < 1e-6


def test_the_mean_of_nothing_is_nan_and_the_sum_0() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert np.isnan(bc.mse_loss(empty, empty)) and bc.mse_loss(empty, empty, reduction="sum") == 0
    assert bc.huber_loss(empty, empty, reduction="none").shape == (0, 3)


def test_extremes() -> None:
    inf = math.inf
    logits, targets = np.array([inf, -inf, inf, -inf]), np.array([1.0, 0.0, 0.0, 1.0])
    loss = bc.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    assert loss.tolist() == [0, 0, inf, inf]
    assert bc.binary_cross_entropy(np.array([0.0]), np.array([1.0])) == 100
    assert bc.kl_div_loss(np.array([-inf, 0.0]), np.array([0.0, 0.0]), reduction="none").tolist() == [0, 0]
    log_q, log_p = np.array([[-inf, 0.0]]), np.array([[0.0, -inf]])
    assert abs(bc.generalized_jsd_loss(log_q, log_p) - math.log(2)) < 1e-15


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_generalized_jsd_is_a_mixture_of_divergences(beta: float) -> None:
    q, p = X.log_softmax(-1), Y.log_softmax(-1)
    m = (beta * p.exp() + (1 - beta) * q.exp()).log()
    ways = {0.0: F.kl_div(q, p, reduction="batchmean", log_target=True),
            1.0: F.kl_div(p, q, reduction="batchmean", log_target=True)}  # fmt: skip
    both = (F.kl_div(m, one, reduction="batchmean", log_target=True) for one in (p, q))
    first, second = both
    wanted = ways.get(beta, beta * first + (1 - beta) * second)
    torch.testing.assert_close(bct.generalized_jsd_loss(q, p, beta=beta), wanted)


def test_sigmoid_focal_loss_of_gamma_0_is_the_cross_entropy() -> None:
    loss = bct.sigmoid_focal_loss(X, PARTS, alpha=-1, gamma=0)
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(X, PARTS, reduction="none"))
    hard = (Y > 0).to(X.dtype)
    p = torch.where(hard > 0, X.sigmoid(), 1 - X.sigmoid())
    wanted = -torch.where(hard > 0, 0.25, 0.75) * (1 - p) ** 2 * p.log()
    torch.testing.assert_close(bct.sigmoid_focal_loss(X, hard), wanted)


def test_refusals() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="reduction must be one of"):
        bc.mse_loss(x, x, reduction="max")
    with pytest.raises(InvalidProblemError, match="batchmean"):
        bc.mse_loss(x, x, reduction="batchmean")
    with pytest.raises(InvalidProblemError, match="delta must be > 0"):
        bc.huber_loss(x, x, delta=0)
    with pytest.raises(InvalidProblemError, match="variance must be"):
        bc.gaussian_nll_loss(x, x, -1.0)
    with pytest.raises(InvalidProblemError):
        bc.mse_loss(x, np.ones((2, 4), np.float32))
    leaf = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(bc.UnsupportedError, match="has no gradient for it"):
        bct.mse_loss(torch.ones(2, 3), torch.ones(2, 3), weight=leaf)
