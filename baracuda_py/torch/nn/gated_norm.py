"""RMS norms with a gate, as the layers of mamba-ssm and flash-linear-attention have them."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ..untyped import torch

GATES = {"swish": "swiglu", "silu": "swiglu", "sigmoid": "glu"}  # activation → act(gate) · up


class FusedRMSNormGated(torch.nn.Module):  # type: ignore[misc]
    """y = x / sqrt(mean(x²) + eps) · weight · act(g) over the last axis, flash-linear-attention's of that name.

    activation: "swish" (or "silu") or "sigmoid". `weight` is [hidden_size], None without elementwise_affine. Two
    launches; what passes between them is in x's element.
    """

    def __init__(
        self, hidden_size: int, elementwise_affine: bool = True, eps: float = 1e-5, activation: str = "swish",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if activation not in GATES:
            raise InvalidProblemError(f"activation must be one of {', '.join(GATES)}, got {shown(activation)}")
        self.hidden_size, self.eps, self.activation = whole("hidden_size", hidden_size, 1), eps, activation
        self.elementwise_affine = elementwise_affine
        weight = torch.ones(hidden_size, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", None if weight is None else torch.nn.Parameter(weight))
        self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """A weight of 1."""
        if self.weight is not None:
            torch.nn.init.ones_(self.weight)

    def forward(self, x: Any, g: Any, residual: Any = None, prenorm: bool = False) -> Any:
        """y, of x's shape, which g has, too; h = x + residual is normalised, and with prenorm the result is (y, h)."""
        h = x if residual is None else bct.add(x, residual)
        y = getattr(bct, GATES[self.activation])(g, bct.rms_norm(h, self.weight, eps=self.eps, **_last(x)))
        return (y, h) if prenorm else y

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.hidden_size}, eps={self.eps}, activation={self.activation!r}"


class RMSNormGated(torch.nn.Module):  # type: ignore[misc]
    """y = norm(x) · weight · silu(z), or (norm_before_gate=False) norm(x · silu(z)) · weight, mamba-ssm's `RMSNorm`.

    The mean of squares is that of each group_size columns of the last axis (default: of all); `weight` is
    [hidden_size]. Two launches, and one more for the weight of several groups.
    """

    def __init__(
        self, hidden_size: int, eps: float = 1e-5, group_size: int | None = None, norm_before_gate: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.hidden_size, self.eps, self.norm_before_gate = whole("hidden_size", hidden_size, 1), eps, norm_before_gate
        self.group_size = hidden_size if group_size is None else whole("group_size", group_size, 1)
        if hidden_size % self.group_size:
            raise InvalidProblemError(f"group_size must divide hidden_size = {hidden_size}, got {group_size}")
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """A weight of 1."""
        torch.nn.init.ones_(self.weight)

    def forward(self, x: Any, z: Any = None) -> Any:
        """y, of x's shape [..., hidden_size], which z has, too; without z only the norm."""
        if z is not None and not self.norm_before_gate:
            x = bct.swiglu(z, x)
        if self.group_size == self.hidden_size:
            y = bct.rms_norm(x, self.weight, eps=self.eps, **_last(x))
        else:
            grouped = x.reshape(*x.shape[:-1], -1, self.group_size)
            y = bct.mul(bct.rms_norm(grouped, eps=self.eps, **_last(grouped)).reshape(x.shape), self.weight)
        return bct.swiglu(z, y) if z is not None and self.norm_before_gate else y

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.hidden_size}, eps={self.eps}, group_size={self.group_size}"


def _last(x: Any) -> dict[str, Any]:
    return {"normalized_shape": tuple(x.shape[-1:])}
