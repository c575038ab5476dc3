"""Exponentials, roots, logarithms, powers, Sylvester's equation: SciPy's values, torch's gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, SingularMatrixError, UnsupportedError

linalg: Any = pytest.importorskip("scipy.linalg")
torch: Any = pytest.importorskip("torch")
DTYPES = ("float32", "float64", "complex64", "complex128")


def made(n: int, dtype: str, seed: int = 0) -> Any:
    return drawn(np.random.default_rng(seed), (3, n, n), dtype)


def wide(x: Any) -> Any:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def near(got: Any, want: Any, times: float = 100) -> None:
    eps = float(np.finfo(got.dtype).eps)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=times * eps * max(np.abs(want).max(initial=0), 1e-300))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_exponentials(n: int, dtype: str) -> None:
    for scale in (1e-3, 0.1, 1, 4):
        a = (made(n, dtype) * scale / np.sqrt(n)).astype(dtype)
        near(bc.matrix_exp(a), linalg.expm(wide(a)), 5000 if scale > 1 else 100)
    np.testing.assert_array_equal(bc.expm(a), bc.matrix_exp(a))
    a, e = made(n, dtype)[:2]
    for got, want in zip(bc.expm_frechet(a[None], e[None]), linalg.expm_frechet(wide(a), wide(e)), strict=True):
        near(got[0], want, 2000)
    assert bc.expm_frechet(a, e, compute_expm=False).shape == a.shape


def test_exponentials_of_special_matrices() -> None:
    np.testing.assert_array_equal(bc.matrix_exp(np.zeros((2, 3, 3))), np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert bc.matrix_exp(np.zeros((0, 0))).shape == (0, 0) and bc.matrix_exp(np.zeros((0, 2, 2))).shape == (0, 2, 2)
    near(bc.matrix_exp(np.diag([-1e4, 0.0])), np.diag([0.0, 1.0]))
    near(bc.matrix_exp(np.triu(np.full((4, 4), 3.0), 1)), linalg.expm(np.triu(np.full((4, 4), 3.0), 1)))
    for bad in (np.nan, np.inf, 1e300):
        a = np.stack([np.full((2, 2), bad), np.eye(2)])
        y = bc.matrix_exp(a)
        assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()
    a = 3 * made(4, "float64")
    assert np.isnan(bc.matrix_exp(10 * a, squarings=1)).all()
    out = np.empty_like(a)
    assert bc.matrix_exp(a, out=out) is out
    near(out, linalg.expm(a), 1e4)
    # A matrix of a batch gets what it gets alone, though others are squared more often.
    mixed = np.stack([a[0] / 100, a[1]])
    np.testing.assert_array_equal(bc.matrix_exp(mixed)[0], bc.matrix_exp(mixed[:1])[0])
    # Where nothing is read back all squarings are made, to the same result.
    np.testing.assert_allclose(bc.matrix_exp(torch.tensor(a)).numpy(), bc.matrix_exp(a), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients(dtype: str) -> None:
    t = torch.tensor(made(4, dtype)[:2])
    got, want = (t.clone().requires_grad_() for _ in range(2))
    bc.matrix_exp(got, squarings=6).abs().pow(2).sum().backward()
    torch.matrix_exp(want).abs().pow(2).sum().backward()
    torch.testing.assert_close(got.grad, want.grad, rtol=1e-10, atol=1e-10)
    held = torch.tensor(made(2, dtype)[0] + 4 * np.eye(2)).requires_grad_()
    for function in (lambda a: bc.matrix_power(a, -2), bc.sqrtm):
        assert torch.autograd.gradcheck(function, [held])
    base = wide(made(2, dtype)[0]) + 4 * np.eye(2)
    along = made(2, dtype, 1)[0]
    leaf = torch.tensor(base).requires_grad_()
    bc.logm(leaf).backward(torch.tensor(along))
    back = linalg.logm(np.block([[base.conj().T, along], [np.zeros((2, 2)), base.conj().T]]))[:2, 2:]
    near(leaf.grad.numpy(), back, 1e4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 6])
def test_roots_and_logarithms(n: int, dtype: str) -> None:
    a = (made(n, dtype) / np.sqrt(max(n, 1)) / 2 + 2 * np.eye(n)).astype(dtype)
    spd = (a @ a.conj().swapaxes(-1, -2)).astype(dtype)
    for function, x in ((bc.sqrtm, a), (bc.logm, spd)):
        want = np.stack([getattr(linalg, function.__name__)(one) for one in wide(x)])
        out = np.empty_like(a)
        assert function(x, out=out) is out
        near(out, want, 2000)


def test_roots_of_special_matrices() -> None:
    near(bc.sqrtm(np.diag([1e-10, 1e10])), np.diag([1e-5, 1e5]))
    np.testing.assert_allclose(np.diag(bc.logm(np.diag([1e-300, 1e300]))), [-690.7755278982137, 690.7755278982137])
    np.testing.assert_allclose(bc.logm(np.array([[1, 1e6], [0, 1.0]])), [[0, 1e6], [0, 0]], atol=1e-6)
    assert not np.isfinite(bc.sqrtm(np.diag([1.0, -1.0]))).all() and not np.isfinite(bc.sqrtm(np.zeros((2, 2)))).all()
    turned = np.array([[0, -1.0], [1, 0]])  # eigenvalues ±i
    near(bc.sqrtm(turned), linalg.sqrtm(turned))
    near(bc.sqrtm(np.diag([-1 + 1e-1j, 4])), np.diag(np.sqrt([-1 + 1e-1j, 4])), 1e4)  # beside the axis
    assert bc.sqrtm(np.zeros((0, 0))).shape == bc.logm(np.zeros((0, 0))).shape == (0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_and_sylvester(dtype: str) -> None:
    a = (made(5, dtype) + 6 * np.eye(5)).astype(dtype)
    for n in (-1, -2, -5):
        near(bc.matrix_power(a, n), np.linalg.matrix_power(wide(a), n), 500)
    b = made(3, dtype, 1)
    q = drawn(np.random.default_rng(3), (3, 5, 3), dtype)
    want = np.stack([linalg.solve_sylvester(*one) for one in zip(wide(a), wide(b), wide(q), strict=True)])
    near(bc.solve_sylvester(a, b, q), want, 500)


def test_refusals() -> None:
    for function in (bc.matrix_exp, bc.expm, bc.sqrtm, bc.logm, bc.eig, bc.eigvals, bc.hessenberg):
        with pytest.raises(UnsupportedError, match=r"write cast\(a, 'float32'\)"):
            function(np.eye(3, dtype=np.float16))
        with pytest.raises(InvalidProblemError, match="square"):
            function(np.ones((3, 2)))
    with pytest.raises(SingularMatrixError):
        bc.matrix_power(np.zeros((2, 2)), -1)
    with pytest.raises(InvalidProblemError, match="squarings"):
        bc.matrix_exp(np.eye(2), squarings=-1)
    with pytest.raises(InvalidProblemError, match="e must have a's shape"):
        bc.expm_frechet(np.eye(2), np.eye(3))
    with pytest.raises(InvalidProblemError, match="q must be"):
        bc.solve_sylvester(np.eye(2), np.eye(3), np.ones((3, 2)))


def test_all_are_in_linalg() -> None:
    for name in ("matrix_exp", "expm", "sqrtm", "logm", "eig", "eigvals", "cg", "gmres", "lobpcg", "ormqr"):
        assert getattr(bc.linalg, name) is getattr(bc, name) and name in dir(bc.linalg)
