"""Functions of matrices, general eigenvalues, tridiagonal systems and iterative solvers on a device."""

from __future__ import annotations

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.ops.linalg.eig import EigPlan
from baracuda_py.ops.linalg.tridiagonal_solve import TridiagonalSolvePlan, reference, residual
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_workspace_of_general_eigenvalues(dtype: str) -> None:
    for n in (1, 7, 65, 256):
        desc = EigPlan.descriptor(n=n, element=dtype)
        plan = EigPlan.select(desc, device=DEVICE)
        held = OnDevice(operands(fill(EigPlan, desc, np.random.default_rng(n))))
        runner = plan.runner
        prepared, _ = runner.ready(runner.refs(held.args())[1])
        assert prepared.workspace <= plan.workspace_size(held.args()), n


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_general_eigenvalues(dtype: str) -> None:
    import cupy

    for n, batch in ((0, (2,)), (1, ()), (33, (3,)), (200, ())):
        desc = EigPlan.descriptor(batch_shape=batch, n=n, element=dtype)
        assert wrong_plan(fill(EigPlan, desc, np.random.default_rng(n)), [EigPlan.select(desc, device=DEVICE)]) is None
    a = np.random.default_rng(0).standard_normal((2, 20, 20))
    w, v = (x.get() for x in bc.eig(cupy.asarray(a)))
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-11)
    for one, want in zip(bc.eigvals(cupy.asarray(a)).get(), np.linalg.eigvals(a), strict=True):
        assert np.abs(one[:, None] - want).min(0).max() < 1e-10


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_tridiagonal_systems(dtype: str) -> None:
    import cupy

    eps = float(np.finfo(dtype).eps)
    for batch, n, k in ((1000, 200, 1), (3, 5000, 2), (64, 64, 64)):
        desc = TridiagonalSolvePlan.descriptor(batch_shape=(batch,), n=n, k=k, element=dtype)
        rng = np.random.default_rng(n)
        given = {"dl": drawn(rng, (batch, n), dtype), "d": drawn(rng, (batch, n), dtype)}
        given |= {"du": drawn(rng, (batch, n), dtype), "b": drawn(rng, (batch, n, k), dtype)}
        x = bc.tridiagonal_solve(*(cupy.asarray(one) for one in given.values())).get()
        if n <= 200:
            wide = {name: one.astype("complex128" if dtype[0] == "c" else "float64") for name, one in given.items()}
            assert residual(desc, "x", **wide, x=x).max() <= 8 * eps
        else:
            dl, d, du, b = given.values()
            off = d[..., None] * x - b
            off[:, 1:] += dl[:, 1:, None] * x[:, :-1]
            off[:, :-1] += du[:, :-1, None] * x[:, 1:]
            size = (np.abs(dl) + np.abs(d) + np.abs(du)).max(-1) * np.abs(x).max((-1, -2))
            assert (np.abs(off).max((-1, -2)) / size).max() <= 16 * eps
        again = bc.tridiagonal_solve(*(cupy.asarray(one[-1]) for one in given.values())).get()
        np.testing.assert_array_equal(again, x[-1])  # what a system gets is its own
    small = {name: one[:2] for name, one in given.items()}
    desc = TridiagonalSolvePlan.descriptor(batch_shape=(2,), n=n, k=k, element=dtype)
    np.testing.assert_allclose(x[:2], reference(desc, **small)["x"], rtol=1e4 * eps, atol=1e6 * eps)


def test_functions_of_matrices() -> None:
    import cupy

    a = np.random.default_rng(0).standard_normal((8, 24, 24)) / 5
    held = cupy.asarray(a)
    for name in ("matrix_exp", "sqrtm", "logm"):
        x = held if name == "matrix_exp" else held @ held.transpose(0, 2, 1) + cupy.eye(24)
        np.testing.assert_allclose(getattr(bc, name)(x).get(), getattr(bc, name)(x.get()), rtol=1e-9, atol=1e-10)
    replay = bc.graph(lambda: bc.matrix_exp(held, squarings=4))
    held.set(a / 3)
    np.testing.assert_allclose(replay().get(), bc.matrix_exp(a / 3), rtol=1e-11, atol=1e-12)
    q, r = (x.get() for x in bc.qr(held))
    np.testing.assert_allclose(bc.matrix_power(held, -2).get(), np.linalg.matrix_power(a / 3, -2), rtol=1e-5)
    np.testing.assert_allclose(q @ r, a / 3, atol=1e-13)


def test_iterative_solvers() -> None:
    import cupy

    rng = np.random.default_rng(1)
    g, b = rng.standard_normal((48, 48)), rng.standard_normal((4, 48))
    for solver, a in (
        (bc.cg, g @ g.T + np.eye(48)),
        (bc.bicgstab, g + 30 * np.eye(48)),
        (bc.gmres, g + 30 * np.eye(48)),
    ):
        given = {"restart": 12, "maxiter": 6} if solver is bc.gmres else {"maxiter": 150}
        x, info = (one.get() for one in solver(cupy.asarray(a), cupy.asarray(b), tol=1e-10, **given))
        assert not info.any(), solver
        np.testing.assert_allclose(x, np.linalg.solve(a, b.T).T, rtol=1e-5, atol=1e-6)
    e, _ = bc.lobpcg(cupy.asarray(g + g.T), 3, n=6, seed=0, niter=80)
    np.testing.assert_allclose(e.get(), np.linalg.eigvalsh(g + g.T)[::-1][:3], rtol=1e-8)
    u, s, v = (one.get() for one in bc.svd_lowrank(cupy.asarray(g[:, :5] @ g[:5]), 8, seed=0))
    np.testing.assert_allclose(u * s @ v.T, g[:, :5] @ g[:5], atol=1e-10)
