"""Linear layers with what follows them."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch

FUSED = ("relu", "gelu", "gelu_tanh", "silu")  # those that the product's epilogue has
ACTIVATIONS = ("relu", "relu_squared", "gelu", "gelu_tanh", "quick_gelu", "silu", "mish", "sigmoid", "tanh")


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear followed by an activation: y = act(x Wᵀ + bias).

    The product is `bc.linear`; relu, gelu, gelu_tanh and silu are applied where it is made, in one launch, others by a
    launch of their own.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, activation: str | None = None, **given: Any
    ) -> None:
        super().__init__(in_features, out_features, bias, **given)
        if activation is not None and activation not in ACTIVATIONS:
            raise InvalidProblemError(
                f"activation must be None or one of {', '.join(ACTIVATIONS)}, got {shown(activation)}"
            )
        self.activation = activation

    def forward(self, input: Any) -> Any:
        """[…, in_features] to […, out_features]."""
        own = self.activation if self.activation in FUSED else None
        y = bct.linear(input, self.weight, self.bias, activation=own)
        return y if self.activation == own else getattr(bct, str(self.activation))(y)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return str(super().extra_repr()) + ("" if self.activation is None else f", activation={self.activation!r}")


class SwiGLU(torch.nn.Module):  # type: ignore[misc]
    """The gated MLP of Llama (Shazeer 2020): y = (silu(x W1ᵀ) · x W3ᵀ) W2ᵀ, with W1 and W3 in one weight.

    `gate_up.weight` is [2 · hidden_features, in_features], the gate's rows first; both of its products and what joins
    them are one launch (`bc.linear_swiglu`).
    """

    def __init__(self, in_features: int, hidden_features: int, bias: bool = False, **given: Any) -> None:
        super().__init__()
        self.gate_up = Linear(in_features, 2 * hidden_features, bias, **given)
        self.down = Linear(hidden_features, in_features, bias, **given)

    def forward(self, x: Any) -> Any:
        """[…, in_features] to the same shape."""
        return self.down(bct.linear_swiglu(x, self.gate_up.weight, self.gate_up.bias))
