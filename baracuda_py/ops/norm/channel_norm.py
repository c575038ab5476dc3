"""channel_norm: batch, group and instance norm by the statistics of x; `batch_norm` and others are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, Vjp, element,
    number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.channels import (
    HELD_THREADS, Channels, Planes, across_params, across_step, channel_case, fold_lanes, fold_step, held_params,
    held_step, of_channels, of_statistics, partial_launches, single_kernel, split,
)  # fmt: skip
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.norms import affine_elements
from ...schedules.reduce import reduce_kernels, reduce_params

_X = "batch channels *spatial"


@dataclass(frozen=True, kw_only=True)
class ChannelNormDescriptor(Channels):
    """As `Channels`; eps is added to the (biased) variance."""

    eps: float = number(1e-5, minimum=0.0)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class ChannelNormArgs(Args):
    """Any strides of x, y, weight and bias, which are independent.

    mean, var (biased) and rstd = 1 / sqrt(var + eps) are in the accumulator's element (float32; float64 for float64).
    """

    x: Array = operand(_X)
    weight: Array | None = operand("channels", element="weight_element", optional=True)
    bias: Array | None = operand("channels", element="weight_element", optional=True)
    y: Array | None = output(_X, optional=True, inplace=("x",))
    mean: Array | None = output("*statistic_shape", element="acc", optional=True, layout="dense")
    rstd: Array | None = output("*statistic_shape", element="acc", optional=True, layout="dense")
    var: Array | None = output("*statistic_shape", element="acc", optional=True, layout="dense")


def across(desc: Planes, array: Any) -> Any:
    """A weight, bias or statistic, to broadcast with x looked at as `split_shape`."""
    tail = (1,) * len(desc.spatial)
    if array.shape == (desc.channels,):
        return array.reshape(1, desc.num_groups, desc.members, *tail)
    return array.reshape(desc.batch, desc.num_groups, 1, *tail)


def applied(desc: Planes, z: Any, weight: Any, bias: Any) -> Any:
    """z, of `split_shape`, times weight, plus bias, in x's shape."""
    y = z if weight is None else z * across(desc, weight)
    y = y if bias is None else y + across(desc, bias)
    return y.reshape(desc.batch, desc.channels, *desc.spatial)


def reference(desc: ChannelNormDescriptor, *, x: Any, weight: Any, bias: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    h = x.reshape(desc.split_shape)
    axes, count = desc.averaged, h.dtype.type(desc.count)
    with np.errstate(all="ignore"):
        mean = np.sum(h, axis=axes, keepdims=True) / count
        z = h - mean
        low = np.sum(z, axis=axes, keepdims=True) / count  # what the mean's own rounding left out
        low = np.where(np.isfinite(low), low, 0)
        z, mean = z - low, mean + low
        var = np.sum(z * z, axis=axes, keepdims=True) / count
        rstd = 1 / np.sqrt(var + h.dtype.type(desc.eps))
        y = applied(desc, z * rstd, weight, bias)
    return {"y": y, **{n: v.reshape(desc.statistic_shape) for n, v in (("mean", mean), ("rstd", rstd), ("var", var))}}


MOMENTS = reduce_params("ChannelMomentsParams")
FOLD = Params(
    "ChannelFoldParams", partials="workspace", table="ptr", mean="ptr", rstd="ptr", var="ptr", rows="i64",
    members="i64", eps="f64", lanes="i32",
)  # fmt: skip
APPLY = Params(
    "ChannelNormParams", y="ptr", x="ptr", table="workspace", weight="ptr", bias="ptr", wide="i32", **map_params(5)
)
MOMENT_KERNELS = reduce_kernels("kinds::ChannelMoments<{T}>", MOMENTS)
ACROSS = across_params(
    "ChannelNormAcrossParams", 2, y="ptr", x="ptr", weight="ptr", bias="ptr", weight_step="i64", bias_step="i64"
)
APPLY_KERNELS = (
    *map_kernels("channel_norm_apply<{T}, {LAYOUT}>", APPLY),
    single_kernel("across", "channel_norm_across<{T}>", ACROSS),
)


def apply_step(p: Problem, table: int) -> Geometry | str:
    """What writes y, by the statistics at a byte of the workspace: a walk across channels, or a map."""
    desc = p.desc
    strides = {f"{n}_step": 0 if p.views[n] is None else p.views[n].strides[0] for n in ("weight", "bias")}
    step = across_step(p, "across", (p.x, p.y), {**strides, "table": table})
    if step is not None:
        return Geometry((step,), layout="contiguous" if p.x.dense and p.y.dense else "inner_contiguous")
    views = (
        split(p.y, desc),
        split(p.x, desc),
        of_statistics(desc),
        of_channels(p.weight, desc),
        of_channels(p.bias, desc),
    )
    return map_geometry(p, views, {"table": table, "wide": desc.weight_element is not desc.element})


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    x = split(p.x, desc)
    assert x is not None
    partials = partial_launches(p, (x,), whole=True)
    if isinstance(partials, str):
        return partials
    rows = desc.batch * desc.num_groups if desc.over != "batch" else desc.channels
    values = {
        "partials": 0, "table": ("@workspace", partials.table), "rows": rows, "members": partials.members,
        "eps": desc.eps,
    }  # fmt: skip
    steps: list[Any] = [*partials.steps, fold_step("fold", rows, fold_lanes(partials.members), values)]
    layout = "strided"
    if p.y is not None:
        last = apply_step(p, partials.table)
        if isinstance(last, str):
            return last
        steps, layout = [*steps, *last.steps], last.layout
    return Geometry(tuple(steps), partials.used, layout)


HELD = held_params(
    "ChannelNormHeldParams", ("x", "y"), **dict.fromkeys(("weight", "bias", "mean", "rstd", "var"), "ptr"),
    weight_stride="i64", bias_stride="i64", eps="f64",
)  # fmt: skip


def _held(p: Problem) -> Geometry | str:
    if p.y is None:
        return "y is wanted"
    strides = {f"{n}_stride": 0 if p.views[n] is None else p.views[n].strides[0] for n in ("weight", "bias")}
    lanes = fold_lanes(p.desc.members)
    step = held_step(p, ("x", "y"), 1, lanes, {**strides, "eps": p.desc.eps})
    layout = "contiguous" if p.x.dense and p.y.dense else "inner_contiguous"
    return step if isinstance(step, str) else Geometry((step,), layout=layout)


def in_torch(torch: Any, desc: ChannelNormDescriptor, *, x: Any, weight: Any, bias: Any, wanted: set[str]) -> Any:
    """torch's batch_norm, group_norm or instance_norm; the statistics by their formulas."""
    if 0 in (desc.count, desc.batch, desc.channels) or desc.count == 1:
        return NotImplemented
    made: dict[str, Any] = {}
    functions = torch.nn.functional
    if weight is None and bias is not None:  # torch loses the second derivative for a bias that stands alone
        weight = torch.ones_like(bias)
    if desc.over == "batch":
        made["y"] = functions.batch_norm(x, None, None, weight, bias, True, 0.1, desc.eps)
    elif desc.over == "group":
        made["y"] = functions.group_norm(x, desc.num_groups, weight, bias, desc.eps)
    elif len(desc.spatial) and desc.count > 1:
        made["y"] = functions.instance_norm(x, None, None, weight, bias, True, 0.1, desc.eps)
    if wanted - {"y"}:
        wide = x.to(torch.promote_types(x.dtype, torch.float32)).reshape(desc.split_shape)
        var = wide.var(desc.averaged, correction=0).reshape(desc.statistic_shape)
        mean = wide.mean(desc.averaged).reshape(desc.statistic_shape)
        made |= {"mean": mean, "var": var, "rstd": torch.rsqrt(var + desc.eps)}
    return made


def channel_benchmarks(*also: str) -> tuple[Benchmark, Benchmark]:
    """Images of a residual network, channels first and last; of the gradient where `also` names dx."""

    def last(torch: Any, desc: Any) -> dict[str, Any]:
        shape = (desc.batch, desc.channels, *desc.spatial)
        names = ("x", "dy", "dx") if "dx" in also else ("x", "y")
        made = (torch.randn(shape, dtype=torch.bfloat16).to(memory_format=torch.channels_last) for _ in names)
        return dict(zip(names, made, strict=True))

    facts: dict[str, Any] = {"batch": 256, "channels": 256, "spatial": (56, 56), "element": "bfloat16"}
    return (
        Benchmark("batch [256, 256, 56, 56] bf16", also=also, over="batch", **facts),
        Benchmark("batch [256, 256, 56, 56] bf16, channels last", also=also, over="batch", make=last, **facts),
    )


class ChannelNormPlan(Plan):
    """y = (x - mean) / sqrt(var + eps) · weight + bias, mean and var of x itself: three norms, by `over`.

    "batch": of each channel, over batch and space (torch.nn.functional.batch_norm in training). "group": in each
    sample, of each group of channels (group_norm). "instance": in each sample, of each channel (instance_norm). x, y
    (batch, channels, *spatial), channels first or last by their strides; weight, bias (channels); mean, rstd, var
    (channels), or (batch, num_groups). Moments are merged in double in an order that shapes alone fix, and y keeps its
    digits where the mean is large. Float16 and bfloat16 rows take float32 weights too. y may be x. Of no elements a
    mean is NaN.
    """

    op = "norm.channel_norm"
    descriptor = ChannelNormDescriptor
    args = ChannelNormArgs
    autocast = "widest"
    reference = staticmethod(reference)
    variants = (
        Variant(
            "held", _held, source="norm/channel_norm_held.cu",
            kernels=(
                Kernel("held", "channel_norm_held<{T}>", HELD, threads=HELD_THREADS),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
        Variant(
            "moments", _geometry, source="norm/channel_norm.cu",
            kernels=(*MOMENT_KERNELS, single_kernel("fold", "channel_norm_fold<{T}>", FOLD), *APPLY_KERNELS),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    vjp = Vjp("ChannelNormBackwardPlan", grads={"x": "dx", "weight": "dweight", "bias": "dbias"})
    torch = staticmethod(in_torch)
    benchmarks = (
        *channel_benchmarks("weight", "bias", "y"),
        Benchmark("32 groups [64, 320, 64, 64] bf16", also=("weight", "bias", "y"), over="group", batch=64,
                  channels=320, spatial=(64, 64), num_groups=32, element="bfloat16"),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ChannelNormDescriptor:
        return ChannelNormDescriptor(
            **channel_case(draw), eps=draw.number(1e-8, 1e-2), element=draw.element,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip


channel_norm = functional(ChannelNormPlan, returns=("y",), follows="x")
