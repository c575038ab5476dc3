"""Gated linear attention and multi-scale retention, with flash-linear-attention's parameters and keywords."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .gated_norm import FusedRMSNormGated
from .linear import Linear
from .mamba import wide
from .norm import RMSNorm
from .recurrent_cache import Gated, divided

ACTIVATIONS = {
    "relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "sigmoid": "sigmoid", "tanh": "tanh",
    "relu2": "relu_squared",
}  # fmt: skip


class _Heads(Gated):
    """What both layers do alike: fewer heads of k and v, a feature map, the output's norm and gate."""

    def _made(
        self: Any, mode: str, hidden: int, expand_k: float, expand_v: float, heads: int, kv_heads: int | None,
        feature_map: str | None, short: tuple[bool, int, bool], use_output_gate: bool, gate_fn: str,
        affine: bool | None, eps: float, fuse_norm: bool, layer_idx: int | None,
    ) -> None:  # fmt: skip
        self._chosen(mode, "fused_chunk", "parallel")
        for name, act in (("feature_map", feature_map), ("gate_fn", gate_fn)):
            if act is not None and act not in ACTIVATIONS:
                raise InvalidProblemError(f"{name} must be one of {', '.join(ACTIVATIONS)}, got {shown(act)}")
        self.hidden_size, self.num_heads, self.layer_idx = hidden, heads, layer_idx
        self.num_kv_heads = heads if kv_heads is None else kv_heads
        if self.num_kv_heads < 1 or heads % self.num_kv_heads:
            raise InvalidProblemError(f"num_kv_heads must divide num_heads = {heads}, got {kv_heads}")
        self.head_k_dim = divided(hidden * expand_k, heads, "hidden_size · expand_k")
        self.head_v_dim = divided(hidden * expand_v, heads, "hidden_size · expand_v")
        self.key_dim, self.value_dim = heads * self.head_k_dim, heads * self.head_v_dim
        self.shared_key_dim = self.num_kv_heads * self.head_k_dim
        self.shared_value_dim = self.num_kv_heads * self.head_v_dim
        self.feature_map, self.use_output_gate, self.gate_fn = feature_map, use_output_gate, gate_fn
        self.q_proj = Linear(hidden, self.key_dim, False)
        self.k_proj = Linear(hidden, self.shared_key_dim, False)
        self.v_proj = Linear(hidden, self.shared_value_dim, False)
        if use_output_gate:
            self.g_proj = Linear(hidden, self.value_dim, False)
        self.use_short_conv, size, bias = short
        if self.use_short_conv:
            self._convolutions(size, bias, (self.key_dim, self.shared_key_dim, self.shared_value_dim))
        self.o_proj = Linear(self.value_dim, hidden, False)
        self.fused = gate_fn == "swish" and fuse_norm and use_output_gate
        if self.fused:
            self.g_norm_swish_gate = FusedRMSNormGated(self.head_v_dim, bool(affine), eps)
        else:
            self.g_norm = RMSNorm(self.head_v_dim, eps=eps, elementwise_affine=bool(affine))

    def _projected(self: Any, x: Any, before: Any, keeps: bool, cu_seqlens: Any) -> tuple[Any, ...]:
        """q, k, v [batch, steps, heads, …], and what the convolutions keep."""
        parts, conv = [self.q_proj(x), self.k_proj(x), self.v_proj(x)], None
        if self.use_short_conv:
            parts, conv = self._convolved(parts, before, keeps, cu_seqlens)
        q, k = (one.unflatten(-1, (-1, self.head_k_dim)) for one in parts[:2])
        if self.feature_map is not None:
            q, k = (getattr(bct, ACTIVATIONS[self.feature_map])(one) for one in (q, k))
        return q, k, parts[2].unflatten(-1, (-1, self.head_v_dim)), conv

    def _out(self: Any, x: Any, o: Any) -> Any:
        """The output of o [batch, steps, heads, d_v]."""
        if self.fused:
            return self.o_proj(self.g_norm_swish_gate(o, self.g_proj(x).reshape(o.shape)).flatten(-2))
        o = self.g_norm(o).flatten(-2)
        if self.use_output_gate:
            o = bct.mul(o, getattr(bct, ACTIVATIONS[self.gate_fn])(self.g_proj(x)))
        return self.o_proj(o)


class GatedLinearAttention(_Heads):
    """Gated linear attention's layer (Yang et al. 2024, arXiv:2312.06635): `gla` of q, k, v.

    Each channel of k fades by sigmoid(gk_proj(x))^(1 / gate_logit_normalizer), by exp(clamp_min) at the most.
    Parameters, state_dict and keywords of flash-linear-attention's `GatedLinearAttention`; the call is that of `Gated`.
    """

    def __init__(
        self, mode: str = "chunk", hidden_size: int = 1024, expand_k: float = 0.5, expand_v: float = 1.0,
        num_heads: int = 4, num_kv_heads: int | None = None, feature_map: str | None = None,
        use_short_conv: bool = False, conv_size: int = 4, conv_bias: bool = False, use_output_gate: bool = True,
        gate_fn: str = "swish", elementwise_affine: bool | None = True, norm_eps: float = 1e-5,
        gate_logit_normalizer: int = 16, gate_low_rank_dim: int = 16, clamp_min: float | None = None,
        fuse_norm: bool = True, layer_idx: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._made(
            mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map,
            (use_short_conv, conv_size, conv_bias), use_output_gate, gate_fn, elementwise_affine, norm_eps, fuse_norm,
            layer_idx,
        )  # fmt: skip
        self.gk_proj = torch.nn.Sequential(
            Linear(hidden_size, gate_low_rank_dim, False), Linear(gate_low_rank_dim, self.shared_key_dim, True)
        )
        self.gate_logit_normalizer, self.clamp_min = gate_logit_normalizer, clamp_min

    def mixed(self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, **_: Any) -> tuple[Any, Any, Any]:
        """(y, state, conv_state); see `Gated`."""
        q, k, v, conv = self._projected(x, before, keeps, cu_seqlens)
        g = bct.log_sigmoid(self.gk_proj(x).to(wide(x.dtype))) / self.gate_logit_normalizer
        g = g if self.clamp_min is None else g.clamp(min=self.clamp_min)
        g = g.unflatten(-1, (-1, self.head_k_dim)).repeat_interleave(self.num_heads // self.num_kv_heads, -2)
        made = bct.gla(
            q, k, v, g, initial_state=before.get("recurrent_state"), output_final_state=keeps, cu_seqlens=cu_seqlens
        )
        o, state = made if keeps else (made, None)
        return self._out(x, o), state, conv


class MultiScaleRetention(_Heads):
    """RetNet's layer (Sun et al. 2023, arXiv:2307.08621): `retention` of q and k at rotary positions, and v.

    Parameters, state_dict and keywords of flash-linear-attention's `MultiScaleRetention`; the call is that of `Gated`.
    Positions go on with the cache, and start anew in every sequence of cu_seqlens.
    """

    def __init__(
        self, mode: str = "chunk", hidden_size: int = 1024, expand_k: float = 1.0, expand_v: float = 2.0,
        num_heads: int = 8, num_kv_heads: int | None = None, feature_map: str | None = None,
        use_short_conv: bool = False, conv_size: int = 4, conv_bias: bool = False, use_output_gate: bool = True,
        gate_fn: str = "swish", elementwise_affine: bool | None = True, norm_eps: float = 1e-5, fuse_norm: bool = True,
        layer_idx: int | None = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._made(
            mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map,
            (use_short_conv, conv_size, conv_bias), use_output_gate, gate_fn, elementwise_affine, norm_eps, fuse_norm,
            layer_idx,
        )  # fmt: skip

    def mixed(self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, **_: Any) -> tuple[Any, Any, Any]:
        """(y, state, conv_state); see `Gated`."""
        q, k, v, conv = self._projected(x, before, keeps, cu_seqlens)
        at = torch.arange(x.shape[1], device=x.device)
        if cu_seqlens is not None:
            ends = cu_seqlens.to(at.dtype)
            at = at - ends.index_select(0, torch.bucketize(at, ends[1:], right=True).clamp(max=len(ends) - 2))
        at = (at + offset)[None].expand(x.shape[0], -1)
        q, k = bct.rope(q, at.to(torch.int32).contiguous(), x2=k, layout="bshd")
        made = bct.retention(
            q, k, v, initial_state=before.get("recurrent_state"), output_final_state=keeps, cu_seqlens=cu_seqlens,
            stepwise=self.stepwise(x.shape[1]),
        )  # fmt: skip
        o, state = made if keeps else (made, None)
        return self._out(x, o), state, conv
