"""Activations, with torch.nn's keywords.

inplace=True writes into x where no gradient is recorded; where one is, the result is a new tensor, as the gradient
needs what x was.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...nn import functional
from ..untyped import torch


class Activation:
    """A function of x and of the settings that `_settings` names."""

    _function: ClassVar[str]
    _settings: ClassVar[tuple[str, ...]] = ()

    def forward(self: Any, input: Any) -> Any:
        """y, of x's shape and dtype."""
        given = {name: getattr(self, name) for name in self._settings}
        if getattr(self, "inplace", False) and not (torch.is_grad_enabled() and input.requires_grad):
            given["inplace"] = True
        return getattr(functional, self._function)(input, **given)


class CELU(Activation, torch.nn.CELU):  # type: ignore[misc]
    """torch.nn.CELU: max(x, 0) + min(alpha (exp(x / alpha) - 1), 0)."""

    _function, _settings = "celu", ("alpha",)


class ELU(Activation, torch.nn.ELU):  # type: ignore[misc]
    """torch.nn.ELU: x, or alpha (exp(x) - 1) where x < 0."""

    _function, _settings = "elu", ("alpha",)


class GELU(Activation, torch.nn.GELU):  # type: ignore[misc]
    """torch.nn.GELU: x Φ(x), or its approximation by tanh."""

    _function, _settings = "gelu", ("approximate",)


class Hardshrink(Activation, torch.nn.Hardshrink):  # type: ignore[misc]
    """torch.nn.Hardshrink: x where |x| > lambd, else 0."""

    _function, _settings = "hardshrink", ("lambd",)


class Hardsigmoid(Activation, torch.nn.Hardsigmoid):  # type: ignore[misc]
    """torch.nn.Hardsigmoid: x / 6 + 1/2 between 0 and 1."""

    _function = "hardsigmoid"


class Hardswish(Activation, torch.nn.Hardswish):  # type: ignore[misc]
    """torch.nn.Hardswish: x times Hardsigmoid."""

    _function = "hardswish"


class Hardtanh(Activation, torch.nn.Hardtanh):  # type: ignore[misc]
    """torch.nn.Hardtanh: x between min_val and max_val."""

    _function, _settings = "hardtanh", ("min_val", "max_val")


class LeakyReLU(Activation, torch.nn.LeakyReLU):  # type: ignore[misc]
    """torch.nn.LeakyReLU: x, or negative_slope x where x < 0."""

    _function, _settings = "leaky_relu", ("negative_slope",)


class LogSigmoid(Activation, torch.nn.LogSigmoid):  # type: ignore[misc]
    """torch.nn.LogSigmoid: -log(1 + exp(-x))."""

    _function = "logsigmoid"


class Mish(Activation, torch.nn.Mish):  # type: ignore[misc]
    """torch.nn.Mish: x tanh(log(1 + exp(x)))."""

    _function = "mish"


class PReLU(Activation, torch.nn.PReLU):  # type: ignore[misc]
    """torch.nn.PReLU: x, or weight x where x < 0; one weight, or one for each channel, axis 1."""

    _function, _settings = "prelu", ("weight",)


class RReLU(Activation, torch.nn.RReLU):  # type: ignore[misc]
    """torch.nn.RReLU: in training LeakyReLU of a slope drawn for each element, else of the middle one."""

    _function, _settings = "rrelu", ("lower", "upper", "training")


class ReLU(Activation, torch.nn.ReLU):  # type: ignore[misc]
    """torch.nn.ReLU: max(x, 0); NaN stays."""

    _function = "relu"


class ReLU6(Activation, torch.nn.ReLU6):  # type: ignore[misc]
    """torch.nn.ReLU6: x between 0 and 6."""

    _function = "relu6"


class SELU(Activation, torch.nn.SELU):  # type: ignore[misc]
    """torch.nn.SELU: ELU with the scales of Klambauer et al. 2017."""

    _function = "selu"


class SiLU(Activation, torch.nn.SiLU):  # type: ignore[misc]
    """torch.nn.SiLU: x times its sigmoid."""

    _function = "silu"


class Sigmoid(Activation, torch.nn.Sigmoid):  # type: ignore[misc]
    """torch.nn.Sigmoid: 1 / (1 + exp(-x))."""

    _function = "sigmoid"


class Softplus(Activation, torch.nn.Softplus):  # type: ignore[misc]
    """torch.nn.Softplus: log(1 + exp(beta x)) / beta, and x where beta x > threshold."""

    _function, _settings = "softplus", ("beta", "threshold")


class Softshrink(Activation, torch.nn.Softshrink):  # type: ignore[misc]
    """torch.nn.Softshrink: x moved toward 0 by lambd."""

    _function, _settings = "softshrink", ("lambd",)


class Softsign(Activation, torch.nn.Softsign):  # type: ignore[misc]
    """torch.nn.Softsign: x / (1 + |x|)."""

    _function = "softsign"


class Tanh(Activation, torch.nn.Tanh):  # type: ignore[misc]
    """torch.nn.Tanh."""

    _function = "tanh"


class Tanhshrink(Activation, torch.nn.Tanhshrink):  # type: ignore[misc]
    """torch.nn.Tanhshrink: x - tanh(x)."""

    _function = "tanhshrink"


class Threshold(Activation, torch.nn.Threshold):  # type: ignore[misc]
    """torch.nn.Threshold: x where it is above threshold, else value."""

    _function, _settings = "threshold", ("threshold", "value")


class GLU(Activation, torch.nn.GLU):  # type: ignore[misc]
    """torch.nn.GLU: the first half of x along dim times the sigmoid of the second."""

    _function, _settings = "glu", ("dim",)


class _Softmax:
    """A softmax along dim; without dim along the axis that torch takes: 0 of 0, 1 or 3 dimensions, else 1."""

    _function: ClassVar[str]

    def forward(self: Any, input: Any) -> Any:
        """y, of x's shape and dtype."""
        dim = getattr(self, "dim", -3)
        return getattr(functional, self._function)(input, int(input.ndim not in (0, 1, 3)) if dim is None else dim)


class LogSoftmax(_Softmax, torch.nn.LogSoftmax):  # type: ignore[misc]
    """torch.nn.LogSoftmax."""

    _function = "log_softmax"


class Softmax(_Softmax, torch.nn.Softmax):  # type: ignore[misc]
    """torch.nn.Softmax."""

    _function = "softmax"


class Softmax2d(_Softmax, torch.nn.Softmax2d):  # type: ignore[misc]
    """torch.nn.Softmax2d: over the channels of x (batch, channels, height, width), or without batch."""

    _function = "softmax"


class Softmin(_Softmax, torch.nn.Softmin):  # type: ignore[misc]
    """torch.nn.Softmin: the softmax of -x."""

    _function = "softmin"
