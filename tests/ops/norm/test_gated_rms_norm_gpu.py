"""gated_rms_norm on a GPU: heads of gated delta networks, Mamba-2's rows and groups, every element, beside float64."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.norm.gated_rms_norm import GatedRMSNormDescriptor, GatedRMSNormPlan
from baracuda_py.ops.norm.gated_rms_norm_backward import GatedRMSNormBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", [((512, 8), 1, 128), ((64,), 8, 512), ((128,), 1, 4096), ((9,), 1, 20011)])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("before", [True, False])
def test_rows(shape: tuple[tuple[int, ...], int, int], element: str, before: bool) -> None:
    batch, groups, cols = shape
    desc = GatedRMSNormDescriptor(
        batch_shape=batch, groups=groups, cols=cols, norm_before_gate=before, element=element
    )  # fmt: skip
    for plan in (GatedRMSNormPlan, GatedRMSNormBackwardPlan):
        case = fill(plan, desc, np.random.default_rng(cols), {"weight": True})
        assert wrong_plan(case, [plan.select(desc)]) is None
