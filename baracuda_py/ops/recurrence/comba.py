"""comba: the gated delta rule that reads its state under a feedback key of its own, whole sequences and decoding."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import Array, InvalidProblemError
from ...core.arrays import read
from ...core.checked import real
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..layout.moves import expand_copy
from ..layout.repeats import repeat_interleave
from ..norm.rms_norm import rms_norm
from ...schedules.recurrence import NORM_EPS
from .attend import attend, heads_of, in_acc
from .kinds import RecurrenceKind
from .linear_attention import LinearAttentionPlan
from .linear_attention_decode import LinearAttentionDecodePlan

_decode = functional(LinearAttentionDecodePlan)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(LinearAttentionPlan, kind=RecurrenceKind.RANK_ONE)
def comba(
    q: Array, k: Array, v: Array, p: Array | None, g: Array, beta: Array | None = None, d: Array | None = None, *,
    scale: float | None = None, initial_state: Array | None = None, output_final_state: bool = False,
    use_qk_l2norm: bool = False, cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Comba: S[t] = exp(g[t]) S[t - 1] + β[t] k[t] (v[t] - S[t - 1]ᵀ p[t])ᵀ, y[t] = scale · S[t]ᵀ (q[t] - d p[t]).

    q, k, p [batch, steps, heads, d_k], of one number of heads, which divides that of v [batch, steps, heads, d_v]; g,
    logs of decays, and beta [batch, steps, heads of v], 1 where absent, of q's element or its accumulator's; d [heads
    of q], alike, or none for no correction of the query. What p reads has not faded yet, unlike the state of
    `gated_delta_rule`; p None is k. use_qk_l2norm divides k, p and the corrected q by √(Σ x² + 10⁻⁶) of their rows.
    States, packed sequences and stepwise as in `linear_attention`; where the decay is the same for all channels.

    A composition around `rwkv7`, whose a is p and whose k and -b are β k, with gradients of all array operands; d is
    folded into q, and β into k, in their element. `comba_decode` goes on in its bits with stepwise. Hu et al. 2025
    (arXiv:2506.02475); flash-linear-attention's `chunk_comba` and `fused_recurrent_comba`, whose layer corrects q.
    """
    options = {"stream": stream, "preference": preference}
    read_by = _operands(q, k, v, p, g, beta, d, scale, use_qk_l2norm, options)
    return attend(
        RecurrenceKind.RANK_ONE, v=v, options=options, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out, **read_by,
    )  # fmt: skip


@entry(LinearAttentionDecodePlan, kind=RecurrenceKind.RANK_ONE)
def comba_decode(
    q: Array, k: Array, v: Array, p: Array | None, g: Array, beta: Array | None, state: Array, d: Array | None = None,
    *, slots: Array | None = None, scale: float | None = None, use_qk_l2norm: bool = False,
    return_states: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`comba` of a few steps of each sequence, from and to the state in its slot, which is updated in place.

    state [slots, heads of v, d_k, d_v] in the accumulator's element; slots [batch], int32 or int64: the slot of each
    sequence, by default its number. A sequence whose slot is out of range or an earlier one's is skipped, and its y is
    0. With return_states the result is (y, the state after each step), [batch, steps, heads, d_k, d_v]. The rest, and
    the bits, are those of `comba` with stepwise. There is no gradient.
    """
    options = {"stream": stream, "preference": preference}
    read_by = _operands(q, k, v, p, g, beta, d, scale, use_qk_l2norm, options)
    return _decode(
        v=v, state=state, slots=slots, kind=RecurrenceKind.RANK_ONE, return_states=return_states, out=out, **read_by,
        **options,
    )  # fmt: skip


def _operands(
    q: Any, k: Any, v: Any, p: Any, g: Any, beta: Any, d: Any, scale: Any, normalise: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """The operands of RWKV-7 that make its step Comba's, and its scale."""
    shape, states = shape_of(q, "q"), heads_of(("v", v), ("q", q))
    if len(shape) != 4 or not shape[3]:
        raise InvalidProblemError(f"q must be [batch, steps, heads, d_k], d_k above 0, got shape {shape}")
    heads, d_k = shape[2:]
    kind = read(q, "q").element
    gates = (*shape[:2], states)
    for name, x, wanted in (("k", k, shape), ("p", p, shape), ("g", g, gates), ("beta", beta, gates),
                            ("d", d, (heads,))):  # fmt: skip
        if x is not None and shape_of(x, name) != wanted:
            raise InvalidProblemError(f"{name} must have shape {wanted}, got {shape_of(x, name)}")
    for name, x in (("k", k), ("p", p)):
        if x is not None and read(x, name).element is not kind:
            raise InvalidProblemError(f"{name} must hold {kind} as q does, got {read(x, name).element}; cast it first")
    if states % heads if heads else states:
        raise InvalidProblemError(f"the heads of v must be a multiple of q's {heads}, got {states}")
    scale = 1.0 / math.sqrt(d_k) if scale is None else real("scale", scale)
    p = k if p is None else p
    if d is not None:
        d = with_axis(in_acc(d, q, "d", options), 1, "d")
        q = _formula(f"{kind}(q - d * p)")(q=q, d=d, p=p, **options)
    length = 1.0
    if normalise:  # rows over √(mean of squares + eps) are √d_k times too long, which scale, k and b take back
        length = 1.0 / math.sqrt(d_k)
        scale *= length
        q, k, p = (rms_norm(x, normalized_shape=d_k, eps=NORM_EPS / d_k, **options) for x in (q, k, p))
    if states != heads:
        k, p = (repeat_interleave(x, states // heads, 2, **options) for x in (k, p))
    gate = 1.0 if beta is None else with_axis(in_acc(beta, q, "beta", options), 3, "beta")
    written, back = _formula(f"w = {kind}(c * e * k); b = {kind}(c * c * e * -k)")(k=k, e=gate, c=length, **options)
    decay = expand_copy(with_axis(in_acc(g, q, "g", options), 3, "g"), (*gates, d_k), **options)
    return {"q": q, "k": written, "g_channel": decay, "a": p, "b": back, "scale": scale}
