"""Images resampled along columns, emulated: the bits of the other rows, strips, edges, strides, infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

FORWARD = (bc.InterpolatePlan, bc.InterpolateDescriptor, "x", "y")
BACKWARD = (bc.InterpolateBackwardPlan, bc.InterpolateBackwardDescriptor, "dy", "dx")
WALKS = [(FORWARD, "cubic"), (BACKWARD, "cubic"), (BACKWARD, "linear")]


DENSE = Placement()


def bits(direction: Any, desc: Any, row: str, placement: Placement = DENSE, infinite: bool = False) -> Any:
    """What a row makes."""
    plan, _, source, target = direction
    case = fill(plan, desc, np.random.default_rng(0), {})
    shapes = {"x": desc.shape, "dx": desc.shape, "y": desc.out_shape, "dy": desc.out_shape}
    if infinite:
        case.arrays[source][0, 0, 1] = np.inf
    made = lay_out(np.empty(shapes[target], case.arrays[source].dtype), placement, 0xFF)
    ready = Operands(case, {source: lay_out(case.arrays[source], placement), target: made})
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    assert (geometry.steps[0].kernel == "walk") == (row == "walk")
    emulate(chosen, ready)
    return np.array(made.view)


@pytest.mark.parametrize(("direction", "kind"), WALKS)
@pytest.mark.parametrize(
    ("shape", "size", "facts"),
    [
        ((3, 9, 10), (18, 20), {}), ((2, 4, 20), (6, 40), {"align_corners": True}), ((2, 21, 11), (3, 9), {}),
        ((2, 3, 9), (23, 8), {}), ((1, 7, 9), (5, 9), {"step": 2.6}), ((2, 1, 8), (9, 15), {}), ((3, 13), (24,), {}),
    ],
)  # fmt: skip
def test_bits_are_those_of_places(direction: Any, kind: str, shape: Any, size: Any, facts: Any) -> None:
    _, descriptor, *_ = direction
    desc = descriptor(kind=kind, shape=shape, spatial_rank=len(size), size=size, element="float32", **facts)
    walked, places = bits(direction, desc, "walk"), bits(direction, desc, "planes")
    np.testing.assert_array_equal(walked, places)
    assert walked.any()


@pytest.mark.parametrize(("direction", "kind"), WALKS)
@pytest.mark.parametrize("element", ["float16", "float64"])
def test_layouts_and_elements(direction: Any, kind: str, element: str) -> None:
    _, descriptor, *_ = direction
    desc = descriptor(kind=kind, shape=(2, 6, 9), spatial_rank=2, size=(11, 18), element=element)
    wanted = bits(direction, desc, "planes")
    turned = Placement("negative", flips=(False, True, True))
    for placement in (Placement(offset=1), Placement("permuted", order=(0, 2, 1)), turned):
        np.testing.assert_array_equal(bits(direction, desc, "walk", placement), wanted)


@pytest.mark.parametrize(("direction", "kind"), WALKS)
def test_infinity_is_where_it_is_read(direction: Any, kind: str) -> None:
    _, descriptor, *_ = direction
    desc = descriptor(kind=kind, shape=(2, 6, 9), spatial_rank=2, size=(12, 18), element="float32")
    walked, places = (bits(direction, desc, row, infinite=True) for row in ("walk", "planes"))
    np.testing.assert_array_equal(walked, places)
    assert 0 < np.count_nonzero(~np.isfinite(walked)) < walked.size
    assert np.isfinite(walked[1]).all()


def test_strips_of_tall_images_and_many_readers() -> None:
    for direction, kind in WALKS:
        _, descriptor, *_ = direction
        for shape, size in (((1, 150, 8), (151, 8)), ((1, 3, 9), (200, 18))):
            desc = descriptor(kind=kind, shape=shape, spatial_rank=2, size=size, element="float32")
            np.testing.assert_array_equal(bits(direction, desc, "walk"), bits(direction, desc, "planes"))
