"""Feed-forward units: gate and up in one launch of two weights, or a product with its activation."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece, plain

# Classes of transformers.activations, and of torch.nn where it has one → our names.
ACTIVATIONS = {
    "SiLU": "silu", "SiLUActivation": "silu", "GELU": "gelu", "GELUActivation": "gelu", "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh", "ReLU": "relu",
}  # fmt: skip
GATES = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}


def activation_of(function: Any) -> str | None:
    """Our name of a module's activation, None for one that has no piece."""
    name = ACTIVATIONS.get(type(function).__name__)
    if name == "gelu" and getattr(function, "approximate", "none") == "tanh":
        return "gelu_tanh"
    return name


def _refusal(attribute: str) -> Any:
    def refusal(module: Any) -> str | None:
        function = getattr(module, attribute, None)
        if activation_of(function) is None:
            return f"its activation {type(function).__name__} has no gated unit here"
        return None

    return refusal


def gated(gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj", act: str = "act_fn") -> Piece:
    """down(act(gate x) · (up x)); the layers are the attributes of these names.

    Without gradients both products and what joins them are one launch. In training, where both products are kept for
    the backward pass anyway, and where layers are more than their weight (adapters, quantised or sharded weights,
    hooks), the layers are called, and what joins them is one launch.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any) -> Any:
            first, second, name = getattr(self, gate), getattr(self, up), activation_of(getattr(self, act))
            if not torch.is_grad_enabled() and plain(first) and plain(second):
                y = _both(x, first, second, name)
            else:
                y = getattr(bct, GATES[str(name)])(first(x), second(x))
            return getattr(self, down)(y)

        return forward

    return Piece(f"gated({gate}, {up}, {down}, {act})", make, _refusal(act))


def _both(x: Any, first: Any, second: Any, name: Any) -> Any:
    """act(first x) · (second x) in one launch: `bc.gated_linear`, of which only the product is left to the host."""
    biases = {"bias": first.bias, "up_bias": second.bias}
    given = {word: bias for word, bias in biases.items() if bias is not None}
    rows = x.reshape(-1, x.shape[-1])
    y = bct.gemm(rows, first.weight.t(), up=second.weight.t(), activation=name, **given)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def packed(gate_up: str = "gate_up_proj", down: str = "down_proj", act: str = "activation_fn") -> Piece:
    """down(act(gate) · up) where one layer gives both halves, the gate's first (Phi-3, GLM)."""

    def make(original: Forward) -> Forward:
        def forward(self: Any, hidden_states: Any) -> Any:
            both, name = getattr(self, gate_up), activation_of(getattr(self, act))
            if plain(both):
                y = bct.linear_swiglu(hidden_states, both.weight, both.bias, activation=name)
            else:
                y = getattr(bct, GATES[str(name)])(*both(hidden_states).chunk(2, dim=-1))
            return getattr(self, down)(y)

        return forward

    return Piece(f"packed({gate_up}, {down}, {act})", make, _refusal(act))


def dense(first: str, second: str, act: str) -> Piece:
    """second(act(first x)), the activation where the first product is made (GPT-NeoX, Phi, ViT)."""

    def make(original: Forward) -> Forward:
        def forward(self: Any, hidden_states: Any) -> Any:
            layer, name = getattr(self, first), activation_of(getattr(self, act))
            if plain(layer):
                y = bct.linear(hidden_states, layer.weight, layer.bias, activation=name)
            else:
                y = getattr(bct, str(name))(layer(hidden_states))
            return getattr(self, second)(y)

        return forward

    return Piece(f"dense({first}, {second}, {act})", make, _refusal(act))
