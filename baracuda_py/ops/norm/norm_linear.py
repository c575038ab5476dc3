"""rms_norm_linear and layer_norm_linear: a norm and the product of a layer that reads it."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...calls.entries import entry
from ...core.views import shape_of
from ..gemm.linear import linear
from .layer_norm import LayerNormPlan, layer_norm
from .rms_norm import RMSNormPlan, rms_norm


@entry(RMSNormPlan)
def rms_norm_linear(
    x: Array, weight: Array, norm_weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-6,
    weight_offset: float = 0.0, activation: str | None = None, residual: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """act(rms_norm(x, norm_weight) @ weightᵀ + bias) + residual: x [*, in], weight [out, in], norm_weight [in].

    Two launches, `rms_norm` and `linear`; what passes between is in x's element. weight_offset is of the norm's weight;
    activation and residual are as in `linear`.
    """
    options = {"stream": stream, "preference": preference}
    normed = rms_norm(
        x, norm_weight, eps=eps, weight_offset=weight_offset, normalized_shape=shape_of(x, "x")[-1:], **options
    )
    return linear(normed, weight, bias, activation=activation, residual=residual, out=out, **options)


@entry(LayerNormPlan)
def layer_norm_linear(
    x: Array, weight: Array, norm_weight: Array | None = None, norm_bias: Array | None = None,
    bias: Array | None = None, *, eps: float = 1e-5, activation: str | None = None, residual: Array | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """act(layer_norm(x, norm_weight, norm_bias) @ weightᵀ + bias) + residual; see `rms_norm_linear`."""
    options = {"stream": stream, "preference": preference}
    normed = layer_norm(x, norm_weight, norm_bias, eps=eps, normalized_shape=shape_of(x, "x")[-1:], **options)
    return linear(normed, weight, bias, activation=activation, residual=residual, out=out, **options)
