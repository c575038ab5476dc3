"""Modules that move elements, with torch.nn's keywords: windows in columns, channels among each other."""

from __future__ import annotations

from typing import Any

from ...nn import functional
from ..untyped import torch


class Fold(torch.nn.Fold):  # type: ignore[misc]
    """torch.nn.Fold: columns of windows, added up to images; in the order of the windows, so with the same bits."""

    def forward(self, input: Any) -> Any:
        """Images [batch, channels, *output_size] of columns [batch, channels * prod(kernel_size), windows]."""
        given = (self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
        return functional.fold(input, *given)


class Unfold(torch.nn.Unfold):  # type: ignore[misc]
    """torch.nn.Unfold: the windows of images as columns."""

    def forward(self, input: Any) -> Any:
        """y [batch, channels * prod(kernel_size), windows] of x [batch, channels, height, width], or without batch."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class ChannelShuffle(torch.nn.ChannelShuffle):  # type: ignore[misc]
    """torch.nn.ChannelShuffle: channel g * n + i of `groups` groups of n goes to i * groups + g."""

    def forward(self, input: Any) -> Any:
        """y, of x's shape and dtype."""
        return functional.channel_shuffle(input, self.groups)
