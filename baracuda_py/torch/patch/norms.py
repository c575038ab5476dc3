"""Norms: one launch, with the element of their result as the models have it."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece


def rms_norm(eps: str = "variance_epsilon", *, offset: float = 0.0, result: str = "promoted") -> Piece:
    """y = x / sqrt(mean(x²) + eps) · (weight + offset), over the last axis, computed in float32.

    eps: the attribute that has it. result: the element of y, "promoted" of x's and the weight's (Llama), "input", x's
    (Gemma), or "weight", the weight's (T5). A module without a weight only normalises.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, hidden_states: Any) -> Any:
            weight = getattr(self, "weight", None)
            facts = {"eps": getattr(self, eps), "weight_offset": offset if weight is not None else 0.0}
            if weight is None or weight.dtype == hidden_states.dtype:
                return bct.rms_norm(hidden_states, weight, **facts)
            wide = torch.promote_types(weight.dtype, hidden_states.dtype)
            y = bct.rms_norm(hidden_states.to(wide), weight.to(wide), **facts)
            return y.to({"promoted": wide, "input": hidden_states.dtype, "weight": weight.dtype}[result])

        return forward

    return Piece(f"rms_norm({eps}, {offset:g}, {result})", make)


def layer_norm(eps: str = "variance_epsilon") -> Piece:
    """y = (x - mean) / sqrt(var + eps) · weight over the last axis, computed in float32, in x's element (Cohere)."""

    def make(original: Forward) -> Forward:
        def forward(self: Any, hidden_states: Any) -> Any:
            weight, shape = self.weight, tuple(self.weight.shape)
            if weight.dtype == hidden_states.dtype and weight.dim() == 1:
                return bct.layer_norm(hidden_states, weight, eps=getattr(self, eps))
            wide = hidden_states.float()
            y = bct.layer_norm(wide, normalized_shape=shape[-1:], eps=getattr(self, eps)) * weight.float()
            return y.to(hidden_states.dtype)

        return forward

    return Piece(f"layer_norm({eps})", make)


def _torch_layer_norm(original: Forward) -> Forward:
    def forward(self: Any, input: Any) -> Any:
        return bct.layer_norm(input, self.weight, self.bias, normalized_shape=self.normalized_shape, eps=self.eps)

    return forward


LAYER_NORM = Piece("layer_norm", _torch_layer_norm)  # torch.nn.LayerNorm itself
