"""RMS and layer norm, which add a residual in the same launch, and batch, group and instance norm."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch


class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc]
    """torch.nn.RMSNorm: y = x / sqrt(mean(x²) + eps) · weight, over the trailing `normalized_shape`."""

    def forward(self, x: Any, residual: Any = None) -> Any:
        """y, of x's shape; given `residual`, (y, h) of h = x + residual, which the next layer adds to."""
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32  # as torch has it, and as compile traces it
        eps = torch.finfo(wide).eps if self.eps is None else self.eps
        shape = self.normalized_shape
        return bct.rms_norm(x, self.weight, residual, normalized_shape=shape, eps=eps, return_h=residual is not None)


class LayerNorm(torch.nn.LayerNorm):  # type: ignore[misc]
    """torch.nn.LayerNorm: y = (x - mean) / sqrt(var + eps) · weight + bias, over the trailing `normalized_shape`."""

    def forward(self, input: Any, residual: Any = None) -> Any:
        """y, of the input's shape; given `residual`, (y, h) of h = input + residual, which the next layer adds to."""
        return bct.layer_norm(
            input, self.weight, self.bias, residual, normalized_shape=self.normalized_shape, eps=self.eps,
            return_h=residual is not None,
        )  # fmt: skip


class _BatchNorm:
    """The forward of batch norms; the rest is torch.nn's, and so are parameters, buffers and state_dict."""

    def forward(self: Any, input: Any) -> Any:
        """y, of the input's shape; in training the running statistics are moved."""
        self._check_input_dim(input)
        momentum, tracked = self.momentum or 0.0, self.training and self.track_running_stats
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average of all batches; a number on the device, so that nothing waits
                momentum = 1.0 / self.num_batches_tracked.double()
        running = (self.running_mean, self.running_var)
        training = self.training or running == (None, None)
        kept = running if tracked or not self.training else (None, None)
        mean, var = kept
        return bct.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):  # type: ignore[misc]
    """torch.nn.BatchNorm1d, of x (batch, channels) or (batch, channels, length)."""


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):  # type: ignore[misc]
    """torch.nn.BatchNorm2d, of x (batch, channels, height, width), channels first or last."""


class BatchNorm3d(_BatchNorm, torch.nn.BatchNorm3d):  # type: ignore[misc]
    """torch.nn.BatchNorm3d, of x (batch, channels, depth, height, width), channels first or last."""


class GroupNorm(torch.nn.GroupNorm):  # type: ignore[misc]
    """torch.nn.GroupNorm, of x (batch, channels, …), channels first or last."""

    def forward(self, input: Any) -> Any:
        """y, of the input's shape."""
        return bct.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm:
    """The forward of instance norms, as `_BatchNorm`."""

    def forward(self: Any, input: Any) -> Any:
        """y, of the input's shape, which may lack the batch; in training the running statistics are moved."""
        self._check_input_dim(input)
        alone = input.dim() == self._get_no_batch_dim()
        of_input = self.training or not self.track_running_stats
        y = bct.instance_norm(
            input[None] if alone else input, self.running_mean, self.running_var, self.weight, self.bias, of_input,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return y[0] if alone else y


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):  # type: ignore[misc]
    """torch.nn.InstanceNorm1d, of x (batch, channels, length) or (channels, length)."""


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):  # type: ignore[misc]
    """torch.nn.InstanceNorm2d, of x (batch, channels, height, width) or one sample."""


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):  # type: ignore[misc]
    """torch.nn.InstanceNorm3d, of x (batch, channels, depth, height, width) or one sample."""
