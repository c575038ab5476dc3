"""linear_attention_replay: the bits of decode that writes its state at every step, rejected steps, bad values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recurrences import KINDS, drawn, emulated, near, truth

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention_decode import (
    LinearAttentionDecodeDescriptor, LinearAttentionDecodePlan,
)  # fmt: skip
from baracuda_py.ops.recurrence.linear_attention_replay import (
    LinearAttentionReplayDescriptor, LinearAttentionReplayPlan,
)  # fmt: skip
from baracuda_py.schedules.recurrence import RINGED

SMALL: dict[str, Any] = {"q_heads": 1, "k_heads": 1, "v_heads": 2, "d_k": 17, "d_v": 35}


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_every_kind(kind: RecurrenceKind, element: str) -> None:
    """The ring goes round, one sequence writes its state and one does not; all against float64."""
    desc = LinearAttentionReplayDescriptor(
        kind=kind, batch_size=3, num_slots=4, seq_len=2, every=4, ring=7, element=element, use_qk_l2norm=True, **SMALL
    )
    case = drawn(LinearAttentionReplayPlan, desc)
    case.arrays |= {
        "slots": np.array([2, 0, 4]), "written": np.array([5, 0, 3], np.int32),
        "length": np.array([9, 3, 4], np.int32),
    }  # fmt: skip
    want, got = truth(case), emulated(case)
    np.testing.assert_array_equal(got.pop("now_written"), [9, 0, 3])
    for name in [n for n in got if n.startswith("ring_")]:
        np.testing.assert_array_equal(got.pop(name).astype(np.float64), want[name], err_msg=name)
    near(got, want, 1e-5 if element == "float32" else 1e-2)


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR_DELTA, RecurrenceKind.RANK_ONE])
@pytest.mark.parametrize("d_k", [8, 130])  # 32 and 8 steps a tile
def test_bits_are_those_of_a_state_written_at_every_step(kind: RecurrenceKind, d_k: int) -> None:
    """Of what the ring has, all is accepted; the state that is written in the end is that of decode, too."""
    sizes = SMALL | {"d_k": d_k, "kind": kind, "batch_size": 1, "num_slots": 1, "element": "bfloat16"}
    count, every, ring = 13, 10, 16
    steps = drawn(LinearAttentionDecodePlan, LinearAttentionDecodeDescriptor(**sizes, seq_len=count), states=True)
    want = emulated(steps)
    case = drawn(LinearAttentionReplayPlan, LinearAttentionReplayDescriptor(**sizes, seq_len=1, every=every, ring=ring))
    written, length = 5, 5 + count - 1  # so the ring goes round
    for name in ("q", "k", "v", "g", "g_channel", "beta", "a", "b"):
        x = steps.arrays.get(name)
        if x is None:
            continue
        case.arrays[name] = np.ascontiguousarray(x[:, -1:])
        if name in RINGED:
            for s in range(count - 1):
                case.arrays[f"ring_{name}"][0, (written + s) % ring] = x[0, s]
    case.arrays |= {
        "state": steps.arrays["state"], "bonus": steps.arrays.get("bonus"), "slots": None,
        "written": np.array([written], np.int32), "length": np.array([length], np.int32),
    }  # fmt: skip
    got = emulated(case)
    np.testing.assert_array_equal(got["y"][0, 0].view(np.uint16), want["y"][0, -1].view(np.uint16))
    np.testing.assert_array_equal(got["state"][0].view(np.uint32), want["states"][0, -2].view(np.uint32))
    assert got["now_written"].tolist() == [length]


def made(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def test_drafts_of_which_some_are_rejected() -> None:
    """Three tokens a call, of which 0 to 3 are accepted: what is accepted is decoded as if alone."""
    heads, d_k, d_v, every, ring, drafts = 2, 5, 3, 4, 9, 3
    state = made(2, heads, d_k, d_v, seed=1)
    plain = state.copy()
    rings = {
        "ring_k": np.zeros((2, ring, heads, d_k)), "ring_v": np.zeros((2, ring, heads, d_v)),
        "ring_g": np.zeros((2, ring, heads)), "ring_beta": np.zeros((2, ring, heads)),
    }  # fmt: skip
    length, written, slots = np.array([7], np.int32), np.array([7], np.int32), np.array([1])
    writes = 0
    for call in range(16):
        q, k = (made(1, drafts, heads, d_k, seed=n + 10 * call) / 3 for n in (2, 3))
        v, g = made(1, drafts, heads, d_v, seed=4 + 10 * call), -np.abs(made(1, drafts, heads, seed=5 + 10 * call))
        beta = np.abs(made(1, drafts, heads, seed=6 + 10 * call)) / 2
        y, now = bc.linear_attention_replay(
            q, k, v, state=state, **rings, g=g, beta=beta, slots=slots, length=length, written=written, every=every,
            kind="scalar_delta",
        )  # fmt: skip
        writes += int(now[0] != written[0])
        trial = plain.copy()
        want = bc.linear_attention_decode(q, k, v, state=trial, g=g, beta=beta, slots=slots, kind="scalar_delta")
        np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14)
        accepted = call % (drafts + 1)
        if accepted:
            bc.linear_attention_decode(
                *(x[:, :accepted] for x in (q, k, v)), state=plain, g=g[:, :accepted], beta=beta[:, :accepted],
                slots=slots, kind="scalar_delta",
            )  # fmt: skip
        written, length = now, length + np.int32(accepted)
    assert writes >= 3


def test_refuses_rings_that_are_short_or_absent() -> None:
    desc = LinearAttentionReplayDescriptor(
        kind="scalar", batch_size=1, num_slots=1, seq_len=1, every=4, ring=5, element="float32", **SMALL
    )
    with pytest.raises(InvalidProblemError, match=r"ring must be at least every \+ 2 seq_len - 1 = 5"):
        replace(desc, ring=4)
    case = drawn(LinearAttentionReplayPlan, desc)
    case.arrays["ring_g"] = None
    with pytest.raises(InvalidProblemError, match="ring_g must be given as g is"):
        emulated(case)
