"""The short causal convolution before the recurrences of Mamba and of gated linear attention, with its cache."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ..untyped import torch


class ShortConvolution(torch.nn.Conv1d):  # type: ignore[misc]
    """y[t] = act(bias + Σ_k weight[k] x[t - (kernel_size - 1) + k]) of each channel, flash-linear-attention's module.

    `weight` is [hidden_size, 1, kernel_size], kernel_size from 2 to 8; activation: None, "silu" or "swish". The cache
    is [sequences, hidden_size, kernel_size], the last inputs with the oldest first; its first column is never read.
    """

    def __init__(
        self, hidden_size: int, kernel_size: int, bias: bool = False, activation: str | None = "silu",
        backend: str | None = None, device: Any = None, dtype: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            hidden_size, hidden_size, kernel_size, groups=hidden_size, bias=bias, padding=kernel_size - 1,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.hidden_size, self.activation = hidden_size, activation

    def forward(
        self, x: Any, residual: Any = None, mask: Any = None, cache: Any = None, output_final_state: bool = False,
        cu_seqlens: Any = None, **_: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        """(y, cache) of x [batch, steps, hidden_size]; the cache is None unless output_final_state asks for it.

        cache: what an earlier call returned. mask: [batch, steps], x is 0 where it is 0. cu_seqlens: sequences packed
        into a batch of 1, with a cache each. residual is added to y.
        """
        x = x if mask is None else x * mask.unsqueeze(-1).to(x.dtype)
        y, last = convolved(self, x, self.activation, cache, output_final_state, cu_seqlens)
        y = y.contiguous()  # heads are cut from channels, which must lie last in memory
        return (y if residual is None else bct.add(y, residual)), last

    def step(self, x: Any, residual: Any, cache: Any, output_final_state: bool = False, cu_seqlens: Any = None) -> Any:
        """(y, cache) of the next step, x [batch, 1, hidden_size] or (packed) [1, batch, hidden_size], without gradient.

        The cache is moved on in place.
        """
        rows = x.reshape(-1, x.shape[-1])
        y = stepped(self, rows, self.activation, cache).reshape(x.shape)
        return (y if residual is None else bct.add(y, residual)), cache

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.hidden_size}, kernel_size={self.kernel_size[0]}, activation={self.activation!r}"


def convolved(
    layer: Any, x: Any, activation: str | None, cache: Any = None, final: bool = False, cu_seqlens: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, cache or None) of x [batch, steps, channels] by a depthwise layer of torch.nn.Conv1d's parameters."""
    made = bct.causal_conv1d(
        x, layer.weight.squeeze(1), layer.bias, cu_seqlens=cu_seqlens, activation=activation, layout="bld",
        initial_states=None if cache is None else cache[..., 1:].to(x.dtype), return_final_states=final,
    )  # fmt: skip
    if not final:
        return made, None
    return made[0], torch.nn.functional.pad(made[1], (1, 0))


def stepped(layer: Any, x: Any, activation: str | None, cache: Any) -> Any:
    """y [batch, channels] of the next step; the cache is moved on in place."""
    return bct.causal_conv1d_update(x, cache, layer.weight.squeeze(1), layer.bias, activation=activation)
