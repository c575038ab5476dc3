"""QR, eigenvalues and singular values on a device: workspaces within the bound, large and hard matrices, capture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import drawn, hard, hermitian

import baracuda_py as bc
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.eigh import EighPlan
from baracuda_py.ops.linalg.geqrf import GeqrfPlan
from baracuda_py.ops.linalg.householder_product import HouseholderProductPlan
from baracuda_py.ops.linalg.qr import QrPlan
from baracuda_py.ops.linalg.svd import SvdPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu


def problems(m: int, n: int) -> list[Any]:
    """Each plan with its fields."""
    return [
        (QrPlan, {"m": m, "n": n, "complete": True}), (GeqrfPlan, {"m": m, "n": n}), (EighPlan, {"n": n}),
        (HouseholderProductPlan, {"m": max(m, n), "n": n, "k": n}), (SvdPlan, {"m": m, "n": n, "full_matrices": True}),
    ]  # fmt: skip


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_workspace_is_bounded(element: Any) -> None:
    for m, n in ((1, 1), (2, 3), (31, 64), (65, 65), (500, 100), (1024, 1024)):
        for plan_type, fields in problems(m, n):
            desc = plan_type.descriptor(**fields, element=element)
            plan = plan_type.select(desc, device=DEVICE)
            held = OnDevice(operands(fill(plan_type, desc, np.random.default_rng(n))))
            runner: Any = plan.runner
            prepared, _ = runner.ready(runner.refs(held.args())[1])
            assert prepared.workspace <= plan.workspace_size(held.args()), (plan_type, m, n)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_matrices_of_every_shape(element: Any) -> None:
    for m, n, batch in (
        (0, 3, ()),
        (3, 0, ()),
        (1, 1, (3,)),
        (7, 5, (3,)),
        (5, 7, (2,)),
        (300, 129, ()),
        (129, 300, ()),
    ):
        for plan_type, fields in problems(m, n):
            desc = plan_type.descriptor(batch_shape=batch, **fields, element=element)
            case = fill(plan_type, desc, np.random.default_rng(m))
            assert wrong_plan(case, [plan_type.select(desc, device=DEVICE)]) is None, (plan_type, m, n)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_hard_matrices(dtype: str) -> None:
    import cupy

    eps = float(np.finfo(dtype).eps)
    for name, a in hard(9, 6, dtype):
        u, s, vh = (x.get() for x in bc.svd(cupy.asarray(a), False))
        assert np.linalg.norm(u * s @ vh - a) <= 180 * eps * np.linalg.norm(a), name
        q, r = (x.get() for x in bc.qr(cupy.asarray(a)))
        assert np.linalg.norm(q @ r - a) <= 90 * eps * np.linalg.norm(a), name
    for name, a in hermitian(8, dtype):
        w, v = (x.get() for x in bc.eigh(cupy.asarray(a)))
        assert np.linalg.norm(v * w @ v.conj().T - a) <= 160 * eps * np.linalg.norm(a), name


def test_nan_is_told_or_shown() -> None:
    import cupy

    a = np.stack([np.diag([3.0, 1, 2])] * 3)
    a[1, 1, 0] = np.nan
    for made in (bc.eigh(cupy.asarray(a), return_info=True), bc.svd(cupy.asarray(a), return_info=True)):
        info = made[-1].get()
        assert info[1] != 0 or any(np.isnan(one.get()[1]).any() for one in made[:-1])
        assert all(np.isfinite(one.get()[::2]).all() for one in made[:-1]) and not info[::2].any()


def test_in_a_graph() -> None:
    import cupy

    first, second = (drawn(np.random.default_rng(seed), (24, 24), "float64") for seed in (0, 1))
    a = cupy.asarray(first)
    replay = bc.graph(lambda: bc.svdvals(a))
    a.set(second)
    np.testing.assert_allclose(replay().get(), np.linalg.svd(second, compute_uv=False), rtol=1e-12, atol=1e-12)
