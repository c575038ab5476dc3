"""cg, bicgstab, gmres, lobpcg and tridiagonal systems: solutions, ends, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.linalg.tridiagonal_solve import dense

linalg: Any = pytest.importorskip("scipy.linalg")
torch: Any = pytest.importorskip("torch")
DOUBLE = ("float64", "complex128")


def made(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    return drawn(np.random.default_rng(seed), shape, dtype)


def systems(n: int, dtype: str) -> list[Any]:
    """Each solver with matrices that it takes."""
    g = made(2, n, n, dtype=dtype)
    spd = g @ g.conj().swapaxes(-1, -2) + np.eye(n)
    return [(bc.cg, spd), (bc.bicgstab, g + 9 * np.eye(n)), (bc.gmres, g + 9 * np.eye(n)), (bc.gmres, g)]


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("n", [1, 6])
def test_solutions(n: int, dtype: str) -> None:
    b = made(2, n, dtype=dtype, seed=1)
    for solver, a in systems(n, dtype):
        want = np.linalg.solve(a, b[..., None])[..., 0]
        near = np.stack([np.diag(1 / np.diagonal(one)) for one in a])
        for m in (near, lambda x: 0.5 * x):
            x, info = solver(a, b, tol=1e-12, M=m)
            np.testing.assert_allclose(x, want, rtol=1e-7, atol=1e-9)
            assert info.dtype == np.int32 and info.tolist() == [0, 0]
        x, info = solver(lambda v, a=a: (a @ v[..., None])[..., 0], b, tol=1e-12)
        np.testing.assert_allclose(x, want, rtol=1e-7, atol=1e-9)
        one, _ = solver(a[0], b, tol=1e-12)  # one matrix, several right sides
        np.testing.assert_allclose((a[0] @ one[..., None])[..., 0], b, atol=1e-8)
        again, info = solver(a, b, want, tol=1e-6, maxiter=0)
        np.testing.assert_array_equal(again, want)
        assert info.tolist() == [0, 0]
        # Elsewhere all iterations are made: what is done stays as it is.
        held, told = solver(torch.tensor(a), torch.tensor(b), tol=1e-12, maxiter=12)
        np.testing.assert_allclose(held.numpy(), want, rtol=1e-7, atol=1e-9)
        assert told.tolist() == [0, 0]


def test_ends() -> None:
    a, b = np.diag(10.0 ** np.arange(12)), made(12)
    assert bc.cg(a, b, maxiter=3)[1] == 3 and bc.gmres(a, b, restart=2, maxiter=2)[1] == 2
    x, info = bc.cg(np.eye(12), np.stack([b, 0 * b, np.nan * b]))
    assert info.tolist()[:2] == [0, 0] and info[2] and np.isnan(x[2]).all()
    np.testing.assert_allclose(x[:2], np.stack([b, 0 * b]))
    x, info = bc.gmres(2 * np.eye(12), b, restart=5)  # the basis ends at once
    np.testing.assert_allclose(x, b / 2, atol=1e-14)
    singular = np.diag([1.0, 0, 2])
    assert bc.gmres(singular, np.ones(3), maxiter=3)[1] == 3 and bc.bicgstab(singular, np.ones(3), maxiter=3)[1] == 3
    np.testing.assert_allclose(bc.gmres(singular, np.array([1.0, 0, 2]), tol=1e-10)[0], [1, 0, 1], atol=1e-12)
    assert [one.shape for one in bc.cg(np.zeros((0, 0)), np.zeros(0))] == [(0,), ()]
    out = [np.empty(12), np.empty((), np.int32)]
    assert all(one is to for one, to in zip(bc.cg(np.eye(12), b, out=out), out, strict=True))


@pytest.mark.parametrize("dtype", DOUBLE)
def test_gradients(dtype: str) -> None:
    b = made(2, 6, dtype=dtype, seed=1)
    for solver, a in systems(6, dtype)[:3]:
        got, want = ([torch.tensor(x).requires_grad_() for x in (a, b)] for _ in range(2))
        solver(*got, tol=1e-14, maxiter=20)[0].abs().pow(2).sum().backward()
        torch.linalg.solve(want[0], want[1][..., None]).abs().pow(2).sum().backward()
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", DOUBLE)
@pytest.mark.parametrize("largest", [True, False])
def test_a_few_eigenvalues(largest: bool, dtype: str) -> None:
    g = made(2, 30, 30, dtype=dtype)
    h, s = g + g.conj().swapaxes(-1, -2), g @ g.conj().swapaxes(-1, -2) + np.eye(30)
    for b in (None, s):
        e, x = bc.lobpcg(h, 3, b, n=5, largest=largest, seed=1, niter=400)
        for i in range(2):
            w = linalg.eigvalsh(h[i], None if b is None else b[i])
            np.testing.assert_allclose(e[i], (w[::-1] if largest else w)[:3], atol=1e-10)
        np.testing.assert_allclose(h @ x, (x if b is None else b @ x) * e[..., None, :], atol=1e-4)
        again, _ = bc.lobpcg(h, 3, b, X=x, largest=largest, niter=5)
        np.testing.assert_allclose(again, e, atol=1e-10)
    leaf, want = (torch.tensor(h).requires_grad_() for _ in range(2))
    bc.lobpcg(leaf, 2, largest=largest, seed=0)[0].pow(2).sum().backward()
    w = torch.linalg.eigvalsh(want)
    (w[..., -2:] if largest else w[..., :2]).pow(2).sum().backward()
    torch.testing.assert_close(leaf.grad, want.grad, rtol=1e-5, atol=1e-5)
    got, want = (torch.tensor(h).requires_grad_() for _ in range(2))
    bc.lobpcg(got, 2, largest=largest, seed=0)[1].abs().pow(3).sum().backward()
    v = torch.linalg.eigh(want)[1]
    (v[..., -2:] if largest else v[..., :2]).abs().pow(3).sum().backward()
    turned = [x.grad + x.grad.mH for x in (got, want)]
    torch.testing.assert_close(*turned, rtol=1e-4, atol=1e-4)
    with pytest.raises(UnsupportedError, match="leave B out"):
        bc.lobpcg(torch.tensor(h).requires_grad_(), 2, torch.tensor(s), niter=2)[0].sum().backward()


@pytest.mark.parametrize("dtype", ["float32", *DOUBLE])
@pytest.mark.parametrize("n", [1, 2, 3, 9, 300])
def test_tridiagonal_systems(n: int, dtype: str) -> None:
    dl, d, du = made(3, 2, 4, n, dtype=dtype)
    d = d * 0.1 if n > 2 else d  # rows are exchanged
    b = made(2, 4, n, 3, dtype=dtype)
    x, a = bc.tridiagonal_solve(dl, d, du, b), dense(dl, d, du)
    off = np.abs(a @ x - b).max((-1, -2)) / (np.abs(a).sum(-1).max(-1) * np.abs(x).max((-1, -2)))
    assert off.max() < 8 * np.finfo(dtype).eps
    np.testing.assert_array_equal(bc.tridiagonal_solve(dl, d, du, b[..., 1]), x[..., 1])
    out = b.copy()
    assert bc.tridiagonal_solve(dl, d, du, out, out=out) is out
    np.testing.assert_array_equal(out, x)
    one = bc.tridiagonal_solve(dl[0, 0], d[0, 0], du[0, 0], b)
    np.testing.assert_array_equal(one[0, 0], x[0, 0])
    if n == 9 and dtype != "float32":
        leaves = [torch.tensor(v[0, 0]).requires_grad_() for v in (dl, d + 4, du)] + [torch.tensor(b).requires_grad_()]
        assert torch.autograd.gradcheck(bc.tridiagonal_solve, [*leaves[:3], leaves[3][0, 0].detach().requires_grad_()])
        bc.tridiagonal_solve(*leaves).abs().sum().backward()
        assert all(leaf.grad.shape == leaf.shape for leaf in leaves)


def test_tridiagonal_systems_of_jax() -> None:
    jax = pytest.importorskip("jax")
    dl, d, du = made(3, 2, 7).astype(np.float32)
    dl[:, 0], du[:, -1], b = 0, 0, made(2, 7, 2).astype(np.float32)
    want = jax.lax.linalg.tridiagonal_solve(dl, d + 4, du, b)
    np.testing.assert_allclose(bc.tridiagonal_solve(dl, d + 4, du, b), want, rtol=1e-5, atol=1e-6)


def test_tridiagonal_matrices() -> None:
    d, e = made(6), made(5, seed=1)
    w, v = bc.eigh_tridiagonal(d, e)
    np.testing.assert_allclose(w, linalg.eigh_tridiagonal(d, e)[0], atol=1e-13)
    np.testing.assert_allclose(bc.eigh_tridiagonal(d, e, eigvals_only=True), w, atol=1e-13)
    a = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-12)
    zero = np.zeros((2, 3))
    held = bc.tridiagonal_solve(zero, np.array([[1.0, 2, 4], [1, 0, 1]]), zero, np.ones((2, 3, 1)))
    np.testing.assert_array_equal(held[0, :, 0], [1, 0.5, 0.25])
    assert not np.isfinite(held[1]).all()


def test_refusals() -> None:
    a, b = np.eye(3), np.ones(3)
    for wrong in (lambda: bc.cg(np.ones((3, 2)), b), lambda: bc.cg(a, np.ones(4)), lambda: bc.cg(a, b, np.ones(2)),
                  lambda: bc.cg(lambda v: v[:2], b), lambda: bc.cg(a, b, maxiter=-1), lambda: bc.gmres(a, b, restart=0),
                  lambda: bc.bicgstab(a, b, M=np.eye(2)), lambda: bc.cg(a, np.float64(1)),
                  lambda: bc.lobpcg(np.ones((9, 8))), lambda: bc.lobpcg(np.eye(4), 2),
                  lambda: bc.lobpcg(np.eye(9), 3, n=2),
                  lambda: bc.tridiagonal_solve(b, b, np.ones(2), b), lambda: bc.tridiagonal_solve(b, b, b, np.ones(2)),
                  lambda: bc.eigh_tridiagonal(b, b), lambda: bc.eigh_tridiagonal(b, b[:2], select="i")):  # fmt: skip
        with pytest.raises(InvalidProblemError):
            wrong()
    with pytest.raises(UnsupportedError, match=r"write cast\(b, 'float32'\)"):
        bc.cg(a, np.ones(3, np.int32))
