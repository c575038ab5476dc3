"""The model in torch, and the loop that is written with it first: a dense KV cache, SDPA, a batch of equal prompts."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from gpt_model import Decoder
from torch.nn import functional as F


class TorchDecoder:
    """The weights of a model in its compute element."""

    def __init__(self, model: Decoder) -> None:
        self.preset = p = model.preset
        self.dtype = torch.float32 if model.copies is None else getattr(torch, p.compute)
        self.weights = {n: torch.from_dlpack(w).to(self.dtype) for n, w in (model.matrices | model.norms).items()}
        self.device = self.weights["head"].device
        half = torch.arange(p.head_dim // 2, dtype=torch.float64, device=self.device)
        self.angles = torch.arange(p.context, device=self.device)[:, None] * 10000.0 ** (-2 * half / p.head_dim)

    def cache(self, batch: int, length: int) -> list[list[Any]]:
        """Keys and values of every layer: [batch, kv_heads, length, head_dim]."""
        p, like = self.preset, {"dtype": self.dtype, "device": self.device}
        return [[torch.zeros(batch, p.kv_heads, length, p.head_dim, **like) for _ in "kv"] for _ in range(p.layers)]

    def forward(self, tokens: Any, cache: Any = None, at: int = 0) -> Any:
        """Logits [batch, tokens, vocab] of tokens [batch, tokens] that stand at `at` and on."""
        p, w, (batch, count) = self.preset, self.weights, tokens.shape
        turn = self.angles[at : at + count]
        cos, sin = turn.cos().to(self.dtype), turn.sin().to(self.dtype)
        x = w["embedding"][tokens]
        for i in range(p.layers):
            qkv = F.rms_norm(x, (p.d,), w[f"attention{i}"], p.eps) @ w[f"qkv{i}"]
            heads = qkv.view(batch, count, -1, p.head_dim).transpose(1, 2)
            q, k, v = heads.split([p.heads, p.kv_heads, p.kv_heads], dim=1)
            q, k = (self._rotated(one, cos, sin) for one in (q, k))
            if cache is not None:
                for held, new in zip(cache[i], (k, v), strict=True):
                    held[:, :, at : at + count] = new
                k, v = (held[:, :, : at + count] for held in cache[i])
            y = F.scaled_dot_product_attention(q, k, v, is_causal=count > 1, enable_gqa=True)
            x = x + y.transpose(1, 2).reshape(batch, count, p.d) @ w[f"out{i}"]
            gate, up = (F.rms_norm(x, (p.d,), w[f"mlp{i}"], p.eps) @ w[f"up{i}"]).chunk(2, dim=-1)
            x = x + (F.silu(gate) * up) @ w[f"down{i}"]
        return F.rms_norm(x, (p.d,), w["final"], p.eps) @ w["head"]

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def rollout(self, prompts: Any, count: int) -> tuple[Any, Any]:
        """`count` tokens behind prompts [batch, length], drawn from the softmax: the texts, and their logprobs."""
        length, text, found = prompts.shape[1], [prompts], []
        cache = self.cache(len(prompts), length + count)
        for at in itertools.chain([0], range(length, length + count - 1)):
            logprobs = F.log_softmax(self.forward(text[-1], cache, at)[:, -1].float(), dim=-1)
            text.append(torch.multinomial(logprobs.exp(), 1))
            found.append(logprobs.gather(1, text[-1]))
        return torch.cat(text, dim=1), torch.cat(found, dim=1)

    def of_the_trainer(self, text: Any, count: int) -> Any:
        """The logprobs of the last `count` tokens of texts [batch, length], by one pass over all of them."""
        logits = self.forward(text[:, :-1])[:, -count:]
        return F.log_softmax(logits.float(), dim=-1).gather(2, text[:, -count:, None])[..., 0]


@torch.no_grad()
def rollouts(model: TorchDecoder, requests: list[tuple[tuple[int, ...], int]], batch: int, seed: int) -> list[Any]:
    """(texts, logprobs) of requests (prompt, tokens), up to `batch` at a time that are alike in both lengths."""
    torch.manual_seed(seed)
    made = []
    alike = sorted(requests, key=lambda one: (len(one[0]), one[1]))
    for (_, count), same in itertools.groupby(alike, key=lambda one: (len(one[0]), one[1])):
        prompts = torch.tensor([prompt for prompt, _ in same], device=model.device)
        made += [model.rollout(some, count) for some in prompts.split(batch)]
    for _, logprobs in made[-1:]:
        logprobs.tolist()  # waits for the device
    return made


@torch.no_grad()
def compared(model: TorchDecoder, made: list[Any]) -> tuple[int, int, float]:
    """How many log-probabilities there are, how many of the trainer's differ, and the largest difference."""
    total, differ, largest = 0, 0, 0.0
    for text, logprobs in made:
        again = model.of_the_trainer(text, logprobs.shape[1])
        total, differ = total + logprobs.numel(), differ + int((again != logprobs).sum())
        largest = max(largest, float((again - logprobs).abs().max()))
    return total, differ, largest
