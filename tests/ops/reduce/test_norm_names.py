"""Names that other libraries have for norms and totals, and scans by an operator's name."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

X = np.random.default_rng(0).standard_normal((3, 4, 5))


def test_reductions_of_jax():
    for name, wanted in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)):
        np.testing.assert_allclose(getattr(bc, f"reduce_{name}")(X, axis=(0, 2)), wanted(X, (0, 2)), rtol=1e-13)
    bits = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for name in ("or", "and", "xor"):
        combine = getattr(np, f"bitwise_{name}")
        np.testing.assert_array_equal(getattr(bc, f"reduce_{name}")(bits, axis=1), combine.reduce(bits, 1))
        np.testing.assert_array_equal(getattr(bc, f"reduce_{name}")(bits > 5, axis=0), combine.reduce(bits > 5, 0))


def test_norms():
    np.testing.assert_allclose(bc.frobenius_norm(X), np.linalg.norm(X.ravel()))
    np.testing.assert_allclose(bc.frobenius_norm(X, axis=(0, 1), keepdims=True)[0, 0], np.linalg.norm(X, axis=(0, 1)))
    torch = pytest.importorskip("torch")
    for axis in (0, 2):
        found = bc.norm_except_dim(X, 3, axis)
        np.testing.assert_allclose(found, torch.norm_except_dim(torch.tensor(X), 3, axis).numpy())
    np.testing.assert_allclose(bc.norm_except_dim(X, axis=-2).ravel(), np.linalg.norm(X, axis=(0, 2)))
    assert bc.norm_except_dim(X, 1, None).shape == ()
    with pytest.raises(InvalidProblemError, match="axis must be None or an integer in"):
        bc.norm_except_dim(X, 2, 3)
