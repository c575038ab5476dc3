"""Recurrences: functions of a modelling file, which transformers has in plain torch for what packages would do.

Short convolutions, selective scans, state-space duality and delta rules, over sequences and a step at a time over the
states of a cache, which move on in place. Like rotary positions they are names of a file and not of a module; what
ours does not take goes to the original. cu_seq_lens_q keeps the sequences of one row apart, but in Mamba's scan, whose
function has no bounds; seq_idx alone is refused as transformers' own functions refuse it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch

Function = Callable[..., Any]
ACTIVATIONS = (None, "silu", "swish")


@dataclass(frozen=True)
class Recurrence:
    """A function in the place of a file's: its name in reports, and how it is made of the original."""

    name: str
    form: Callable[[Function], Function]

    def make(self, original: Function) -> Function:
        """The function in its place."""
        return functools.wraps(original)(self.form(original))


def _alike(*operands: Any) -> bool:
    """Whether all that are there have one element, which autocast leaves as it is."""
    held = [one for one in operands if one is not None]
    return len({one.dtype for one in held}) == 1 and not torch.is_autocast_enabled(held[0].device.type)


def _wide(x: Any) -> Any:
    return torch.promote_types(x.dtype, torch.float32)


def _graded(*operands: Any) -> bool:
    """Whether autograd follows one of them, where ours has no gradient."""
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in operands)


def _dense(x: Any) -> Any:
    """x with its last axis dense in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _bounds(x: Any, given: dict[str, Any]) -> dict[str, Any]:
    """cu_seqlens of the sequences of a batch of one, if the call has it."""
    found = given.get("cu_seqlens")
    found = given.get("cu_seq_lens_q") if found is None else found
    return {} if found is None or x.shape[0] != 1 else {"cu_seqlens": found.to(torch.int32)}


def _convolution(original: Function, *, packs: bool = True) -> Function:
    """Of [batch, channels, steps]. packs: what follows keeps the sequences of a row apart, too."""

    def causal_conv1d_fn(
        hidden_states: Any, weight: Any, bias: Any = None, activation: Any = None, **given: Any
    ) -> Any:
        if activation not in ACTIVATIONS or not 2 <= weight.shape[1] <= 8 or not _alike(hidden_states, weight, bias):
            return original(hidden_states, weight, bias, activation, **given)
        index, bounds = given.get("seq_idx"), _bounds(hidden_states, given) if packs else {}
        if index is not None and not packs:
            return original(hidden_states, weight, bias, activation, **given)
        apart = bounds if index is None else {"seq_idx": index.to(torch.int32)}
        return bct.causal_conv1d(hidden_states, weight, bias, activation=activation, **apart)

    return causal_conv1d_fn


def _convolution_step(original: Function) -> Function:
    """Of [batch, channels, steps] over a state of the last inputs."""

    def causal_conv1d_update(
        hidden_states: Any, conv_state: Any, weight: Any, bias: Any = None, activation: Any = None
    ) -> Any:
        known = activation in ACTIVATIONS and 2 <= weight.shape[1] <= min(8, conv_state.shape[-1] + 1)
        same = _alike(hidden_states, conv_state, weight, bias)
        if not known or not same or _graded(hidden_states, weight, bias):
            return original(hidden_states, conv_state, weight, bias, activation)
        return bct.causal_conv1d_update(hidden_states, conv_state, weight, bias, activation=activation)

    return causal_conv1d_update


def _scan(original: Function) -> Function:
    """Mamba's, of [batch, channels, steps]."""

    def mamba_selective_scan(
        hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, delta_bias: Any = None,
        delta_softplus: bool = False, return_last_state: bool = False, **given: Any,
    ) -> Any:  # fmt: skip
        if not _alike(hidden_states, dt, B, C, z):
            return original(hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus, return_last_state, **given)
        acc = _wide(hidden_states)
        A, D, delta_bias = (None if one is None else one.to(acc) for one in (A, D, delta_bias))
        return bct.selective_scan(hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)

    return mamba_selective_scan


def _scan_step(original: Function) -> Function:
    """Mamba's, of [batch, channels] over a state."""

    def mamba_selective_state_update(
        state: Any, hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, dt_bias: Any = None,
        dt_softplus: bool = False, z: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        held, acc = (hidden_states, dt, B, C, z), _wide(hidden_states)
        if not _alike(*held) or state.dtype not in (hidden_states.dtype, acc) or _graded(*held, A, D, dt_bias):
            return original(state, hidden_states, dt, A, B, C, D, dt_bias, dt_softplus, z, **given)
        A, D, dt_bias = (None if one is None else one.to(acc) for one in (A, D, dt_bias))
        return bct.selective_state_update(state, hidden_states, dt, A, B, C, D, z, dt_bias, dt_softplus)

    return mamba_selective_state_update


def _duality(original: Function) -> Function:
    """Mamba-2's, of [batch, steps, heads, d]."""

    def mamba2_chunk_scan(
        hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, D: Any = None, dt_bias: Any = None,
        initial_states: Any = None, dt_softplus: bool = False, dt_limit: tuple[float, float] = (0.0, math.inf),
        return_final_states: bool = False, **given: Any,
    ) -> Any:  # fmt: skip
        bounds = _bounds(hidden_states, given)
        unserved = given.get("z") is not None or (given.get("seq_idx") is not None and not bounds)
        if unserved or not _alike(hidden_states, dt, B, C):
            return original(
                hidden_states, dt, A, B, C, chunk_size, D, dt_bias, initial_states, dt_softplus, dt_limit,
                return_final_states, **given,
            )  # fmt: skip
        acc, (low, high) = _wide(hidden_states), dt_limit
        A, D, dt_bias, initial_states = (
            None if one is None else one.to(acc) for one in (A, D, dt_bias, initial_states)
        )
        return bct.mamba2_ssd(
            _dense(hidden_states), dt, A, _dense(B), _dense(C), D=D, dt_bias=dt_bias, initial_states=initial_states,
            dt_softplus=dt_softplus, dt_limit=None if dt_softplus and low <= 0.0 and high == math.inf else (low, high),
            return_final_states=return_final_states, **bounds,
        )  # fmt: skip

    return mamba2_chunk_scan


def _duality_step(original: Function) -> Function:
    """Mamba-2's, of [batch, heads, d] over a state [batch, heads, d, n]; a head's numbers are expanded to its d."""

    def mamba2_selective_state_update(
        state: Any, hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, dt_bias: Any = None,
        dt_softplus: bool = False, z: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        held, acc = (hidden_states, dt, B, C, z), _wide(hidden_states)
        served = A.stride(-1) == 0 and state.is_contiguous() and state.dtype in (hidden_states.dtype, acc)
        if not served or not _alike(*held) or _graded(*held, A, D, dt_bias):
            return original(state, hidden_states, dt, A, B, C, D, dt_bias, dt_softplus, z, **given)
        batch, heads, size = hidden_states.shape
        rows = heads * size
        x, dt, z = (None if one is None else one.reshape(batch, rows) for one in (hidden_states, dt, z))
        D, dt_bias = (None if one is None else one.to(acc).reshape(rows) for one in (D, dt_bias))
        a = A[..., 0].to(acc).reshape(rows, 1).expand(rows, state.shape[-1])
        y = bct.selective_state_update(state.view(batch, rows, -1), x, dt, a, B, C, D, z, dt_bias, dt_softplus)
        return y.reshape(batch, heads, size)

    return mamba2_selective_state_update


def _delta_rule(function: str, *, step: bool) -> Callable[[Function], Function]:
    """Of [batch, steps, heads, d]; its result and the state after it."""
    stepwise = {"stepwise": True} if step and function == "gated_delta_rule" else {}

    def form(original: Function) -> Function:
        def rule(
            query: Any, key: Any, value: Any, g: Any, beta: Any, *places: Any, initial_state: Any = None,
            output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, **given: Any,
        ) -> Any:  # fmt: skip
            unserved = given.get("seq_idx") is not None and not _bounds(query, given)
            if places or unserved or not _alike(query, key, value):
                return original(
                    query, key, value, g, beta, *places, initial_state=initial_state,
                    output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, **given,
                )  # fmt: skip
            acc = _wide(query)
            made = getattr(bct, function)(
                _dense(query), _dense(key), _dense(value), g.to(acc), beta.to(acc),
                initial_state=None if initial_state is None else initial_state.to(acc),
                output_final_state=output_final_state, use_qk_l2norm=use_qk_l2norm_in_kernel,
                **_bounds(query, given), **stepwise,
            )  # fmt: skip
            return made if output_final_state else (made, None)

        return rule

    return form


CONVOLUTIONS = {
    "causal_conv1d_fn": Recurrence("causal_conv1d", _convolution),
    "causal_conv1d_update": Recurrence("causal_conv1d_update", _convolution_step),
}
MAMBA = {
    **CONVOLUTIONS, "causal_conv1d_fn": Recurrence("causal_conv1d", functools.partial(_convolution, packs=False)),
    "mamba_selective_scan": Recurrence("selective_scan", _scan),
    "mamba_selective_state_update": Recurrence("selective_state_update", _scan_step),
}  # fmt: skip
MAMBA2 = {
    **CONVOLUTIONS, "mamba2_chunk_scan": Recurrence("mamba2_ssd", _duality),
    "mamba2_selective_state_update": Recurrence("selective_state_update", _duality_step),
}  # fmt: skip
GATED_DELTA = {
    **CONVOLUTIONS,
    "torch_chunk_gated_delta_rule": Recurrence("gated_delta_rule", _delta_rule("gated_delta_rule", step=False)),
    "torch_recurrent_gated_delta_rule": Recurrence(
        "gated_delta_rule(stepwise)", _delta_rule("gated_delta_rule", step=True)
    ),
}
KIMI_DELTA = {
    **CONVOLUTIONS, "chunk_kimi_delta_attention": Recurrence("kda", _delta_rule("kda", step=False)),
    "recurrent_kimi_delta_attention": Recurrence("kda", _delta_rule("kda", step=True)),
}  # fmt: skip
