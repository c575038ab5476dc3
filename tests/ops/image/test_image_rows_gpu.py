"""Every row of images on a GPU that takes a problem of a network's size beside the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu

POOLED: dict[str, Any] = {
    "batch": 2,
    "height": 50,
    "width": 76,
    "regions": 40,
    "output_size": 7,
    "spatial_scale": 1 / 16,
}
PROBLEMS: list[tuple[str, Any, dict[str, Any]]] = [
    ("roi_pool", bc.RoiPoolPlan, {**POOLED, "channels": 21}),
    ("roi_pool_backward", bc.RoiPoolBackwardPlan, {**POOLED, "channels": 21}),
    ("ps_roi_pool", bc.PsRoiPoolPlan, {**POOLED, "channels": 147}),
    ("ps_roi_pool_backward", bc.PsRoiPoolBackwardPlan, {**POOLED, "channels": 147}),
    (
        "bicubic", bc.InterpolatePlan,
        {"kind": "cubic", "shape": (2, 19, 65, 127), "spatial_rank": 2, "size": (130, 254)},
    ),
    (
        "bicubic backward", bc.InterpolateBackwardPlan,
        {"kind": "cubic", "shape": (2, 19, 65, 127), "spatial_rank": 2, "size": (130, 254)},
    ),
    (
        "bilinear backward", bc.InterpolateBackwardPlan,
        {"kind": "linear", "shape": (2, 19, 65, 127), "spatial_rank": 2, "size": (200, 254), "align_corners": True},
    ),
    ("soft_nms", bc.SoftNmsPlan, {"boxes_count": 1500}),
]  # fmt: skip


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize(("plan", "fields"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS])
def test_rows(plan: Any, fields: dict[str, Any], element: str) -> None:
    desc = plan.descriptor(**fields, element=element)
    case = fill(plan, desc, np.random.default_rng(0), {})
    every = plan.select(desc).rows
    for n in range(len(every)):
        chosen = plan.select(desc, PlanPreference(max_workspace_bytes=(1 << 50) + n))  # a plan of its own
        chosen.rows = every[n:]
        try:
            assert wrong_plan(case, [chosen]) is None
        except bc.UnsupportedError:
            assert n > 0  # what is left takes other problems
