"""RMS and layer norm, which add a residual in the same launch."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch


class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc]
    """torch.nn.RMSNorm: y = x / sqrt(mean(x²) + eps) · weight, over the trailing `normalized_shape`."""

    def forward(self, x: Any, residual: Any = None) -> Any:
        """y, of x's shape; given `residual`, (y, h) of h = x + residual, which the next layer adds to."""
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        shape = self.normalized_shape
        return bct.rms_norm(x, self.weight, residual, normalized_shape=shape, eps=eps, return_h=residual is not None)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """torch.nn.LayerNorm: y = (x - mean) / sqrt(var + eps) · weight + bias, over the trailing `normalized_shape`."""

    def forward(self, x: Any, residual: Any = None) -> Any:
        """y, of x's shape; given `residual`, (y, h) of h = x + residual, which the next layer adds to."""
        return bct.layer_norm(
            x, self.weight, self.bias, residual, normalized_shape=self.normalized_shape, eps=self.eps,
            return_h=residual is not None,
        )  # fmt: skip
