"""Mamba and Mamba-2 layers, with the parameters and constructor keywords of mamba-ssm's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError, UnsupportedError
from ..untyped import torch
from .gated_norm import RMSNormGated
from .linear import Linear
from .short_conv import convolved, stepped


@dataclass
class InferenceParams:
    """What layers keep between calls, each under its layer_idx, and how many steps all sequences have had.

    The caller raises seqlen_offset; 0 is the call that reads a prompt. mamba-ssm's object of this name serves as well.
    """

    max_seqlen: int = 0
    max_batch_size: int = 0
    seqlen_offset: int = 0
    key_value_memory_dict: dict[int, Any] = field(default_factory=dict)


def wide(dtype: Any) -> Any:
    """The element of decays and states beside operands: float32, of float64 that."""
    return torch.promote_types(dtype, torch.float32)


def inverse_softplus_of_steps(count: int, low: float, high: float, floor: float, **given: Any) -> Any:
    """b such that softplus(b) is log-uniform in [low, high], and at least `floor`."""
    logs = torch.rand(count, **given) * (math.log(high) - math.log(low)) + math.log(low)
    dt = logs.exp().clamp(min=floor)
    return dt + torch.log(-torch.expm1(-dt))


class _StateSpace(torch.nn.Module):  # type: ignore[misc]
    """The cache of both layers: the last d_conv inputs of the convolution, and the state, float32 unless asked."""

    def _cached(self: Any, params: Any, batch: int) -> Any:
        if params is None:
            return None
        if self.layer_idx is None:
            raise InvalidProblemError("layer_idx must be given to a layer that is called with inference_params")
        held = params.key_value_memory_dict
        if self.layer_idx not in held:
            held[self.layer_idx] = self.allocate_inference_cache(batch, 0)
        return held[self.layer_idx]

    def allocate_inference_cache(
        self: Any, batch_size: int, max_seqlen: int, dtype: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        """(conv_state [batch, channels, d_conv], ssm_state) of 0; dtype: of both, default the weight's and float32."""
        weight = self.conv1d.weight
        conv = torch.zeros(batch_size, weight.shape[0], self.d_conv, device=weight.device, dtype=dtype or weight.dtype)
        shape = (batch_size, *self._state_shape())
        return conv, torch.zeros(shape, device=weight.device, dtype=dtype or wide(weight.dtype))


class Mamba(_StateSpace):
    """Mamba's layer (Gu and Dao 2023, arXiv:2312.00752): y [batch, steps, d_model] of the same shape.

    x, z = in_proj(u); x = silu(conv(x)); dt, B, C = x_proj(x); y = out_proj(selective_scan(x, dt_proj(dt), -exp(A_log),
    B, C, D, z)). Parameters, state_dict and keywords of mamba-ssm's `Mamba`; use_fast_path is there for its calls.
    """

    def __init__(
        self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2, dt_rank: int | str = "auto",
        dt_min: float = 0.001, dt_max: float = 0.1, dt_init: str = "random", dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4, conv_bias: bool = True, bias: bool = False, use_fast_path: bool = True,
        layer_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        given = {"device": device, "dtype": dtype}
        if dt_init not in ("random", "constant"):
            raise InvalidProblemError(f'dt_init must be "random" or "constant", got {shown(dt_init)}')
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner, self.layer_idx = int(expand * d_model), layer_idx
        self.dt_rank = -(-d_model // 16) if dt_rank == "auto" else int(dt_rank)
        self.in_proj = Linear(d_model, 2 * self.d_inner, bias, **given)
        self.conv1d = torch.nn.Conv1d(
            self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1, bias=conv_bias, **given
        )
        self.x_proj = Linear(self.d_inner, self.dt_rank + 2 * d_state, False, **given)
        self.dt_proj = Linear(self.dt_rank, self.d_inner, True, **given)
        bound = self.dt_rank**-0.5 * dt_scale
        with torch.no_grad():
            if dt_init == "constant":
                self.dt_proj.weight.fill_(bound)
            else:
                self.dt_proj.weight.uniform_(-bound, bound)
            self.dt_proj.bias.copy_(
                inverse_softplus_of_steps(self.d_inner, dt_min, dt_max, dt_init_floor, device=device)
            )
        logs = torch.arange(1, d_state + 1, dtype=torch.float32, device=device).log()
        self.A_log = torch.nn.Parameter(logs.repeat(self.d_inner, 1))
        self.D = torch.nn.Parameter(torch.ones(self.d_inner, device=device))
        for one in (self.A_log, self.D):
            one._no_weight_decay = True
        self.out_proj = Linear(self.d_inner, d_model, bias, **given)

    def _state_shape(self) -> tuple[int, ...]:
        return self.d_inner, self.d_state

    def forward(self, hidden_states: Any, inference_params: Any = None) -> Any:
        """y of hidden_states [batch, steps, d_model].

        inference_params: its seqlen_offset is 0 where the states begin anew, else each of the steps moves them on.
        """
        cache = self._cached(inference_params, hidden_states.shape[0])
        if cache is not None and inference_params.seqlen_offset > 0:
            return self._steps(hidden_states, *cache)
        x, z = self.in_proj(hidden_states).chunk(2, dim=-1)
        x, last = convolved(self.conv1d, x, "silu", final=cache is not None)
        dt, b, c = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        acc = wide(x.dtype)
        turned = [one.transpose(1, 2) for one in (x, bct.linear(dt, self.dt_proj.weight), b, c, z)]
        made = bct.selective_scan(
            turned[0], turned[1], -torch.exp(self.A_log.to(acc)), turned[2], turned[3], self.D.to(acc), turned[4],
            self.dt_proj.bias.to(acc), delta_softplus=True, return_last_state=cache is not None,
        )  # fmt: skip
        y = made
        if cache is not None:
            y, state = made
            cache[0].copy_(last)
            cache[1].copy_(state)
        return self.out_proj(y.transpose(1, 2))

    def _steps(self, hidden_states: Any, conv_state: Any, ssm_state: Any) -> Any:
        ys = [self.step(hidden_states[:, t : t + 1], conv_state, ssm_state)[0] for t in range(hidden_states.shape[1])]
        return ys[0] if len(ys) == 1 else torch.cat(ys, 1)

    def step(self, hidden_states: Any, conv_state: Any, ssm_state: Any) -> tuple[Any, Any, Any]:
        """(y, conv_state, ssm_state) of the next step [batch, 1, d_model], without gradient; both move on in place."""
        with torch.no_grad():
            x, z = self.in_proj(_one(hidden_states)).chunk(2, dim=-1)
            x = stepped(self.conv1d, x, "silu", conv_state)
            dt, b, c = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
            acc = wide(x.dtype)
            y = bct.selective_state_update(
                ssm_state, x, bct.linear(dt, self.dt_proj.weight), -torch.exp(self.A_log.to(acc)), b, c,
                self.D.to(acc), z, self.dt_proj.bias.to(acc), dt_softplus=True,
            )  # fmt: skip
            return self.out_proj(y).unsqueeze(1), conv_state, ssm_state


class Mamba2(_StateSpace):
    """Mamba-2's layer (Dao and Gu 2024, arXiv:2405.21060): y [batch, steps, d_model] of the same shape.

    z, x, B, C, dt = in_proj(u); x, B, C = silu(conv(x, B, C)); y = out_proj(norm(ssd(x, dt, -exp(A_log), B, C, D), z)).
    Parameters, state_dict and keywords of mamba-ssm's `Mamba2`. d_ssm below expand · d_model leaves the rest to a gated
    unit, silu(z0) · x0. chunk_size, use_mem_eff_path and sequence_parallel are there for its calls; a process_group is
    refused.
    """

    def __init__(
        self, d_model: int, d_state: int = 128, d_conv: int = 4, conv_init: float | None = None, expand: int = 2,
        headdim: int = 64, d_ssm: int | None = None, ngroups: int = 1, A_init_range: tuple[float, float] = (1, 16),
        D_has_hdim: bool = False, rmsnorm: bool = True, norm_before_gate: bool = False, dt_min: float = 0.001,
        dt_max: float = 0.1, dt_init_floor: float = 1e-4, dt_limit: tuple[float, float] = (0.0, float("inf")),
        bias: bool = False, conv_bias: bool = True, chunk_size: int = 256, use_mem_eff_path: bool = True,
        layer_idx: int | None = None, process_group: Any = None, sequence_parallel: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if process_group is not None:
            raise UnsupportedError("process_group must be None: Mamba2 has no tensor-parallel form here")
        given = {"device": device, "dtype": dtype}
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner, self.headdim, self.ngroups = int(expand * d_model), headdim, ngroups
        self.d_ssm, self.layer_idx = self.d_inner if d_ssm is None else d_ssm, layer_idx
        if self.d_ssm % headdim or self.d_ssm > self.d_inner:
            raise InvalidProblemError(
                f"headdim must divide d_ssm, which is at most {self.d_inner}, got {headdim} and {self.d_ssm}"
            )
        self.nheads = self.d_ssm // headdim
        if ngroups < 1 or self.nheads % ngroups:
            raise InvalidProblemError(f"ngroups must divide the {self.nheads} heads, got {ngroups}")
        self.D_has_hdim, self.rmsnorm, self.dt_limit = D_has_hdim, rmsnorm, (dt_limit[0], dt_limit[1])
        channels = self.d_ssm + 2 * ngroups * d_state
        self.d_mlp = self.d_inner - self.d_ssm
        self.in_proj = Linear(d_model, 2 * self.d_mlp + self.d_ssm + channels + self.nheads, bias, **given)
        self.conv1d = torch.nn.Conv1d(
            channels, channels, d_conv, groups=channels, padding=d_conv - 1, bias=conv_bias, **given
        )
        if conv_init is not None:
            torch.nn.init.uniform_(self.conv1d.weight, -conv_init, conv_init)
        dt = inverse_softplus_of_steps(self.nheads, dt_min, dt_max, dt_init_floor, device=device)
        self.dt_bias = torch.nn.Parameter(dt.to(dtype or dt.dtype))
        rates = torch.empty(self.nheads, dtype=torch.float32, device=device).uniform_(*A_init_range)
        self.A_log = torch.nn.Parameter(rates.log().to(dtype or rates.dtype))
        self.D = torch.nn.Parameter(torch.ones(self.d_ssm if D_has_hdim else self.nheads, device=device))
        for one in (self.dt_bias, self.A_log, self.D):
            one._no_weight_decay = True
        if rmsnorm:
            self.norm = RMSNormGated(
                self.d_ssm, eps=1e-5, norm_before_gate=norm_before_gate, group_size=self.d_ssm // ngroups, **given
            )
        self.out_proj = Linear(self.d_inner, d_model, bias, **given)

    def _state_shape(self) -> tuple[int, ...]:
        return self.nheads, self.headdim, self.d_state

    def _parts(self, u: Any) -> tuple[Any, ...]:
        """z0, x0, z, xBC and dt."""
        sizes = [self.d_mlp, self.d_mlp, self.d_ssm, self.conv1d.weight.shape[0], self.nheads]
        return tuple(self.in_proj(u).split(sizes, dim=-1))

    def _out(self, y: Any, z0: Any, x0: Any, z: Any) -> Any:
        y = self.norm(y, z) if self.rmsnorm else y
        return self.out_proj(y if not self.d_mlp else torch.cat([bct.swiglu(z0, x0), y], dim=-1))

    def forward(
        self, u: Any, seqlen: int | None = None, seq_idx: Any = None, cu_seqlens: Any = None,
        inference_params: Any = None,
    ) -> Any:  # fmt: skip
        """y of u [batch, steps, d_model], or of [batch · seqlen, d_model] with seqlen.

        cu_seqlens: sequences packed into a batch of 1; inference_params as in `Mamba`, then with a state for each.
        """
        if seq_idx is not None:
            raise UnsupportedError("seq_idx must be None: give the bounds of packed sequences as cu_seqlens")
        flat = u.shape
        u = u if seqlen is None else u.reshape(-1, seqlen, u.shape[-1])
        cache = self._cached(inference_params, u.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1)
        if cache is not None and inference_params.seqlen_offset > 0:
            return self.step(u, *cache)[0].reshape(flat)
        z0, x0, z, mixed, dt = self._parts(u)
        mixed, last = convolved(self.conv1d, mixed, "silu", final=cache is not None, cu_seqlens=cu_seqlens)
        x, b, c = self._heads(mixed)
        acc = wide(x.dtype)
        made = bct.mamba2_ssd(
            x, dt, -torch.exp(self.A_log.to(acc)), b, c, D=self._skip(acc),
            z=None if self.rmsnorm else z.reshape(x.shape), dt_bias=self.dt_bias.to(acc), dt_softplus=True,
            dt_limit=None if self.dt_limit == (0.0, math.inf) else self.dt_limit,
            return_final_states=cache is not None, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        y = made
        if cache is not None:
            y, state = made
            cache[0].copy_(last)
            cache[1].copy_(state)
        return self._out(y.reshape(z.shape), z0, x0, z).reshape(flat)

    def _heads(self, mixed: Any) -> tuple[Any, Any, Any]:
        """x […, heads, headdim], B and C […, groups, d_state]."""
        x, b, c = mixed.contiguous().split(
            [self.d_ssm, self.ngroups * self.d_state, self.ngroups * self.d_state], dim=-1
        )
        b, c = (one.unflatten(-1, (self.ngroups, self.d_state)) for one in (b, c))
        return x.unflatten(-1, (self.nheads, self.headdim)), b, c

    def _skip(self, acc: Any) -> Any:
        d = self.D.to(acc)
        return d.reshape(self.nheads, self.headdim) if self.D_has_hdim else d

    def step(self, hidden_states: Any, conv_state: Any, ssm_state: Any) -> tuple[Any, Any, Any]:
        """(y, conv_state, ssm_state) of the next step [batch, 1, d_model], without gradient; both move on in place."""
        with torch.no_grad():
            z0, x0, z, mixed, dt = self._parts(_one(hidden_states))
            x, b, c = self._heads(stepped(self.conv1d, mixed, "silu", conv_state))
            acc, (batch, heads, size) = wide(x.dtype), x.shape

            def each(one: Any) -> Any:
                """A number of each head for each of its channels."""
                return one[..., None].expand(*one.shape, size).reshape(*one.shape[:-1], heads * size)

            a = each(-torch.exp(self.A_log.to(acc)))[:, None].expand(heads * size, self.d_state)
            limited = self.dt_limit != (0.0, math.inf)
            bias = self.dt_bias.to(acc)
            if limited:
                dt = bct.softplus(dt.to(acc) + bias).clamp(*self.dt_limit).to(x.dtype)
            skip = self._skip(acc)
            y = bct.selective_state_update(
                ssm_state.view(batch, heads * size, self.d_state), x.reshape(batch, heads * size), each(dt), a, b, c,
                skip.reshape(-1) if self.D_has_hdim else each(skip), None if self.rmsnorm else z,
                None if limited else each(bias), dt_softplus=not limited,
            )  # fmt: skip
            return self._out(y, z0, x0, z).unsqueeze(1), conv_state, ssm_state


def _one(hidden_states: Any) -> Any:
    if hidden_states.dim() != 3 or hidden_states.shape[1] != 1:
        raise InvalidProblemError(f"a step must be [batch, 1, d_model], got {tuple(hidden_states.shape)}")
    return hidden_states.squeeze(1)
