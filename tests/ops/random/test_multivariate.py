"""Normal vectors of a given covariance, counts of categories, and dropout's and JAX's other names."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError


def test_vectors_of_a_covariance() -> None:
    mean, factor = np.array([3.0, -1.0]), np.array([[1.0, 0.0], [0.5, 2.0]])
    z = bc.randn((6, 2), seed=3, element="float64")
    y = bc.multivariate_normal(mean, factor, shape=(6,), seed=3)
    np.testing.assert_allclose(y, mean + z @ factor.T, rtol=1e-12)
    many = bc.multivariate_normal(np.tile(mean, (2, 3, 1)), np.stack([factor, 2 * factor, -factor]), seed=3)
    z = bc.randn((2, 3, 2), seed=3, element="float64")
    np.testing.assert_allclose(many[:, 1], mean + z[:, 1] @ (2 * factor).T, rtol=1e-12)
    np.testing.assert_allclose(many[:, 2], mean - z[:, 2] @ factor.T, rtol=1e-12)
    assert bc.multivariate_normal(mean, factor, shape=(0,), seed=3).shape == (0, 2)
    assert bc.multivariate_normal(mean, factor, seed=3).shape == (2,)


def test_their_moments() -> None:
    """Five standard errors of 40 000 draws: false alarms come once in 100 000 seeds."""
    factor = np.array([[1.0, 0.0], [0.5, 2.0]])
    y = bc.multivariate_normal(np.zeros(2), factor, shape=(40000,), seed=11)
    np.testing.assert_allclose(np.cov(y.T), factor @ factor.T, atol=5 * 4.25 * np.sqrt(2 / 40000))
    np.testing.assert_allclose(y.mean(0), 0, atol=5 * np.sqrt(4.25 / 40000))


def test_their_gradients() -> None:
    torch = pytest.importorskip("torch")
    mean = torch.tensor([3.0, -1.0], dtype=torch.float64, requires_grad=True)
    factor = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64, requires_grad=True)
    for form in (lambda f: f, lambda f: f[None]):
        assert torch.autograd.gradcheck(
            lambda m, f, form=form: bc.multivariate_normal(m, form(f), shape=(3,), seed=1), (mean, factor)
        )


@pytest.mark.parametrize(
    "mean, factor, shape, message",
    [
        (np.zeros(2), np.zeros((3, 3)), None, r"scale_tril \[..., d, d\]"),
        (np.zeros(2, int), np.zeros((2, 2), int), None, "one float"),
        (np.zeros((4, 2)), np.zeros((2, 2)), (3,), "broadcast"),
    ],
)
def test_wrong_shapes(mean: np.ndarray, factor: np.ndarray, shape: object, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        bc.multivariate_normal(mean, factor, shape=shape, seed=1)


def test_counts_are_those_of_the_ids() -> None:
    probs = np.array([[0.2, 0.3, 0.5], [0, 0, 0], [1, 0, 0]])
    counts, ids = bc.multinomial_counts(1000, probs, seed=2), bc.multinomial(probs, 1000, True, seed=2)
    for row, (count, drawn) in enumerate(zip(counts, ids, strict=True)):
        np.testing.assert_array_equal(count, np.bincount(drawn[drawn >= 0], minlength=3), err_msg=str(row))
    assert counts.sum(1).tolist() == [1000, 0, 1000]
    assert bc.multinomial_counts(7, probs[0], seed=1).sum() == 7
    assert not bc.multinomial_counts(0, probs, seed=1).any()
    assert bc.multinomial_counts(5, np.ones((0, 3)), seed=1).shape == (0, 3)
    out = np.zeros((3, 3), np.int64)
    assert bc.multinomial_counts(1000, probs, seed=2, out=out) is out and (out == counts).all()
    with pytest.raises(InvalidProblemError, match="probs"):
        bc.multinomial_counts(3, np.array(1.0), seed=1)


def test_other_names() -> None:
    x = np.ones((3, 4), np.float32)
    for one, other in zip(
        bc.native_dropout(x, 0.25, seed=7), bc.dropout(x, 0.25, seed=7, return_mask=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(bc.native_dropout(x, 0.5, False)[0], x)
    np.testing.assert_array_equal(
        bc.rng_uniform(-1.0, 2.0, (3, 4), seed=5), bc.uniform(-1.0, 2.0, shape=(3, 4), seed=5)
    )
    np.testing.assert_array_equal(
        bc.weibull_min(2.0, 1.5, shape=(9,), seed=5), bc.weibull(2.0, 1.5, shape=(9,), seed=5)
    )
