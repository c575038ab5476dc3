"""Linear attention under the names of the field, with flash-linear-attention's operands: one plan, a kind for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...core import Array
from ...core.checked import real, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import cut, shape_of, with_axis
from ..elementwise.binary_functions import mul
from ..layout.pad import pad
from ..layout.moves import copy, expand_copy
from ..layout.views import reshape
from .attend import attend, heads_of, in_acc, of_heads
from .kinds import RecurrenceKind as K
from .linear_attention import LinearAttentionPlan


@entry(LinearAttentionPlan, kind=K.NONE)
def linear_attention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, initial_state: Array | None = None,
    output_final_state: bool = False, cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = scale · S[t]ᵀ q[t], S[t] = S[t - 1] + k[t] v[t]ᵀ: causal linear attention without a denominator.

    q [batch, steps, q_heads, d_k], k [batch, steps, k_heads, d_k], v [batch, steps, v_heads, d_v]; y has the most of
    these heads, and each of their numbers divides it. States [batch, heads, d_k, d_v] are float32, of float64 operands
    float64. scale: default 1 / √d_k. With output_final_state also the state after the last step, the `initial_state`
    of what follows. cu_seqlens: sequences packed into a batch of 1, as in `flash_sdpa_varlen`, with a state each;
    bounds that decrease are clamped, rows of no sequence give zeros.

    In chunks of 64 on tensor cores for 16-bit operands with d_k ≤ 128; stepwise: step by step, in the bits of
    `linear_attention_decode`. Either way a sequence has the same bits alone, packed and in a batch. Gradients of q, k,
    v and the state. Katharopoulos et al. 2020 (arXiv:2006.16236); flash-linear-attention's `chunk_linear_attn` with
    normalize=False.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.NONE, q, k, v, options, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.SCALAR)
def simple_gla(
    q: Array, k: Array, v: Array, g: Array, *, scale: float | None = None, initial_state: Array | None = None,
    output_final_state: bool = False, cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`linear_attention` whose state fades first: S[t] = exp(g[t]) S[t - 1] + k[t] v[t]ᵀ, a number a head and step.

    g [batch, steps, heads]: logs of decays, of q's element or its accumulator's; what underflows is 0. Gradients of g,
    too. flash-linear-attention's `chunk_simple_gla`; the recurrence of Mamba-2 (`mamba2_ssd`), RetNet (`retention`),
    lightning attention and mLSTM's numerator.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.SCALAR, q, k, v, options, g=g, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.SCALAR)
def retention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, initial_state: Array | None = None,
    output_final_state: bool = False, cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`simple_gla` with RetNet's decays, 1 - 2^(-5 - h) of head h at every step (arXiv:2307.08621).

    flash-linear-attention's `chunk_retention`.
    """
    options = {"stream": stream, "preference": preference}
    heads = heads_of(("q", q), ("k", k), ("v", v))
    g = of_heads(q, np.log1p(-(2.0 ** (-5.0 - np.arange(heads)))), options)
    return attend(
        K.SCALAR, q, k, v, options, g=g, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.SCALAR)
def lightning_attention(
    q: Array, k: Array, v: Array, layer_idx: int, num_layers: int, *, scale: float | None = None,
    initial_state: Array | None = None, output_final_state: bool = False, cu_seqlens: Array | None = None,
    stepwise: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`simple_gla` with the decays of lightning attention: exp(-8 h / heads · (1 - layer_idx / num_layers)) of head h.

    Qin et al. 2024 (arXiv:2401.04658), MiniMax-01; flash-linear-attention's `chunk_lightning_attn`.
    """
    options = {"stream": stream, "preference": preference}
    layers, layer = whole("num_layers", num_layers, 1), whole("layer_idx", layer_idx, 0)
    heads = heads_of(("q", q), ("k", k), ("v", v))
    g = of_heads(q, -8.0 / max(1, heads) * (1.0 - layer / layers) * np.arange(heads), options)
    return attend(
        K.SCALAR, q, k, v, options, g=g, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.CHANNEL)
def gla(
    q: Array, k: Array, v: Array, g: Array, *, scale: float | None = None, initial_state: Array | None = None,
    output_final_state: bool = False, cu_seqlens: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Gated linear attention: S[t] = diag(exp g[t]) S[t - 1] + k[t] v[t]ᵀ, a decay for each channel of k.

    g [batch, steps, heads, d_k]: logs of decays, of q's element or its accumulator's; else as `linear_attention`, step
    by step. Gradients of g, too. Yang et al. 2024 (arXiv:2312.06635); flash-linear-attention's `chunk_gla`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.CHANNEL, q, k, v, options, g_channel=g, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.DELTA)
def delta_rule(
    q: Array, k: Array, v: Array, beta: Array, *, scale: float | None = None, initial_state: Array | None = None,
    output_final_state: bool = False, use_qk_l2norm: bool = False, cu_seqlens: Array | None = None,
    stepwise: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """DeltaNet: S[t] = S[t - 1] + β[t] k[t] (v[t] - S[t - 1]ᵀ k[t])ᵀ, what k has in the state is replaced.

    beta [batch, steps, heads], any numbers, of q's element or its accumulator's; use_qk_l2norm divides q and k by
    √(Σ x² + 10⁻⁶) of their rows. Else as `linear_attention`. Gradients of beta, too. States grow where rows of k are
    longer than √(2 / β). Schlag et al. 2021, Yang et al. 2024 (arXiv:2406.06484); flash-linear-attention's
    `chunk_delta_rule`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.DELTA, q, k, v, options, beta=beta, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm=use_qk_l2norm, cu_seqlens=cu_seqlens, stepwise=stepwise,
        out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.SCALAR_DELTA)
def gated_delta_rule(
    q: Array, k: Array, v: Array, g: Array, beta: Array, *, scale: float | None = None,
    initial_state: Array | None = None, output_final_state: bool = False, use_qk_l2norm: bool = False,
    cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Gated DeltaNet: `delta_rule` on a state that fades first, S = exp(g[t]) S[t - 1] (arXiv:2412.06464; Qwen3-Next).

    g, beta [batch, steps, heads]; else as `delta_rule`. Gradients of both. flash-linear-attention's
    `chunk_gated_delta_rule`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.SCALAR_DELTA, q, k, v, options, g=g, beta=beta, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm=use_qk_l2norm, cu_seqlens=cu_seqlens, stepwise=stepwise,
        out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.CHANNEL_DELTA)
def kda(
    q: Array, k: Array, v: Array, g: Array, beta: Array, *, scale: float | None = None,
    initial_state: Array | None = None, output_final_state: bool = False, use_qk_l2norm: bool = False,
    cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Kimi delta attention: `delta_rule` on a state whose rows fade first, S = diag(exp g[t]) S[t - 1].

    g [batch, steps, heads, d_k], beta [batch, steps, heads]; else as `delta_rule`. Gradients of both.
    Kimi Team 2025 (arXiv:2510.26692); flash-linear-attention's `chunk_kda`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.CHANNEL_DELTA, q, k, v, options, g_channel=g, beta=beta, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm=use_qk_l2norm, cu_seqlens=cu_seqlens, stepwise=stepwise,
        out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.CHANNEL_BONUS)
def rwkv6(
    r: Array, k: Array, v: Array, w: Array, u: Array, *, scale: float | None = None,
    initial_state: Array | None = None, output_final_state: bool = False, cu_seqlens: Array | None = None,
    stepwise: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """RWKV-6: y[t] = scale · (S[t - 1] + diag(u) k[t] v[t]ᵀ)ᵀ r[t], S[t] = diag(exp w[t]) S[t - 1] + k[t] v[t]ᵀ.

    w [batch, steps, heads, d_k]: logs of decays; u [heads, d_k]: what the step itself counts; both of r's element or
    its accumulator's. Else as `linear_attention`. Gradients of w and u, too. Peng et al. 2024
    (arXiv:2404.05892); flash-linear-attention's `fused_recurrent_rwkv6`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.CHANNEL_BONUS, r, k, v, options, g_channel=w, bonus=u, scale=scale, initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.RANK_ONE)
def rwkv7(
    r: Array, w: Array, k: Array, v: Array, a: Array, b: Array, *, scale: float = 1.0,
    initial_state: Array | None = None, output_final_state: bool = False, cu_seqlens: Array | None = None,
    stepwise: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """RWKV-7: y[t] = scale · S[t]ᵀ r[t], S[t] = (diag(exp w[t]) + b[t] a[t]ᵀ) S[t - 1] + k[t] v[t]ᵀ.

    w [batch, steps, heads, d_k]: logs of decays, of r's element or its accumulator's; a, b [batch, steps, heads, d_k],
    in RWKV-7 -κ̂ and κ̂ times the rate. Else as `linear_attention`. Gradients of w, a and b, too. Peng et
    al. 2025 (arXiv:2503.14456); flash-linear-attention's `chunk_rwkv7`.
    """
    options = {"stream": stream, "preference": preference}
    return attend(
        K.RANK_ONE, r, k, v, options, g_channel=w, a=a, b=b, scale=real("scale", scale), initial_state=initial_state,
        output_final_state=output_final_state, cu_seqlens=cu_seqlens, stepwise=stepwise, out=out,
    )  # fmt: skip


@entry(LinearAttentionPlan, kind=K.SCALAR_DELTA)
def gated_delta_product(
    q: Array, k: Array, v: Array, g: Array | None, beta: Array, num_householder: int, *, scale: float | None = None,
    initial_state: Array | None = None, output_final_state: bool = False, use_qk_l2norm: bool = False,
    cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Gated DeltaProduct: `gated_delta_rule` with num_householder = n updates of the state a step (arXiv:2502.10297).

    q [batch, steps, heads, d_k], g [batch, steps, heads] or None for no decay; k, v [batch, steps · n, …] and beta
    [batch, steps · n, heads] have n updates of each step one behind the other; the state fades before the first and is
    read after the last of them. cu_seqlens counts steps. A composition: the gated delta rule of steps · n updates, of
    whose outputs every n-th is copied. flash-linear-attention's `chunk_gated_delta_product`.
    """
    options = {"stream": stream, "preference": preference}
    n = whole("num_householder", num_householder, 1)
    batch, steps, heads, d_k = _four(q, "q")
    updates = _four(k, "k")[1]
    if updates != steps * n:
        raise InvalidProblemError(f"k must have {steps * n} updates, {n} for each step, got {updates}")
    repeated = expand_copy(with_axis(q, 2, "q"), (batch, steps, n, heads, d_k), **options)
    q = reshape(repeated, (batch, updates, heads, d_k))
    if g is not None:
        g = in_acc(g, q, "g", options)
        count = shape_of(g, "g")[-1]
        g = reshape(pad(with_axis(g, 2, "g"), ((0, 0), (0, 0), (0, n - 1), (0, 0)), **options), (batch, updates, count))
    if cu_seqlens is not None:
        cu_seqlens = mul(cu_seqlens, n, **options)
    made = attend(
        K.DELTA if g is None else K.SCALAR_DELTA, q, k, v, options, g=g, beta=beta,
        scale=1.0 / math.sqrt(max(1, d_k)) if scale is None else scale, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm=use_qk_l2norm, cu_seqlens=cu_seqlens, stepwise=stepwise,
    )  # fmt: skip
    y = made[0] if output_final_state else made
    to_y, to_state = each_of(out, 2) if output_final_state else (*each_of(out, 1), None)
    y = copy(cut(y, (slice(None), slice(n - 1, None, n)), "y"), out=to_y, **options)
    if not output_final_state:
        return y
    return y, made[1] if to_state is None else copy(made[1], out=to_state, **options)


def _four(x: Any, name: str) -> tuple[int, int, int, int]:
    shape = shape_of(x, name)
    if len(shape) != 4:
        raise InvalidProblemError(f"{name} must be [batch, steps, heads, d], got shape {shape}")
    return shape[0], shape[1], shape[2], shape[3]
