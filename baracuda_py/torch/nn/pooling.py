"""Pools, with torch.nn's keywords; their gradients have the same bits in every run."""

from __future__ import annotations

from typing import Any

from ...nn import functional
from ..untyped import torch


class _MaxPool:
    """The forward of maximum pools; NaN propagates, and of equal elements the first is the maximum."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], or without batch; with return_indices also where each maximum is."""
        return getattr(functional, self._function)(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPool, torch.nn.MaxPool1d):  # type: ignore[misc]
    """torch.nn.MaxPool1d, of x (batch, channels, length), or without batch."""

    _function = "max_pool1d"


class MaxPool2d(_MaxPool, torch.nn.MaxPool2d):  # type: ignore[misc]
    """torch.nn.MaxPool2d, of x (batch, channels, height, width), channels first or last."""

    _function = "max_pool2d"


class MaxPool3d(_MaxPool, torch.nn.MaxPool3d):  # type: ignore[misc]
    """torch.nn.MaxPool3d, of x (batch, channels, depth, height, width), channels first or last."""

    _function = "max_pool3d"


class _AvgPool:
    """The forward of means."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], or without batch."""
        given = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        divisor = getattr(self, "divisor_override", None)
        return getattr(functional, self._function)(input, *given, divisor_override=divisor)


class AvgPool1d(_AvgPool, torch.nn.AvgPool1d):  # type: ignore[misc]
    """torch.nn.AvgPool1d, of x (batch, channels, length), or without batch."""

    _function = "avg_pool1d"


class AvgPool2d(_AvgPool, torch.nn.AvgPool2d):  # type: ignore[misc]
    """torch.nn.AvgPool2d, of x (batch, channels, height, width), channels first or last."""

    _function = "avg_pool2d"


class AvgPool3d(_AvgPool, torch.nn.AvgPool3d):  # type: ignore[misc]
    """torch.nn.AvgPool3d, of x (batch, channels, depth, height, width), channels first or last."""

    _function = "avg_pool3d"


class _LPPool:
    """The forward of p-norms; a window that ceil_mode cuts has the norm of what it has, where torch weighs that up."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], or without batch."""
        given = (float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return getattr(functional, self._function)(input, *given)


class LPPool1d(_LPPool, torch.nn.LPPool1d):  # type: ignore[misc]
    """torch.nn.LPPool1d, of x (batch, channels, length), or without batch."""

    _function = "lp_pool1d"


class LPPool2d(_LPPool, torch.nn.LPPool2d):  # type: ignore[misc]
    """torch.nn.LPPool2d, of x (batch, channels, height, width), channels first or last."""

    _function = "lp_pool2d"


class LPPool3d(_LPPool, torch.nn.LPPool3d):  # type: ignore[misc]
    """torch.nn.LPPool3d, of x (batch, channels, depth, height, width), channels first or last."""

    _function = "lp_pool3d"


class _Adaptive:
    """The forward of pools whose windows cut an axis into a given number of parts."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], or without batch; an output size of None is that of x."""
        size, rank = self.output_size, int(self._function[-2])
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * rank
        sizes = tuple(n if m is None else m for n, m in zip(input.shape[-rank:], sizes, strict=True))
        more = {"return_indices": True} if getattr(self, "return_indices", False) else {}
        return getattr(functional, self._function)(input, sizes, **more)


class AdaptiveAvgPool1d(_Adaptive, torch.nn.AdaptiveAvgPool1d):  # type: ignore[misc]
    """torch.nn.AdaptiveAvgPool1d, of x (batch, channels, length), or without batch."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive, torch.nn.AdaptiveAvgPool2d):  # type: ignore[misc]
    """torch.nn.AdaptiveAvgPool2d, of x (batch, channels, height, width), channels first or last."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive, torch.nn.AdaptiveAvgPool3d):  # type: ignore[misc]
    """torch.nn.AdaptiveAvgPool3d, of x (batch, channels, depth, height, width), channels first or last."""

    _function = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_Adaptive, torch.nn.AdaptiveMaxPool1d):  # type: ignore[misc]
    """torch.nn.AdaptiveMaxPool1d, of x (batch, channels, length), or without batch."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_Adaptive, torch.nn.AdaptiveMaxPool2d):  # type: ignore[misc]
    """torch.nn.AdaptiveMaxPool2d, of x (batch, channels, height, width), channels first or last."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_Adaptive, torch.nn.AdaptiveMaxPool3d):  # type: ignore[misc]
    """torch.nn.AdaptiveMaxPool3d, of x (batch, channels, depth, height, width), channels first or last."""

    _function = "adaptive_max_pool3d"


class _Fractional:
    """The forward of maximum pools whose windows begin at random places, which torch's generator draws."""

    def forward(self: Any, input: Any) -> Any:
        """y of x [batch, channels, …], or without batch; with return_indices also where each maximum is."""
        rank, samples = int(self._function[-2]), self._random_samples
        x = input if input.dim() == rank + 2 else input.unsqueeze(0)
        if samples is None:
            samples = torch.rand(*x.shape[:2], rank, dtype=x.dtype, device=x.device)
        end = "_with_indices" if self.return_indices else ""
        facts = {"output_size": self.output_size, "output_ratio": self.output_ratio, "samples": samples}
        made = getattr(functional, f"{self._function}{end}")(x, self.kernel_size, **facts)
        if input.dim() == x.dim():
            return made
        return made.squeeze(0) if not self.return_indices else tuple(one.squeeze(0) for one in made)


class FractionalMaxPool2d(_Fractional, torch.nn.FractionalMaxPool2d):  # type: ignore[misc]
    """torch.nn.FractionalMaxPool2d, of x (batch, channels, height, width)."""

    _function = "fractional_max_pool2d"


class FractionalMaxPool3d(_Fractional, torch.nn.FractionalMaxPool3d):  # type: ignore[misc]
    """torch.nn.FractionalMaxPool3d, of x (batch, channels, depth, height, width)."""

    _function = "fractional_max_pool3d"


class _MaxUnpool:
    """The forward of what puts maxima back into their places among zeros."""

    def forward(self: Any, input: Any, indices: Any, output_size: Any = None) -> Any:
        """y of x and the indices of a maximum pool; output_size chooses among the sizes that the stride allows."""
        given = (self.kernel_size, self.stride, self.padding, output_size)
        return getattr(functional, self._function)(input, indices, *given)


class MaxUnpool1d(_MaxUnpool, torch.nn.MaxUnpool1d):  # type: ignore[misc]
    """torch.nn.MaxUnpool1d, of x and indices (batch, channels, length)."""

    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool, torch.nn.MaxUnpool2d):  # type: ignore[misc]
    """torch.nn.MaxUnpool2d, of x and indices (batch, channels, height, width)."""

    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool, torch.nn.MaxUnpool3d):  # type: ignore[misc]
    """torch.nn.MaxUnpool3d, of x and indices (batch, channels, depth, height, width)."""

    _function = "max_unpool3d"
