"""linear_attention_replay: decode of linear attention that writes a state once in some steps, replaying those since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, InvalidProblemError, Plan, extent, inout, integer, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...schedules.recurrence import REPLAY_ROW, RINGED
from ..attention.packed.ragged import INDEX
from .kinds import (
    BONUS, CHANNELLED, CHANNELS, DELTAS, KEYS, NUMBERS, OUTPUTS, QUERIES, RANK_ONES, SCALARS, VALUES,
    RecurrenceDescriptor, RecurrenceKind, betas, case_fields, decays, infer_heads, numbers, run, steps_of, vectors,
)  # fmt: skip
from .linear_attention import recurrence_flops
from .linear_attention_decode import found_slots, random_slots

I32 = ElementKind.I32


@dataclass(frozen=True, kw_only=True)
class LinearAttentionReplayDescriptor(RecurrenceDescriptor):
    """seq_len steps of each of batch_size sequences, whose states and rings of `ring` steps are among num_slots.

    every: how many steps are pending when the state is written; ring is at least every + 2 seq_len - 1.
    """

    num_slots: int = extent()
    ring: int = extent(minimum=1)
    every: int = integer(8, minimum=1)

    def validate(self) -> None:
        RecurrenceDescriptor.validate(self)
        least = self.every + 2 * self.seq_len - 1
        if self.ring < least:
            raise InvalidProblemError(
                f"ring must be at least every + 2 seq_len - 1 = {least}, which may be pending, got {self.ring}"
            )


def random_lengths(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: from before what is written to beyond what a ring holds."""
    return rng.integers(0, 2 * desc.ring + 3, shape)


@dataclass(slots=True, kw_only=True)
class LinearAttentionReplayArgs(Args):
    """state [num_slots, …] and the rings are updated in place; sequence n has slot slots[n], without slots n.

    length: steps of each sequence that count; written: those of them that its state has; now_written: those that it has
    after the call. Step s stands at s % ring. There is a ring for each operand of a step but q.
    """

    q: Array = operand(QUERIES, layout="inner", values=vectors)
    k: Array = operand(KEYS, layout="inner", values=vectors)
    v: Array = operand(VALUES, layout="inner", values=numbers)
    g: Array | None = operand(NUMBERS, element="acc", kinds=SCALARS, values=decays)
    g_channel: Array | None = operand(CHANNELS, element="acc", layout="inner", kinds=CHANNELLED, values=decays)
    beta: Array | None = operand(NUMBERS, element="acc", kinds=DELTAS, values=betas)
    a: Array | None = operand(CHANNELS, layout="inner", kinds=RANK_ONES, values=vectors)
    b: Array | None = operand(CHANNELS, layout="inner", kinds=RANK_ONES, values=vectors)
    bonus: Array | None = operand("num_heads d_k", element="acc", layout="inner", kinds=BONUS, values=numbers)
    slots: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_slots)
    length: Array = operand("batch_size", element=I32, values=random_lengths)
    written: Array = operand("batch_size", element=I32, values=random_lengths)
    state: Array = inout("num_slots num_heads d_k d_v", element="acc", layout="inner", values=numbers)
    ring_k: Array = inout("num_slots ring k_heads d_k", layout="dense", values=vectors)
    ring_v: Array = inout("num_slots ring v_heads d_v", layout="dense", values=numbers)
    ring_g: Array | None = inout(
        "num_slots ring num_heads", element="acc", layout="dense", optional=True, values=decays
    )
    ring_g_channel: Array | None = inout(
        "num_slots ring num_heads d_k", element="acc", layout="dense", optional=True, values=decays
    )
    ring_beta: Array | None = inout(
        "num_slots ring num_heads", element="acc", layout="dense", optional=True, values=betas
    )
    ring_a: Array | None = inout("num_slots ring num_heads d_k", layout="dense", optional=True, values=vectors)
    ring_b: Array | None = inout("num_slots ring num_heads d_k", layout="dense", optional=True, values=vectors)
    y: Array = output(OUTPUTS, layout="inner")
    now_written: Array = output("batch_size", element=I32)


def reference(
    desc: Any, *, q: Any, slots: Any, length: Any, written: Any, state: Any, **operands: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in: the ring's steps, then those of the call."""
    rings = {name: operands.pop(f"ring_{name}") for name in RINGED}
    new = {name: operands[name] for name in RINGED if operands[name] is not None}
    y = np.zeros((desc.batch_size, desc.seq_len, desc.num_heads, desc.d_v), q.dtype)
    now = written.astype(np.int64)
    for n, slot in enumerate(found_slots(desc, slots)):
        if slot < 0:
            continue
        pending = int(np.clip(int(length[n]) - int(now[n]), 0, desc.ring - desc.seq_len))
        places = (now[n] + np.arange(pending + desc.seq_len)) % desc.ring
        arrays = {
            name: np.concatenate([rings[name][slot, places[:pending]].astype(x.dtype), x[n]])[None]
            for name, x in new.items()
        }
        arrays["q"] = np.concatenate([np.zeros((pending, *q.shape[2:]), q.dtype) + 1, q[n]])[None]
        steps = steps_of(desc, 0, slice(0, pending + desc.seq_len), arrays | {"bonus": operands["bonus"]})
        made, after = run(desc, steps, state[slot].astype(q.dtype))
        y[n] = made[pending:]
        if pending >= desc.every:
            state[slot] = after[pending]
            now[n] += pending
        for name, x in new.items():
            rings[name][slot, places[pending:]] = x[n]
    kept = {f"ring_{name}": ring for name, ring in rings.items() if ring is not None}
    return {"y": y, "now_written": now.astype(np.int32), "state": state, **kept}


class LinearAttentionReplayPlan(Plan):
    """`LinearAttentionDecodePlan` whose states are written once `every` steps are pending, with the bits it has.

    A call walks from the state in a sequence's slot through the length - written steps that its ring has, then through
    its own, which enter the ring. Where `every` or more were pending, the state before the call's steps is written.
    So the call's steps are never part of what is written: the caller raises length by those that are accepted, and
    takes now_written for written. A prefill's last state begins with length = written.
    """

    op = "recurrence.linear_attention_replay"
    descriptor = LinearAttentionReplayDescriptor
    args = LinearAttentionReplayArgs
    kinds = RecurrenceKind
    reference = staticmethod(reference)
    value_policy = (
        "a sequence whose slot is out of [0, num_slots) or an earlier one's is skipped: its y is 0; length - written "
        "is clamped to [0, ring - seq_len]"
    )
    variants = (REPLAY_ROW,)
    benchmarks = tuple(
        Benchmark(
            f"{kind.value}, {steps} step of 64 x [32, 128, 128] bf16, half of 8 pending", kind=kind, batch_size=64,
            num_slots=64, seq_len=steps, q_heads=32, k_heads=32, v_heads=32, d_k=128, d_v=128, ring=15,
            element="bfloat16", work=BYTES, target=None, peers=(), make=lambda torch, desc: _half_pending(torch, desc),
            also=("ring_g", *(("ring_beta",) if kind is RecurrenceKind.SCALAR_DELTA else ())),
        )
        for kind, steps in ((RecurrenceKind.SCALAR, 1), (RecurrenceKind.SCALAR_DELTA, 1),
                            (RecurrenceKind.SCALAR_DELTA, 4))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LinearAttentionReplayDescriptor:
        fields = case_fields(draw)
        batch, steps, every = draw.choice((3, 1, 0)), draw.choice((1, 3, 0)), draw.choice((4, 1))
        fields |= {"batch_size": batch, "seq_len": steps}
        del fields["num_states"]
        return LinearAttentionReplayDescriptor(
            **fields, num_slots=draw.choice((batch, batch + 2)), every=every,
            ring=every + 2 * steps - 1 + draw.choice((1, 0, 40)) + (steps == 0),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Without slots there are as many as sequences; an operand of a step has a ring."""
        if desc.num_slots == desc.batch_size:
            arrays["slots"] = None
        elif arrays.get("slots") is None:
            arrays["slots"] = np.arange(desc.batch_size, dtype=np.int64)[::-1].copy()
        for name in RINGED[2:]:
            x, ring = arrays.get(name), f"ring_{name}"
            if x is None:
                arrays[ring] = None
            elif arrays.get(ring) is None:
                arrays[ring] = np.zeros((desc.num_slots, desc.ring, *x.shape[2:]), x.dtype)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views.get("slots") is None and desc.num_slots != desc.batch_size:
            raise InvalidProblemError(
                f"without slots each sequence has one: state must have {desc.batch_size}, got {desc.num_slots}"
            )
        for name in RINGED[2:]:
            if (views.get(name) is None) != (views.get(f"ring_{name}") is None):
                has = "given" if views.get(name) is not None else "None"
                raise InvalidProblemError(f"ring_{name} must be {has} as {name} is")

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_heads(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return recurrence_flops(desc)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """A state read in each call and written in one of `every`, and half of `every` steps of the ring."""
        acc, size = desc.element.acc.itemsize, desc.element.itemsize
        state = desc.batch_size * desc.num_heads * desc.d_k * desc.d_v * acc
        step = desc.batch_size * size * (
            (desc.q_heads + desc.k_heads) * desc.d_k + (desc.v_heads + desc.num_heads) * desc.d_v
        )  # fmt: skip
        return int(state + state * desc.seq_len // desc.every + step * (desc.seq_len + desc.every // 2))


def _half_pending(torch: Any, desc: Any) -> dict[str, Any]:
    """For benchmarks: half of `every` steps are pending."""
    written = torch.full((desc.batch_size,), 64, dtype=torch.int32)
    return {"slots": None, "written": written, "length": written + desc.every // 2}


linear_attention_replay = functional(LinearAttentionReplayPlan)
