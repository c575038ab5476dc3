"""The losses of rows: torch's functions with every option, both passes, N-d classes, ignored rows, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
bct = pytest.importorskip("baracuda_py.torch")
RNG = np.random.default_rng(5)


def _x(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.standard_normal(shape))


X, Y, Z = _x(4, 7), _x(4, 7), _x(4, 7)
CLASSES, WEIGHT = torch.tensor([0, 6, 2, 2]), torch.tensor(RNG.uniform(0.2, 2.0, 7))
LABELS = torch.tensor([[0, 3, -1, 1, 1, 1, 1], [-1, 0, 0, 0, 0, 0, 0], [1, 1, 2, -1, 3, 3, 3], [6, 5, 4, 3, 2, 1, 0]])
SIGNS = torch.tensor([1, -1, 1, -1])
CASES = [  # ours, torch's, operands, those with a gradient, options
    ("nll_loss", (X, CLASSES, WEIGHT), 1, {"ignore_index": 6}),
    ("multi_margin_loss", (X, CLASSES, WEIGHT), 1, {"p": 2, "margin": 0.4}),
    ("multi_margin_loss", (X, CLASSES), 1, {}),
    ("multilabel_margin_loss", (X, LABELS), 1, {}),
    ("multilabel_soft_margin_loss", (X, Y.sigmoid(), WEIGHT), 2, {}),
    ("cosine_embedding_loss", (X, Y, SIGNS), 2, {"margin": -0.3}),
    ("triplet_margin_loss", (X, Y, Z), 3, {}),
    ("triplet_margin_loss", (X, Y, Z), 3, {"p": 1.0, "swap": True, "margin": 3.0}),
    ("triplet_margin_loss", (X, Y, Z), 3, {"p": math.inf, "eps": 0.01}),
    ("triplet_margin_loss", (X, Y, Z), 3, {"p": 3.5, "swap": True}),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "operands", "grown", "options"), CASES)
def test_torchs_value_and_gradients(name: str, operands: tuple, grown: int, options: dict, reduction: str) -> None:
    def run(module, named):
        held = [one.clone().requires_grad_() if i < grown else one for i, one in enumerate(operands)]
        given = dict(zip(named, held[grown:], strict=False)) if named else {}
        loss = getattr(module, name)(*(held[: len(held) - len(given)]), **given, reduction=reduction, **options)
        return loss, torch.autograd.grad((loss * 1.5).sum(), held[:grown])

    theirs = {"nll_loss": ("target", "weight"), "multi_margin_loss": ("target", "weight")}.get(name, ())
    (loss, grads), (wanted, expected) = run(bct, ()), run(F, theirs)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_nll_loss_of_any_rank(shape: tuple[int, ...]) -> None:
    x = _x(*shape).requires_grad_()
    kept = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.tensor(RNG.integers(0, 3, kept))
    loss, wanted = bct.nll_loss(x, target, WEIGHT[:3]), F.nll_loss(x, target, WEIGHT[:3])
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one, x) for one in (loss, wanted)))


def test_the_mean_of_no_rows_is_nan_and_classes_that_are_none_are_ignored() -> None:
    x = np.zeros((2, 3), np.float32)
    assert (
        np.isnan(bc.nll_loss(x, np.array([-100, -100]))) and bc.nll_loss(x, np.array([-100, 7]), reduction="sum") == 0
    )
    assert np.isnan(bc.triplet_margin_loss(x[:0], x[:0], x[:0]))


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_count_for_nothing_have_a_gradient_of_0(weighted: bool) -> None:
    """As of torch, also where no row counts and the mean is NaN: a batch of padding leaves a model's weights alone."""
    weight = WEIGHT[:3] if weighted else None
    for target in (torch.full((4,), -100), torch.tensor([-100, 1, -100, 2])):
        x = _x(4, 3).requires_grad_()
        ours, theirs = bct.nll_loss(x, target, weight), F.nll_loss(x, target, weight)
        torch.testing.assert_close(*(torch.autograd.grad(one, x)[0] for one in (ours, theirs)))
    x, dx = np.ones((3, 4), np.float32), np.full((3, 4), 7, np.float32)
    desc = bc.RowLossBackwardDescriptor(kind="nll_loss", batch_shape=3, features=4, element="float32")
    call(bc.RowLossBackwardPlan, desc, {"dx": dx}, dloss=np.ones((), np.float32), x=x, target=np.full(3, -100))
    assert not dx.any()


def test_refusals() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidProblemError, match="p of multi_margin_loss must be 1 or 2"):
        bc.multi_margin_loss(x, np.array([0, 1]), p=3)
    with pytest.raises(InvalidProblemError, match="target"):
        bc.nll_loss(x, np.array([0, 1, 2]))
    with pytest.raises((InvalidProblemError, bc.UnsupportedError), match="target"):
        bc.nll_loss(x, np.array([0.0, 1.0], np.float32))
    with pytest.raises(InvalidProblemError, match="positive"):
        bc.triplet_margin_loss(x, x[:1], x)
