"""Linear attention and its gradients in chunks on a GPU: long packed sequences against float64, and bits."""

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
KINDS = [RecurrenceKind(name) for name in ("none", "scalar", "delta", "scalar_delta")]
CHANNELS = [RecurrenceKind(name) for name in ("channel", "channel_bonus", "channel_delta", "rank_one")]
LIMIT = {"float16": 3e-3, "bfloat16": 2e-2}


def on_device(case, row, preference=None):
    """What the row gives, by operand."""
    plan, device = case.plan.select(case.desc, preference), OnDevice(operands(case))
    args = device.args()
    assert f"/{row}/" in str(plan.can_implement(args).sku)
    plan.run(args)
    found = device.written()
    assert device.harm() is None
    return {name: x for (name, _), x in found.items()}


def packed(plan, kind, element, d_k, d_v):
    fields = {"kind": kind, "batch_size": 1, "num_states": 3, "seq_len": 1100, "q_heads": 1, "k_heads": 1, "v_heads": 2}
    desc = plan.descriptor(**fields, d_k=d_k, d_v=d_v, use_qk_l2norm=True, element=element)
    case = drawn(plan, desc)
    case.arrays["cu_seqlens"] = np.array([0, 70, 583, 1099])
    return case


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize(("d_k", "d_v"), [(128, 128), (64, 200)])
@pytest.mark.parametrize("kind", [*KINDS, *CHANNELS])
def test_gradients(kind, element, d_k, d_v):
    case = packed(LinearAttentionBackwardPlan, kind, element, d_k, d_v)
    near(on_device(case, "chunks"), truth(case), LIMIT[element])


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize(("d_k", "d_v"), [(128, 128), (64, 200)])
@pytest.mark.parametrize("kind", [*KINDS, *CHANNELS])
def test_outputs(kind, element, d_k, d_v):
    case = packed(LinearAttentionPlan, kind, element, d_k, d_v)
    near(on_device(case, "passes"), truth(case), LIMIT[element])


@pytest.mark.parametrize("kind", [RecurrenceKind.NONE, RecurrenceKind.SCALAR])
def test_passes_have_the_bits_of_one_launch(kind):
    fields = {"kind": kind, "batch_size": 3, "seq_len": 1000, "q_heads": 8, "k_heads": 8, "v_heads": 8}
    desc = LinearAttentionPlan.descriptor(**fields, d_k=128, d_v=128, use_qk_l2norm=True, element="bfloat16")
    case = drawn(LinearAttentionPlan, desc)
    made, again = on_device(case, "passes"), on_device(case, "chunks", PlanPreference(max_workspace_bytes=0))
    for name, x in made.items():
        assert x.tobytes() == again[name].tobytes(), name


@pytest.mark.parametrize("kind", [*KINDS, *CHANNELS])
def test_gradients_of_a_full_machine_have_the_same_bits_each_time_and_alone(kind):
    fields = {"kind": kind, "batch_size": 8, "seq_len": 777, "q_heads": 16, "k_heads": 16, "v_heads": 16}
    sizes = {"d_k": 128, "d_v": 128, "use_qk_l2norm": True, "element": "bfloat16"}
    plan = LinearAttentionBackwardPlan
    case = drawn(plan, plan.descriptor(**fields, **sizes))
    first, second = on_device(case, "chunks"), on_device(case, "chunks")
    alone = drawn(plan, plan.descriptor(**fields | {"batch_size": 1}, **sizes))
    for name, x in case.arrays.items():
        if isinstance(x, np.ndarray):
            alone.arrays[name] = x if name == "bonus" else x[5:6]
    by_itself = on_device(alone, "chunks")
    for name, x in first.items():
        assert x.tobytes() == second[name].tobytes(), name
        if name == "dbonus":  # a sum over sequences
            continue
        assert x[5:6].tobytes() == by_itself[name].tobytes(), name


@pytest.mark.parametrize("kind", CHANNELS)
def test_gradients_of_channels_that_fade_fast_and_forget(kind):
    """Logs of 0 to -60 a step and -inf: products of decays underflow, and nothing is NaN or too large."""
    case = packed(LinearAttentionBackwardPlan, kind, "bfloat16", 128, 64)
    logs = case.arrays["g_channel"]
    logs[...] = -np.random.default_rng(7).choice((0.0, 0.1, 3.0, 20.0, 60.0), logs.shape)
    logs[:, [0, 17, 66, 700]] = -np.inf
    near(on_device(case, "chunks"), truth(case), LIMIT["bfloat16"])
