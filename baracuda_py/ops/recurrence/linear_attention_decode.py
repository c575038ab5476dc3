"""linear_attention_decode: one or several steps of linear attention, in place over slots of states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, InvalidProblemError, Plan, extent, inout, operand, output
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...schedules.recurrence import DECODE_ROW
from ..attention.packed.ragged import INDEX
from .kinds import (
    BONUS, CHANNELLED, CHANNELS, DELTAS, KEYS, NUMBERS, OUTPUTS, QUERIES, RANK_ONES, SCALARS, VALUES,
    RecurrenceDescriptor, RecurrenceKind, betas, case_fields, decays, infer_heads, numbers, run, steps_of, vectors,
)  # fmt: skip
from .linear_attention import recurrence_flops


@dataclass(frozen=True, kw_only=True)
class LinearAttentionDecodeDescriptor(RecurrenceDescriptor):
    """seq_len steps of each of batch_size sequences, whose states are among num_slots."""

    num_slots: int = extent()


def random_slots(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Slots for tests, with some out of range and some named twice."""
    return rng.integers(-1, desc.num_slots + 1, shape)


@dataclass(slots=True, kw_only=True)
class LinearAttentionDecodeArgs(Args):
    """state [num_slots, …] is updated in place; sequence n has slot slots[n], without slots n. Else as the forward's.

    states: what the state was after each step, from which a rejected draft is taken back.
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
    state: Array = inout("num_slots num_heads d_k d_v", element="acc", layout="inner", values=numbers)
    y: Array = output(OUTPUTS, layout="inner")
    states: Array | None = output("batch_size seq_len num_heads d_k d_v", element="acc", optional=True, layout="dense")


def found_slots(desc: Any, slots: Any) -> list[int]:
    """The slot of each sequence, -1 where it has none or an earlier one has it."""
    found: list[int] = []
    for slot in range(desc.batch_size) if slots is None else np.asarray(slots).tolist():
        found.append(slot if 0 <= slot < desc.num_slots and slot not in found else -1)
    return found


def reference(desc: Any, *, q: Any, slots: Any, state: Any, wanted: Any, **operands: Any) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in: step by step."""
    arrays = {"q": q, **operands}
    y = np.zeros((desc.batch_size, desc.seq_len, desc.num_heads, desc.d_v), q.dtype)
    states = np.zeros((desc.batch_size, desc.seq_len, desc.num_heads, desc.d_k, desc.d_v), q.dtype)
    for n, slot in enumerate(found_slots(desc, slots)):
        if slot >= 0:
            steps = steps_of(desc, n, slice(0, desc.seq_len), arrays)
            y[n], after = run(desc, steps, state[slot].astype(q.dtype))
            states[n], state[slot] = after[1:], after[-1]
    return {"y": y, "states": states, "state": state}


class LinearAttentionDecodePlan(Plan):
    """`LinearAttentionPlan` of seq_len steps, from and to the state in each sequence's slot, bit for bit as there."""

    op = "recurrence.linear_attention_decode"
    descriptor = LinearAttentionDecodeDescriptor
    args = LinearAttentionDecodeArgs
    kinds = RecurrenceKind
    reference = staticmethod(reference)
    value_policy = (
        "a sequence whose slot is out of [0, num_slots) or an earlier one's is skipped: its y and states are 0"
    )
    variants = (DECODE_ROW,)
    benchmarks = tuple(
        Benchmark(
            f"{kind.value}, {steps} step of 64 x [32, 128, 128] bf16", kind=kind, batch_size=64, num_slots=64,
            seq_len=steps, q_heads=32, k_heads=32, v_heads=32, d_k=128, d_v=128, element="bfloat16", work=BYTES,
            target=0.8, peers=(),
        )
        for kind, steps in ((RecurrenceKind.SCALAR, 1), (RecurrenceKind.SCALAR_DELTA, 1),
                            (RecurrenceKind.SCALAR_DELTA, 4))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LinearAttentionDecodeDescriptor:
        fields = case_fields(draw)
        batch = draw.choice((3, 1, 0))
        fields |= {"batch_size": batch, "seq_len": draw.choice((1, 3, 0))}
        del fields["num_states"]
        return LinearAttentionDecodeDescriptor(**fields, num_slots=draw.choice((batch, batch + 2)))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Without slots there are as many as sequences."""
        if desc.num_slots == desc.batch_size:
            arrays["slots"] = None
        elif arrays.get("slots") is None:
            arrays["slots"] = np.arange(desc.batch_size, dtype=np.int64)[::-1].copy()

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views.get("slots") is None and desc.num_slots != desc.batch_size:
            raise InvalidProblemError(
                f"without slots each sequence has one: state must have {desc.batch_size}, got {desc.num_slots}"
            )

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_heads(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        slots = arrays.get("slots")
        if slots is not None and -1 in found_slots(desc, slots):
            return f"slots must be different and in [0, {desc.num_slots}), got {np.asarray(slots).tolist()}"
        return None

    @classmethod
    def flops(cls, desc: Any) -> int:
        return recurrence_flops(desc)


linear_attention_decode = functional(LinearAttentionDecodePlan)
