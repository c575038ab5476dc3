"""running_statistics: the averages that a batch or instance norm keeps of its batches, moved in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step,
    Variant, element, extent, extents, inout, integer, operand, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark

THREADS = 128


@dataclass(frozen=True, kw_only=True)
class RunningStatisticsDescriptor(Descriptor):
    """mean and var have shape (*samples, channels). count: elements that each of them was of."""

    samples: tuple[int, ...] = extents()
    channels: int = extent()
    count: int = integer(minimum=0)
    element: ElementKind = element()

    @property
    def unbiased(self) -> float:
        """What a biased variance is multiplied by; of one element there is none."""
        return math.inf if self.count == 1 else self.count / max(self.count - 1, 1)


@dataclass(slots=True, kw_only=True)
class RunningStatisticsArgs(Args):
    """Any strides of the running ones; mean and var (biased) are as `channel_norm` returns them."""

    mean: Array = operand("*samples channels", element="acc", layout="dense")
    var: Array = operand("*samples channels", element="acc", layout="dense")
    running_mean: Array | None = inout("channels", optional=True)
    running_var: Array | None = inout("channels", optional=True)
    momentum: Scalar = scalar(0.1)


def reference(
    desc: RunningStatisticsDescriptor, *, running_mean: Any, running_var: Any, mean: Any, var: Any, momentum: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    axes, made = tuple(range(len(desc.samples))), {}
    with np.errstate(all="ignore"):
        for name, held, new, factor in (
            ("running_mean", running_mean, mean, 1.0), ("running_var", running_var, var, desc.unbiased),
        ):  # fmt: skip
            if held is not None and desc.count and 0 not in desc.samples:
                m = held.dtype.type(momentum)
                now = np.mean(new, axis=axes) if axes else new
                made[name] = (1 - m) * held + m * (now * held.dtype.type(factor))
    return made


PARAMS = Params(
    "RunningStatisticsParams", running_mean="ptr", running_var="ptr", mean="ptr", var="ptr", momentum="scalar",
    samples="i64", channels="i64", mean_stride="i64", var_stride="i64", unbiased="f64",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if p.running_mean is None and p.running_var is None:
        return Geometry(())
    samples = math.prod(desc.samples) if desc.count else 0
    values = {
        "samples": samples, "channels": desc.channels, "unbiased": desc.unbiased,
        "mean_stride": 0 if p.running_mean is None else p.running_mean.strides[0],
        "var_stride": 0 if p.running_var is None else p.running_var.strides[0],
    }  # fmt: skip
    layout = "contiguous" if all(v.dense for v in p.flat()) else "strided"
    grid = (max(1, -(-desc.channels // THREADS)), 1, 1)
    return Geometry((Step("move", grid, values, {}, THREADS),), layout=layout)


def in_torch(
    torch: Any, desc: RunningStatisticsDescriptor, *, running_mean: Any, running_var: Any, mean: Any, var: Any,
    momentum: Any,
) -> Any:  # fmt: skip
    """lerp of the averages."""
    made, axes = {}, tuple(range(len(desc.samples)))
    for name, held, new in (("running_mean", running_mean, mean), ("running_var", running_var, var * desc.unbiased)):
        if held is not None and desc.count and 0 not in desc.samples:
            made[name] = torch.lerp(held, new.mean(axes) if axes else new, float(momentum))
    return made


class RunningStatisticsPlan(Plan):
    """running = (1 - momentum) · running + momentum · new, of the mean and of the unbiased variance of a batch.

    new is the mean over samples (instance norm); var is biased as it comes, and multiplied by count / (count - 1). Both
    are moved in place, one launch; of nothing (count 0, or no samples) they stay as they are.
    """

    op = "norm.running_statistics"
    descriptor = RunningStatisticsDescriptor
    args = RunningStatisticsArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "channels", _geometry, source="norm/running_statistics.cu",
            kernels=(Kernel("move", "running_statistics<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[512] f32", also=("running_mean", "running_var"), samples=(), channels=512, count=4096, element="float32"
        ),
    )

    @staticmethod
    def case(draw: Any) -> RunningStatisticsDescriptor:
        samples = draw.choice(((), (3,), (1,), (0,), (2, 2)))
        return RunningStatisticsDescriptor(
            samples=samples, channels=draw.sizes(5, 1, 0, 130), count=draw.sizes(9, 2, 0, 4096), element=draw.element
        )


running_statistics = functional(RunningStatisticsPlan)
