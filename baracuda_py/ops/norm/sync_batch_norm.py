"""Batch norm of a batch that lies on several devices: statistics apart from what they are applied to.

Forward: `batch_norm_stats` on each device, `batch_norm_gather_stats_with_counts` of what all of them sent,
`batch_norm_elemt`. Backward: `batch_norm_backward_reduce`, whose sums are added over the devices,
`batch_norm_backward_elemt`. The names are PyTorch's, whose SyncBatchNorm is made of them.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from ...core import Array, Scalar
from ...core.checked import real
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ...interop.torch_rules import requires_grad
from .batch_norm import planes
from .batch_norm_inference import BatchNormInferencePlan, batch_norm_inference
from .channel_norm import ChannelNormPlan, channel_norm
from .channel_norm_backward import ChannelNormBackwardPlan, channel_norm_backward


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _summed(text: str) -> Any:
    return reduction(text, "sum", axis=0)


def _spread(array: Any, rank: int) -> Any:
    """An array of channels, to broadcast with x."""
    places: tuple[Any, ...] = (slice(None), *[None for _ in range(rank - 2)])
    return array[places]


@entry(ChannelNormPlan)
def batch_norm_stats(
    x: Array, eps: float = 1e-5, *, out: Any = None, stream: Any = None, preference: Any = None
) -> tuple[Any, Any]:
    """(mean, rstd) of each channel of x (batch, channels, …), rstd = 1 / sqrt(var + eps), in float32 (float64)."""
    planes(x, "batch_norm_stats")
    if requires_grad((x,)) and sys.modules["torch"].is_grad_enabled():
        raise UnsupportedError(
            "batch_norm_stats: x requires grad, and no gradient comes through statistics alone; give its .detach(), or "
            "call under torch.no_grad()"
        )
    made: tuple[Any, Any] = channel_norm(
        x, eps=eps, return_y=False, return_mean=True, return_rstd=True, out=out, stream=stream, preference=preference
    )
    return made


@entry(ChannelNormPlan)
def batch_norm_gather_stats_with_counts(
    mean: Array, rstd: Array, counts: Array, running_mean: Array | None = None, running_var: Array | None = None, *,
    momentum: Scalar = 0.1, eps: float = 1e-5, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(mean, rstd) of all devices from those of each, (devices, channels), and the elements `counts` (devices) of each.

    The running statistics, where given, are moved in place. Variances are those of the devices and of their means from
    the mean of all (Chan, Golub and LeVeque 1979); launches on arrays of channels alone.
    """
    eps = real("eps", eps)
    shape, given = read(mean, "mean").shape, read(counts, "counts").shape
    if len(shape) != 2 or given != shape[:1]:
        raise InvalidProblemError(f"mean must be (devices, channels) and counts (devices), got {shape} and {given}")
    channels = shape[1:]
    for name, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and read(running, name).shape != channels:
            raise InvalidProblemError(f"{name} must have shape {channels}, got {read(running, name).shape}")
    options = {"stream": stream, "preference": preference}
    acc, outs = read(mean, "mean").element, each_of(out, 2)
    share = _formula(f"{acc}(c)")(c=counts, **options)
    total = _summed("c")(c=share[:, None], **options)
    middle = _formula("s / n")(s=_summed("c * m")(c=share[:, None], m=mean, **options), n=total, out=outs[0], **options)
    spread = _summed("c * (1 / (r * r) + square(m - a))")(
        c=share[:, None], r=rstd, m=mean, a=middle[None], **options
    )  # var + eps, times the elements
    found = _formula("1 / sqrt(s / n)")(s=spread, n=total, out=outs[1], **options)
    moves = {"o": eps, "q": momentum, "n": total, **options}
    if running_mean is not None:
        kept = read(running_mean, "running_mean").element
        _formula(f"{kept}((1 - q) * r + q * a)")(r=running_mean, a=middle, q=momentum, out=running_mean, **options)
    if running_var is not None:
        kept = read(running_var, "running_var").element
        text = f"{kept}((1 - q) * r + q * (s / n - o) * (n / (n - 1)))"
        _formula(text)(r=running_var, s=spread, out=running_var, **moves)
    return middle, found


@entry(BatchNormInferencePlan)
def batch_norm_elemt(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, rstd: Array, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - mean) · rstd · weight + bias of each channel, statistics as gathered; weight and bias may be None."""
    planes(x, "batch_norm_elemt")
    return batch_norm_inference(
        x, mean, rstd, weight, bias, inverse=True, out=out, stream=stream, preference=preference
    )


@entry(ChannelNormBackwardPlan)
def batch_norm_backward_reduce(
    dy: Array, x: Array, mean: Array, rstd: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(sum_dy, sum_dy_xhat) of each channel, xhat = (x - mean) · rstd: what devices add up, in float32 (float64).

    They are the gradients of bias and weight on this device. Where PyTorch hands on Σ dy (x - mean), this is it times
    rstd, which every device has.
    """
    planes(x, "batch_norm_backward_reduce")
    outs = each_of(out, 2)
    made = channel_norm_backward(
        dy, x, mean, rstd, given=True, weight_element=read(x, "x").element.acc, return_dx=False,
        out=None if out is None else outs[::-1], stream=stream, preference=preference,
    )  # fmt: skip
    return made[1], made[0]


@entry(ChannelNormBackwardPlan)
def batch_norm_backward_elemt(
    dy: Array, x: Array, mean: Array, rstd: Array, weight: Array | None, sum_dy: Array, sum_dy_xhat: Array,
    count: Scalar, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx = (dy - sum_dy / count - xhat · sum_dy_xhat / count) · rstd · weight, sums and count those of all devices."""
    options = {"stream": stream, "preference": preference}
    rank, view = len(planes(x, "batch_norm_backward_elemt")), read(x, "x")
    acc = view.element.acc
    slope = _formula(f"{acc}(r * s / n)")(r=rstd, s=sum_dy_xhat, n=count, **options)
    shift = _formula(f"{acc}(s / n)")(s=sum_dy, n=count, **options)
    factor = rstd if weight is None else _formula(f"{acc}(r * w)")(r=rstd, w=weight, **options)
    held = {"m": mean, "u": slope, "s": shift, "f": factor}
    return _formula(f"{view.element}((g - s - (x - m) * u) * f)")(
        g=dy, x=x, **{n: _spread(a, rank) for n, a in held.items()}, out=out, **options
    )
