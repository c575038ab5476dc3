"""LDL factors, one right side of a triangle and the compositions on a device, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.ldl_factor import LdlFactorPlan, whole_of
from baracuda_py.ops.linalg.triangular_solve import TriangularSolvePlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_ldl_of_every_size(element) -> None:
    for n, batch, hermitian in (
        (3, (100,), True), (9, (33,), False), (32, (40,), True), (64, (5,), True), (65, (), False), (300, (), False),
    ):  # fmt: skip
        desc = LdlFactorPlan.descriptor(batch_shape=batch, n=n, hermitian=hermitian, element=element)
        case = fill(LdlFactorPlan, desc, np.random.default_rng(n), {"info": True})
        assert wrong_plan(case, [LdlFactorPlan.select(desc, device=DEVICE)]) is None, n


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_workspaces_are_bounded(element) -> None:
    for n in (1, 65, 500, 1024):
        desc = LdlFactorPlan.descriptor(n=n, element=element)
        plan = LdlFactorPlan.select(desc, device=DEVICE)
        held = OnDevice(operands(fill(LdlFactorPlan, desc, np.random.default_rng(n))))
        prepared, _ = plan.runner.ready(plan.runner.refs(held.args())[1])
        assert prepared.workspace <= plan.workspace_size(held.args()), n


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl_systems(dtype, hermitian) -> None:
    import cupy

    for n in (7, 40, 64, 200):
        if n > 64 and hermitian and dtype.startswith("complex"):
            with pytest.raises(UnsupportedError, match="hetrf"):
                bc.ldl_factor(cupy.eye(n, dtype=dtype), hermitian=True)
            continue
        a = whole_of(drawn(np.random.default_rng(n), (2, n, n), dtype), hermitian)
        b = drawn(np.random.default_rng(1), (2, n, 3), dtype)
        x = bc.ldl_solve(*bc.ldl_factor(cupy.asarray(a), hermitian=hermitian), cupy.asarray(b), hermitian=hermitian)
        wide = x.get().astype(np.result_type(dtype, "float64"))
        scale = np.abs(a).sum(-1).max() * np.abs(wide).max()
        assert np.abs(a @ wide - b).max() <= 8 * n * np.finfo(dtype).eps * scale


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_one_right_side(element) -> None:
    for n in (5, 8, 13, 16, 27, 32, 33):
        for upper in (False, True):
            desc = TriangularSolvePlan.descriptor(batch_shape=(515,), n=n, k=1, upper=upper, element=element)
            case = fill(TriangularSolvePlan, desc, np.random.default_rng(n))
            assert wrong_plan(case, [TriangularSolvePlan.select(desc, device=DEVICE)]) is None, n


def test_compositions() -> None:
    import cupy

    a = drawn(np.random.default_rng(0), (2, 20, 20), "float64")
    a = a + a.swapaxes(1, 2)
    _, d, e, _ = (x.get() for x in bc.tridiagonal(cupy.asarray(a)))
    made = [np.diag(d[i]) + np.diag(e[i], 1) + np.diag(e[i], -1) for i in (0, 1)]
    np.testing.assert_allclose(np.linalg.eigvalsh(made), np.linalg.eigvalsh(a), atol=1e-12)
    u, h, _, converged = bc.qdwh(cupy.asarray(a))
    assert converged.get().all()
    np.testing.assert_allclose((u @ h).get(), a, atol=1e-12)
    x, y = np.linspace(-1, 2, 50), drawn(np.random.default_rng(1), (50,), "float64")
    np.testing.assert_allclose(bc.polyfit(cupy.asarray(x), cupy.asarray(y), 3).get(), np.polyfit(x, y, 3), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort_complex(bc.roots(cupy.asarray([1.0, -6, 11, -6])).get()), [1, 2, 3], atol=1e-10
    )  # fmt: skip
