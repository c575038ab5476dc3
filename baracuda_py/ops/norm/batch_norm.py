"""batch_norm, group_norm, instance_norm: the functions of PyTorch, over the plans of norms over channels."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array, Scalar
from ...core.checked import truth
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...interop.packages import package_name
from ...core.arrays import read
from .batch_norm_inference import batch_norm_inference
from .channel_norm import ChannelNormPlan, channel_norm
from .running_statistics import running_statistics


def planes(x: Any, name: str, least: int = 2) -> tuple[int, ...]:
    """The shape of x, which has a batch and channels."""
    shape = tuple(read(x, "x").shape)
    if len(shape) < least:
        axes = "(batch, channels, …)" if least == 2 else "(batch, channels, length, …)"
        raise InvalidProblemError(f"{name} needs x of shape {axes}, got {shape}")
    return shape


def _both(name: str, running_mean: Any, running_var: Any) -> bool:
    if (running_mean is None) != (running_var is None):
        absent = "running_mean" if running_mean is None else "running_var"
        raise InvalidProblemError(f"{name}: running_mean and running_var go together, {absent} is None")
    return running_mean is not None


def _of_batch(
    x: Any, weight: Any, bias: Any, running: tuple[Any, Any], over: str, count: int, momentum: Any, eps: float,
    saved: bool, out: Any, options: Any,
) -> Any:  # fmt: skip
    """y, or with `saved` (y, mean, rstd), by the statistics of x, which move the running ones."""
    moving = running[0] is not None
    if moving and package_name(type(running[0])) == "jax":
        raise UnsupportedError(
            "running_mean would be moved in place, and JAX arrays are immutable: call channel_norm with return_mean "
            "and return_var, and give what it returns to running_statistics, which returns new ones"
        )
    if count == 1 and 0 not in read(x, "x").shape:
        what = "channel" if over == "batch" else "channel of a sample"
        raise InvalidProblemError(f"a variance needs more than 1 element of each {what}, got x of {read(x, 'x').shape}")
    wanted = {"return_mean": saved or moving, "return_rstd": saved, "return_var": moving}
    if out is not None and moving:  # the variance is nobody's output
        outs = out if isinstance(out, (list, tuple)) else (out,)
        names = ("y", "mean", "rstd") if saved else ("y",)
        if len(outs) != len(names):
            raise InvalidProblemError(f"out= must give {len(names)} arrays ({', '.join(names)}), got {len(outs)}")
        out = dict(zip(names, outs, strict=True))
    made = channel_norm(x, weight, bias, over=over, eps=eps, **wanted, out=out, **options)
    made = made if isinstance(made, tuple) else (made,)
    if moving:
        mean, var = (a.detach() if hasattr(a, "detach") else a for a in (made[1], made[-1]))  # constants to autograd
        running_statistics(mean, var, *running, count=count, momentum=momentum, **options)
    return made[:3] if saved else made[0]


def _batch_norm(
    name: str, x: Any, weight: Any, bias: Any, running: tuple[Any, Any], training: Any, momentum: Any, eps: float,
    saved: bool, out: Any, options: Any,
) -> Any:  # fmt: skip
    shape = planes(x, name)
    there = _both(name, *running)
    if truth("training", training):
        count = math.prod((shape[0], *shape[2:]))
        return _of_batch(x, weight, bias, running, "batch", count, momentum, eps, saved, out, options)
    if not there:
        raise InvalidProblemError(f"{name}: without training, running_mean and running_var must be given")
    wanted = {"return_mean": saved, "return_rstd": saved}
    return batch_norm_inference(x, *running, weight, bias, eps=eps, **wanted, out=out, **options)


@entry(ChannelNormPlan)
def batch_norm(
    x: Array, running_mean: Array | None = None, running_var: Array | None = None, weight: Array | None = None,
    bias: Array | None = None, training: bool = False, momentum: Scalar = 0.1, eps: float = 1e-5, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + eps) · weight + bias of each channel of x (batch, channels, …): torch's batch_norm.

    With training, mean and var are those of x over batch and space, and the running ones, where given, are moved in
    place by `momentum` (`running_statistics`: the variance unbiased); without, they are the running ones. Channels may
    lie first or last. See `ChannelNormPlan` and `BatchNormInferencePlan`.
    """
    options = {"stream": stream, "preference": preference}
    running = (running_mean, running_var)
    return _batch_norm("batch_norm", x, weight, bias, running, training, momentum, eps, False, out, options)


@entry(ChannelNormPlan)
def native_batch_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, running_mean: Array | None = None,
    running_var: Array | None = None, training: bool = True, momentum: Scalar = 0.1, eps: float = 1e-5, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, mean, rstd) of `batch_norm`: what `channel_norm_backward` takes (torch.native_batch_norm).

    mean and rstd are in float32, float64 of float64; without training they are those that y was made with.
    """
    options = {"stream": stream, "preference": preference}
    running = (running_mean, running_var)
    return _batch_norm("native_batch_norm", x, weight, bias, running, training, momentum, eps, True, out, options)


@entry(ChannelNormPlan)
def group_norm(
    x: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + eps) · weight + bias, mean and var of each of num_groups groups of a sample's channels.

    torch.nn.functional.group_norm (Wu and He 2018): x (batch, channels, …), channels first or last; weight and bias
    (channels). See `ChannelNormPlan`.
    """
    planes(x, "group_norm")
    return channel_norm(
        x, weight, bias, over="group", num_groups=num_groups, eps=eps, out=out, stream=stream, preference=preference
    )


@entry(ChannelNormPlan)
def native_group_norm(
    x: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, mean, rstd) of `group_norm`, mean and rstd of shape (batch, num_groups): what `channel_norm_backward` takes.

    They are in float32, float64 of float64. torch.native_group_norm gives batch, channels and space as numbers besides,
    which x's shape says here.
    """
    planes(x, "native_group_norm")
    wanted = {"return_mean": True, "return_rstd": True}
    options = {"out": out, "stream": stream, "preference": preference}
    return channel_norm(x, weight, bias, over="group", num_groups=num_groups, eps=eps, **wanted, **options)


@entry(ChannelNormPlan)
def instance_norm(
    x: Array, running_mean: Array | None = None, running_var: Array | None = None, weight: Array | None = None,
    bias: Array | None = None, use_input_stats: bool = True, momentum: Scalar = 0.1, eps: float = 1e-5, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + eps) · weight + bias, mean and var of each channel of a sample: torch's instance_norm.

    The running ones, where given, are moved in place towards the mean of the samples' statistics; without
    use_input_stats they are what is taken, as of `batch_norm`.
    """
    shape, options = planes(x, "instance_norm", 3), {"stream": stream, "preference": preference}
    running = (running_mean, running_var)
    there = _both("instance_norm", *running)
    if truth("use_input_stats", use_input_stats):
        count = math.prod(shape[2:])
        return _of_batch(x, weight, bias, running, "instance", count, momentum, eps, False, out, options)
    if not there:
        raise InvalidProblemError("instance_norm: without use_input_stats, running_mean and running_var must be given")
    return batch_norm_inference(x, *running, weight, bias, eps=eps, out=out, **options)
