"""Convolutions and transposed ones, deterministic, with the parameters and state_dict of torch.nn's."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch


class _Conv:
    """The forward of convolutions; the rest is torch.nn's. Other padding than zeros is a launch of its own before."""

    def _conv_forward(self: Any, input: Any, weight: Any, bias: Any) -> Any:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = bct.pad(input, tuple(self._reversed_padding_repeated_twice), self.padding_mode)
            padding = 0
        function = getattr(bct, f"conv{len(self.kernel_size)}d")
        return function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTranspose:
    """The forward of transposed convolutions."""

    def forward(self: Any, input: Any, output_size: Any = None) -> Any:
        """y of x [batch, channels, …]; output_size, if given, chooses among the sizes that the stride allows."""
        rank = len(self.kernel_size)
        more = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, rank, self.dilation
        )
        function = getattr(bct, f"conv_transpose{rank}d")
        return function(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class Conv1d(_Conv, torch.nn.Conv1d):  # type: ignore[misc]
    """torch.nn.Conv1d, of x (batch, channels, length), or without batch."""


class Conv2d(_Conv, torch.nn.Conv2d):  # type: ignore[misc]
    """torch.nn.Conv2d, of x (batch, channels, height, width), channels first or last."""


class Conv3d(_Conv, torch.nn.Conv3d):  # type: ignore[misc]
    """torch.nn.Conv3d, of x (batch, channels, depth, height, width), channels first or last."""


class ConvTranspose1d(_ConvTranspose, torch.nn.ConvTranspose1d):  # type: ignore[misc]
    """torch.nn.ConvTranspose1d, of x (batch, channels, length), or without batch."""


class ConvTranspose2d(_ConvTranspose, torch.nn.ConvTranspose2d):  # type: ignore[misc]
    """torch.nn.ConvTranspose2d, of x (batch, channels, height, width), channels first or last."""


class ConvTranspose3d(_ConvTranspose, torch.nn.ConvTranspose3d):  # type: ignore[misc]
    """torch.nn.ConvTranspose3d, of x (batch, channels, depth, height, width), channels first or last."""
