"""cholesky_ex on a device: what cuSOLVER asks for lies within the bound, its factors, streams, capture, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.linalg.cholesky import CholeskyPlan, definite
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.cholesky_backward import CholeskyBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import DEVICE, OnDevice, wrong_plan
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_workspace_is_bounded(element: Any) -> None:
    for n in (1, 2, 31, 64, 65, 500, 1024, 3000):
        desc = CholeskyPlan.descriptor(n=n, element=element)
        plan = CholeskyPlan.select(desc, device=DEVICE)
        held = OnDevice(operands(fill(CholeskyPlan, desc, np.random.default_rng(n))))
        runner: Any = plan.runner
        prepared, _ = runner.ready(runner.refs(held.args())[1])
        assert prepared.workspace <= plan.workspace_size(held.args()), n


@pytest.mark.parametrize("plan", [CholeskyPlan, CholeskyBackwardPlan], ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("upper", [False, True])
def test_large_matrices(plan: Any, element: Any, upper: bool) -> None:
    for n, batch in ((257, (3,)), (1000, ())):
        desc = plan.descriptor(batch_shape=batch, n=n, upper=upper, element=element)
        case = fill(plan, desc, np.random.default_rng(n))
        assert wrong_plan(case, [plan.select(desc, device=DEVICE)]) is None


def test_in_a_graph() -> None:
    """Captured and replayed with other matrices; info is read when the reader wants it."""
    import cupy

    desc = CholeskyPlan.descriptor(n=96, element="float64")
    first, second = (definite(desc, np.random.default_rng(seed).standard_normal((96, 96))) for seed in (0, 1))
    a = cupy.asarray(first)
    replay = bc.graph(lambda: bc.cholesky_ex(a))
    a.set(-second)
    y, info = replay()
    assert int(info) == 1
    a.set(second)
    y, info = replay()
    np.testing.assert_allclose(y.get(), np.linalg.cholesky(second), rtol=1e-10, atol=1e-10)
    assert int(info) == 0
