"""Attention of several heads between its projections, with torch.nn's keywords and parameters."""

from __future__ import annotations

from typing import Any

from ...nn import functional
from ..untyped import torch


class MultiheadAttention(torch.nn.MultiheadAttention):  # type: ignore[misc]
    """torch.nn.MultiheadAttention: the projections of query, key and value, attention in every head, and out_proj."""

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """(y, weights or None) of query [target, batch, embed], key and value [source, batch, …].

        Without batch they have two axes, with batch_first the batch comes first. Weights are the mean over heads
        [batch, target, source], or those of each head [batch, heads, target, source]. Masks are torch's: True, or -inf,
        hides a key; is_causal says that attn_mask is causal, and needs it.
        """
        turned = self.batch_first and query.ndim == 3
        if turned:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        parts = {f"{name}_proj_weight": getattr(self, f"{name}_proj_weight") for name in "qkv"}
        y, weights = functional.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
            **({} if self._qkv_same_embed_dim else {"use_separate_proj_weight": True} | parts),
        )  # fmt: skip
        return (y.transpose(0, 1) if turned else y), weights
