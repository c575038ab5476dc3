"""channel_norm_backward: the gradients of batch, group and instance norm in x, weight and bias."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Variant, element, flag,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.tensor import View
from ...core.variant import Step, aligned
from ...schedules.channels import (
    HELD_THREADS, Channels, across_params, across_step, channel_case, fold_lanes, fold_step, held_params, held_step,
    of_channels, of_statistics, partial_launches, single_kernel, split,
)  # fmt: skip
from ...schedules.map import THREADS, map_geometry, map_kernels, map_params
from ...schedules.norms import affine_elements
from ...schedules.reduce import reduce_kernels, reduce_params
from .channel_norm import ChannelNormDescriptor, across, applied, channel_benchmarks
from .channel_norm import in_torch as forward_in_torch

_X = "batch channels *spatial"


@dataclass(frozen=True, kw_only=True)
class ChannelNormBackwardDescriptor(Channels):
    """As `Channels`. given: the statistics were not those of x, so that they do not move with it."""

    given: bool = flag(False)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class ChannelNormBackwardArgs(Args):
    """Any strides. mean and rstd are what the forward saved; each output may be None."""

    dy: Array = operand(_X)
    x: Array = operand(_X)
    mean: Array = operand("*statistic_shape", element="acc", layout="dense")
    rstd: Array = operand("*statistic_shape", element="acc", layout="dense")
    weight: Array | None = operand("channels", element="weight_element", optional=True)
    dx: Array | None = output(_X, optional=True, inplace=("dy", "x"))
    dweight: Array | None = output("channels", element="weight_element", optional=True)
    dbias: Array | None = output("channels", element="weight_element", optional=True)


def reference(
    desc: ChannelNormBackwardDescriptor, *, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; a channel's sums are made before they are multiplied by its weight."""
    d = dy.reshape(desc.split_shape)
    space = (*((0,) if desc.over == "batch" else ()), *range(3, d.ndim))

    def averaged(z: Any) -> Any:
        sums = np.sum(z, axis=space, keepdims=True)
        sums = sums if weight is None else sums * across(desc, weight)
        return np.sum(sums, axis=2, keepdims=True) / z.dtype.type(desc.count)

    with np.errstate(all="ignore"):
        xhat = (x.reshape(desc.split_shape) - across(desc, mean)) * across(desc, rstd)
        g = d if weight is None else d * across(desc, weight)
        if not desc.given:
            g = g - averaged(d) - xhat * averaged(d * xhat)
        made = {"dx": (g * across(desc, rstd)).reshape(x.shape)}
        samples = (0, *range(3, d.ndim))
        made |= {"dweight": np.sum(d * xhat, axis=samples).reshape(-1), "dbias": np.sum(d, axis=samples).reshape(-1)}
    return {name: value for name, value in made.items() if name in wanted}


def in_torch(
    torch: Any, desc: ChannelNormBackwardDescriptor, *, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """Autograd of torch's norm, or of the formula where the statistics were given."""
    with torch.enable_grad():
        gamma = torch.ones(desc.channels, dtype=x.dtype, device=x.device) if weight is None else weight
        leaves = [t.detach().requires_grad_() for t in (x, gamma, torch.zeros_like(gamma))]
        if desc.given:
            xhat = (leaves[0].reshape(desc.split_shape) - across(desc, mean)) * across(desc, rstd)
            made = {"y": applied(desc, xhat, *leaves[1:])}
        else:
            fields = {f.name: getattr(desc, f.name) for f in dataclasses.fields(Channels)}
            forward = ChannelNormDescriptor(**fields, element=desc.element)
            made = forward_in_torch(torch, forward, x=leaves[0], weight=leaves[1], bias=leaves[2], wanted={"y"})
        if made is NotImplemented or "y" not in made:
            return NotImplemented
        return dict(zip(("dx", "dweight", "dbias"), torch.autograd.grad(made["y"], leaves, dy), strict=True))


SUMS = reduce_params("ChannelSumsParams", ("dy", "x", "mean"), rstd="ptr")
FOLD = Params(
    "ChannelFoldBackwardParams", partials="workspace", table="workspace", mean="ptr", rstd="ptr", weight="ptr",
    dweight="ptr", dbias="ptr", rows="i64", groups="i64", members="i64", summed="i64", samples="i64", affine="i64",
    weight_stride="i64", dweight_stride="i64", dbias_stride="i64", inverse="f64", lanes="i32", wide="i32",
)  # fmt: skip
APPLY = Params(
    "ChannelNormBackwardParams", dx="ptr", dy="ptr", x="ptr", table="workspace", weight="ptr", wide="i32",
    **map_params(5),
)  # fmt: skip


ACROSS = across_params(
    "ChannelNormAcrossBackwardParams", 3, dx="ptr", dy="ptr", x="ptr", weight="ptr", weight_step="i64"
)
HELD = held_params(
    "ChannelNormHeldBackwardParams", ("dy", "x", "dx"), mean="ptr", rstd="ptr", weight="ptr", partials="ptr",
    weight_stride="i64", inverse="f64", map_threads=THREADS,
)  # fmt: skip


def _stride(view: View | None) -> int:
    return 0 if view is None else view.strides[0]


def _samples(desc: ChannelNormBackwardDescriptor) -> int:
    """Parts of a channel that dweight and dbias are the sums of."""
    return 1 if desc.over == "batch" else desc.batch


def _lanes(desc: ChannelNormBackwardDescriptor) -> int:
    """Of `fold`, whatever is wanted, so that no order depends on it."""
    return fold_lanes(max(1 if desc.over == "batch" else desc.members, _samples(desc)))


def _fold(p: Problem, kernel: str, rows: int, members: int, table: int) -> Step:
    """The launch that adds up partials, for `rows` statistics and where it is wanted for the channels."""
    desc = p.desc
    affine = desc.channels if p.dweight is not None or p.dbias is not None else 0
    values = {
        "partials": 0, "table": table, "rows": rows, "groups": max(desc.num_groups, 1), "members": members,
        "summed": 0 if desc.given else members, "samples": _samples(desc), "affine": affine,
        "weight_stride": _stride(p.weight), "dweight_stride": _stride(p.dweight), "dbias_stride": _stride(p.dbias),
        "inverse": 1.0 / max(desc.count, 1), "wide": desc.weight_element is not desc.element,
    }  # fmt: skip
    return fold_step(kernel, rows + affine, _lanes(desc), values)


def _held(p: Problem) -> Geometry | str:
    desc = p.desc
    affine = p.dweight is not None or p.dbias is not None
    if p.dx is None or desc.given:
        return "dx is wanted, and takes sums of a row"
    values = {
        "weight_stride": _stride(p.weight), "inverse": 1.0 / max(desc.count, 1),
        "partials": ("@workspace", 0) if affine else "@null",
    }  # fmt: skip
    step = held_step(p, ("dy", "x", "dx"), 2, _lanes(desc), values)
    if isinstance(step, str):
        return step
    layout = "contiguous" if p.dy.dense and p.x.dense and p.dx.dense else "inner_contiguous"
    if not affine:
        return Geometry((step,), layout=layout)
    used = aligned(desc.batch * desc.channels * 2 * desc.acc.itemsize)
    return Geometry((step, _fold(p, "fold_held", 0, desc.members, 0)), used, layout)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = tuple(split(v, desc) for v in (p.dy, p.x))
    place = of_statistics(desc)
    partials = partial_launches(p, (*views, place), whole=False, packed=2)  # type: ignore[arg-type]
    if isinstance(partials, str):
        return partials
    summed = p.dweight is not None or p.dbias is not None or not desc.given
    rows = math.prod(desc.statistic_shape) if p.dx is not None else 0
    steps: list[Any] = [*(partials.steps if summed else ()), _fold(p, "fold", rows, partials.members, partials.table)]
    layout = "strided"
    if p.dx is not None:
        given = {"table": partials.table, "weight_step": _stride(p.weight)}
        step = across_step(p, "across", (p.dy, p.x, p.dx), given)
        if step is not None:
            dense = p.dy.dense and p.x.dense and p.dx.dense
            return Geometry((*steps, step), partials.used, "contiguous" if dense else "inner_contiguous")
        shown = (split(p.dx, desc), *views, place, of_channels(p.weight, desc))
        last = map_geometry(p, shown, {"table": partials.table, "wide": desc.weight_element is not desc.element})
        if isinstance(last, str):
            return last
        steps, layout = [*steps, *last.steps], last.layout
    return Geometry(tuple(steps), partials.used, layout)


class ChannelNormBackwardPlan(Plan):
    """dx = rstd·(g - mean(g) - xhat·mean(g·xhat)), dweight = Σ dy·xhat, dbias = Σ dy; xhat = (x - mean)·rstd,
    g = dy·weight. The means are over what has one statistic; where that was `given` there are none: dx = rstd·g.

    dy, x, dx (batch, channels, *spatial); weight, dweight, dbias (channels); mean, rstd (channels) over the batch, else
    (batch, num_groups). Sums are in float32 (float64), of channels and samples in double, in an order that shapes alone
    fix.
    """

    op = "norm.channel_norm_backward"
    direction = "backward"
    descriptor = ChannelNormBackwardDescriptor
    args = ChannelNormBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "held", _held, source="norm/channel_norm_held_backward.cu",
            kernels=(
                Kernel("held", "channel_norm_held_backward<{T}>", HELD, threads=HELD_THREADS),
                single_kernel("fold_held", "channel_norm_fold_backward<{T}>", FOLD),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
        Variant(
            "sums", _geometry, source="norm/channel_norm_backward.cu",
            kernels=(
                *reduce_kernels("kinds::Sum<complex<{A}>>", SUMS, source="norm::Slopes<{T}>",
                                across="norm::SlopesAcross<{T}, {VEC}>"),
                single_kernel("fold", "channel_norm_fold_backward<{T}>", FOLD),
                *map_kernels("channel_norm_apply_backward<{T}, {LAYOUT}>", APPLY),
                single_kernel("across", "channel_norm_across_backward<{T}>", ACROSS),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = channel_benchmarks("weight", "dx", "dweight", "dbias")

    @staticmethod
    def case(draw: Any) -> ChannelNormBackwardDescriptor:
        return ChannelNormBackwardDescriptor(
            **channel_case(draw), given=draw.flag(), element=draw.element,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.count and arrays["x"].size:
            x = arrays["x"].astype(np.float64).reshape(desc.split_shape)
            with np.errstate(invalid="ignore"):
                mean, var = x.mean(desc.averaged), x.var(desc.averaged)
            arrays["mean"] = mean.reshape(desc.statistic_shape).astype(desc.acc.dtype)
            arrays["rstd"] = (1 / np.sqrt(var + 1e-5)).reshape(desc.statistic_shape).astype(desc.acc.dtype)


channel_norm_backward = functional(ChannelNormBackwardPlan, follows="x")
