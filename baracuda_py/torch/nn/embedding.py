"""Embeddings, whose gradients have a fixed order of sums, and rotary positions."""

from __future__ import annotations

from typing import Any, Literal

import baracuda_py.torch as bct

from ...core.errors import UnsupportedError
from ..untyped import torch

Pairing = Literal["half", "interleaved"]


class Embedding(torch.nn.Embedding):  # type: ignore[misc]
    """torch.nn.Embedding with a deterministic gradient; indices are not checked on the device."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        _refuse_sparse(self)

    def forward(self, input: Any) -> Any:
        """Rows of the weight, [*indices.shape, embedding_dim]."""
        return bct.embedding(
            input, self.weight, padding_idx=self.padding_idx, max_norm=self.max_norm, norm_type=self.norm_type,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )  # fmt: skip


class EmbeddingBag(torch.nn.EmbeddingBag):  # type: ignore[misc]
    """torch.nn.EmbeddingBag with deterministic gradients; indices are not checked on the device."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        _refuse_sparse(self)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """One row a bag, [bags, embedding_dim]."""
        return bct.embedding_bag(
            input, self.weight, offsets, per_sample_weights, mode=self.mode, padding_idx=self.padding_idx,
            include_last_offset=self.include_last_offset, scale_grad_by_freq=self.scale_grad_by_freq,
            max_norm=self.max_norm, norm_type=self.norm_type,
        )  # fmt: skip


def _refuse_sparse(module: Any) -> None:
    if module.sparse:
        kind = type(module).__name__
        raise UnsupportedError(f"{kind}: sparse= is not offered; use torch.nn.{kind} for sparse gradients")


class RotaryEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Rotary positions (Su et al. 2021): pair j of a head is turned by position · base^(-2j / rotary_dim).

    pairing: "half" pairs column j with j + rotary_dim / 2 (Llama), "interleaved" columns 2j and 2j + 1 (GPT-J).
    """

    def __init__(
        self, head_dim: int, base: float = 10000.0, *, rotary_dim: int | None = None, pairing: Pairing = "half"
    ) -> None:
        super().__init__()
        self.head_dim, self.base, self.rotary_dim, self.pairing = head_dim, base, rotary_dim, pairing

    def forward(self, q: Any, k: Any, positions: Any = None, offset: Any = 0, layout: str = "bshd") -> Any:
        """(q, k) turned, in one launch.

        q, k: [batch, seq, heads, head_dim], or [batch, heads, seq, head_dim] with layout "bhsd", each with heads of
        its own. positions: whole numbers [seq] or [batch, seq]; without them 0, 1, … and `offset` added.
        """
        return bct.rope(
            q, positions, x2=k, rotary_dim=self.rotary_dim, pairing=self.pairing, base=self.base, offset=offset,
            layout=layout,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.head_dim}, base={self.base}, rotary_dim={self.rotary_dim}, pairing={self.pairing!r}"
