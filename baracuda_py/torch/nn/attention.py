"""Self-attention with grouped heads and rotary positions: over whole sequences, packed ones, and a cache."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.errors import InvalidProblemError
from ..untyped import torch
from .embedding import RotaryEmbedding
from .linear import Linear


class KVCache:
    """Keys and values of a batch of sequences, [batch, max_length, kv_heads, head_dim], and how many each has.

    `lengths` is int32 [batch] on the device and is raised in place, so that a captured graph can go on.
    """

    def __init__(
        self, batch: int, max_length: int, kv_heads: int, head_dim: int, *, dtype: Any = None, device: Any = None
    ) -> None:
        shape = (batch, max_length, kv_heads, head_dim)
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    def reset(self) -> None:
        """Forget everything; the memory is kept."""
        self.lengths.zero_()


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Causal (or not) self-attention: y = softmax(q kᵀ / sqrt(head_dim)) v Woᵀ, with q, k, v from one product.

    num_kv_heads heads of keys and values are shared by groups of query heads (Ainslie et al. 2023). rope_base: rotary
    positions with this base, or None. `qkv.weight` has the rows of q, then k, then v. Nothing is transposed or
    copied between the products.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, num_kv_heads: int | None = None, head_dim: int | None = None,
        causal: bool = True, rope_base: float | None = 10000.0, bias: bool = False, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads, self.num_kv_heads, self.causal = num_heads, num_kv_heads or num_heads, causal
        self.head_dim = head_dim or embed_dim // num_heads
        if num_heads % self.num_kv_heads:
            raise InvalidProblemError(f"num_kv_heads must divide num_heads = {num_heads}, got {self.num_kv_heads}")
        if head_dim is None and embed_dim % num_heads:
            raise InvalidProblemError(f"num_heads must divide embed_dim = {embed_dim}, got {num_heads}")
        width = (num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.qkv = Linear(embed_dim, width, bias, **given)
        self.out = Linear(num_heads * self.head_dim, embed_dim, bias, **given)
        self.rope = None if rope_base is None else RotaryEmbedding(self.head_dim, rope_base)

    def forward(
        self, x: Any, *, cu_seqlens: Any = None, max_seqlen: int | None = None, cache: KVCache | None = None,
        mask: Any = None,
    ) -> Any:  # fmt: skip
        """[batch, seq, embed_dim] to the same shape.

        cu_seqlens: int32 [sequences + 1]; x is then packed, [tokens, embed_dim]. cache: x continues the sequences in
        it, and its keys and values are appended (inference alone). mask: bool or additive, broadcast to
        [batch, heads, queries, keys].
        """
        if cu_seqlens is not None:
            if cache is not None or mask is not None:
                raise InvalidProblemError("packed sequences (cu_seqlens=) go without cache= and mask=")
            return self.out(self._packed(x, cu_seqlens, max_seqlen).flatten(-2))
        if cache is not None:
            if mask is not None or not self.causal:
                raise InvalidProblemError("a cache is of causal attention without mask=")
            return self.out(self._cached(x, cache).flatten(-2))
        q, k, v = self._heads(x)
        if self.rope is not None:
            q, k = self.rope(q, k)
        return self.out(bct.flash_sdpa(q, k, v, mask, is_causal=self.causal, layout="bshd").flatten(-2))

    def _heads(self, x: Any) -> Any:
        """q, k, v as views of the product, […, heads, head_dim]."""
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        return heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), -2)

    def _packed(self, x: Any, cu_seqlens: Any, max_seqlen: int | None) -> Any:
        q, k, v = self._heads(x)
        if self.rope is not None:
            token = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
            sequence = torch.bucketize(token, cu_seqlens[1:], right=True)
            positions = token - cu_seqlens[sequence]
            q, k = (one[0] for one in self.rope(q[None], k[None], positions))
        return bct.flash_sdpa_varlen(
            q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen, is_causal=self.causal
        )

    def _cached(self, x: Any, cache: KVCache) -> Any:
        q, k, v = self._heads(x)
        if self.rope is not None:
            rope = self.rope
            q = bct.rope_kv_append(q, k, v, cache.lengths, cache.k, cache.v, base=rope.base, layout="bshd")
        else:
            bct.kv_cache_append(k, v, cache.lengths, cache.k, cache.v, layout="bshd")
        before = cache.lengths.clone()
        cache.lengths += x.shape[1]
        if x.shape[1] == 1:
            return bct.flash_decoding(q[:, 0], cache.k, cache.v, cache.lengths, layout="bshd")[:, None]
        query = before[:, None] + torch.arange(x.shape[1], device=x.device)  # positions, [batch, queries]
        seen = query[:, None, :, None] >= torch.arange(cache.k.shape[1], device=x.device)
        return bct.flash_sdpa(q, cache.k, cache.v, seen, layout="bshd")
