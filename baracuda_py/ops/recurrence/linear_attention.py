"""linear_attention: y[t] = scale · S[t]ᵀ q[t] of states that fade and are written to step by step, of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Plan, Vjp, flag, operand, output
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import unrounded
from ...schedules.attention.dense.forward import HALVES
from ...schedules.recurrence import CHUNK_DIMS, CHUNKS_ROW, STEPS_ROW
from ...schedules.recurrence_chunks import FORWARD_CHUNKS_ROW
from ..attention.packed.ragged import INDEX, random_bounds
from .chunked import run_in_chunks
from .kinds import (
    BONUS, CHANNELLED, CHANNELS, DELTAS, KEYS, NUMBERS, OUTPUTS, QUERIES, RANK_ONES, SCALARS, STATE, VALUES,
    SequencesDescriptor, RecurrenceKind, betas, case_fields, check_states, decays, infer_heads, numbers, run,
    sequences, steps_of, vectors, wrong_bounds,
)  # fmt: skip
from .torch_steps import in_torch

POLICY = (
    "bounds are clamped to [0, seq_len] and to the largest bound before them; rows of no sequence give zeros; decays "
    "exp(g) that underflow are 0"
)
GRADS = {
    "q": "dq", "k": "dk", "v": "dv", "g": "dg", "g_channel": "dg_channel", "beta": "dbeta", "a": "da", "b": "db",
    "bonus": "dbonus", "initial_state": "dinitial_state",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LinearAttentionDescriptor(SequencesDescriptor):
    """As `SequencesDescriptor`; stepwise: step by step, in the bits of decode, where chunks would be faster."""

    stepwise: bool = flag(False)

    @property
    def chunked(self) -> bool:
        """Whether kernels take chunks."""
        return not self.stepwise and self.element in HALVES and self.d_k <= CHUNK_DIMS[-1]


@dataclass(slots=True, kw_only=True)
class LinearAttentionArgs(Args):
    """g, g_channel: logs of decays. cu_seqlens: sequence n has rows cu_seqlens[n] : cu_seqlens[n + 1] of a batch of 1.

    States, decays, beta and bonus are float32, of float64 operands float64. initial_state: absent 0. final_state: the
    state after the last step of a sequence, the initial one of an empty sequence.
    What is not finite makes results NaN that it reaches, or that a neighbour in its row reaches.
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
    initial_state: Array | None = operand(STATE, element="acc", optional=True, layout="inner", values=numbers)
    cu_seqlens: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_bounds("seq_len"))
    y: Array = output(OUTPUTS, layout="inner")
    final_state: Array | None = output(STATE, element="acc", optional=True, layout="inner")


def reference(
    desc: Any, *, q: Any, cu_seqlens: Any, initial_state: Any, wanted: Any, store: Any = unrounded, **operands: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in: step by step."""
    arrays = {"q": q, **operands}
    y = np.zeros((desc.batch_size, desc.seq_len, desc.num_heads, desc.d_v), q.dtype)
    last = np.zeros((desc.num_states, desc.num_heads, desc.d_k, desc.d_v), q.dtype)
    if initial_state is not None:
        last[...] = initial_state
    for n, batch, rows in sequences(desc, cu_seqlens):
        steps = steps_of(desc, batch, rows, arrays)
        if store is not unrounded and desc.chunked:
            y[batch, rows], last[n] = run_in_chunks(desc, steps, last[n], store)
            continue
        y[batch, rows], states = run(desc, steps, last[n])
        last[n] = states[-1]
    return {"y": y, "final_state": last}


def recurrence_flops(desc: Any) -> int:
    """A product of q with the state and one of k and v a step, and of the delta rule one of k with the state."""
    products = 2 + (desc.kind in DELTAS) + 2 * (desc.kind in RANK_ONES)
    return int(2 * products * desc.batch_size * desc.seq_len * desc.num_heads * desc.d_k * desc.d_v)


def recurrence_benchmarks(gradients: tuple[str, ...] = ()) -> tuple[Benchmark, ...]:
    """Heads of 128: 32 of a batch of 4 × 4096 steps of every kind, and one sequence of 65536 of 32 and of 8 heads.

    gradients: those to be measured, where the kind has them.
    """
    of = {"dg": SCALARS, "dg_channel": CHANNELLED, "dbeta": DELTAS, "da": RANK_ONES, "db": RANK_ONES, "dbonus": BONUS}
    return tuple(
        Benchmark(
            f"{kind.value} {label} bf16", kind=kind, batch_size=batch, seq_len=length, q_heads=heads, k_heads=heads,
            v_heads=heads, d_k=128, d_v=128, use_qk_l2norm=kind in DELTAS, element="bfloat16",
            also=tuple(name for name in gradients if kind in of.get(name, RecurrenceKind)), work=FLOPS, target=None,
            peers=(), checked={"batch_size": 1, "seq_len": 160},
        )
        for label, batch, length, heads in (
            ("4 x [4096, 32, 128]", 4, 4096, 32), ("[65536, 32, 128]", 1, 65536, 32), ("[65536, 8, 128]", 1, 65536, 8),
        )
        for kind in RecurrenceKind
    )  # fmt: skip


class LinearAttentionPlan(Plan):
    """y[t] = scale · S[t]ᵀ q[t], S[t] = D[t] S[t - 1] + k[t] v[t]ᵀ: `RecurrenceKind` says what stands for D.

    Linear attention (none), RetNet, lightning and Mamba-2 (scalar), GLA (channel), RWKV-6 (channel_bonus), DeltaNet
    (delta), gated DeltaNet (scalar_delta), KDA (channel_delta), RWKV-7 (rank_one). States are float32. In chunks of 64
    steps, or with `stepwise` and where chunks are none from step to step as decode does: a sequence has the same bits
    alone, packed and in a batch, and step by step those of decode. Of few heads, sequences of more than 8192 steps are
    cut every 2048, and their states found side by side.
    """

    op = "recurrence.linear_attention"
    descriptor = LinearAttentionDescriptor
    args = LinearAttentionArgs
    kinds = RecurrenceKind
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (FORWARD_CHUNKS_ROW, CHUNKS_ROW, STEPS_ROW)
    vjp = Vjp("LinearAttentionBackwardPlan", grads=GRADS)
    torch = staticmethod(in_torch)
    benchmarks = recurrence_benchmarks()

    @staticmethod
    def case(draw: Any) -> LinearAttentionDescriptor:
        return LinearAttentionDescriptor(**case_fields(draw), stepwise=draw.flag())

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Packed sequences where there is one batch."""
        settle_bounds(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_states(desc, views)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_heads(shapes, facts)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return wrong_bounds(desc, arrays)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return recurrence_flops(desc)


def settle_bounds(desc: Any, arrays: dict[str, Any]) -> None:
    """For tests and benchmarks: sequences are packed where the batch is 1 and there are states of more or fewer."""
    if desc.batch_size != 1 or desc.num_states == desc.batch_size:
        arrays["cu_seqlens"] = None
    elif arrays.get("cu_seqlens") is None:
        arrays["cu_seqlens"] = np.linspace(0, desc.seq_len, desc.num_bounds).astype(np.int64)
