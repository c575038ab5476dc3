"""linear_attention_backward: the gradients of `linear_attention`, every kind, states computed again piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Plan, operand, output
from ...calls.functional import functional
from ...core.element import unrounded
from ...schedules.attention.dense.forward import HALVES
from ...schedules.recurrence import CHUNK_DIMS, NORM_EPS
from ...schedules.recurrence_backward import BACKWARD_ROW
from ...schedules.recurrence_chunks import BACKWARD_CHUNKS_ROW
from ..attention.packed.ragged import INDEX, random_bounds
from .chunked import gradients_in_chunks
from .kinds import (
    BONUS, CHANNELLED, CHANNELS, DELTAS, KEYS, NUMBERS, OUTPUTS, QUERIES, RANK_ONES, SCALARS, STATE, VALUES,
    SequencesDescriptor, RecurrenceKind, Steps, betas, case_fields, check_states, decays, infer_heads, numbers, run,
    sequences, steps_of, vectors, wrong_bounds,
)  # fmt: skip
from .linear_attention import POLICY, recurrence_benchmarks, recurrence_flops, settle_bounds


@dataclass(frozen=True, kw_only=True)
class LinearAttentionBackwardDescriptor(SequencesDescriptor):
    """As the forward's."""

    @property
    def chunked(self) -> bool:
        """Whether kernels take chunks."""
        return self.element in HALVES and self.d_k <= CHUNK_DIMS[-1]


@dataclass(slots=True, kw_only=True)
class LinearAttentionBackwardArgs(Args):
    """As the forward's; a gradient left None costs nothing. dfinal_state: absent 0."""

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
    dy: Array = operand(OUTPUTS, layout="inner", values=numbers)
    dfinal_state: Array | None = operand(STATE, element="acc", optional=True, layout="inner", values=numbers)
    dq: Array | None = output(QUERIES, optional=True)
    dk: Array | None = output(KEYS, optional=True)
    dv: Array | None = output(VALUES, optional=True)
    dg: Array | None = output(NUMBERS, element="acc", optional=True, needs="g")
    dg_channel: Array | None = output(CHANNELS, element="acc", optional=True, needs="g_channel")
    dbeta: Array | None = output(NUMBERS, element="acc", optional=True, needs="beta")
    da: Array | None = output(CHANNELS, optional=True, needs="a")
    db: Array | None = output(CHANNELS, optional=True, needs="b")
    dbonus: Array | None = output("num_heads d_k", element="acc", optional=True, needs="bonus")
    dinitial_state: Array | None = output(STATE, element="acc", optional=True, needs="initial_state", layout="inner")


def _outer(x: Any, y: Any) -> Any:
    return x[:, :, None] * y[:, None]


def gradients(desc: Any, steps: Steps, states: Any, dy: Any, slope: Any) -> tuple[dict[str, Any], Any]:
    """Gradients of one sequence's operands, [steps, heads, …], and of its first state; slope: of its last one."""
    made: dict[str, list[Any]] = {}

    def note(**found: Any) -> None:
        for name, x in found.items():
            made.setdefault(name, []).append(x)

    scale = dy.dtype.type(desc.scale)
    for t in reversed(range(len(dy))):
        q, k, v, before, out = steps.q[t], steps.k[t], steps.v[t], states[t], scale * dy[t]
        decay = steps.decay(t)
        faded = before if decay is None else decay * before
        if steps.bonus is None:
            slope = slope + _outer(q, out)
        error = v if steps.beta is None else v - np.einsum("hd,hdv->hv", k, faded)
        written = steps.error(t, faded)
        dv = np.einsum("hd,hdv->hv", k, slope)
        dk = np.einsum("hdv,hv->hd", slope, written)
        dfaded = slope
        if steps.beta is not None:
            note(beta=(dv * error).sum(-1))
            dv = steps.beta[t][:, None] * dv
            dfaded = slope - _outer(k, dv)
            dk = dk - np.einsum("hdv,hv->hd", faded, dv)
        dbefore = dfaded if decay is None else decay * dfaded
        if steps.a is not None:
            a, b = steps.a[t], steps.b[t]
            dread = np.einsum("hd,hdv->hv", b, slope)
            note(b=np.einsum("hdv,hv->hd", slope, np.einsum("hd,hdv->hv", a, before)))
            note(a=np.einsum("hdv,hv->hd", before, dread))
            dbefore = dbefore + _outer(a, dread)
        if decay is not None:
            fades = dfaded * faded
            note(**({"g": fades.sum((1, 2))} if steps.g is not None else {"g_channel": fades.sum(2)}))
        if steps.bonus is not None:
            seen = (v * out).sum(-1)[:, None]
            dk = dk + q * steps.bonus * seen
            dv = dv + (q * steps.bonus * k).sum(-1)[:, None] * out
            note(bonus=q * k * seen)
            dbefore = dbefore + _outer(q, out)
        note(q=np.einsum("hdv,hv->hd", steps.seen(t, before, states[t + 1]), out), k=dk, v=dv)
        slope = dbefore
    return {name: np.stack(found[::-1]) for name, found in made.items()}, slope


def through_norm(desc: Any, x: Any, dx: Any) -> Any:
    """The gradient of a row before it was normalised."""
    if not desc.use_qk_l2norm:
        return dx
    factor = 1 / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(NORM_EPS))
    return factor * (dx - x * ((x * dx).sum(-1, keepdims=True) * factor * factor))


def summed(x: Any, heads: int) -> Any:
    """State heads of a group added."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads, x.shape[-1]).sum(3) if heads else x


def reference(
    desc: Any, *, q: Any, cu_seqlens: Any, initial_state: Any, dy: Any, dfinal_state: Any, wanted: set[str],
    store: Any = unrounded, **operands: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: step by step backwards."""
    arrays = {"q": q, **operands}
    shape, first = (desc.batch_size, desc.seq_len, desc.num_heads), (desc.num_heads, desc.d_k, desc.d_v)
    wide = {"q": desc.d_k, "k": desc.d_k, "v": desc.d_v, "g_channel": desc.d_k, "a": desc.d_k, "b": desc.d_k}
    grads = {name: np.zeros((*shape, n), q.dtype) for name, n in wide.items()}
    grads |= {name: np.zeros(shape, q.dtype) for name in ("g", "beta")}
    dbonus = np.zeros((desc.num_heads, desc.d_k), q.dtype)
    dinitial = np.zeros((desc.num_states, *first), q.dtype)
    if dfinal_state is not None:
        dinitial[...] = dfinal_state
    for n, batch, rows in sequences(desc, cu_seqlens):
        steps = steps_of(desc, batch, rows, arrays)
        state = np.zeros(first, q.dtype) if initial_state is None else initial_state[n].astype(q.dtype)
        if store is not unrounded and desc.chunked:
            made, dinitial[n] = gradients_in_chunks(desc, steps, state, dy[batch, rows], dinitial[n], store)
        else:
            made, dinitial[n] = gradients(desc, steps, run(desc, steps, state)[1], dy[batch, rows], dinitial[n])
        for name, x in made.items():
            if name == "bonus":
                dbonus += x.sum(0)
            else:
                grads[name][batch, rows] = x
    for name, heads in (("q", desc.q_heads), ("k", desc.k_heads), ("v", desc.v_heads)):
        grads[name] = summed(grads[name], heads)
    grads["q"], grads["k"] = through_norm(desc, q, grads["q"]), through_norm(desc, operands["k"], grads["k"])
    found = {f"d{name}": x for name, x in grads.items()} | {"dbonus": dbonus, "dinitial_state": dinitial}
    return {name: x for name, x in found.items() if name in wanted}


class LinearAttentionBackwardPlan(Plan):
    """The gradients of `LinearAttentionPlan`, every kind; the order of every sum is fixed.

    States are kept every 64 steps in the workspace; between them gradients are products of chunks, or where chunks are
    none states are computed again step by step. Gradients of shared heads are sums over
    the state heads of a group, that of `bonus` over sequences and steps.
    """

    op = "recurrence.linear_attention_backward"
    direction = "backward"
    descriptor = LinearAttentionBackwardDescriptor
    args = LinearAttentionBackwardArgs
    kinds = RecurrenceKind
    reference = staticmethod(reference)
    value_policy = POLICY.replace("give zeros", "have gradients of 0")
    variants = (BACKWARD_CHUNKS_ROW, BACKWARD_ROW)
    benchmarks = recurrence_benchmarks(("dq", "dk", "dv", "dg", "dg_channel", "dbeta", "da", "db", "dbonus"))

    @staticmethod
    def case(draw: Any) -> LinearAttentionBackwardDescriptor:
        return LinearAttentionBackwardDescriptor(**case_fields(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """As the forward's."""
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
        return 3 * recurrence_flops(desc)


linear_attention_backward = functional(LinearAttentionBackwardPlan)
