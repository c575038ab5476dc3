"""Feed-forward units: gate and up in one launch of two weights, or a product with its activation."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece, plain

# Classes of transformers.activations, and of torch.nn where it has one → our names.
ACTIVATIONS = {
    "SiLU": "silu", "SiLUActivation": "silu", "GELU": "gelu", "GELUActivation": "gelu", "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh", "ReLU": "relu", "QuickGELUActivation": "quick_gelu",
}  # fmt: skip
GATES = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}


def activation_of(function: Any) -> str | None:
    """Our name of a module's activation, None for one that has no piece."""
    name = ACTIVATIONS.get(type(function).__name__)
    if name == "gelu" and getattr(function, "approximate", "none") == "tanh":
        return "gelu_tanh"
    return name


def known_activation(attribute: str, units: Collection[str] = GATES) -> Any:
    """The refusal of a module whose activation, the attribute of that name, is none of these units."""

    def refusal(module: Any) -> str | None:
        function = getattr(module, attribute, None)
        if activation_of(function) not in units:
            return f"its activation {type(function).__name__} has no unit here"
        return None

    return refusal


def gated(gate: str = "gate_proj", up: str = "up_proj", then: str = "down_proj", act: str = "act_fn") -> Piece:
    """act(gate x) · (up x), and what comes after it; the layers are the attributes of these names.

    Without gradients both products and what joins them are one launch. In training, where both products are kept for
    the backward pass anyway, and where layers are more than their weight (adapters, quantised or sharded weights,
    hooks), the layers are called, and what joins them is one launch. then: names of the layers that follow, in order.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any) -> Any:
            first, second, name = getattr(self, gate), getattr(self, up), activation_of(getattr(self, act))
            if not torch.is_grad_enabled() and plain(first) and plain(second):
                y = _both(x, first, second, name)
            else:
                y = getattr(bct, GATES[str(name)])(first(x), second(x))
            return _onwards(self, then, y)

        return forward

    return Piece(f"gated({gate}, {up}, {then}, {act})", make, known_activation(act))


def _both(x: Any, first: Any, second: Any, name: Any) -> Any:
    """act(first x) · (second x) in one launch: `bc.gated_linear`, of which only the product is left to the host."""
    biases = {"bias": first.bias, "up_bias": second.bias}
    given = {word: bias for word, bias in biases.items() if bias is not None}
    rows = x.reshape(-1, x.shape[-1])
    y = bct.gemm(rows, first.weight.t(), up=second.weight.t(), activation=name, **given)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def packed(gate_up: str = "gate_up_proj", then: str = "down_proj", act: str = "activation_fn") -> Piece:
    """act(gate) · up where one layer gives both halves, the gate's first (Phi-3, GLM), and what comes after it.

    One launch where `gated` has one.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any) -> Any:
            both, name = getattr(self, gate_up), activation_of(getattr(self, act))
            if not torch.is_grad_enabled() and plain(both):
                y = bct.linear_swiglu(x, both.weight, both.bias, activation=name)
            else:
                y = getattr(bct, GATES[str(name)])(*both(x).chunk(2, dim=-1))
            return _onwards(self, then, y)

        return forward

    return Piece(f"packed({gate_up}, {then}, {act})", make, known_activation(act))


def dense(first: str, then: str, act: str, *, turned: bool = False) -> Piece:
    """act(first x), and what comes after it; most activations are made with the product (GPT-NeoX, Phi, BERT).

    turned: the layer is transformers' Conv1D, whose weight is [in, out] (GPT-2).
    """

    def make(original: Forward) -> Forward:
        kind = torch.nn.Linear
        if turned:
            from transformers.pytorch_utils import Conv1D as kind

        def forward(self: Any, x: Any) -> Any:
            layer, name = getattr(self, first), activation_of(getattr(self, act))
            if plain(layer, kind) and name in GATES:
                y = bct.linear(x, layer.weight.t() if turned else layer.weight, layer.bias, activation=name)
            else:
                y = getattr(bct, str(name))(layer(x))
            return _onwards(self, then, y)

        return forward

    parts = [part for part in (first, then, act, "turned" if turned else "") if part]
    return Piece(f"dense({', '.join(parts)})", make, known_activation(act, (*GATES, "quick_gelu")))


def _onwards(self: Any, then: str, y: Any) -> Any:
    """The layers of these names, one after the other; T5's wo, which may be kept in float32, takes its own element."""
    for name in then.split():
        layer = getattr(self, name)
        if name == "wo" and torch.is_tensor(layer.weight) and layer.weight.dtype not in (y.dtype, torch.int8):
            y = y.to(layer.weight.dtype)
        y = layer(y)
    return y
