"""Norms: one launch, with the element of their result as the models have it."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece, ordinary


def rms_norm(eps: str = "variance_epsilon", *, offset: float = 0.0, result: str = "promoted") -> Piece:
    """y = x / sqrt(mean(x²) + eps) · (weight + offset), over the last axis, computed in float32.

    eps: the attribute that has it. result: the element of y, "promoted" of x's and the weight's (Llama), "input", x's
    (Gemma, OLMo 2), or "weight", the weight's (T5). A module without a weight only normalises.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any) -> Any:
            weight = getattr(self, "weight", None)
            if not ordinary(weight):
                return original(self, x)
            facts = {"eps": getattr(self, eps), "weight_offset": offset if weight is not None else 0.0}
            if weight is None or weight.dtype == x.dtype:
                return bct.rms_norm(x, weight, **facts)
            wide = torch.promote_types(weight.dtype, x.dtype)
            y = bct.rms_norm(x.to(wide), weight.to(wide), **facts)
            return y.to({"promoted": wide, "input": x.dtype, "weight": weight.dtype}[result])

        return forward

    return Piece(f"rms_norm({eps}, {offset:g}, {result})", make)


def layer_norm(eps: str = "variance_epsilon") -> Piece:
    """y = (x - mean) / sqrt(var + eps) · weight over the last axis, computed in float32, in x's element (Cohere).

    A weight of several axes has a row for each of x's last axes, as that of queries and keys has one for each head.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any) -> Any:
            weight, facts = self.weight, {"eps": getattr(self, eps)}
            if not ordinary(weight):
                return original(self, x)
            if weight.dtype == x.dtype and weight.dim() == 1:
                return bct.layer_norm(x, weight, **facts)
            wide = torch.promote_types(x.dtype, torch.float32)
            y = bct.layer_norm(x.to(wide), normalized_shape=weight.shape[-1:], **facts)
            return (y * weight.to(wide)).to(x.dtype)

        return forward

    return Piece(f"layer_norm({eps})", make)


def _torch_layer_norm(original: Forward) -> Forward:
    def forward(self: Any, x: Any) -> Any:
        if not ordinary(self.weight):
            return original(self, x)
        return bct.layer_norm(x, self.weight, self.bias, normalized_shape=self.normalized_shape, eps=self.eps)

    return forward


LAYER_NORM = Piece("layer_norm", _torch_layer_norm)  # torch.nn.LayerNorm itself
