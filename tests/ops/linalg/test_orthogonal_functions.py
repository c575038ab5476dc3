"""QR's gradient, products with Q, low ranks, general eigenvalues, Hessenberg forms: as torch and SciPy have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

linalg: Any = pytest.importorskip("scipy.linalg")
torch: Any = pytest.importorskip("torch")
DOUBLE = ("float64", "complex128")


def made(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    return drawn(np.random.default_rng(seed), shape, dtype)


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (3, 5), (1, 1), (3, 1)], ids=str)
def test_the_gradient_of_qr(shape: tuple[int, int], dtype: str) -> None:
    a = torch.tensor(made(2, *shape, dtype=dtype))
    weights = [torch.tensor(made(2, 5, 5, dtype=dtype, seed=i)) for i in (1, 2)]

    def value(parts: Any) -> Any:
        return sum((y * w[..., : y.shape[-2], : y.shape[-1]]).real.sum() for y, w in parts)

    for mode in ("reduced", "complete"):
        if mode == "complete" and shape[0] > shape[1]:
            with pytest.raises(UnsupportedError, match="mode='reduced'"):
                bc.qr(a.clone().requires_grad_(), mode)[1].sum().abs().backward()
            continue
        for chosen in ((0, 1), (0,), (1,)):
            got, want = (a.clone().requires_grad_() for _ in range(2))
            for qr, leaf in ((bc.qr, got), (torch.linalg.qr, want)):
                parts = qr(leaf, mode)
                value([(parts[i], weights[i]) for i in chosen]).backward()
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-9, atol=1e-9)
    got, want = (a.clone().requires_grad_() for _ in range(2))
    value([(bc.qr(got, "r"), weights[1])]).backward()
    value([(torch.linalg.qr(want)[1], weights[1])]).backward()
    torch.testing.assert_close(got.grad, want.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("shape", [(6, 4), (4, 4), (4, 6)], ids=str)
def test_products_with_q(shape: tuple[int, int], dtype: str) -> None:
    y, tau = bc.geqrf(made(2, *shape, dtype=dtype))
    for left in (True, False):
        c = made(2, *((shape[0], 3) if left else (3, shape[0])), dtype=dtype)
        for transpose in (False, True):
            got = bc.ormqr(y, tau, c, left, transpose)
            want = torch.ormqr(*map(torch.tensor, (y, tau, c)), left, transpose)
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-12)
    a, k = made(*shape, dtype=dtype), min(shape)
    for mode, rows in (("right", shape[0]), ("left", k)):
        for c in (made(*((3, rows) if mode == "right" else (rows, 3)), dtype=dtype), made(rows, dtype=dtype)):
            for conjugate in (False, True):
                got = bc.qr_multiply(a, c, mode, conjugate=conjugate)
                q, r = np.linalg.qr(a)
                q = q.conj() if conjugate else q
                for one, other in zip(got, (c @ q if mode == "right" else q @ c, r), strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    with pytest.raises(InvalidProblemError, match="other must have shape"):
        bc.ormqr(y, tau, np.ones((2, shape[0] + 1, 1), dtype))
    with pytest.raises(InvalidProblemError, match="mode must be"):
        bc.qr_multiply(a, c, "both")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [(30, 20), (20, 30)], ids=str)
def test_low_ranks(shape: tuple[int, int], dtype: str) -> None:
    m, n = shape
    a = (made(2, m, 4, dtype=dtype) @ made(2, 4, n, dtype=dtype, seed=1)).astype(dtype)
    mean = a.mean(-2, keepdims=True)
    for function, whole in ((bc.svd_lowrank, a), (bc.pca_lowrank, a - mean)):
        u, s, v = function(a, q=7, seed=3)
        assert u.shape == (2, m, 7) and s.shape == (2, 7) and v.shape == (2, n, 7)
        eps = float(np.finfo(dtype).eps)
        np.testing.assert_allclose(u * s[..., None, :] @ adjoint(v), whole, atol=300 * eps * np.abs(whole).max())
        np.testing.assert_allclose(s, np.linalg.svd(whole)[1][..., :7], atol=300 * eps * s.max())
        for again, first in zip(function(a, q=7, seed=3), (u, s, v), strict=True):
            np.testing.assert_array_equal(again, first)
    u, s, v = bc.svd_lowrank(a, 5, M=a - mean, seed=0)
    np.testing.assert_allclose(s[..., 0], np.linalg.norm(np.broadcast_to(mean, a.shape), axis=(-2, -1)), rtol=1e-4)
    with pytest.raises(InvalidProblemError, match="q must be at most"):
        bc.svd_lowrank(a, 21)
    held = torch.tensor(a).requires_grad_()
    bc.svd_lowrank(held, 4, seed=1)[1].sum().backward()
    want = torch.tensor(a).requires_grad_()
    torch.linalg.svdvals(want)[..., :4].sum().backward()
    torch.testing.assert_close(held.grad, want.grad, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", DOUBLE)
def test_general_eigenvalues(dtype: str) -> None:
    a = made(2, 5, 5, dtype=dtype)
    w, v = bc.eig(a)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1)
    np.testing.assert_allclose(bc.eigvals(a).sum(-1), np.trace(a, axis1=-2, axis2=-1), atol=1e-12)
    pairs = [
        (lambda x: bc.eigvals(x).abs().pow(3), lambda x: torch.linalg.eigvals(x).abs().pow(3)),
        (lambda x: bc.eig(x)[1].abs().pow(3), lambda x: torch.linalg.eig(x)[1].abs().pow(3)),
        (lambda x: bc.eig(x)[0].abs(), lambda x: torch.linalg.eig(x)[0].abs()),
    ]
    for ours, theirs in pairs:
        got, want = (torch.tensor(a).requires_grad_() for _ in range(2))
        ours(got).sum().backward()
        theirs(want).sum().backward()
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-9, atol=1e-9)
    assert [one.shape for one in bc.eig(np.zeros((2, 0, 0)))] == [(2, 0), (2, 0, 0)]
    bad = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    w, v, info = bc.eig(bad, return_info=True)
    assert np.isnan(w[1]).all() and np.isnan(v[1]).all() and info.tolist() == [0, 3] and np.isfinite(v[0]).all()
    np.testing.assert_allclose(bc.eigvals(np.array([[1.0, 1], [0, 1]])), [1, 1])  # one vector


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8])
def test_hessenberg_forms_and_updates(n: int, dtype: str) -> None:
    a = made(2, n, n, dtype=dtype)
    h, q = bc.hessenberg(a, calc_q=True)
    np.testing.assert_allclose(q @ h @ adjoint(q), a, atol=1e-13)
    np.testing.assert_allclose(q @ adjoint(q), np.broadcast_to(np.eye(n), a.shape), atol=1e-13)
    assert not np.tril(h, -2).any()
    np.testing.assert_array_equal(bc.hessenberg(a), h)
    if n:
        np.testing.assert_allclose(np.abs(h[0]), np.abs(linalg.hessenberg(a[0])), atol=1e-12)
        hermitian = a + adjoint(a)
        np.testing.assert_allclose(np.triu(bc.hessenberg(hermitian), 2), 0, atol=1e-13)
    r = adjoint(np.linalg.cholesky(a @ adjoint(a) + np.eye(n)))
    w = made(2, n, dtype=dtype, seed=4)
    s = bc.cholesky_update(r, w)
    want = adjoint(r) @ r + w[..., None].conj() * w[..., None, :]
    np.testing.assert_allclose(adjoint(s) @ s, want, atol=1e-12)
    assert (np.diagonal(s, axis1=-2, axis2=-1).real > 0).all() and not np.tril(s, -1).any()
    if n:
        c, row, b = (
            made(n, dtype=dtype) + 5 * np.eye(n)[0],
            made(n, dtype=dtype, seed=5),
            made(n, 2, dtype=dtype, seed=6),
        )
        np.testing.assert_allclose(bc.solve_toeplitz((c, row), b), linalg.solve_toeplitz((c, row), b), atol=1e-10)
        np.testing.assert_allclose(bc.solve_toeplitz(c, b[:, 0]), linalg.solve_toeplitz(c, b[:, 0]), atol=1e-10)


def test_older_names() -> None:
    a = made(3, 4)
    np.testing.assert_allclose(bc.pinverse(a), np.linalg.pinv(a), atol=1e-13)
    np.testing.assert_allclose(bc.nuclear_norm(a), np.linalg.norm(a, "nuc"))
    assert bc.nuclear_norm(a, keepdims=True).shape == (1, 1)
