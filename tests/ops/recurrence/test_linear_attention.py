"""linear_attention, its decode step and its gradients: whole matrices, kernels of every kind, bits, bad values."""

from __future__ import annotations

import numpy as np
import pytest
from recurrences import KINDS, drawn, emulated, near, tensors, truth, whole

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention import LinearAttentionDescriptor, LinearAttentionPlan
from baracuda_py.ops.recurrence.linear_attention_backward import (
    LinearAttentionBackwardDescriptor, LinearAttentionBackwardPlan,
)  # fmt: skip
from baracuda_py.ops.recurrence.linear_attention_decode import (
    LinearAttentionDecodeDescriptor, LinearAttentionDecodePlan, linear_attention_decode,
)  # fmt: skip
from baracuda_py.ops.recurrence.linear_attention_functions import linear_attention, simple_gla

torch = pytest.importorskip("torch")

SMALL = {"seq_len": 7, "q_heads": 1, "k_heads": 2, "v_heads": 2, "d_k": 5, "d_v": 3, "element": "float64"}
BOUNDS = ((0, 1, 3), (0, 3, 3), (0, 3, 6))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_matrices_and_their_autograd(kind, packed, norm):
    sizes = SMALL | {"kind": kind, "batch_size": 1 if packed else 2, "use_qk_l2norm": norm}
    if packed:
        sizes["num_states"] = 3
    case = drawn(LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**sizes))
    for name in ("g", "g_channel"):  # autograd of exp(-inf) 0 is no help here
        if case.arrays.get(name) is not None:
            case.arrays[name] = np.maximum(case.arrays[name], -3)
    bounds = None
    if packed:
        case.arrays["cu_seqlens"] = np.array([1, 3, 3, 6])
        bounds = BOUNDS
    given = tensors(case)
    dy, dlast = given.pop("dy"), given.pop("dfinal_state")
    desc = LinearAttentionDescriptor(**sizes)
    y, last = whole(desc, given, bounds)
    inputs = {name: x.detach().numpy() for name, x in given.items()}
    absent = dict.fromkeys(("g", "g_channel", "beta", "a", "b", "bonus", "cu_seqlens"))
    inputs = absent | inputs | {"cu_seqlens": case.arrays["cu_seqlens"]}
    made = LinearAttentionPlan.reference(desc, **inputs, wanted={"y", "final_state"})
    np.testing.assert_allclose(made["y"], y.detach().numpy(), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(made["final_state"], last.detach().numpy(), rtol=1e-11, atol=1e-13)
    found = torch.autograd.grad((y * dy).sum() + (last * dlast).sum(), list(given.values()), allow_unused=True)
    got = truth(case)
    assert len(got) == len(given)
    for name, slope in zip(given, found, strict=True):
        want = np.zeros(given[name].shape) if slope is None else slope.numpy()
        np.testing.assert_allclose(got[f"d{name}"], want, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_step_by_step(kind):
    heads = 2 if kind is RecurrenceKind.CHANNEL_DELTA else 1
    sizes = {"kind": kind, "batch_size": 1, "num_states": 2, "seq_len": 68, "q_heads": 1, "k_heads": heads}
    sizes |= {"v_heads": heads, "d_k": 17, "d_v": 35 if heads == 1 else 5, "use_qk_l2norm": True, "element": "float32"}
    bounds = np.array([1, 67, 68])  # a piece of 64 steps and one of 2
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes))
    case.arrays["cu_seqlens"] = bounds
    near(emulated(case), truth(case), 1e-5)
    case = drawn(LinearAttentionBackwardPlan, LinearAttentionBackwardDescriptor(**sizes))
    case.arrays["cu_seqlens"] = bounds
    near(emulated(case), truth(case), 1e-5)


CHUNKED = [K for K in KINDS if K.value in ("none", "scalar", "delta", "scalar_delta")]


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", CHUNKED)
def test_kernels_in_chunks(kind, element):
    d_k, norm = (72, True) if element == "float16" else (64, False)  # of each width of kernels
    sizes = {"kind": kind, "batch_size": 1, "num_states": 3, "seq_len": 150, "q_heads": 1, "k_heads": 1, "v_heads": 1}
    desc = LinearAttentionDescriptor(**sizes, d_k=d_k, d_v=70, use_qk_l2norm=norm, element=element)
    case = drawn(LinearAttentionPlan, desc)
    case.arrays["cu_seqlens"] = np.array([2, 131, 131, 149])
    near(emulated(case), truth(case), 2e-3 if element == "float16" else 2e-2)


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_packed_alone_and_in_a_batch_have_the_same_bits(element):
    sizes = {"kind": RecurrenceKind.SCALAR_DELTA, "q_heads": 1, "k_heads": 1, "v_heads": 1, "d_k": 16, "d_v": 8}
    sizes["element"] = element
    batch = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes, batch_size=2, seq_len=70))
    in_batch = emulated(batch)
    packed = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes, batch_size=1, seq_len=140, num_states=2))
    alone = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes, batch_size=1, seq_len=70))
    for name in ("q", "k", "v", "g", "beta"):
        x = batch.arrays[name]
        packed.arrays[name] = x.reshape(1, 140, *x.shape[2:])
        alone.arrays[name] = x[1:]
    packed.arrays |= {"cu_seqlens": np.array([0, 70, 140]), "initial_state": batch.arrays["initial_state"]}
    alone.arrays["initial_state"] = batch.arrays["initial_state"][1:]
    in_pack, by_itself = emulated(packed), emulated(alone)
    assert in_pack["y"].tobytes() == in_batch["y"].tobytes()
    assert in_pack["final_state"].tobytes() == in_batch["final_state"].tobytes()
    assert by_itself["y"].tobytes() == in_batch["y"][1:].tobytes()


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR, RecurrenceKind.CHANNEL_DELTA])
def test_decode_continues_in_the_bits_of_the_whole(kind):
    sizes = {"kind": kind, "batch_size": 2, "q_heads": 1, "k_heads": 1, "v_heads": 1, "d_k": 16, "d_v": 8}
    sizes["element"] = "bfloat16"
    case = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes, seq_len=9, stepwise=True))
    all_at_once = emulated(case)
    first = drawn(LinearAttentionPlan, LinearAttentionDescriptor(**sizes, seq_len=6, stepwise=True))
    step = drawn(LinearAttentionDecodePlan, LinearAttentionDecodeDescriptor(**sizes, seq_len=3, num_slots=4))
    for name in ("q", "k", "v", "g", "g_channel", "beta"):
        if (x := case.arrays[name]) is not None:
            first.arrays[name], step.arrays[name] = x[:, :6], x[:, 6:]
    first.arrays["initial_state"] = case.arrays["initial_state"]
    begun = emulated(first)
    step.arrays["slots"] = np.array([3, 1])
    step.arrays["state"][[3, 1]] = begun["final_state"]
    made = emulated(step)
    assert made["y"].tobytes() == np.ascontiguousarray(all_at_once["y"][:, 6:]).tobytes()
    assert made["state"][[3, 1]].tobytes() == all_at_once["final_state"].tobytes()
    assert made["states"][:, -1].tobytes() == all_at_once["final_state"].tobytes()


def test_slots_that_are_none_or_taken_are_skipped():
    sizes = {"kind": "scalar", "batch_size": 4, "seq_len": 2, "q_heads": 1, "k_heads": 1, "v_heads": 1, "d_k": 4}
    desc = LinearAttentionDecodeDescriptor(**sizes, d_v=3, num_slots=2, element="float32")
    case = drawn(LinearAttentionDecodePlan, desc)
    case.arrays["slots"] = np.array([1, -1, 1, 2])
    before, got, want = case.arrays["state"].copy(), emulated(case), truth(case)
    near(got, want, 1e-6)
    assert (got["y"][1:] == 0).all() and (got["states"][1:] == 0).all() and got["y"][0].any()
    np.testing.assert_array_equal(got["state"][0], before[0])


def test_decays_of_nothing_and_infinite_ones():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 5, 1, 4)) for _ in range(3))
    np.testing.assert_array_equal(simple_gla(q, k, v, np.zeros((1, 5, 1))), linear_attention(q, k, v))
    for log in (-np.inf, -2000.0):  # every step begins anew
        y = simple_gla(q, k, v, np.full((1, 5, 1), log))
        np.testing.assert_allclose(y, 0.5 * (q * k).sum(-1, keepdims=True) * v, rtol=1e-12)


def test_bounds_out_of_order_and_out_of_range_are_clamped():
    q, k, v = (np.random.default_rng(4).standard_normal((1, 9, 1, 4)) for _ in range(3))
    want = linear_attention(q, k, v, cu_seqlens=np.array([0, 5, 5, 9]), output_final_state=True)
    got = linear_attention(q, k, v, cu_seqlens=np.array([-3, 5, 2, 70]), output_final_state=True)
    for one, other in zip(want, got, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, 5, 2, 4)) for _ in range(3))
    state = rng.standard_normal((2, 2, 4, 4))
    wrong = [
        ((q, k[:, :4], v), {}), ((q, k, v[..., 0]), {}), ((q, k, rng.standard_normal((2, 5, 3, 4))), {}),
        ((q, k, v), {"initial_state": state[:1]}), ((q, k, v), {"cu_seqlens": np.array([0, 2, 5])}),
    ]  # fmt: skip
    for operands, more in wrong:
        with pytest.raises(InvalidProblemError):
            linear_attention(*operands, **more)
    with pytest.raises(InvalidProblemError):
        linear_attention_decode(q, k, v, state=rng.standard_normal((3, 2, 4, 4)), kind=RecurrenceKind.NONE)
