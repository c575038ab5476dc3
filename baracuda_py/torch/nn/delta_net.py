"""DeltaNet, gated DeltaNet and Kimi delta attention, with the parameters and keywords of flash-linear-attention's."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .gated_norm import FusedRMSNormGated
from .linear import Linear
from .mamba import inverse_softplus_of_steps, wide
from .norm import RMSNorm
from .recurrent_cache import Gated, divided

FEATURES = ("silu", "relu", "elu", "identity")


def _rates(count: int, low: float, high: float) -> Any:
    made = torch.nn.Parameter(torch.empty(count).uniform_(low, high).log())
    made._no_weight_decay = True
    return made


class _Delta(Gated):
    """What the three layers do alike: projections, convolutions, the output's norm and gate."""

    def _projections(self: Any, hidden: int, use_short_conv: bool, conv_size: int, conv_bias: bool) -> None:
        self.q_proj = Linear(hidden, self.key_dim, False)
        self.k_proj = Linear(hidden, self.key_dim, False)
        self.v_proj = Linear(hidden, self.value_dim, False)
        self.use_short_conv = use_short_conv
        if use_short_conv:
            acts = ("silu" if getattr(self, "qk_activation", "silu") == "silu" else None,) * 2
            self._convolutions(conv_size, conv_bias, (self.key_dim, self.key_dim, self.value_dim), *acts, "silu")

    def _projected(self: Any, x: Any, before: Any, keeps: bool, cu_seqlens: Any) -> tuple[Any, ...]:
        """q, k, v [batch, steps, heads, …], and what the convolutions keep."""
        parts, conv = [self.q_proj(x), self.k_proj(x), self.v_proj(x)], None
        if self.use_short_conv:
            parts, conv = self._convolved(parts, before, keeps, cu_seqlens)
        else:
            own = getattr(self, "qk_activation", "silu")
            parts = [bct.silu(one) if own == "silu" or n == 2 else one for n, one in enumerate(parts)]
        q, k = (one.unflatten(-1, (-1, self.head_k_dim)) for one in parts[:2])
        return q, k, parts[2].unflatten(-1, (-1, self.head_v_dim)), conv

    def _out(self: Any, x: Any, o: Any, gate: Any) -> Any:
        """The output of o [batch, steps, heads, d_v]."""
        o = self.o_norm(o) if gate is None else self.o_norm(o, gate(x).unflatten(-1, (-1, self.head_v_dim)))
        return self.o_proj(o.flatten(-2))


class DeltaNet(_Delta):
    """DeltaNet's layer (Yang et al. 2024, arXiv:2406.06484): `delta_rule` of convolved q, k, v.

    Parameters, state_dict and keywords of flash-linear-attention's `DeltaNet`; the call is that of `Gated`.
    """

    def __init__(
        self, mode: str = "chunk", d_model: int | None = None, hidden_size: int = 1024, expand_k: float = 1.0,
        expand_v: float = 1.0, num_heads: int = 4, use_beta: bool = True, use_gate: bool = False,
        use_short_conv: bool = True, conv_size: int = 4, conv_bias: bool = False, allow_neg_eigval: bool = False,
        layer_idx: int | None = None, qk_activation: str = "silu", qk_norm: str = "l2", norm_eps: float = 1e-5,
        **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._chosen(mode)
        if qk_activation not in FEATURES or qk_norm not in ("l2", "sum"):
            raise InvalidProblemError(
                f"qk_activation must be one of {', '.join(FEATURES)} and qk_norm l2 or sum, got "
                f"{shown(qk_activation)} and {shown(qk_norm)}"
            )
        hidden = hidden_size if d_model is None else d_model
        self.hidden_size, self.num_heads, self.layer_idx = hidden, num_heads, layer_idx
        self.head_k_dim = divided(hidden * expand_k, num_heads, "hidden_size · expand_k")
        self.head_v_dim = divided(hidden * expand_v, num_heads, "hidden_size · expand_v")
        self.key_dim, self.value_dim = num_heads * self.head_k_dim, num_heads * self.head_v_dim
        self.qk_activation, self.qk_norm, self.allow_neg_eigval = qk_activation, qk_norm, allow_neg_eigval
        self.use_beta, self.use_gate = use_beta, use_gate
        self._projections(hidden, use_short_conv, conv_size, conv_bias)
        if use_beta:
            self.b_proj = Linear(hidden, num_heads, False)
        if use_gate:
            self.g_proj = Linear(hidden, self.value_dim, False)
            self.o_norm: Any = FusedRMSNormGated(self.head_v_dim, eps=norm_eps)
        else:
            self.o_norm = RMSNorm(self.head_v_dim, eps=norm_eps)
        self.o_proj = Linear(self.value_dim, hidden, False)

    def mixed(self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, **_: Any) -> tuple[Any, Any, Any]:
        """(y, state, conv_state); see `Gated`."""
        q, k, v, conv = self._projected(x, before, keeps, cu_seqlens)
        if self.qk_activation == "relu":
            q, k = bct.relu(q), bct.relu(k)
        elif self.qk_activation == "elu":
            q, k = bct.elu(q) + 1, bct.elu(k) + 1
        if self.qk_norm == "sum":
            q, k = (one / one.sum(-1, keepdim=True) for one in (q, k))
        beta = bct.sigmoid(self.b_proj(x)) if self.use_beta else torch.ones_like(q[..., 0])
        made = bct.delta_rule(
            q, k, v, 2 * beta if self.allow_neg_eigval else beta, initial_state=before.get("recurrent_state"),
            output_final_state=keeps, use_qk_l2norm=self.qk_norm == "l2", cu_seqlens=cu_seqlens,
            stepwise=self.stepwise(x.shape[1]),
        )  # fmt: skip
        o, state = made if keeps else (made, None)
        return self._out(x, o, self.g_proj if self.use_gate else None), state, conv


class GatedDeltaNet(_Delta):
    """Gated DeltaNet's layer (Yang et al. 2024, arXiv:2412.06464): `gated_delta_rule` of convolved q, k, v.

    The state fades by exp(-exp(A_log) softplus(a_proj(x) + dt_bias)). num_v_heads heads of values may share num_heads
    of q and k. Parameters, state_dict and keywords of flash-linear-attention's `GatedDeltaNet`; the call is that of
    `Gated`.
    """

    def __init__(
        self, hidden_size: int = 2048, expand_v: float = 2, head_dim: int = 256, num_heads: int = 6,
        num_v_heads: int | None = None, mode: str = "chunk", use_gate: bool = True, use_short_conv: bool = True,
        allow_neg_eigval: bool = False, conv_size: int = 4, conv_bias: bool = False, layer_idx: int | None = None,
        norm_eps: float = 1e-5, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._chosen(mode)
        self.hidden_size, self.num_heads, self.layer_idx = hidden_size, num_heads, layer_idx
        self.num_v_heads = _value_heads(num_heads, num_v_heads)
        self.head_k_dim, self.head_v_dim = head_dim, divided(head_dim * expand_v, 1, "head_dim · expand_v")
        self.key_dim, self.value_dim = num_heads * head_dim, self.num_v_heads * self.head_v_dim
        self.allow_neg_eigval, self.use_gate = allow_neg_eigval, use_gate
        self._projections(hidden_size, use_short_conv, conv_size, conv_bias)
        self.a_proj = Linear(hidden_size, self.num_v_heads, False)
        self.b_proj = Linear(hidden_size, self.num_v_heads, False)
        self.A_log = _rates(self.num_v_heads, 1e-3, 16)  # off 0, whose log is -inf
        self.dt_bias = torch.nn.Parameter(inverse_softplus_of_steps(self.num_v_heads, 0.001, 0.1, 1e-4))
        self.dt_bias._no_weight_decay = True
        if use_gate:
            self.g_proj = Linear(hidden_size, self.value_dim, False)
            self.o_norm: Any = FusedRMSNormGated(self.head_v_dim, eps=norm_eps)
        else:
            self.o_norm = RMSNorm(self.head_v_dim, eps=norm_eps)
        self.o_proj = Linear(self.value_dim, hidden_size, False)

    def mixed(self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, **_: Any) -> tuple[Any, Any, Any]:
        """(y, state, conv_state); see `Gated`."""
        q, k, v, conv = self._projected(x, before, keeps, cu_seqlens)
        acc = wide(x.dtype)
        g = -torch.exp(self.A_log.to(acc)) * bct.softplus(self.a_proj(x).to(acc) + self.dt_bias.to(acc))
        beta = bct.sigmoid(self.b_proj(x).to(acc))
        made = bct.gated_delta_rule(
            q, k, v, g, 2 * beta if self.allow_neg_eigval else beta, initial_state=before.get("recurrent_state"),
            output_final_state=keeps, use_qk_l2norm=True, cu_seqlens=cu_seqlens, stepwise=self.stepwise(x.shape[1]),
        )  # fmt: skip
        o, state = made if keeps else (made, None)
        return self._out(x, o, self.g_proj if self.use_gate else None), state, conv


class KimiDeltaAttention(_Delta):
    """Kimi delta attention's layer (Kimi Team 2025, arXiv:2510.26692): `kda` of convolved q, k, v.

    Each channel of k fades by exp(-exp(A_log) softplus(f_proj(x) + dt_bias)), A_log a number a head. Parameters,
    state_dict and keywords of flash-linear-attention's `KimiDeltaAttention`; the call is that of `Gated`.
    """

    def __init__(
        self, hidden_size: int = 2048, expand_v: float = 1, head_dim: int = 128, num_heads: int = 16,
        num_v_heads: int | None = None, mode: str = "chunk", use_short_conv: bool = True,
        allow_neg_eigval: bool = False, conv_size: int = 4, conv_bias: bool = False, layer_idx: int | None = None,
        norm_eps: float = 1e-5, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._chosen(mode)
        self.hidden_size, self.num_heads, self.layer_idx = hidden_size, num_heads, layer_idx
        self.num_v_heads, self.allow_neg_eigval = _value_heads(num_heads, num_v_heads), allow_neg_eigval
        self.head_k_dim, self.head_v_dim = head_dim, divided(head_dim * expand_v, 1, "head_dim · expand_v")
        self.key_dim, self.value_dim = num_heads * head_dim, self.num_v_heads * self.head_v_dim
        self._projections(hidden_size, use_short_conv, conv_size, conv_bias)
        low = self.head_v_dim
        self.f_proj = torch.nn.Sequential(Linear(hidden_size, low, False), Linear(low, self.key_dim, False))
        self.b_proj = Linear(hidden_size, num_heads, False)
        self.A_log = _rates(num_heads, 1, 16)
        self.dt_bias = torch.nn.Parameter(torch.zeros(self.key_dim))
        self.dt_bias._no_weight_decay = True
        self.g_proj = torch.nn.Sequential(Linear(hidden_size, low, False), Linear(low, self.value_dim, True))
        self.o_norm = FusedRMSNormGated(self.head_v_dim, activation="sigmoid", eps=norm_eps)
        self.o_proj = Linear(self.value_dim, hidden_size, False)

    def mixed(self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, **_: Any) -> tuple[Any, Any, Any]:
        """(y, state, conv_state); see `Gated`."""
        q, k, v, conv = self._projected(x, before, keeps, cu_seqlens)
        acc = wide(x.dtype)
        rates = bct.softplus(self.f_proj(x).to(acc) + self.dt_bias.to(acc)).unflatten(-1, (-1, self.head_k_dim))
        g = -torch.exp(self.A_log.to(acc))[:, None] * rates
        beta = bct.sigmoid(self.b_proj(x).to(acc))
        shared = self.num_v_heads // self.num_heads
        if shared > 1:
            g, beta = g.repeat_interleave(shared, -2), beta.repeat_interleave(shared, -1)
        made = bct.kda(
            q, k, v, g, 2 * beta if self.allow_neg_eigval else beta, initial_state=before.get("recurrent_state"),
            output_final_state=keeps, use_qk_l2norm=True, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        o, state = made if keeps else (made, None)
        return self._out(x, o, self.g_proj), state, conv


def _value_heads(heads: int, values: int | None) -> int:
    made = heads if values is None else values
    if made < 1 or made % heads:
        raise InvalidProblemError(f"num_v_heads must be a multiple of num_heads = {heads}, got {values}")
    return made
