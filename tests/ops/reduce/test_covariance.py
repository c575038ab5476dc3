"""cov and corrcoef: what torch and NumPy say, weighted too, and the gradients of torch."""

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 30)) + np.arange(4)[:, None]
F = RNG.integers(1, 5, 30)
A = RNG.uniform(0.1, 2, 30)


@pytest.mark.parametrize("x", [X, X[0]], ids=["matrix", "vector"])
def test_covariances(x):
    for correction in (0, 1, 3):
        np.testing.assert_allclose(bc.cov(x, correction=correction), np.cov(x, ddof=correction), rtol=1e-12)


def test_weights():
    for weights in ({"fweights": F}, {"aweights": A}, {"fweights": F, "aweights": A}):
        for correction in (0, 1):
            found = bc.cov(X, correction=correction, **weights)
            np.testing.assert_allclose(found, np.cov(X, ddof=correction, **weights), rtol=1e-12)


def test_correlations():
    np.testing.assert_allclose(bc.corrcoef(X), np.corrcoef(X), rtol=1e-12)
    assert bc.corrcoef(X[0]).shape == () and bc.corrcoef(X[0]) == pytest.approx(1)
    same = bc.corrcoef(np.stack([X[0], 3 * X[0], -X[0], 0 * X[0]]))
    np.testing.assert_allclose(same[:3, :3], [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])
    assert np.abs(same[:3, :3]).max() <= 1 and np.isnan(same[3]).all()


def test_numbers_far_off_zero_and_of_16_bits():
    np.testing.assert_allclose(bc.cov(X + 1e8), np.cov(X + 1e8), rtol=1e-6)
    half = X.astype(ml_dtypes.bfloat16)
    found = bc.cov(half)
    assert found.dtype == half.dtype
    np.testing.assert_allclose(found.astype(float), np.cov(half.astype(float)), rtol=2**-8, atol=2**-9)


def test_gradients_are_those_of_torch():
    torch = pytest.importorskip("torch")

    def both(ours, theirs, x, **options):
        leaf = torch.tensor(x, requires_grad=True)
        wanted = theirs(leaf)
        dy = np.asarray(RNG.standard_normal(wanted.shape))
        (truth,) = torch.autograd.grad(wanted, leaf, torch.tensor(dy))
        np.testing.assert_allclose(ours(dy, x, **options), truth.numpy(), rtol=1e-10, atol=1e-12)

    f, a = torch.tensor(F), torch.tensor(A)
    for x in (X, X[0]):
        both(bc.cov_backward, torch.cov, x)
        both(bc.cov_backward, lambda x: torch.cov(x, correction=0), x, correction=0)
    both(bc.cov_backward, lambda x: torch.cov(x, fweights=f, aweights=a), X, fweights=F, aweights=A)
    both(bc.corrcoef_backward, torch.corrcoef, X)
    both(bc.corrcoef_backward, torch.corrcoef, X[0])


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="no integer"):
        bc.cov(F)
    with pytest.raises(InvalidProblemError, match="variables, observations"):
        bc.cov(X[None])
    with pytest.raises(InvalidProblemError, match="one for each of 30"):
        bc.cov(X, fweights=F[1:])
    for function in (bc.cov, bc.corrcoef):
        with pytest.raises(UnsupportedError, match="real numbers"):
            function(X + 0j)
    with pytest.raises(InvalidProblemError, match="correction"):
        bc.cov(X, correction=0.5)
