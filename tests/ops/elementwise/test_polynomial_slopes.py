"""The derivatives of orthogonal polynomials against NumPy's of their coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre

import baracuda_py as bc


def _second(n: int) -> Any:
    """U of degree n: the derivative of T of the next, over that degree."""
    return Chebyshev.basis(n + 1).deriv() / (n + 1) if n >= 0 else Chebyshev([0.0])


FAMILIES = {
    "chebyshev_polynomial_t": Chebyshev.basis, "chebyshev_polynomial_u": _second,
    "chebyshev_polynomial_v": lambda n: _second(n) - _second(n - 1),
    "chebyshev_polynomial_w": lambda n: _second(n) + _second(n - 1),
    "hermite_polynomial_h": Hermite.basis, "hermite_polynomial_he": HermiteE.basis,
    "laguerre_polynomial_l": Laguerre.basis, "legendre_polynomial_p": Legendre.basis,
}  # fmt: skip
NAMES = (*FAMILIES, *(f"shifted_{name}" for name in FAMILIES if "chebyshev" in name))


@pytest.mark.parametrize("name", NAMES)
def test_slopes(name: str) -> None:
    x, dy = np.linspace(-1.3, 1.7, 23), np.linspace(-2, 3, 23)
    for n in (0, 1, 2, 3, 7, 12):
        polynomial, shifted = FAMILIES[name.removeprefix("shifted_")](n), name.startswith("shifted_")
        at = 2 * x - 1 if shifted else x
        want = dy * polynomial.deriv()(at) * (2 if shifted else 1)
        np.testing.assert_allclose(getattr(bc, name)(x, n), polynomial(at), rtol=1e-9, atol=1e-9)
        got = getattr(bc, f"{name}_backward")(dy, x, n)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * (1 + np.abs(want).max()))
        single = getattr(bc, f"{name}_backward")(dy.astype(np.float32), x.astype(np.float32), n)
        np.testing.assert_allclose(single, want, rtol=2e-4, atol=2e-5 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("name", NAMES)
def test_the_ends(name: str) -> None:
    slope = getattr(bc, f"{name}_backward")
    x, n = np.array([0.5, np.nan, 0.5, 0.5, np.inf, 0.3]), np.array([-3, 2, 70000, np.nan, 0, 0.9])
    np.testing.assert_array_equal(slope(np.ones(6), x, n), [0, np.nan, np.nan, np.nan, 0, 0])
    assert np.isnan(slope(np.ones(1), np.array([1e300]), 40.0)).all()  # beyond the range of float64
    rows = slope(np.ones((3, 4)), np.full((3, 1), 0.25), np.arange(4.0))
    assert rows.shape == (3, 1)


@pytest.mark.parametrize("name", NAMES)
def test_torch_differentiates_twice(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64, requires_grad=True)
    n = torch.tensor([0.0, 1, 2, 3, 4, 5, 6], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: getattr(bc, name)(v, n), x)
    assert torch.autograd.gradgradcheck(lambda v: getattr(bc, name)(v, n), x)
    theirs = getattr(torch.special, name)(x.detach(), n)
    torch.testing.assert_close(getattr(bc, name)(x, n).detach(), theirs)
