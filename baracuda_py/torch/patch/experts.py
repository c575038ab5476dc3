"""Experts: the tokens in the order of their experts, two products of groups, and the weighted sums of every token."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .gated import GATES, activation_of, known_activation
from .piece import Forward, Piece, ordinary

_WEIGHTS = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")


def _gated(self: Any, gate_up: Any) -> Any:
    return getattr(bct, GATES[str(activation_of(self.act_fn))])(gate_up)


def _clamped(self: Any, gate_up: Any) -> Any:
    """gpt-oss's unit; the kernel has no gradient, so that of a module in training is the module's own."""
    if torch.is_grad_enabled() and gate_up.requires_grad:
        return self._apply_gate(gate_up)
    return bct.swiglu_oai(gate_up, alpha=float(self.alpha), limit=float(self.limit))


def experts(*, clamped: bool = False) -> Piece:
    """Σ weight · down(unit(gate_up x)) over a token's experts, all experts' weights in one tensor each.

    Weights are [experts, out, in], the gate's rows first, and the unit is act(gate) · up. clamped: gpt-oss's, weights
    [experts, in, out] with biases, gate and up in turns. An expert number outside the module's adds nothing. Sums have
    a fixed order, in forward and backward.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any, experts: Any, weights: Any) -> Any:
            parts: list[Any] = [getattr(self, name, None) for name in _WEIGHTS]
            if not all(map(ordinary, parts)):
                return original(self, x, experts, weights)
            first, first_bias, second, second_bias = parts
            if not clamped:
                first, second = first.transpose(1, 2), second.transpose(1, 2)
            rows, offsets, places = bct.moe_permute(x, experts, num_experts=self.num_experts)
            y = bct.grouped_mm(rows, first, offsets[1:], first_bias)
            y = bct.grouped_mm((_clamped if clamped else _gated)(self, y), second, offsets[1:], second_bias)
            weights = weights.to(torch.promote_types(y.dtype, torch.float32))
            return bct.moe_unpermute(y, places, weights).to(x.dtype)

        return forward

    if clamped:
        return Piece("experts(clamped)", make)
    return Piece("experts", make, known_activation("act_fn"))
