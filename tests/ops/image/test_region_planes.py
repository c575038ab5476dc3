"""Pooled regions by whole planes in shared memory, emulated: the bits of the other rows, shared maxima, long lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands
from baracuda_py.testing.recording import pointer_view

PLANS = {
    "roi_pool": bc.RoiPoolPlan, "ps_roi_pool": bc.PsRoiPoolPlan, "roi_pool_backward": bc.RoiPoolBackwardPlan,
    "ps_roi_pool_backward": bc.PsRoiPoolBackwardPlan,
}  # fmt: skip


def problem(
    name: str, channels: int, regions: int, bins: tuple[int, int], element: str = "float32",
    size: tuple[int, int] = (5, 9),
) -> Case:  # fmt: skip
    plan: Any = PLANS[name]
    desc = plan.descriptor(
        batch=2, channels=channels * (bins[0] * bins[1] if name.startswith("ps") else 1), height=size[0],
        width=size[1], regions=regions, output_size=bins, spatial_scale=0.5, element=element,
    )  # fmt: skip
    return fill(plan, desc, np.random.default_rng(1), {})


def made(case: Case, row: str) -> dict[str, Any]:
    """What a row makes."""
    ready = operands(case)
    chosen = case.plan(case.desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    assert (geometry.steps[0].kernel == "whole") == (row == "whole")
    emulate(chosen, ready)
    return {name: np.array(ready.laid[name].view) for name in case.wanted}


@pytest.mark.parametrize(("channels", "bins"), [(5, (3, 2)), (1, (6, 7))])
@pytest.mark.parametrize("name", list(PLANS))
def test_bits_of_whole_planes_are_those_of_places(name: str, channels: int, bins: tuple[int, int]) -> None:
    for element in ("float32",) if channels == 1 else ("float32", "float16", "float64"):
        case = problem(name, channels, 18, bins, element)
        whole, places = made(case, "whole"), made(case, "planes")
        assert whole.keys() == places.keys()
        for one, values in whole.items():
            np.testing.assert_array_equal(values, places[one])
        assert any(values.any() for values in whole.values())


def test_bins_that_share_a_maximum_add_in_their_order() -> None:
    """Regions of a few places have many bins of one place, whose sums tell an order from another."""
    forward = problem("roi_pool", 2, 40, (7, 7))
    argmax = made(forward, "whole").get("argmax")
    if argmax is None:
        argmax = bc.roi_pool(forward.arrays["x"], forward.arrays["rois"], (7, 7), 0.5, return_argmax=True)[1]
    assert max(np.unique(one, return_counts=True)[1].max() for one in argmax.reshape(-1, 49)) > 7
    for kind in (np.int64, np.int32):
        case = problem("roi_pool_backward", 2, 40, (7, 7))
        case.arrays["argmax"], case.arrays["rois"] = argmax.astype(kind), forward.arrays["rois"]
        case.arrays["dy"] = (np.random.default_rng(2).standard_normal(argmax.shape) * 1e4**2).astype(np.float32)
        np.testing.assert_array_equal(made(case, "whole")["dx"], made(case, "planes")["dx"])


def test_every_warp_adds_the_strips_that_it_owns() -> None:
    """Planes of 17 strips of 32 places, twice as many as warps, and more bins than a stage has."""
    case, rng = problem("roi_pool_backward", 2, 60, (5, 5), size=(23, 23)), np.random.default_rng(3)
    corners = rng.integers(0, 30, (60, 2))
    case.arrays["rois"] = np.concatenate(
        [rng.integers(0, 2, (60, 1)), corners, corners + rng.integers(1, 30, (60, 2))], 1
    )
    case.arrays["rois"] = case.arrays["rois"].astype(np.float32)
    x = rng.standard_normal((2, 2, 23, 23)).astype(np.float32)
    case.arrays["argmax"] = bc.roi_pool(x, case.arrays["rois"], (5, 5), 0.5, return_argmax=True)[1]
    dx = made(case, "whole")["dx"]
    np.testing.assert_array_equal(dx, made(case, "planes")["dx"])
    assert (dx != 0).reshape(4, -1)[:, :512].reshape(4, 16, 32).any((0, 2)).all()


@pytest.mark.parametrize("name", list(PLANS))
def test_more_regions_than_a_list_has(name: str) -> None:
    case = problem(name, 1, 530, (1, 1) if name.startswith("ps") else (1, 2))
    whole, places = made(case, "whole"), made(case, "planes")
    for one, values in whole.items():
        np.testing.assert_array_equal(values, places[one])


@pytest.mark.parametrize("name", list(PLANS))
def test_what_planes_refuse_in_words(name: str) -> None:
    plan: Any = PLANS[name]
    facts: dict[str, Any] = {"batch": 1, "channels": 49, "regions": 64, "output_size": 7, "element": "float32"}
    for more, words in (
        ({"height": 400, "width": 400}, "does not fit into shared memory"),
        ({"height": 50, "width": 76, "regions": 7}, "8 regions an image or more"),
    ):
        text = str(plan.select(plan.descriptor(**{**facts, **more}), device=emulated_device(9.0)).explain())
        assert words in text
