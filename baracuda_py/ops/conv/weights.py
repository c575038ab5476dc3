"""fold_batch_norm and standardize_weight: what is done with a convolution's filter before it is used."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of
from ...calls.entries import entry
from ..elementwise.binary_functions import add, mul, sub
from ..elementwise.unary import rsqrt  # type: ignore[attr-defined]  # made from a table
from ..layout.views import reshape
from ..norm.layer_norm import layer_norm
from .conv import ConvPlan


@entry(ConvPlan)
def fold_batch_norm(
    weight: Array, bias: Array | None, running_mean: Array, running_var: Array, bn_weight: Array | None = None,
    bn_bias: Array | None = None, eps: float = 1e-5, *, transposed: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The filter and the bias of a convolution with the batch norm behind it (torch's fuse_conv_bn_weights).

    weight · s and (bias - running_mean) s + bn_bias, s = bn_weight / sqrt(running_var + eps); weight [outputs, …], or
    of a transposed convolution of one group, with `transposed`, [channels, outputs, …]; the others are [outputs]. out:
    a pair.
    """
    shape, axis = shape_of(weight, "weight"), int(transposed)
    if len(shape) < 3:
        raise InvalidProblemError(f"weight must have 3 to 5 axes, got shape {shape}")
    given = {"bias": bias, "running_mean": running_mean, "running_var": running_var, "bn_weight": bn_weight,
             "bn_bias": bn_bias}  # fmt: skip
    for name, value in given.items():
        if value is not None and shape_of(value, name) != shape[axis : axis + 1]:
            raise InvalidProblemError(f"{name} must have shape {shape[axis : axis + 1]}, got {shape_of(value, name)}")
    options = {"stream": stream, "preference": preference}
    to = each_of(out, 2)
    with beside(weight, stream):
        scale = rsqrt(add(running_var, eps, **options), **options)
        scale = scale if bn_weight is None else mul(scale, bn_weight, **options)
        spread = reshape(scale, (*(1,) * axis, shape[axis], *(1,) * (len(shape) - axis - 1)))
        folded = mul(weight, spread, out=to[0], **options)
        if bias is None:
            shift = mul(mul(running_mean, -1.0, **options), scale, out=to[1] if bn_bias is None else None, **options)
        else:
            shift = sub(bias, running_mean, **options)
            shift = mul(shift, scale, out=to[1] if bn_bias is None else None, **options)
        return folded, shift if bn_bias is None else add(shift, bn_bias, out=to[1], **options)


@entry(ConvPlan)
def standardize_weight(
    weight: Array, eps: float = 1e-5, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """The filter of each output without its mean and over its deviation (weight standardisation, Qiao et al. 2019).

    (w - mean) / sqrt(var + eps) over all axes of weight [outputs, …] but the first, as a layer norm, whose gradient it
    has.
    """
    shape = shape_of(weight, "weight")
    if len(shape) < 2:
        raise InvalidProblemError(f"weight must have outputs and other axes, got shape {shape}")
    columns = math.prod(shape[1:])
    to = None if out is None else reshaped(out, (shape[0], columns), "out")
    if out is not None and (shape_of(out, "out") != shape or to is None):
        raise InvalidProblemError(f"out must be contiguous and have shape {shape}, got {shape_of(out, 'out')}")
    with beside(weight, stream):
        made = layer_norm(
            reshape(weight, (shape[0], columns)), normalized_shape=(columns,), eps=eps, out=to, stream=stream,
            preference=preference,
        )  # fmt: skip
        return out if out is not None else reshape(made, shape)
