"""linear_attention and its gradients in chunks: kernels against float64 step by step, bits, decays that underflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from recurrences import drawn, emulated, near, truth

from baracuda_py.core import PlanPreference
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention import LinearAttentionDescriptor, LinearAttentionPlan
from baracuda_py.ops.recurrence.linear_attention_backward import (
    LinearAttentionBackwardDescriptor, LinearAttentionBackwardPlan, reference,
)  # fmt: skip
from baracuda_py.testing import emulated_device, operands
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

KINDS = [RecurrenceKind(name) for name in ("none", "scalar", "delta", "scalar_delta")]
CHANNELS = [RecurrenceKind(name) for name in ("channel", "channel_bonus", "channel_delta", "rank_one")]
ONE = {"q_heads": 1, "k_heads": 1, "v_heads": 1}


def sizes(kind, **more):
    return {"kind": kind, "batch_size": 1, "num_states": 3, "seq_len": 150, **ONE} | more


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, *CHANNELS])
def test_chunks_are_the_steps(kind, norm):
    """In float64 the gradients in chunks are those step by step."""
    fields = sizes(kind, d_k=5, d_v=3, v_heads=2, use_qk_l2norm=norm, element="float16")
    case = drawn(LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**fields))
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
    want = truth(case)
    wide = {
        name: x.astype(np.float64) if isinstance(x, np.ndarray) and name != "cu_seqlens" else x
        for name, x in case.arrays.items()
    }
    got = reference(case.desc, **wide, wanted=set(case.wanted), store=lambda x: x)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=0, atol=1e-11 * max(1, np.abs(x).max()), err_msg=name)


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", [*KINDS, *CHANNELS])
def test_gradients(kind, element):
    more = {"d_k": 72, "use_qk_l2norm": True, "v_heads": 2} if element == "float16" else {"d_k": 64}
    case = drawn(
        LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**sizes(kind, d_v=70, element=element, **more))
    )
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
    near(emulated(case), truth(case), 1.5e-3 if element == "float16" else 1.2e-2)


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR, RecurrenceKind.SCALAR_DELTA, *CHANNELS])
def test_gradients_have_the_same_bits_packed_alone_and_in_a_batch(kind):
    fields = {"kind": kind, **ONE, "d_k": 16, "d_v": 8, "element": "bfloat16"}
    make = LinearAttentionBackwardDescriptor
    batch = drawn(LinearAttentionBackwardPlan, make(**fields, batch_size=2, seq_len=70))
    packed = drawn(LinearAttentionBackwardPlan, make(**fields, batch_size=1, seq_len=140, num_states=2))
    alone = drawn(LinearAttentionBackwardPlan, make(**fields, batch_size=1, seq_len=70))
    for name in ("q", "k", "v", "g", "g_channel", "beta", "a", "b", "dy"):
        if (x := batch.arrays[name]) is not None:
            packed.arrays[name], alone.arrays[name] = x.reshape(1, 140, *x.shape[2:]), x[1:]
    packed.arrays["cu_seqlens"] = np.array([0, 70, 140])
    packed.arrays["bonus"] = alone.arrays["bonus"] = batch.arrays["bonus"]
    for name in ("initial_state", "dfinal_state"):
        packed.arrays[name], alone.arrays[name] = batch.arrays[name], batch.arrays[name][1:]
    in_batch, in_pack, by_itself = emulated(batch), emulated(packed), emulated(alone)
    assert len(in_batch) > 4
    for name, x in in_batch.items():
        assert in_pack[name].tobytes() == x.tobytes(), name
        if name == "dbonus":  # a sum over sequences
            continue
        assert by_itself[name].tobytes() == x[1:].tobytes(), name


@pytest.mark.parametrize("kind", [RecurrenceKind.NONE, RecurrenceKind.SCALAR])
def test_passes_have_the_bits_of_one_launch(kind):
    fields = sizes(kind, d_k=72, d_v=70, use_qk_l2norm=True, element="bfloat16")
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**fields))
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
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


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR, RecurrenceKind.SCALAR_DELTA, *CHANNELS])
def test_steps_that_forget_all(kind):
    """g = -inf cuts a sequence: what comes after it has no gradient from before, and none is NaN."""
    fields = sizes(kind, d_k=8, d_v=8, num_states=1, seq_len=80, element="bfloat16")
    case = drawn(LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**fields))
    logs = case.arrays["g"] if case.arrays["g_channel"] is None else case.arrays["g_channel"]
    logs[:, [0, 5, 70]] = -np.inf
    if kind is RecurrenceKind.RANK_ONE:  # whose a reads the state before
        case.arrays["a"][:, [0, 5, 70]] = 0
    case.arrays["dfinal_state"][...] = 0
    case.arrays["dy"][:, : 70 + (kind is RecurrenceKind.CHANNEL_BONUS)] = 0  # whose q reads the state before
    got = emulated(case)
    for name, x in got.items():
        assert np.isfinite(x.astype(np.float32)).all(), name
    for name in ("dq", "dk", "dv"):
        assert not got[name][:, :70].any(), name
        assert got[name][:, 70:].any(), name
    assert not got["dinitial_state"].any()


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR_DELTA, RecurrenceKind.CHANNEL_DELTA])
def test_gradients_that_are_not_asked_for_and_none_of_the_state(kind):
    desc = LinearAttentionBackwardDescriptor(**sizes(kind, d_k=8, d_v=8, element="float16"))
    whole = drawn(LinearAttentionBackwardPlan, desc)
    whole.arrays["cu_seqlens"] = np.array([0, 64, 100, 150])
    every = emulated(whole)
    decays = "dg" if kind is RecurrenceKind.SCALAR_DELTA else "dg_channel"
    for wanted in ({"dk"}, {"dinitial_state"}, {decays, "dbeta"}):
        got = emulated(replace(whole, wanted=frozenset(wanted)))
        for name in wanted:
            assert got[name].tobytes() == every[name].tobytes(), name


@pytest.mark.parametrize("kind", CHANNELS)
def test_channels_in_chunks_are_the_steps(kind):
    fields = sizes(kind, d_k=5, d_v=3, v_heads=2, use_qk_l2norm=True, element="float16")
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**fields))
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
    wide = {
        name: x.astype(np.float64) if isinstance(x, np.ndarray) and name != "cu_seqlens" else x
        for name, x in case.arrays.items()
    }
    got = LinearAttentionPlan.reference(case.desc, **wide, wanted=set(case.wanted), store=lambda x: x)
    for name, x in truth(case).items():
        np.testing.assert_allclose(got[name], x, rtol=0, atol=1e-11 * max(1, np.abs(x).max()), err_msg=name)


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", CHANNELS)
def test_channels_in_chunks(kind, element):
    more = {"d_k": 72, "use_qk_l2norm": True, "v_heads": 2} if element == "float16" else {"d_k": 64}
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes(kind, d_v=70, element=element, **more)))
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
    near(emulated(case), truth(case), 1.5e-3 if element == "float16" else 1.2e-2)


@pytest.mark.parametrize("kind", CHANNELS)
def test_channels_that_fade_fast_and_forget(kind):
    """Logs of -3 to -60 a step, whose exp over 16 steps are beyond float16 and float32, and -inf."""
    fields = sizes(kind, d_k=16, d_v=8, num_states=1, seq_len=70, element="bfloat16")
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**fields))
    rng = np.random.default_rng(7)
    case.arrays["g_channel"][...] = -rng.choice((0.0, 3.0, 20.0, 60.0), case.arrays["g_channel"].shape)
    case.arrays["g_channel"][:, [0, 17, 66]] = -np.inf
    near(emulated(case), truth(case), 1.2e-2)


@pytest.mark.parametrize("kind", CHANNELS)
def test_gradients_of_channels_that_fade_fast_and_forget(kind):
    fields = sizes(kind, d_k=16, d_v=8, num_states=1, seq_len=70, element="bfloat16")
    case = drawn(LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**fields))
    rng = np.random.default_rng(7)
    case.arrays["g_channel"][...] = -rng.choice((0.0, 3.0, 20.0, 60.0), case.arrays["g_channel"].shape)
    case.arrays["g_channel"][:, [0, 17, 66]] = -np.inf
    near(emulated(case), truth(case), 1.2e-2)
