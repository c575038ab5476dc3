"""Long sequences whose states are found by segments: against float64, and the same bits packed and in one launch."""

from __future__ import annotations

import numpy as np
import pytest
from recurrences import drawn, emulated, near, truth

from baracuda_py.core import PlanPreference
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention import LinearAttentionDescriptor, LinearAttentionPlan
from baracuda_py.ops.recurrence.linear_attention_backward import (
    LinearAttentionBackwardDescriptor, LinearAttentionBackwardPlan,
)  # fmt: skip
from baracuda_py.schedules import recurrence
from baracuda_py.testing import emulated_device, operands
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

KINDS = list(RecurrenceKind)
MADE = {LinearAttentionPlan: LinearAttentionDescriptor, LinearAttentionBackwardPlan: LinearAttentionBackwardDescriptor}
OPERANDS = ("q", "k", "v", "g", "g_channel", "beta", "a", "b", "dy")


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(recurrence, "SEGMENT", 64)


def mild(case):
    """Decays that leave something of a segment ago."""
    for name in ("g", "g_channel"):
        if (x := case.arrays.get(name)) is not None:
            x[...] = np.maximum(x, -2) * 0.02
    if case.arrays.get("a") is not None:
        case.arrays["a"] *= 0.3
    return case


def one(plan, kind, **more):
    sizes = {"batch_size": 1, "seq_len": 520, "num_states": 3, "q_heads": 1, "k_heads": 1, "v_heads": 1}
    desc = MADE[plan](**{"kind": kind, **sizes, "d_k": 8, "d_v": 8, "element": "float16"} | more)
    return mild(drawn(plan, desc))


@pytest.mark.parametrize("plan", MADE)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_segments(kind, plan):
    """Sequences of 100 steps, of one chunk more than seven segments, and of what is left, behind rows of nobody."""
    case = one(plan, kind)
    case.arrays["cu_seqlens"] = np.array([3, 103, 103 + 391, 519])
    near(emulated(case), truth(case), 3e-3)


@pytest.mark.parametrize("plan", MADE)
@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR, RecurrenceKind.CHANNEL_DELTA])
def test_segments_have_the_same_bits_packed_and_in_a_batch(kind, plan):
    batch = one(plan, kind, batch_size=2, seq_len=260, num_states=2)
    packed = one(plan, kind, seq_len=523, num_states=3)
    for name in OPERANDS:
        if (x := batch.arrays.get(name)) is not None:
            packed.arrays[name][:, 3:] = x.reshape(1, 520, *x.shape[2:])
    packed.arrays["cu_seqlens"] = np.array([3, 3, 263, 523])
    for name in ("initial_state", "dfinal_state"):
        if batch.arrays.get(name) is not None:
            packed.arrays[name][1:] = batch.arrays[name]
    in_batch, in_pack = emulated(batch), emulated(packed)
    for name, x in in_batch.items():
        other = in_pack[name][1:] if name in ("final_state", "dinitial_state") else in_pack[name][:, 3:]
        assert other.tobytes() == x.tobytes(), name


@pytest.mark.parametrize("kind", [RecurrenceKind.NONE, RecurrenceKind.SCALAR])
def test_segments_have_the_bits_of_one_launch(kind):
    case = one(LinearAttentionPlan, kind, d_k=72, d_v=70)
    case.arrays["cu_seqlens"] = np.array([3, 103, 103 + 391, 519])
    made = []
    for preference, row in ((None, "passes"), (PlanPreference(max_workspace_bytes=0), "chunks")):
        ready, plan = operands(case), case.plan.select(case.desc, preference, device=emulated_device(8.0))
        with emulating() as emulator:
            args = ready.args(pointer_view)
            assert f"/{row}/" in str(plan.can_implement(args).sku)
            plan.run(args)
            assert not (emulator.overrun() or ready.damage())
        made.append({spec.name: np.array(one.view).tobytes() for spec, _, one in ready.items() if spec.writes})
    assert made[0] == made[1]


def test_only_the_gradient_of_the_first_state():
    case = one(LinearAttentionBackwardPlan, RecurrenceKind.SCALAR_DELTA, seq_len=300, num_states=1)
    every = emulated(case)
    case.wanted = frozenset({"dinitial_state"})
    assert emulated(case)["dinitial_state"].tobytes() == every["dinitial_state"].tobytes()


def test_where_sequences_are_cut_does_not_depend_on_their_number():
    for heads, length, delta, cut in ((4, 257, False, 64), (4, 256, False, 0), (65, 257, False, 0), (33, 257, True, 0)):
        for batch in (1, 9):
            sizes = {"batch_size": batch, "seq_len": length, "q_heads": heads, "k_heads": heads, "v_heads": heads}
            desc = LinearAttentionDescriptor(kind=RecurrenceKind.NONE, **sizes, d_k=8, d_v=8, element="float16")
            assert recurrence.segment_of(desc, delta) == cut
