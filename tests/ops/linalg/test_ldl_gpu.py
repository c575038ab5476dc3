"""LDL factors, drivers of svd, one right side of a triangle and the compositions on a device, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from matrices import drawn

import baracuda_py as bc
from baracuda_py.core.errors import CaptureError, UnsupportedError
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.ldl_factor import LdlFactorPlan, whole_of
from baracuda_py.ops.linalg.svd import SvdPlan
from baracuda_py.ops.linalg.svd_jacobi import SvdJacobiPlan
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
    for m, n in ((1, 1), (65, 65), (500, 100), (1024, 1024)):
        for plan_type, fields in (
            (LdlFactorPlan, {"n": n}), (SvdJacobiPlan, {"m": m, "n": n, "full_matrices": True}),
            (SvdJacobiPlan, {"m": m, "n": n}),
        ):  # fmt: skip
            desc = plan_type.descriptor(**fields, element=element)
            plan = plan_type.select(desc, device=DEVICE)
            held = OnDevice(operands(fill(plan_type, desc, np.random.default_rng(n))))
            prepared, _ = plan.runner.ready(plan.runner.refs(held.args())[1])
            assert prepared.workspace <= plan.workspace_size(held.args()), (plan_type, m, n)


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


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_drivers_of_svd(dtype) -> None:
    import cupy

    eps = np.finfo(dtype).eps
    for m, n in ((300, 129), (129, 300), (512, 512)):
        a = drawn(np.random.default_rng(m), (m, n), dtype)
        for driver in (None, "gesvd", "gesvdj"):
            u, s, vh = (x.get() for x in bc.svd(cupy.asarray(a), False, driver=driver))
            assert np.linalg.norm(u * s @ vh - a) <= 20 * max(m, n) * eps * np.linalg.norm(a), driver
            np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=20 * max(m, n) * eps)
    u, s, vh = bc.svd(cupy.asarray(a[:, :100]), True, driver="gesvdj")
    assert u.shape == (512, 512) and np.abs(u.get().conj().T @ u.get() - np.eye(512)).max() < 1e3 * eps


def test_gesvdj_is_of_no_graph() -> None:
    import cupy

    a = cupy.random.standard_normal((70, 70))
    with pytest.raises(CaptureError, match="gesvdj"):
        bc.graph(lambda: bc.svdvals(a, driver="gesvdj"))


@pytest.mark.parametrize("plan", [SvdPlan, SvdJacobiPlan])
def test_nan_is_told_or_shown(plan) -> None:
    import cupy

    a = drawn(np.random.default_rng(0), (2, 70, 66), "float32")
    a[1, 3, 4] = np.nan
    driver = "gesvdj" if plan is SvdJacobiPlan else None
    u, s, vh, info = (x.get() for x in bc.svd(cupy.asarray(a), False, driver=driver, return_info=True))
    assert info[1] != 0 or any(np.isnan(one[1]).any() for one in (u, s, vh))
    assert not info[0] and all(np.isfinite(one[0]).all() for one in (u, s, vh))


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
