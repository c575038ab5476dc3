"""Experts: the tokens in the order of their experts, two products of groups, and the weighted sums of every token."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .gated import GATES, activation_of, known_activation
from .piece import Forward, Piece, ordinary

_WEIGHTS = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
_UNITS = ("silu", "gelu", "gelu_tanh", "relu")
"""Activations that `moe` has without a gate."""


def _activation(self: Any, clamped: bool) -> str | None:
    """The unit's name in `moe`, None where it has no such unit."""
    if clamped:
        return "swiglu_oai" if (float(self.alpha), float(self.limit)) == (1.702, 7.0) else None
    return GATES.get(str(activation_of(self.act_fn)))


def _mixture(
    x: Any, chosen: Any, weights: Any, parts: list[Any], activation: str | None, order: str, unit: Any, norm: Any = None
) -> Any:  # fmt: skip
    """Σ weight · norm(down(unit(gate_up x))); parts: [experts, out, in] and biases, or None.

    activation and order are those of `moe`, where it has them; else `unit` is called between the products.
    """
    first, first_bias, second, second_bias = parts
    weights = weights.to(torch.promote_types(x.dtype, torch.float32))
    if activation is not None and norm is None:
        options: dict[str, Any] = {} if activation in _UNITS else {"order": order}
        return bct.moe(x, chosen, weights, first, second, first_bias, second_bias, activation=activation, **options)
    rows, offsets, places = bct.moe_permute(x, chosen, num_experts=first.shape[0])
    y = bct.grouped_mm(rows, first.transpose(1, 2), offsets[1:], first_bias)
    y = bct.grouped_mm(unit(y), second.transpose(1, 2), offsets[1:], second_bias)
    return bct.moe_unpermute(y if norm is None else norm(y), places, weights).to(x.dtype)


def experts(*, clamped: bool = False) -> Piece:
    """Σ weight · down(unit(gate_up x)) over a token's experts, all experts' weights in one tensor each: `moe`.

    Weights are [experts, out, in], the gate's rows first, and the unit is act(gate) · up. clamped: gpt-oss's, weights
    [experts, in, out] with biases, gate and up in turns. An expert number outside the module's adds nothing. Sums have
    a fixed order, in forward and backward.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any, experts: Any, weights: Any) -> Any:
            parts: list[Any] = [getattr(self, name, None) for name in _WEIGHTS]
            if not all(map(ordinary, parts)):
                return original(self, x, experts, weights)
            if clamped:
                parts[::2] = (one.transpose(1, 2) for one in parts[::2])
            order = "interleaved" if clamped else "gate_first"
            activation = _activation(self, clamped)
            return _mixture(x, experts, weights, parts, activation, order, getattr(self, "_apply_gate", None))

        return forward

    if clamped:
        return Piece("experts(clamped)", make)
    return Piece("experts", make, known_activation("act_fn"))


def experts_forward(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """experts_implementation="baracuda": the experts of any module of transformers that takes one by name.

    What the module says of itself decides: whether its weights are transposed, gates and ups in turns, whether there
    are biases and gates. A gate of its own, an activation that `moe` has not, and a norm behind the experts are called
    around the same two products. An expert number outside the module's, of another rank, adds nothing.
    """
    name = "gate_up_proj" if self.has_gate else "up_proj"
    names = (name, f"{name}_bias", "down_proj", "down_proj_bias")
    parts: list[Any] = [getattr(self, one) if self.has_bias or "bias" not in one else None for one in names]
    if self.is_transposed:
        parts[::2] = (one.transpose(1, 2) for one in parts[::2])
    activation, unit = None, self._apply_gate if self.has_gate else self.act_fn
    if type(self).__name__ == "GptOssExperts":
        activation = _activation(self, True)
    elif not self.has_gate:
        activation = next((one for one in _UNITS if one == activation_of(self.act_fn)), None)
    elif _plain_gate(self):
        activation = _activation(self, False)
    order = "gate_first" if self.is_concatenated else "interleaved"
    norm = self.post_expert_norm if self.has_post_expert_norm else None
    return _mixture(hidden_states, top_k_index, top_k_weights, parts, activation, order, unit, norm)


def _plain_gate(self: Any) -> bool:
    """Whether gate and up are joined as transformers joins them: act(gate) · up of the halves."""
    from transformers.integrations import moe

    return type(self)._apply_gate is moe._default_apply_gate
