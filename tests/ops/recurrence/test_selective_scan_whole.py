"""selective_scan where every lane of a warp has its states: tiles within a sequence take a way without checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recurrences import drawn, emulated, near, truth

from baracuda_py.core import ElementKind, PlanPreference
from baracuda_py.core.args import arrays_of
from baracuda_py.ops.recurrence.selective import OF_TIME, SelectiveScanDescriptor
from baracuda_py.ops.recurrence.selective_scan import SelectiveScanPlan
from baracuda_py.ops.recurrence.selective_scan_backward import SelectiveScanBackwardPlan
from baracuda_py.ops.recurrence.selective_state_update import (
    SelectiveStateUpdateDescriptor, SelectiveStateUpdatePlan,
)  # fmt: skip
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

SHAPES = [(8, 16, 40, "float32"), (8, 16, 21, "bfloat16"), (9, 16, 40, "bfloat16"), (16, 8, 24, "float16")]


@pytest.mark.parametrize("dim, states, length, element", SHAPES)
@pytest.mark.parametrize("plan", [SelectiveScanPlan, SelectiveScanBackwardPlan])
def test_near_float64(plan: Any, dim: int, states: int, length: int, element: str) -> None:
    desc = SelectiveScanDescriptor(batch=1, dim=dim, length=length, states=states, softplus=True, element=element)
    case = drawn(plan, desc)
    near(emulated(case), truth(case), {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}[element])


def test_bits_do_not_know_of_the_way() -> None:
    """Alone, and in a batch of one packed with others, whose tiles cross; and one step more, by the update."""
    desc = SelectiveScanDescriptor(batch=1, dim=8, length=24, states=16, softplus=True, element="bfloat16")
    alone = drawn(SelectiveScanPlan, desc)
    alone.arrays["initial_state"] = None
    want = emulated(alone)
    case = drawn(SelectiveScanPlan, replace(desc, length=35, num_states=2), seed=1)
    case.arrays |= {n: alone.arrays[n] for n in ("a", "d", "delta_bias")} | {"initial_state": None}
    for name in OF_TIME:
        if name in alone.arrays and alone.arrays[name] is not None:
            case.arrays[name][..., 5:29] = alone.arrays[name]
    case.arrays["cu_seqlens"] = np.array([5, 29, 35])
    got = emulated(case)
    np.testing.assert_array_equal(got["y"][..., 5:29].view(np.uint16), want["y"].view(np.uint16))
    np.testing.assert_array_equal(got["last_state"][0], want["last_state"][0])

    update = drawn(SelectiveStateUpdatePlan, SelectiveStateUpdateDescriptor(
        batch=1, dim=8, states=16, slots=1, softplus=True, state_element="float32", element="bfloat16",
    ))  # fmt: skip
    before = replace(desc, length=23)
    shorter = drawn(SelectiveScanPlan, before)
    shorter.arrays |= {
        n: np.ascontiguousarray(x[..., :23]) if n in OF_TIME and x is not None else x
        for n, x in alone.arrays.items()
    }  # fmt: skip
    update.arrays |= {n: alone.arrays[n] for n in ("a", "d", "delta_bias")} | {"state_indices": None}
    update.arrays |= {n: np.ascontiguousarray(alone.arrays[n][..., 23]) for n in ("u", "delta", "b", "c", "z")}
    update.arrays["state"] = emulated(shorter)["last_state"]
    made = emulated(update)
    np.testing.assert_array_equal(made["y"].view(np.uint16), want["y"][..., 23].view(np.uint16))
    np.testing.assert_array_equal(made["state"], want["last_state"])


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_rows_of_states_have_the_bits_of_lanes(element: str, narrow: bool) -> None:
    """The state's rows in whole 16 bytes, a thread each, and one number apart; slots that are none among them."""
    desc = SelectiveStateUpdateDescriptor(
        batch=5, dim=34, states=16, slots=6, groups=2, softplus=True, element=element,
        **({} if narrow else {"state_element": ElementKind.of(element).acc}),
    )  # fmt: skip
    case = drawn(SelectiveStateUpdatePlan, desc)
    case.arrays["state_indices"] = np.array([3, -1, 0, 6, 5])
    made = {}
    for name, placed in (("rows", Placement()), ("lanes", Placement("permuted", order=(2, 0, 1)))):
        laid = {n: lay_out(x, placed if n == "state" else Placement()) for n, x in case.arrays.items() if x is not None}
        laid["y"] = lay_out(np.empty((5, 34), desc.element.carrier), Placement(), 0xFF)
        ready = Operands(case, {**dict.fromkeys(spec.name for spec in arrays_of(case.plan.args)), **laid})
        plan = SelectiveStateUpdatePlan(desc, PlanPreference(), emulated_device(8.0))
        assert plan.plan_layout(ready.args(pointer_view))[1].steps[0].kernel == {"lanes": "update"}.get(name, name)
        emulate(plan, ready)
        made[name] = ready.laid["y"].view.copy(), ready.laid["state"].view.copy()
    for rows, lanes in zip(made["rows"], made["lanes"], strict=True):
        np.testing.assert_array_equal(rows.view(np.uint8), np.ascontiguousarray(lanes).view(np.uint8))
