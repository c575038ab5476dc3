"""Long sequences of linear attention on a GPU, whose states are found by segments: against float64, and bits."""

from __future__ import annotations

import numpy as np
import pytest
from recurrences import drawn, near, truth

from baracuda_py.core import PlanPreference
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention import LinearAttentionPlan
from baracuda_py.ops.recurrence.linear_attention_backward import LinearAttentionBackwardPlan
from baracuda_py.testing import operands
from baracuda_py.testing.gpu import OnDevice

pytestmark = pytest.mark.gpu
KINDS = list(RecurrenceKind)
OPERANDS = ("q", "k", "v", "g", "g_channel", "beta", "a", "b", "dy")


def on_device(case, row, preference=None):
    """What the row gives, by operand."""
    plan, device = case.plan.select(case.desc, preference), OnDevice(operands(case))
    args = device.args()
    assert f"/{row}/" in str(plan.can_implement(args).sku)
    plan.run(args)
    found = device.written()
    assert device.harm() is None
    return {name: x for (name, _), x in found.items()}


def one(plan, kind, steps, **more):
    """A problem whose states remember some thousand steps."""
    sizes = {"batch_size": 1, "q_heads": 1, "k_heads": 1, "v_heads": 1, "d_k": 8, "d_v": 8, "use_qk_l2norm": True}
    case = drawn(plan, plan.descriptor(**{"kind": kind, "seq_len": steps, **sizes, "element": "bfloat16"} | more))
    for name in ("g", "g_channel"):
        if (x := case.arrays.get(name)) is not None:
            x[...] = np.maximum(x, -2) * 2e-3
    if case.arrays.get("a") is not None:
        a, b = case.arrays["a"], case.arrays["b"]  # a state that shrinks along b: none grows over 65 536 steps
        b[...] = b / np.linalg.norm(b.astype(np.float64), axis=-1, keepdims=True)
        a[...] = -0.3 * b
    return case


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_sequence(kind):
    case = one(LinearAttentionPlan, kind, 65_536)
    near(on_device(case, "passes"), truth(case), 2e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_long_sequence(kind):
    case = one(LinearAttentionBackwardPlan, kind, 16_500)
    near(on_device(case, "chunks"), truth(case), 2.5e-2)


@pytest.mark.parametrize(("plan", "row"), [(LinearAttentionPlan, "passes"), (LinearAttentionBackwardPlan, "chunks")])
@pytest.mark.parametrize("kind", KINDS)
def test_segments_have_the_same_bits_packed_and_in_a_batch_and_each_time(kind, plan, row):
    heads = {"q_heads": 2, "k_heads": 2, "v_heads": 2, "d_k": 128, "d_v": 128}
    batch = one(plan, kind, 10_000, batch_size=2, **heads)
    packed = one(plan, kind, 20_005, num_states=3, **heads)
    for name in OPERANDS:
        if (x := batch.arrays.get(name)) is not None:
            packed.arrays[name][:, 5:] = x.reshape(1, 20_000, *x.shape[2:])
    packed.arrays["cu_seqlens"] = np.array([3, 5, 10_005, 20_005])
    packed.arrays["bonus"] = batch.arrays["bonus"]
    for name in ("initial_state", "dfinal_state"):
        if batch.arrays.get(name) is not None:
            packed.arrays[name][1:] = batch.arrays[name]
    in_batch, again, in_pack = on_device(batch, row), on_device(batch, row), on_device(packed, row)
    for name, x in in_batch.items():
        assert x.tobytes() == again[name].tobytes(), name
        if name != "dbonus":  # a sum over sequences
            other = in_pack[name][1:] if name in ("final_state", "dinitial_state") else in_pack[name][:, 5:]
            assert other.tobytes() == x.tobytes(), name


@pytest.mark.parametrize("kind", [RecurrenceKind.NONE, RecurrenceKind.SCALAR])
def test_segments_have_the_bits_of_one_launch(kind):
    case = one(LinearAttentionPlan, kind, 16_500, q_heads=4, k_heads=4, v_heads=4, d_k=128, d_v=128)
    made = on_device(case, "passes")
    alone = on_device(case, "chunks", PlanPreference(max_workspace_bytes=0))
    for name, x in made.items():
        assert x.tobytes() == alone[name].tobytes(), name
