"""The model of examples/gpt_model.py in PyTorch, at its best there: bf16 autocast, SDPA, fused RMSNorm and AdamW.

Weights start as those of the `Decoder` given; the residual stream is bf16 as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpt_model import Decoder, Preset
from torch import Tensor, nn

COMPUTE = torch.bfloat16


def tables(preset: Preset, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin of RoPE, [length, head_dim], bf16."""
    half = preset.head_dim // 2
    frequency = 10000.0 ** (-torch.arange(half, device="cuda", dtype=torch.float64) / half)
    angle = torch.arange(length, device="cuda", dtype=torch.float64)[:, None] * frequency
    return tuple(torch.cat([f(angle)] * 2, -1).to(COMPUTE) for f in (torch.cos, torch.sin))  # type: ignore[return-value]


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE, half pairing."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def heads(qkv: Tensor, p: Preset) -> tuple[Tensor, ...]:
    """q, k, v as [batch, heads, length, head_dim] views."""
    packed = qkv.unflatten(-1, (-1, p.head_dim)).transpose(1, 2)
    return packed.split([p.heads, p.kv_heads, p.kv_heads], 1)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """torch's fused RMSNorm, which wants weight and input alike."""
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)


class Block(nn.Module):
    """One layer; weights are [out, in]."""

    def __init__(self, model: Decoder, i: int) -> None:
        super().__init__()
        self.p = model.preset

        def weight(name: str) -> nn.Parameter:
            return nn.Parameter(
                torch.from_dlpack(model.matrices[f"{name}{i}"]).T.clone(memory_format=torch.contiguous_format)
            )

        self.qkv, self.out, self.up, self.down = (weight(n) for n in ("qkv", "out", "up", "down"))
        self.attention = nn.Parameter(torch.ones(self.p.d, device="cuda"))
        self.mlp = nn.Parameter(torch.ones(self.p.d, device="cuda"))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = heads(F.linear(norm(x, self.attention, self.p.eps), self.qkv), self.p)
        y = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).flatten(2), self.out)
        gate, up = F.linear(norm(x, self.mlp, self.p.eps), self.up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model(nn.Module):
    """The decoder; `forward` is the mean cross-entropy in nats."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.p = p = model.preset
        self.embedding = nn.Parameter(torch.from_dlpack(model.matrices["embedding"]).clone())
        self.head = nn.Parameter(torch.from_dlpack(model.matrices["head"]).T.contiguous().clone())
        self.final = nn.Parameter(torch.ones(p.d, device="cuda"))
        self.blocks = nn.ModuleList(Block(model, i) for i in range(p.layers))
        cos, sin = tables(p, p.context)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embedding.to(COMPUTE))
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(norm(x, self.final, self.p.eps), self.head)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Trainer:
    """A training step: forward, backward, clip, AdamW; nothing waits for the device.

    mode: "eager", "compile" (default mode), or "compile + graph" (the compiled step captured as one CUDA graph).
    """

    def __init__(self, model: Decoder, mode: str, step: Tensor | None, rate: Tensor, tokens: Tensor, targets: Tensor,
                 loss: Tensor) -> None:  # fmt: skip
        self.model = Model(model)
        self.inputs, self.rate, self.loss = (tokens, targets), rate, loss
        self.forward = self.model if mode == "eager" else torch.compile(self.model)
        matrices = [w for w in self.model.parameters() if w.ndim == 2]
        vectors = [w for w in self.model.parameters() if w.ndim < 2]
        self.lr = torch.zeros((), device="cuda")
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=self.lr, betas=(0.9, 0.95), eps=1e-8, fused=True, capturable=True,
        )  # fmt: skip
        self.parameters = matrices + vectors
        self.graph: Any = None
        if mode == "compile + graph":
            self._capture()

    def step(self) -> None:
        """One step on what the inputs hold."""
        if self.graph is not None:
            self.graph.replay()
            return
        self._step()

    def _step(self) -> None:
        self.lr.copy_(self.rate)
        with torch.autocast("cuda", COMPUTE):
            loss = self.forward(*self.inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.copy_(loss.detach())

    def _capture(self) -> None:
        """Three steps at a learning rate of 0 warm up, then one is captured; moments and step numbers start again."""
        rate, self.rate = self.rate, torch.zeros_like(self.rate)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()
        self.rate = rate
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.graph = graph

    @torch.no_grad()
    def held_out(self, batches: Any) -> float:
        """Mean nats per byte."""
        with torch.autocast("cuda", COMPUTE):
            losses = [self.model(*(torch.as_tensor(a, device="cuda").long() for a in pair)) for pair in batches]
        return float(torch.stack(losses).mean())


def pre(x: Tensor, norm_weight: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, p: Preset) -> tuple[Tensor, ...]:
    """Of one token: norm, projection, RoPE."""
    q, k, v = heads(F.linear(norm(x, norm_weight, p.eps), qkv), p)
    return turned(q, cos, sin), turned(k, cos, sin), v


def post(x: Tensor, y: Tensor, out: Tensor, norm_weight: Tensor, up: Tensor, down: Tensor, eps: float) -> Tensor:
    """Of one token: output projection, MLP."""
    x = x + F.linear(y.transpose(1, 2).flatten(2), out)
    gate, value = F.linear(norm(x, norm_weight, eps), up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * value, down)


class Generator:
    """A decode step in bf16 over a static cache that is full up to the last place, as one CUDA graph.

    What surrounds attention is compiled once per batch; attention sees the whole cache, unmasked: torch's fastest case.
    """

    def __init__(self, model: Decoder, batch: int, context: int, compiled: bool, top_k: int) -> None:
        p = self.p = model.preset
        cast = {name: torch.from_dlpack(w).to(COMPUTE) for name, w in model.matrices.items()}
        self.w = {n: w if n == "embedding" else w.T.contiguous() for n, w in cast.items()}
        self.ones = torch.ones(p.d, device="cuda", dtype=COMPUTE)
        self.pre: Callable[..., Any] = torch.compile(pre, dynamic=False) if compiled else pre
        self.post: Callable[..., Any] = torch.compile(post, dynamic=False) if compiled else post
        shape = (batch, p.kv_heads, context, p.head_dim)
        self.cache = [tuple(torch.randn(shape, device="cuda", dtype=COMPUTE) for _ in "kv") for _ in range(p.layers)]
        cos, sin = tables(p, context)
        self.cos, self.sin = cos[-1:].clone(), sin[-1:].clone()
        self.token = torch.zeros(batch, 1, dtype=torch.int64, device="cuda")
        self.place = torch.full((1,), context - 1, dtype=torch.int64, device="cuda")
        self.top_k = top_k
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph), torch.no_grad():
            self._step()

    def step(self) -> None:
        """One token."""
        self.graph.replay()

    def _step(self) -> None:
        p, w = self.p, self.w
        x = F.embedding(self.token, w["embedding"])
        for i, (keys, values) in enumerate(self.cache):
            q, k, v = self.pre(x, self.ones, w[f"qkv{i}"], self.cos, self.sin, p)
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            y = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
            x = self.post(x, y, w[f"out{i}"], self.ones, w[f"up{i}"], w[f"down{i}"], p.eps)
        logits = F.linear(norm(x, self.ones, p.eps), w["head"])[:, 0].float() / 0.8
        kept, places = logits.topk(self.top_k)
        drawn = (kept.softmax(-1) / torch.empty_like(kept).exponential_()).argmax(-1, keepdim=True)
        self.token.copy_(places.gather(-1, drawn))
