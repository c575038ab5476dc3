"""Linear attention: what its descriptors share, its recurrence step by step in NumPy, and random problems for tests."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Descriptor, ElementKind, InvalidProblemError, choice, derived, element, extent, flag, integer, number,
)  # fmt: skip
from ...core.args import finite_only
from ...schedules.recurrence import MOST_UNCUT, NORM_EPS, SEGMENT
from ..attention.packed.ragged import settled
from ..attention.packed.ragged import wrong_bounds as of_bounds


class RecurrenceKind(enum.Enum):
    """How a state fades and what is written to it; S is [d_k, d_v].

    none: S += k vᵀ. scalar and channel fade first, S = exp(g) S, a number a head or one a row of the state.
    channel_bonus: so does it, and q reads S[t - 1] + diag(bonus) k vᵀ. delta: S += β k (v - kᵀ S)ᵀ; scalar_delta and
    channel_delta fade first. rank_one: S = (diag(exp g) + b aᵀ) S + k vᵀ.
    """

    NONE = "none"
    SCALAR = "scalar"
    CHANNEL = "channel"
    CHANNEL_BONUS = "channel_bonus"
    DELTA = "delta"
    SCALAR_DELTA = "scalar_delta"
    CHANNEL_DELTA = "channel_delta"
    RANK_ONE = "rank_one"

    @property
    def cpp(self) -> str:
        """Kernels are the same for all kinds: operands that are there say which."""
        return self.name.title()


SCALARS = (RecurrenceKind.SCALAR, RecurrenceKind.SCALAR_DELTA)
CHANNELLED = (
    RecurrenceKind.CHANNEL, RecurrenceKind.CHANNEL_BONUS, RecurrenceKind.CHANNEL_DELTA, RecurrenceKind.RANK_ONE,
)  # fmt: skip
DELTAS = (RecurrenceKind.DELTA, RecurrenceKind.SCALAR_DELTA, RecurrenceKind.CHANNEL_DELTA)
BONUS = (RecurrenceKind.CHANNEL_BONUS,)
RANK_ONES = (RecurrenceKind.RANK_ONE,)

KEYS = "batch_size seq_len k_heads d_k"
QUERIES = "batch_size seq_len q_heads d_k"
VALUES = "batch_size seq_len v_heads d_v"
OUTPUTS = "batch_size seq_len num_heads d_v"
NUMBERS = "batch_size seq_len num_heads"
CHANNELS = "batch_size seq_len num_heads d_k"
STATE = "num_states num_heads d_k d_v"


@dataclass(frozen=True, kw_only=True)
class RecurrenceDescriptor(Descriptor):
    """Sequences of seq_len steps and num_heads states of d_k × d_v.

    q_heads, k_heads and v_heads divide num_heads (None: the most of them): state head h reads head
    h // (num_heads / q_heads) of q. scale None is 1 / √d_k. use_qk_l2norm: q and k are divided by √(Σ x² + 10⁻⁶) of
    their rows.
    """

    kind: RecurrenceKind = choice(RecurrenceKind)
    batch_size: int = extent()
    seq_len: int = extent()
    q_heads: int = extent()
    k_heads: int = extent()
    v_heads: int = extent()
    d_k: int = extent(minimum=1)
    d_v: int = extent(minimum=1)
    num_heads: int = integer(derived(lambda desc: max(desc.q_heads, desc.k_heads, desc.v_heads)), minimum=0)
    scale: float = number(derived(lambda desc: 1.0 / math.sqrt(desc.d_k)))
    use_qk_l2norm: bool = flag(False)
    element: ElementKind = element(FLOATS)

    def validate(self) -> None:
        for name in ("q_heads", "k_heads", "v_heads"):
            heads = getattr(self, name)
            fits = self.num_heads % heads == 0 < self.num_heads if heads else self.num_heads == 0
            if not fits:
                raise InvalidProblemError(f"num_heads must be a multiple of {name}, got {self.num_heads} and {heads}")


@dataclass(frozen=True, kw_only=True)
class SequencesDescriptor(RecurrenceDescriptor):
    """num_states: sequences. None is batch_size; of packed ones, in a batch of 1, it is their number.

    Without batch or states there are no steps or no sequences.
    """

    num_states: int = integer(derived(lambda desc: desc.batch_size), minimum=0)

    @property
    def num_bounds(self) -> int:
        """Length of cu_seqlens."""
        return self.num_states + 1


def check_states(desc: Any, views: Mapping[str, Any]) -> None:
    """Refuse states of another number than the sequences."""
    if views.get("cu_seqlens") is not None:
        if desc.batch_size != 1:
            raise InvalidProblemError(
                f"with cu_seqlens the sequences are packed into a batch of 1, got batch_size {desc.batch_size}"
            )
    elif desc.batch_size and desc.num_states and desc.num_states != desc.batch_size:
        raise InvalidProblemError(
            f"without cu_seqlens each sequence has a state: num_states must be batch_size {desc.batch_size}, "
            f"got {desc.num_states}"
        )


def wrong_bounds(desc: Any, arrays: Mapping[str, Any]) -> str | None:
    """What is wrong with cu_seqlens, or None."""
    bounds = arrays.get("cu_seqlens")
    return None if bounds is None else of_bounds(bounds, desc.seq_len, desc.seq_len, "cu_seqlens")


def infer_heads(shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """The functional layer's num_heads and num_states."""
    heads = [shapes[n][2] for n in ("q", "k", "v", "g", "g_channel", "beta", "a") if len(shapes.get(n) or ()) > 2]
    if heads:
        facts.setdefault("num_heads", max(heads))
    bounds = shapes.get("cu_seqlens")
    if bounds is not None and len(bounds) == 1 and bounds[0]:
        facts.setdefault("num_states", bounds[0] - 1)


# ---- the formula -----------------------------------------------------------------------------------------------------


def repeated(x: Any, heads: int, axis: int = 2) -> Any:
    """Heads of x shared by groups of state heads."""
    return np.repeat(x, heads // x.shape[axis], axis) if heads else x


def normalised(desc: Any, x: Any) -> Any:
    """Rows over their length, where the descriptor asks for it."""
    if not desc.use_qk_l2norm:
        return x
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(NORM_EPS))


def sequences(desc: Any, cu_seqlens: Any) -> Iterator[tuple[int, int, slice]]:
    """(state, batch, rows) of every sequence."""
    if cu_seqlens is None:
        yield from ((n, n, slice(0, desc.seq_len)) for n in range(min(desc.batch_size, desc.num_states)))
    else:
        bounds = settled(cu_seqlens, desc.seq_len)
        yield from ((n, 0, slice(bounds[n], bounds[n + 1])) for n in range(desc.num_states))


@dataclass
class Steps:
    """One sequence's operands, [steps, heads, …], and its recurrence."""

    q: Any
    k: Any
    v: Any
    g: Any = None
    g_channel: Any = None
    beta: Any = None
    a: Any = None
    b: Any = None
    bonus: Any = None

    def decay(self, t: int) -> Any:
        """exp(g) of a step, to be multiplied with a state [heads, d_k, d_v]; None where there is none."""
        if self.g is not None:
            return np.exp(self.g[t])[:, None, None]
        return None if self.g_channel is None else np.exp(self.g_channel[t])[:, :, None]

    def error(self, t: int, faded: Any) -> Any:
        """What is written under k: v, or β (v - kᵀ S) of the delta rule."""
        if self.beta is None:
            return self.v[t]
        return self.beta[t][:, None] * (self.v[t] - np.einsum("hd,hdv->hv", self.k[t], faded))

    def step(self, t: int, state: Any) -> Any:
        """The state after step t."""
        decay = self.decay(t)
        faded = state if decay is None else decay * state
        made = faded
        if self.a is not None:
            made = made + self.b[t][:, :, None] * np.einsum("hd,hdv->hv", self.a[t], state)[:, None]
        return made + self.k[t][:, :, None] * self.error(t, faded)[:, None]

    def seen(self, t: int, before: Any, after: Any) -> Any:
        """What q reads at step t."""
        if self.bonus is None:
            return after
        return before + (self.bonus * self.k[t])[:, :, None] * self.v[t][:, None]


def steps_of(desc: Any, batch: int, rows: slice, arrays: Mapping[str, Any]) -> Steps:
    """The operands of a sequence, a head for each state, q and k as they are used."""
    found: dict[str, Any] = {}
    for name in ("q", "k", "v", "g", "g_channel", "beta", "a", "b"):
        if (x := arrays.get(name)) is not None:
            one = x[batch : batch + 1, rows]
            one = normalised(desc, one) if name in ("q", "k") else one
            found[name] = repeated(one, desc.num_heads)[0]
    return Steps(**found, bonus=arrays.get("bonus"))


def run(desc: Any, steps: Steps, state: Any) -> tuple[Any, Any]:
    """y [steps, heads, d_v] and the states after every step, [steps + 1, heads, d_k, d_v]; the first is `state`."""
    count = len(steps.q)
    states = np.empty((count + 1, *state.shape), state.dtype)
    y = np.empty((count, desc.num_heads, desc.d_v), state.dtype)
    states[0] = state
    for t in range(count):
        states[t + 1] = steps.step(t, states[t])
        y[t] = np.einsum("hd,hdv->hv", steps.q[t], steps.seen(t, states[t], states[t + 1]))
    return y * state.dtype.type(desc.scale), states


# ---- problems for tests ----------------------------------------------------------------------------------------------


@finite_only
def vectors(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Rows of length near 1, so that no state grows; what infinities reach depends on what else a sum adds."""
    return rng.standard_normal(shape) / math.sqrt(max(1, shape[-1]))


@finite_only
def numbers(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Normal numbers."""
    return rng.standard_normal(shape)


@finite_only
def decays(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Logs of decays: mostly near 0, some 0, some that underflow, and some -inf."""
    made = -np.abs(rng.standard_normal(shape)) / 4
    return np.where(rng.random(shape) < 0.15, rng.choice((0.0, -200.0, -np.inf), shape), made)


@finite_only
def betas(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """From -0.5 to 2."""
    return rng.uniform(-0.5, 2.0, shape)


def case_fields(draw: Any) -> dict[str, Any]:
    """Fields for tests: grouped heads, sizes round the tiles."""
    if draw.rarely():  # a sequence that is cut into segments
        return {
            "kind": draw.kind, "batch_size": 1, "seq_len": MOST_UNCUT * SEGMENT + 8, "q_heads": 1, "k_heads": 1,
            "v_heads": 1, "d_k": draw.sizes(8, 72), "d_v": 8, "num_states": 1, "element": draw.element,
        }  # fmt: skip
    q_heads, k_heads, v_heads = draw.choice(((1, 1, 1), (2, 2, 2), (1, 1, 2), (2, 1, 1), (2, 1, 2)))
    batch = draw.choice((1, 1, 1, 2, 0))
    states = draw.choice((3, 1, 2, 0)) if batch == 1 else batch
    return {
        "kind": draw.kind, "batch_size": batch, "seq_len": draw.sizes(7, 0, 1, 33, 40, rare=(70,)), "q_heads": q_heads,
        "k_heads": k_heads, "v_heads": v_heads, "d_k": draw.sizes(8, 1, 17, 64, 72, rare=(130,)),
        "d_v": draw.sizes(8, 1, 19, 40), "scale": draw.choice((None, 0.3, -0.5)), "use_qk_l2norm": draw.flag(),
        "num_states": states, "element": draw.element,
    }  # fmt: skip
