"""What the layers of gated linear attention share: their cache, padded batches, and short convolutions."""

from __future__ import annotations

from typing import Any

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .short_conv import ShortConvolution

PROJECTED = ("q", "k", "v")


class RecurrentCache:
    """What each layer keeps between calls: its recurrent state, its convolutions' last inputs, the steps it has seen.

    Layers take it as `past_key_values` and find their part by layer_idx; a layer's part is a dict of "recurrent_state",
    [sequences, heads, d_k, d_v], and "conv_state". flash-linear-attention's caches of that interface serve as well,
    where their states have the same order of axes.
    """

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, layer_idx: int) -> dict[str, Any]:
        return self.states[layer_idx]

    def update(
        self, recurrent_state: Any = None, conv_state: Any = None, layer_idx: int = 0, offset: int = 1, **_: Any
    ) -> dict[str, Any]:
        """Keep a layer's states after `offset` more steps."""
        while len(self.states) <= layer_idx:
            self.states.append({"recurrent_state": None, "conv_state": None})
            self.seen.append(0)
        self.states[layer_idx] = {"recurrent_state": recurrent_state, "conv_state": conv_state}
        self.seen[layer_idx] += offset
        return self.states[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many steps a layer has seen."""
        return self.seen[layer_idx] if layer_idx < len(self.seen) else 0

    def reorder(self, order: Any) -> None:
        """Take other sequences in the place of these, as beam search does; order: indices of sequences."""

        def taken(one: Any) -> Any:
            if one is None or not isinstance(one, tuple):
                return None if one is None else one.index_select(0, order)
            return tuple(taken(part) for part in one)

        self.states = [{name: taken(one) for name, one in state.items()} for state in self.states]


class Gated(torch.nn.Module):  # type: ignore[misc]
    """Base of the layers: forward(hidden_states, attention_mask, past_key_values, use_cache, cu_seqlens=…).

    hidden_states [batch, steps, hidden_size]; attention_mask [batch, steps], 0 of padding, whose rows are packed out
    and come back as zeros, for which the host waits; cu_seqlens: sequences packed into a batch of 1. The result is
    (y, None, past_key_values), flash-linear-attention's. Without gradients or with mode="fused_recurrent", up to 64
    steps at a time go step by step, in the bits of decoding.
    """

    layer_idx: Any = None
    mode = "chunk"

    def forward(
        self, hidden_states: Any, attention_mask: Any = None, past_key_values: Any = None, use_cache: bool = False,
        output_attentions: bool = False, *, cu_seqlens: Any = None, **more: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """(y, None, past_key_values)."""
        if hidden_states.dim() != 3:
            raise InvalidProblemError(f"hidden_states must be [batch, steps, size], got {tuple(hidden_states.shape)}")
        keeps = bool(use_cache) and past_key_values is not None
        if past_key_values is not None and self.layer_idx is None:
            raise InvalidProblemError("layer_idx must be given to a layer that is called with past_key_values")
        before = None
        if past_key_values is not None and len(past_key_values) > self.layer_idx:
            before = past_key_values[self.layer_idx]
        batch, steps, _ = hidden_states.shape
        rows = None
        if attention_mask is not None and cu_seqlens is None:
            rows, cu_seqlens = _packed(attention_mask, batch, steps)
            hidden_states = hidden_states.flatten(0, 1).index_select(0, rows)[None]
        offset = 0 if past_key_values is None else past_key_values.get_seq_length(self.layer_idx)
        y, state, conv = self.mixed(hidden_states, before or {}, keeps, cu_seqlens, offset, **more)
        if keeps:
            past_key_values.update(recurrent_state=state, conv_state=conv, layer_idx=self.layer_idx, offset=steps)
        if rows is not None:
            y = y.new_zeros(batch * steps, y.shape[-1]).index_copy(0, rows, y[0]).unflatten(0, (batch, steps))
        return y, None, past_key_values

    def mixed(
        self, x: Any, before: dict[str, Any], keeps: bool, cu_seqlens: Any, offset: int, **more: Any
    ) -> tuple[Any, Any, Any]:
        """(y, state, conv_state) of x, after the states `before`; offset: how many steps the cache has seen."""
        raise NotImplementedError

    def stepwise(self, steps: int) -> bool:
        """Whether so many steps go step by step."""
        return self.mode == "fused_recurrent" or (steps <= 64 and not self.training)

    def _chosen(self, mode: str, *others: str) -> None:
        modes = ("chunk", "fused_recurrent", *others)
        if mode not in modes:
            raise InvalidProblemError(f"mode must be one of {', '.join(modes)}, got {shown(mode)}")
        self.mode = mode

    def _convolutions(self, size: int, bias: bool, widths: tuple[int, int, int], *acts: str | None) -> None:
        """q_conv1d, k_conv1d and v_conv1d."""
        for name, width, act in zip(PROJECTED, widths, acts or ("silu",) * 3, strict=True):
            setattr(self, f"{name}_conv1d", ShortConvolution(width, size, bias=bias, activation=act))

    def _convolved(
        self, parts: list[Any], before: dict[str, Any], keeps: bool, cu_seqlens: Any
    ) -> tuple[list[Any], Any]:
        """q, k and v behind their convolutions, and what those keep."""
        held = before.get("conv_state") or (None, None, None)
        made = [
            getattr(self, f"{name}_conv1d")(part, cache=cache, output_final_state=keeps, cu_seqlens=cu_seqlens)
            for name, part, cache in zip(PROJECTED, parts, held, strict=True)
        ]
        return [y for y, _ in made], tuple(last for _, last in made) if keeps else None


def _packed(mask: Any, batch: int, steps: int) -> tuple[Any, Any]:
    """The rows that a mask keeps, and the bounds of its sequences."""
    if mask.dim() != 2 or mask.shape[0] != batch or mask.shape[1] < steps:
        raise InvalidProblemError(
            f"attention_mask must be [batch, steps] = {(batch, steps)}, 0 of padding, got {tuple(mask.shape)}"
        )
    kept = mask[:, mask.shape[1] - steps :] != 0
    bounds = torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    return kept.flatten().nonzero()[:, 0], bounds


def divided(total: float, parts: int, what: str) -> int:
    """total / parts, which must be a whole number above 0."""
    whole = round(total)
    if parts < 1 or whole < 1 or abs(total - whole) > 1e-5 * whole or whole % parts:
        raise InvalidProblemError(f"{what} must be a multiple of {parts}, got {total:g}")
    return whole // parts
