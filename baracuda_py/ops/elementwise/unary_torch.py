"""The unary kinds in torch."""

from __future__ import annotations

from typing import Any

from .unary_kinds import UnaryKind

K = UnaryKind
_FUNCTIONAL = (
    K.RELU6, K.SELU, K.GELU, K.SILU, K.MISH, K.SOFTPLUS, K.SOFTSIGN, K.HARDTANH, K.HARDSWISH,
)  # fmt: skip
_WITH_ALPHA = (K.LEAKY_RELU, K.ELU, K.HARDSHRINK, K.SOFTSHRINK)


def unary_in_torch(torch: Any, kind: UnaryKind, x: Any, alpha: float | None = None) -> Any:
    """f(x) by torch's own function, composed where it has none."""
    functions = torch.nn.functional
    if kind in _WITH_ALPHA:
        return getattr(functions, kind.value)(x, alpha)
    if kind in _FUNCTIONAL:
        return getattr(functions, kind.value)(x)
    if kind is K.CUBE:
        return x * x * x
    if kind is K.CBRT:
        return torch.sign(x) * torch.abs(x) ** (1 / 3)
    if kind is K.HARDSIGMOID:  # the gradient of torch's own has 1/6 in float32
        return functions.relu6(x + 3) / 6
    if kind is K.LOG_SIGMOID:
        return functions.logsigmoid(x)
    if kind is K.GELU_TANH:
        return functions.gelu(x, approximate="tanh")
    return getattr(torch, kind.value)(x)
