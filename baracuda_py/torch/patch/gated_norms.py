"""Norms with a gate behind or before them, and RecurrentGemma's recurrence."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch
from .piece import Forward, Piece, ordinary


def gated_norm(gate: str = "swiglu", *, first: bool = False) -> Piece:
    """y = norm(x) · weight · act(gate), or norm(x · silu(gate)) · weight, of groups of the last axis.

    gate: "swiglu" for silu, "glu" for a sigmoid. first: the gate comes before the norm, unless the module's
    norm_before_gate says otherwise. Groups are the module's group_size or n_groups.
    """

    def make(original: Forward) -> Forward:
        def forward(self: Any, x: Any, g: Any = None) -> Any:
            weight = self.weight
            elements = {weight.dtype, x.dtype} | ({g.dtype} if g is not None else set())
            if not ordinary(weight) or len(elements) > 1 or torch.is_autocast_enabled(x.device.type):
                return original(self, x, g)
            before = first and not getattr(self, "norm_before_gate", False)
            if g is not None and before:
                x = getattr(bct, gate)(g, x)
            size = x.shape[-1] // getattr(self, "n_groups", 1)
            y = _normed(x, weight, getattr(self, "group_size", size), self.variance_epsilon)
            return y if g is None or before else getattr(bct, gate)(g, y)

        return forward

    return Piece(f"gated_rms_norm({gate}, {'gate first' if first else 'norm first'})", make)


def _normed(x: Any, weight: Any, size: int, eps: float) -> Any:
    if size == x.shape[-1]:
        return bct.rms_norm(x, weight, eps=eps)
    y = bct.rms_norm(x.reshape(*x.shape[:-1], -1, size), normalized_shape=(size,), eps=eps)
    return bct.mul(y.reshape(x.shape), weight)


class _Scanning:
    """A layer of RG-LRU as its own forward sees it where the recurrence is one op."""

    def __init__(self, layer: Any) -> None:
        self.__dict__["_layer"] = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._layer, name, value)

    def _rnn_scan(self, hidden_states: Any, recurrent_gate: Any, reset: Any, recurrent_states: Any) -> tuple[Any, Any]:
        """(h in the input's element, the last h) of h[t] = gate[t] h[t - 1] + x[t], where a reset forgets."""
        wide = torch.promote_types(hidden_states.dtype, torch.float32)
        a = (recurrent_gate * ~reset).to(wide)
        before = None if recurrent_states is None else recurrent_states.to(wide)
        h, last = bct.linear_scan(a, hidden_states.to(wide), before, axis=1, return_carry=True)
        return h.to(hidden_states.dtype), last


def _rglru(original: Forward) -> Forward:
    def forward(self: Any, activations: Any, position_ids: Any) -> Any:
        return original(_Scanning(self), activations, position_ids)

    return forward


RGLRU = Piece("linear_scan", _rglru)
