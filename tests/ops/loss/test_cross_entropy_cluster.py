"""Rows that a cluster holds: the kernels run emulated, beside the reference in float64."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import CrossEntropyLossPlan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.testing import emulate, emulated_device, emulating, fill, operands, pointer_view

pytestmark = pytest.mark.usefixtures("emulation")


@pytest.mark.parametrize(
    ("element", "classes", "weight", "smoothing", "reduction"),
    [
        ("bfloat16", 60001, False, 0.0, "mean"),  # 15 slabs: the last block has one less
        ("bfloat16", 16 * 4096 + 8, True, 0.1, "none"),  # 17, of which the last is one chunk
        ("float32", 30720, False, 0.1, "sum"),
    ],
)
def test_a_cluster_makes_the_loss_and_the_gradient(
    element: str, classes: int, weight: bool, smoothing: float, reduction: str
) -> None:
    """The target of the second of three rows is the last class, the third is ignored."""
    desc = CrossEntropyLossPlan.descriptor(
        batch_shape=3, num_classes=classes, label_smoothing=smoothing, reduction=reduction, ignore_index=7,
        element=element,
    )  # fmt: skip
    present = {"weight": weight, "total_weight": False, "stats": False}
    case = fill(CrossEntropyLossPlan, desc, np.random.default_rng(classes), present)
    case.arrays["targets"][:] = 5, classes - 1, 7
    plan = CrossEntropyLossPlan(desc, PlanPreference(), emulated_device(9.0, 4))
    plan.rows = plan.rows[:1]
    ready = operands(case)
    with emulating(1):
        assert plan.can_implement(ready.args(pointer_view)).sku.variant == "cluster"
    emulate(plan, ready)
