"""LU factors and linear systems on a device: the library's workspace lies within the bound, large matrices, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import SingularMatrixError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.lu_factor import LuFactorPlan
from baracuda_py.ops.linalg.lu_permutation import LuPermutationPlan
from baracuda_py.ops.linalg.triangular_solve import TriangularSolvePlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_workspace_is_bounded(element: Any) -> None:
    for m, n in ((1, 1), (2, 2), (31, 31), (64, 65), (500, 500), (1024, 100), (100, 1024), (3000, 3000)):
        desc = LuFactorPlan.descriptor(m=m, n=n, element=element)
        plan = LuFactorPlan.select(desc, device=DEVICE)
        held = OnDevice(operands(fill(LuFactorPlan, desc, np.random.default_rng(n))))
        runner: Any = plan.runner
        prepared, _ = runner.ready(runner.refs(held.args())[1])
        assert prepared.workspace <= plan.workspace_size(held.args()), (m, n)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_large_factors(element: Any) -> None:
    for batch, m, n in (((3,), 257, 257), ((), 1000, 1000), ((2,), 700, 130), ((2,), 130, 700)):
        desc = LuFactorPlan.descriptor(batch_shape=batch, m=m, n=n, element=element)
        case = fill(LuFactorPlan, desc, np.random.default_rng(n))
        assert wrong_plan(case, [LuFactorPlan.select(desc, device=DEVICE)]) is None


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("conjugate", [False, True])
def test_large_triangular_systems(element: Any, upper: bool, conjugate: bool) -> None:
    for batch, n, k in (((3,), 257, 64), ((), 1000, 3)):
        desc = TriangularSolvePlan.descriptor(
            batch_shape=batch, n=n, k=k, upper=upper, conjugate=conjugate, element=element
        )
        case = fill(TriangularSolvePlan, desc, np.random.default_rng(n))
        assert wrong_plan(case, [TriangularSolvePlan.select(desc, device=DEVICE)]) is None


def test_long_orders_of_rows() -> None:
    for inverse in (False, True):
        desc = LuPermutationPlan.descriptor(batch_shape=(5,), count=4000, rows=5000, inverse=inverse, element="int32")
        case = fill(LuPermutationPlan, desc, np.random.default_rng(0))
        assert wrong_plan(case, [LuPermutationPlan.select(desc, device=DEVICE)]) is None


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_systems_of_hard_matrices(element: Any) -> None:
    """Graded rows and columns, a tiny pivot: the residual is one of roundings, on the device's own pivots."""
    import cupy

    rng = np.random.default_rng(0)
    n, name = 200, str(element)
    a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if element.is_complex else 0)
    scales = 10.0 ** np.linspace(-4, 4, n)
    tiny = a.copy()
    tiny[0, 0] = 1e-12
    b = rng.standard_normal((n, 3)).astype(name)
    for one in (a, a * scales[:, None], a * scales, tiny):
        one = one.astype(name)
        x = bc.solve(cupy.asarray(one), cupy.asarray(b)).get()
        wide = np.result_type(x.dtype, np.float64)
        off = np.abs(one.astype(wide) @ x.astype(wide) - b).max(-1)
        assert (off <= 20 * n * np.finfo(name).eps * (np.abs(one) @ np.abs(x)).max(-1)).all()
    held = cupy.asarray(a.astype(name))
    np.testing.assert_allclose((bc.inv(held) @ held).get(), np.eye(n), atol=2e5 * np.finfo(name).eps)


def test_singular_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """info tells the column; nothing waits unless checks are on."""
    import cupy

    a = cupy.asarray(np.stack([np.eye(3), np.zeros((3, 3)), np.diag([1.0, 2, 0]), np.diag([1.0, 0, 3])]))
    assert bc.lu_factor_ex(a)[2].get().tolist() == [0, 1, 3, 2]
    assert bc.det(a).get().tolist() == [1, 0, 0, 0]
    x = bc.inv(a).get()
    assert np.isfinite(x[0]).all() and not any(np.isfinite(one).all() for one in x[1:])
    assert np.isnan(bc.cholesky(-a[:1]).get()).all()
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(SingularMatrixError, match="inv"):
        bc.inv(a)


def test_in_a_graph() -> None:
    """Captured and replayed with other matrices, whose rows are exchanged otherwise."""
    import cupy

    rng = np.random.default_rng(0)
    first, second, b = rng.standard_normal((60, 60)), rng.standard_normal((60, 60)), rng.standard_normal((60, 2))
    a, right = cupy.asarray(first), cupy.asarray(b)
    replay = bc.graph(lambda: (bc.solve(a, right), bc.det(a)))
    for held in (first, second):
        a.set(held)
        x, det = replay()
        np.testing.assert_allclose(x.get(), np.linalg.solve(held, b), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(det.get(), np.linalg.det(held), rtol=1e-8)
