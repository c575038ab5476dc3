"""Products of rows that an index names: the sm_90a row emulated, and the bits of rows that were brought together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_grouped_wgmma import DOWN, OFFSETS, TURNED, plan_for, problem, step_of

import baracuda_py as bc
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.recording import pointer_view

PLAN = bc.GroupedGatherGemmPlan


def descriptor(**more: Any) -> bc.GroupedGatherGemmDescriptor:
    given = {"sources": 77, "total": 300, "groups": 4, "n": 136, "k": 136, "element": "bfloat16"} | more
    return bc.GroupedGatherGemmDescriptor(**given)


def run(desc: Any, offsets: Any, *present: str, **placed: Any) -> tuple[Any, Any]:
    if len(offsets) != desc.num_offsets:
        desc = bc.GroupedGatherGemmDescriptor(
            **{name: getattr(desc, name) for name in ("sources", "total", "groups", "n", "k", "activation", "element")},
            num_offsets=len(offsets),
        )
    ready = problem(PLAN, desc, offsets, *present, **placed)
    chosen = plan_for(desc, PLAN)
    step = step_of(chosen, ready)
    emulate(chosen, ready)
    return step, ready


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("offsets", OFFSETS)
def test_offsets(offsets: str) -> None:
    step, _ = run(descriptor(), OFFSETS[offsets], "bias")
    assert step.kernel == "grouped_gather_wgmma" and not step.params["plain"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("n", [264, 520])
def test_widths_gates_and_layouts(n: int, gated: bool, turned: bool) -> None:
    places = dict.fromkeys(("b", "up"), TURNED) if turned else {}
    desc = descriptor(n=n, k=72, element="float16", activation="silu" if gated else "none")
    step, _ = run(desc, OFFSETS["of no multiple"], *(("up", "up_bias") if gated else ("y",)), **places)
    assert step.axes["GATED"] is gated and step.axes["B_ACROSS"] is not turned
    assert bool(step.params["plain"]) is not gated


@pytest.mark.usefixtures("emulation")
def test_a_ring_that_turns_and_rows_of_any_pitch() -> None:
    desc = descriptor(total=9, sources=5, groups=2, n=8, k=648)
    ready = problem(PLAN, desc, [4, 9], "y")
    chosen = plan_for(desc, PLAN)
    emulate(chosen, ready)
    with pytest.raises(bc.UnsupportedError, match="rows of x along memory"):
        chosen.plan_layout(problem(PLAN, desc, [4, 9], "y", x=DOWN).args(pointer_view))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("gated", [False, True])
def test_the_bits_are_those_of_rows_brought_together(gated: bool) -> None:
    offsets = OFFSETS["of no multiple"]
    names = ("bias", *(("up", "up_bias") if gated else ()))
    _, ready = run(descriptor(activation="silu"), offsets, *names)
    given = ready.case.arrays
    rows = given["rows"]
    there = (rows >= 0) & (rows < 77)
    a = np.zeros((300, 136), given["x"].dtype)
    a[there] = given["x"][rows[there]]
    desc = bc.GroupedGemmEpilogueDescriptor(total=300, groups=4, n=136, k=136, activation="silu", element="bfloat16")
    other = problem(bc.GroupedGemmEpiloguePlan, desc, offsets, *names)
    for name in ("b", *names):
        other.case.arrays[name], other.laid[name] = given[name], ready.laid[name]
    other.case.arrays["a"], other.laid["a"] = a, lay_out(a, Placement())
    emulate(plan_for(desc, bc.GroupedGemmEpiloguePlan), other)
    assert np.array(other.laid["y"].view).tobytes() == np.array(ready.laid["y"].view).tobytes()
