"""RWKV-7's time mixing, with the parameters and constructor keywords of flash-linear-attention's layer."""

from __future__ import annotations

import math
from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .linear import Linear
from .mamba import wide
from .norm import GroupNorm
from .recurrent_cache import Gated, divided

ACTIVATIONS = {None: torch.nn.Identity, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid, "relu": torch.nn.ReLU}


class LoRA(torch.nn.Module):  # type: ignore[misc]
    """act(x W0ᵀ) W2ᵀ + bias of low rank: `lora.0` and `lora.2` of a Sequential, as flash-linear-attention has them."""

    def __init__(
        self, input_dim: int, output_dim: int, low_rank_dim: int, bias: bool = True, activation: str | None = "tanh",
    ) -> None:  # fmt: skip
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InvalidProblemError(f"activation must be None, tanh, sigmoid or relu, got {shown(activation)}")
        self.lora = torch.nn.Sequential(
            Linear(input_dim, low_rank_dim, False), ACTIVATIONS[activation](), Linear(low_rank_dim, output_dim, bias)
        )

    def forward(self, x: Any) -> Any:
        """[…, input_dim] to […, output_dim]."""
        return self.lora(x)


def _rank(hidden: int, factor: float) -> Any:
    return max(32, round(factor * hidden**0.5 / 32) * 32)


class RWKV7Attention(Gated):
    """RWKV-7's time mixing (Peng et al. 2025, arXiv:2503.14456): `rwkv7` of tokens mixed with their predecessors.

    The call is that of `Gated` with `v_first` besides, the first layer's values, and the result has them as a fourth
    item: layer_idx 0 makes them, every other layer needs them. Parameters, state_dict and keywords of
    flash-linear-attention's `RWKV7Attention`, whose `conv_state` is the last token. Parameters begin as a trained model
    would replace them: x_* of 0, k_k and k_a of 1, all else as its layers do.
    """

    def __init__(
        self, mode: str = "chunk", hidden_size: int = 1024, head_dim: int | None = 64, num_heads: Any = None,
        decay_low_rank_dim: int | None = None, gate_low_rank_dim: int | None = None, a_low_rank_dim: int | None = None,
        v_low_rank_dim: int | None = None, elementwise_affine: bool | None = True, norm_eps: float = 1e-5,
        layer_idx: int | None = None, fuse_norm: bool = False, value_dim: int | None = None,
        num_hidden_layers: int | None = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._chosen(mode)
        if head_dim is None and num_heads is None:
            raise InvalidProblemError("head_dim or num_heads must be given")
        self.num_heads: Any = hidden_size // head_dim if head_dim is not None else num_heads
        self.head_dim = divided(hidden_size, self.num_heads, "hidden_size")
        self.value_dim = hidden_size if value_dim is None else value_dim
        self.head_v_dim = divided(self.value_dim, self.num_heads, "value_dim")
        self.hidden_size, self.layer_idx = hidden_size, layer_idx
        ranked = self.head_dim / 64
        for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g"):
            setattr(self, name, torch.nn.Parameter(torch.zeros(1, 1, hidden_size)))
        self.k_k = torch.nn.Parameter(torch.ones(hidden_size))
        self.k_a = torch.nn.Parameter(torch.ones(hidden_size))
        self.r_k = torch.nn.Parameter(torch.zeros(self.num_heads, self.head_dim))
        self.r_proj = Linear(hidden_size, hidden_size, False)
        self.k_proj = Linear(hidden_size, hidden_size, False)
        self.v_proj = Linear(hidden_size, self.value_dim, False)
        self.o_proj = Linear(self.value_dim, hidden_size, False)
        decay = decay_low_rank_dim or _rank(hidden_size, 2.5 * ranked)
        self.w_lora = LoRA(hidden_size, hidden_size, decay, activation="tanh")
        if layer_idx != 0:
            rank = v_low_rank_dim or _rank(hidden_size, 1.7 * ranked)
            self.v_lora = LoRA(hidden_size, self.value_dim, rank, activation=None)
        rank = a_low_rank_dim or _rank(hidden_size, 2.5 * ranked)
        self.a_lora = LoRA(hidden_size, hidden_size, rank, activation=None)
        rank = gate_low_rank_dim or _rank(hidden_size, 5.0)
        self.g_lora = LoRA(hidden_size, self.value_dim, rank, bias=False, activation="sigmoid")
        self.g_norm = GroupNorm(
            self.num_heads, self.value_dim, eps=self.head_dim * norm_eps, affine=bool(elementwise_affine)
        )

    def forward(
        self, hidden_states: Any, attention_mask: Any = None, past_key_values: Any = None, use_cache: bool = False,
        output_attentions: bool = False, v_first: Any = None, cu_seqlens: Any = None, **_: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """(y, None, past_key_values, v_first)."""
        if attention_mask is not None or cu_seqlens is not None:
            raise InvalidProblemError("attention_mask and cu_seqlens must be None: RWKV7Attention takes whole batches")
        if self.layer_idx != 0 and v_first is None:
            raise InvalidProblemError("v_first must be what layer 0 returned, of every layer but that one")
        held = {"v_first": v_first}
        made = super().forward(hidden_states, None, past_key_values, use_cache, held=held)
        return (*made, held["v_first"])

    def mixed(
        self, x: Any, before: Any, keeps: bool, cu_seqlens: Any, offset: int, *, held: Any = None, **_: Any
    ) -> tuple[Any, Any, Any]:
        """(y, state, last token); see `Gated`."""
        change = bct.token_shift(x, state=before.get("conv_state")) - x
        xr, xw, xk, xv, xa, xg = (
            bct.addcmul(x, change, getattr(self, name)) for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")
        )
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        acc = wide(x.dtype)
        w = -math.exp(-0.5) * bct.sigmoid(self.w_lora(xw).to(acc))
        if self.layer_idx == 0:
            held["v_first"] = v
        else:
            v = bct.lerp(v, held["v_first"], bct.sigmoid(self.v_lora(xv)))
        a, g = bct.sigmoid(self.a_lora(xa)), self.g_lora(xg)
        heads = (self.num_heads, self.head_dim)
        kk = bct.normalize((k * self.k_k).to(acc).unflatten(-1, heads), axis=-1).to(x.dtype)
        k = k * (1 + (a - 1) * self.k_a)
        r, w, k, a = (one.unflatten(-1, heads) for one in (r, w, k, a))
        v = v.unflatten(-1, (self.num_heads, self.head_v_dim))
        made = bct.rwkv7(
            r, w, k, v, -kk, kk * a, initial_state=before.get("recurrent_state"), output_final_state=keeps,
            stepwise=self.stepwise(x.shape[1]),
        )  # fmt: skip
        o, state = made if keeps else (made, None)
        o = self.g_norm(o.flatten(0, 1).flatten(-2)).reshape(o.shape)
        o = o + (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.o_proj(o.flatten(-2) * g), state, x[:, -1] if keeps else None
