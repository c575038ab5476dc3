"""Modules of two operands, and a norm over neighbouring channels, with torch.nn's keywords and parameters."""

from __future__ import annotations

from typing import Any

from ...nn import functional
from ..untyped import torch


class Bilinear(torch.nn.Bilinear):  # type: ignore[misc]
    """torch.nn.Bilinear: y[o] = x1ᵀ weight[o] x2 + bias[o]."""

    def forward(self, input1: Any, input2: Any) -> Any:
        """y [..., out_features] of x1 [..., in1_features] and x2 [..., in2_features]."""
        return functional.bilinear(input1, input2, self.weight, self.bias)


class CosineSimilarity(torch.nn.CosineSimilarity):  # type: ignore[misc]
    """torch.nn.CosineSimilarity along dim; a norm counts as no less than eps."""

    def forward(self, x1: Any, x2: Any) -> Any:
        """y without the axis dim."""
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(torch.nn.PairwiseDistance):  # type: ignore[misc]
    """torch.nn.PairwiseDistance: the p-norm of x1 - x2 + eps along the last axis."""

    def forward(self, x1: Any, x2: Any) -> Any:
        """y without the last axis, or with it as 1 where keepdim is set."""
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class LocalResponseNorm(torch.nn.LocalResponseNorm):  # type: ignore[misc]
    """torch.nn.LocalResponseNorm: x over (k + alpha mean of the squares of `size` channels around it) ** beta."""

    def forward(self, input: Any) -> Any:
        """y, of x's shape (batch, channels, ...) and dtype."""
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)
