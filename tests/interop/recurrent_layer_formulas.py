"""The layers of recurrences as their papers write them, step by step in plain torch."""

from __future__ import annotations

from typing import Any

import torch

F = torch.nn.functional


def heads(x: Any, size: int) -> Any:
    return x.unflatten(-1, (-1, size))


def conv(layer: Any, x: Any, name: str) -> Any:
    one = getattr(layer, f"{name}_conv1d", None)
    y = getattr(layer, f"{name}_proj")(x)
    if one is None:
        return y
    y = F.conv1d(y.transpose(1, 2), one.weight, one.bias, padding=one.weight.shape[-1] - 1, groups=y.shape[-1])
    y = y[..., : x.shape[1]].transpose(1, 2)
    return y if one.activation is None else F.silu(y)


def walk(q: Any, k: Any, v: Any, decay: Any, beta: Any, scale: float) -> Any:
    """o of a state [d_k, d_v] of each head; decay [batch, steps, heads, 1 or d_k], beta [batch, steps, heads]."""
    count = v.shape[2] if decay is None else max(v.shape[2], decay.shape[2])
    q, k, v = (one.repeat_interleave(max(count, q.shape[2]) // one.shape[2], 2) for one in (q, k, v))
    state, ys = q.new_zeros(*q.shape[:1], q.shape[2], q.shape[3], v.shape[3]), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = decay[:, t, :, :, None] * state
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        ys.append(scale * torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(ys, 1)


def unit(x: Any) -> Any:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def normed(norm: Any, o: Any, g: Any = None) -> Any:
    y = o / (o.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    y = y if norm.weight is None else y * norm.weight
    if g is None:
        return y
    return y * (torch.sigmoid(g) if norm.activation == "sigmoid" else F.silu(g))


def delta_net(layer: Any, x: Any) -> Any:
    q, k, v = (conv(layer, x, name) for name in "qkv")
    q, k, v = heads(q, layer.head_k_dim), heads(k, layer.head_k_dim), heads(v, layer.head_v_dim)
    if layer.qk_activation == "elu":
        q, k = F.elu(q) + 1, F.elu(k) + 1
    q, k = (unit(q), unit(k)) if layer.qk_norm == "l2" else (q / q.sum(-1, keepdim=True), k / k.sum(-1, keepdim=True))
    beta = torch.sigmoid(layer.b_proj(x)) * (2 if layer.allow_neg_eigval else 1)
    o = walk(q, k, v, None, beta, layer.head_k_dim**-0.5)
    g = heads(layer.g_proj(x), layer.head_v_dim) if layer.use_gate else None
    return layer.o_proj(normed(layer.o_norm, o, g).flatten(-2))


def gla(layer: Any, x: Any) -> Any:
    q, k, v = (conv(layer, x, name) for name in "qkv")
    q, k, v = heads(q, layer.head_k_dim), heads(k, layer.head_k_dim), heads(v, layer.head_v_dim)
    q, k = (F.relu(q), F.relu(k)) if layer.feature_map == "relu" else (q, k)
    g = (F.logsigmoid(layer.gk_proj(x)) / layer.gate_logit_normalizer).clamp(min=layer.clamp_min)
    g = heads(g, layer.head_k_dim).repeat_interleave(layer.num_heads // layer.num_kv_heads, 2)
    o = walk(q, k, v, g.exp(), None, layer.head_k_dim**-0.5)
    gate = layer.g_proj(x)
    if layer.fused:
        return layer.o_proj(normed(layer.g_norm_swish_gate, o, heads(gate, layer.head_v_dim)).flatten(-2))
    return layer.o_proj(normed(layer.g_norm, o).flatten(-2) * torch.sigmoid(gate))


def retention(layer: Any, x: Any) -> Any:
    q, k, v = (conv(layer, x, name) for name in "qkv")
    q, k, v = heads(q, layer.head_k_dim), heads(k, layer.head_k_dim), heads(v, layer.head_v_dim)
    half = layer.head_k_dim // 2
    at = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    turn = torch.polar(torch.ones_like(at), at)[None, :, None]
    q, k = (torch.complex(one[..., :half], one[..., half:]) * turn for one in (q, k))
    q, k = (torch.cat([one.real, one.imag], -1) for one in (q, k))
    decay = 1 - 2.0 ** (-5 - torch.arange(layer.num_heads, dtype=x.dtype))
    o = walk(q, k, v, decay[None, None, :, None].expand(*x.shape[:2], -1, 1), None, layer.head_k_dim**-0.5)
    return layer.o_proj(normed(layer.g_norm_swish_gate, o, heads(layer.g_proj(x), layer.head_v_dim)).flatten(-2))


def rwkv7(layer: Any, x: Any, v_first: Any) -> Any:
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]
    xr, xw, xk, xv, xa, xg = (x + (before - x) * getattr(layer, f"x_{n}") for n in "rwkvag")
    r, k, v = layer.r_proj(xr), layer.k_proj(xk), layer.v_proj(xv)
    w = torch.exp(-torch.tensor(-0.5).double().exp() * torch.sigmoid(layer.w_lora(xw)))
    v = v if layer.layer_idx == 0 else v + torch.sigmoid(layer.v_lora(xv)) * (v_first - v)
    a, g, size = torch.sigmoid(layer.a_lora(xa)), layer.g_lora(xg), layer.head_dim
    kk = F.normalize(heads(k * layer.k_k, size), dim=-1)
    k = k * (1 + (a - 1) * layer.k_a)
    r, w, k, a, v = heads(r, size), heads(w, size), heads(k, size), heads(a, size), heads(v, layer.head_v_dim)
    state, ys = x.new_zeros(len(x), layer.num_heads, size, layer.head_v_dim), []
    for t in range(x.shape[1]):
        removed = torch.einsum("bhkv,bhk->bhv", state, kk[:, t])[:, :, None] * (kk * a)[:, t, :, :, None]
        state = w[:, t, :, :, None] * state - removed + k[:, t, :, :, None] * v[:, t, :, None]
        ys.append(torch.einsum("bhkv,bhk->bhv", state, r[:, t]))
    o = torch.stack(ys, 1)
    norm = layer.g_norm
    o = F.group_norm(o.flatten(0, 1).flatten(1), norm.num_groups, norm.weight, norm.bias, norm.eps).reshape(o.shape)
    o = o + (r * k * layer.r_k).sum(-1, keepdim=True) * v
    return layer.o_proj(o.flatten(-2) * g)
