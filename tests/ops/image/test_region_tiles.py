"""Gradients of regions by tiles and nms by pairs, emulated: layouts, the bits of the other rows, long lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.recording import pointer_view

PLANS = {
    "roi_align": (bc.RoiAlignBackwardPlan, {"sampling_ratio": 0, "aligned": True}),
    "ps_roi_align": (bc.RoiAlignBackwardPlan, {"sampling_ratio": 2, "position_sensitive": True}),
    "roi_pool": (bc.RoiPoolBackwardPlan, {}),
    "ps_roi_pool": (bc.PsRoiPoolBackwardPlan, {}),
}
LAST = Placement("permuted", order=(0, 2, 3, 1))


def problem(name: str, channels: int, regions: int = 9, size: tuple[int, int] = (3, 2), **more: Any) -> Case:
    plan, facts = PLANS[name]
    channels *= size[0] * size[1] if name.startswith("ps") else 1
    desc: Any = plan.descriptor(
        batch=2, channels=channels, height=11, width=37, regions=regions, output_size=size, spatial_scale=0.5,
        element="float32", **{**facts, **more},
    )  # fmt: skip
    return fill(plan, desc, np.random.default_rng(0), {})


def laid_out(case: Case, placement: Placement) -> tuple[Operands, Any]:
    """Operands whose images and results lie so, and dx."""
    laid = {n: lay_out(x, placement if x.ndim == 4 else Placement()) for n, x in case.arrays.items()}
    desc: Any = case.desc
    laid["dx"] = lay_out(np.empty((desc.batch, desc.channels, *desc.size), np.float32), placement, 0xFF)
    return Operands(case, laid), laid["dx"].view


def emulated(case: Case, ready: Operands | None = None, row: str = "") -> str:
    """The kernel that ran."""
    ready = ready or operands(case)
    chosen = case.plan(case.desc, PlanPreference(), emulated_device(9.0))
    if row:
        chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    emulate(chosen, ready)
    return str(geometry.steps[0].kernel)


@pytest.mark.parametrize("name", list(PLANS))
def test_bits_of_tiles_are_those_of_places(name: str) -> None:
    case = problem(name, 40)
    made = []
    for row in ("tiles", "planes"):
        ready, dx = laid_out(case, Placement())
        emulated(case, ready, row)
        made.append(np.array(dx))
    np.testing.assert_array_equal(*made)
    assert made[0].any()


@pytest.mark.parametrize("name", ["roi_align", "roi_pool"])
def test_channels_last(name: str) -> None:
    case = problem(name, 36)
    made = []
    for placement in (Placement(), LAST):
        ready, dx = laid_out(case, placement)
        assert emulated(case, ready) == "tiles"
        made.append(np.array(dx))
    np.testing.assert_array_equal(*made)


def test_more_regions_than_threads_and_many_bins() -> None:
    assert emulated(problem("roi_align", 1, 300, (1, 2))) == "tiles"
    assert emulated(problem("roi_align", 2, 3, (16, 16))) == "tiles"
    assert emulated(problem("roi_align", 2, 3, (17, 1))) == "apart"


@pytest.mark.parametrize("places", [64, 65, 128, 300])
def test_pairs_of_boxes(places: int) -> None:
    desc = bc.NmsDescriptor(boxes_count=places, places=places, element="float32")
    case = fill(bc.NmsPlan, desc, np.random.default_rng(places), {})
    assert emulated(case) == ("nms" if places == 64 else "nms_pairs")


@pytest.mark.parametrize(("count", "kernel"), [(3, "soft_nms_held"), (4200, "soft_nms_pairs")])
def test_soft_nms_in_registers_and_by_pairs(count: int, kernel: str) -> None:
    desc = bc.SoftNmsDescriptor(boxes_count=count, element="float32")
    case = fill(bc.SoftNmsPlan, desc, np.random.default_rng(0), {}, numbers={"score_threshold": 0.99})
    assert emulated(case) == kernel


def test_soft_nms_of_many_boxes_is_one_block() -> None:
    plan = bc.SoftNmsPlan.select(bc.SoftNmsDescriptor(boxes_count=8193, element="float32"), device=emulated_device(9.0))
    assert "513 to 8192 boxes, got 8193" in str(plan.explain())


@pytest.mark.parametrize(("method", "element"), [("linear", "float32"), ("gaussian", "float64")])
def test_soft_nms_by_pairs_has_the_bits_of_the_block(method: str, element: str) -> None:
    desc = bc.SoftNmsDescriptor(boxes_count=530, method=method, element=element)
    case = fill(bc.SoftNmsPlan, desc, np.random.default_rng(1), {}, numbers={"score_threshold": 0.85})
    made = []
    for row in ("pairs", "block"):
        ready = operands(case)
        emulated(case, ready, row)
        made.append({name: np.array(ready.laid[name].view) for name in case.wanted})
    assert made[0]["count"] > 20
    for name, values in made[0].items():
        np.testing.assert_array_equal(values, made[1][name])
