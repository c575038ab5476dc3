"""Images of other sizes, with torch.nn's keywords; gradients gather in a fixed order, without atomics."""

from __future__ import annotations

from typing import Any

from ...nn import functional
from ..untyped import torch


class _Upsample:
    """The forward of `interpolate`."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], of the module's size or scale_factor."""
        return functional.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )


class Upsample(_Upsample, torch.nn.Upsample):  # type: ignore[misc]
    """torch.nn.Upsample, of x (batch, channels, …) with one to three spatial axes, channels first or last."""


class UpsamplingNearest2d(_Upsample, torch.nn.UpsamplingNearest2d):  # type: ignore[misc]
    """torch.nn.UpsamplingNearest2d, of x (batch, channels, height, width)."""


class UpsamplingBilinear2d(_Upsample, torch.nn.UpsamplingBilinear2d):  # type: ignore[misc]
    """torch.nn.UpsamplingBilinear2d, of x (batch, channels, height, width), whose corners stay where they are."""


class PixelShuffle(torch.nn.PixelShuffle):  # type: ignore[misc]
    """torch.nn.PixelShuffle: (…, C r², H, W) becomes (…, C, H r, W r)."""

    def forward(self, input: Any) -> Any:
        """y of x."""
        return functional.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(torch.nn.PixelUnshuffle):  # type: ignore[misc]
    """torch.nn.PixelUnshuffle: (…, C, H r, W r) becomes (…, C r², H, W)."""

    def forward(self, input: Any) -> Any:
        """y of x."""
        return functional.pixel_unshuffle(input, self.downscale_factor)
