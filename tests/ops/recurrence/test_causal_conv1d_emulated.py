"""causal_conv1d's kernels on the emulator: tiles whole and partial, time in pieces, channels first, last and apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.recurrence.causal_conv1d import CausalConv1dDescriptor, CausalConv1dPlan
from baracuda_py.ops.recurrence.causal_conv1d_backward import CausalConv1dBackwardDescriptor, CausalConv1dBackwardPlan
from baracuda_py.ops.recurrence.causal_conv1d_update import CausalConv1dUpdateDescriptor, CausalConv1dUpdatePlan
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.recording import pointer_view
from recurrences import emulated

pytestmark = pytest.mark.usefixtures("emulation")
LAYOUTS = ("AlongWide", "AlongAny", "Across")


def placed(layout: str, length: int) -> Placement:
    """Rows that begin on 16 bytes, or do not, or channels side by side."""
    if layout == "Across":
        return Placement("permuted", order=(0, 2, 1))
    return Placement("padded", pads=(0, 0, -length % 8 + (layout == "AlongAny")))


def launched(plan: Any, desc: Any, layout: str, present: dict[str, bool]) -> None:
    """Emulates a problem whose arrays like x have a layout, which is the kernel's."""
    ready = operands(fill(plan, desc, np.random.default_rng(5), present))
    for name in ("x", "y", "dy", "dx"):
        if name in ready.laid:
            values, poison = np.array(ready.laid[name].view), None if name in ("x", "dy") else 0xFF
            ready.laid[name] = lay_out(values, placed(layout, desc.length), poison)
    chosen = plan.select(desc, device=emulated_device(9.0))
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    assert geometry.steps[0].axes["LAYOUT"] == layout
    emulate(chosen, ready)


PROBLEMS = [
    # element, width, channels, length, batch, packed
    ("bfloat16", 4, 4, 1300, 1, False),  # along time: four tiles at once, a partial one, and time in two pieces
    ("float32", 4, 8, 70, 2, True),
    ("float32", 7, 4, 530, 1, False),
    ("float16", 3, 12, 67, 2, False),
    ("float64", 2, 2, 300, 1, True),
    ("bfloat16", 8, 4, 45, 1, True),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("element", "width", "channels", "length", "batch", "packed"), PROBLEMS)
@pytest.mark.parametrize("plan", [CausalConv1dPlan, CausalConv1dBackwardPlan])
def test_layouts(
    plan: Any, element: str, width: int, channels: int, length: int, batch: int, packed: bool, layout: str
) -> None:
    kind = CausalConv1dDescriptor if plan is CausalConv1dPlan else CausalConv1dBackwardDescriptor
    desc = kind(
        batch=1 if packed else batch, channels=channels, length=length, width=width, activation="silu", packed=packed,
        states=3 if packed else batch, element=element,
    )  # fmt: skip
    states = length < 100 or length > 1000
    given = {"initial_states": states, "dfinal_states": states, "dinitial_states": states, "bias": True}
    launched(plan, desc, layout, given | ({"positions": False} if not packed else {}))


@pytest.mark.parametrize("width", [3, 6])
def test_gates_round_as_kernels_of_their_own(width: int) -> None:
    """In float16, whose products NumPy rounds as a kernel between two launches does."""
    desc = CausalConv1dUpdateDescriptor(
        batch=2, channels=37, tokens=3, slots=2, state_len=width, width=width, element="float16"
    )  # fmt: skip
    case = fill(CausalConv1dUpdatePlan, desc, np.random.default_rng(1), {"in_gate": True, "out_gate": True})
    arrays = {name: None if x is None else x.copy() for name, x in case.arrays.items()}
    in_gate, out_gate = arrays.pop("in_gate"), arrays.pop("out_gate")
    alone = arrays | {"x": in_gate * arrays["x"], "in_gate": None, "out_gate": None}
    bare = Case(case.plan, desc, alone, case.wanted)
    got, apart = emulated(case), emulated(bare)
    np.testing.assert_array_equal(got["y"], out_gate * apart["y"])
    np.testing.assert_array_equal(got["conv_state"], apart["conv_state"])
