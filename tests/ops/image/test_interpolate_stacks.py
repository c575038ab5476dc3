"""Planes that lie one step apart, taken many at a time: every place, partial stacks, the bits of the other kernel."""

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
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.recording import pointer_view

FORWARD = (bc.InterpolatePlan, bc.InterpolateDescriptor, "x", "y")
BACKWARD = (bc.InterpolateBackwardPlan, bc.InterpolateBackwardDescriptor, "dy", "dx")


def emulated(plan: Any, ready: Any, desc: Any) -> str:
    """The kernel that it ran."""
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    emulate(chosen, ready)
    return str(geometry.steps[0].kernel)


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", ["nearest", "linear", "cubic", "area", "keys"])
def test_stacks(kind: str, direction: Any) -> None:
    plan, descriptor, *_ = direction
    problems: list[Any] = [((19, 5, 6), (9, 7), 2), ((37, 7, 9), (4, 3), 2)]
    if kind != "keys":
        problems.append(((2, 20, 3, 4, 3), (5, 2, 4), 3))
    for shape, size, rank in problems:
        desc = descriptor(kind=kind, shape=shape, spatial_rank=rank, size=size, element="float32")
        ready = operands(fill(plan, desc, np.random.default_rng(0), {}))
        assert emulated(plan, ready, desc) in ("stack", "rows", "walk")


def of_layout(case: Any, direction: Any, placement: Placement) -> tuple[str, Any]:
    """The kernel that served a layout, and what it made."""
    plan, _, source, target = direction
    desc = case.desc
    shapes = {"x": desc.shape, "dx": desc.shape, "y": desc.out_shape, "dy": desc.out_shape}
    laid = {
        source: lay_out(case.arrays[source], placement),
        target: lay_out(np.empty(shapes[target], np.float32), placement, 0xFF),
    }
    return emulated(plan, Operands(case, laid), desc), np.array(laid[target].view)


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_bits_do_not_depend_on_the_layout(direction: Any) -> None:
    plan, descriptor, *_ = direction
    desc = descriptor(kind="linear", shape=(2, 16, 5, 6), spatial_rank=2, size=(7, 4), element="float32")
    case = fill(plan, desc, np.random.default_rng(0), {})
    made = dict(
        of_layout(case, direction, placement)
        for placement in (Placement(), Placement("permuted", order=(0, 2, 3, 1)), Placement(offset=1))
    )  # fmt: skip
    assert set(made) == ({"stack", "together", "rows"} if direction is FORWARD else {"walk", "together"})
    for one in made.values():
        np.testing.assert_array_equal(one, made["together"])


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["nearest", "nearest_exact", "linear"])
def test_rows(kind: str, element: str) -> None:
    for shape, size, rank in (((19, 5, 6), (9, 16), 2), ((2, 20, 3, 4, 3), (5, 2, 8), 3), ((33, 40), (24,), 1)):
        desc = bc.InterpolateDescriptor(kind=kind, shape=shape, spatial_rank=rank, size=size, element=element)
        ready = operands(fill(bc.InterpolatePlan, desc, np.random.default_rng(0), {}))
        assert emulated(bc.InterpolatePlan, ready, desc) == "rows"
