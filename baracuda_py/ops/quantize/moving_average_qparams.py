"""moving_average_qparams: the running range of every channel, moved in place, and the scale and zero point of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Scalar, Step, Variant, element, extent, flag, inout, integer, operand, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import decode

THREADS = 128
E = ElementKind


@dataclass(frozen=True, kw_only=True)
class MovingAverageQParamsDescriptor(Descriptor):
    """All arrays have shape (channels,). quant_min, quant_max: the ends of the range of integers.

    symmetric: a range with numbers of both signs is made even about 0.
    """

    channels: int = extent()
    quant_min: int = integer(-128)
    quant_max: int = integer(127)
    symmetric: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        least = 2 if self.symmetric else 1
        if not -(2**22) <= self.quant_min <= self.quant_max - least <= 2**22 - least:
            raise InvalidProblemError(
                f"quant_min, quant_max must be in order, at least {least} apart and within {2**22} of 0, got "
                f"{self.quant_min}, {self.quant_max}"
            )


def _infinite(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Ranges, some of which nothing has moved yet."""
    return np.where(rng.random(shape) < 0.3, np.inf, rng.standard_normal(shape))


@dataclass(slots=True, kw_only=True)
class MovingAverageQParamsArgs(Args):
    """Any strides. low and high are the extremes of new numbers; the others are moved or written in place."""

    low: Array = operand("channels")
    high: Array = operand("channels")
    running_min: Array = inout("channels", element=E.F32, values=_infinite)
    running_max: Array = inout("channels", element=E.F32, values=_infinite)
    scale: Array = inout("channels", element=E.F32)
    zero_point: Array = inout("channels", element=E.I32)
    averaging_const: Scalar = scalar(0.01)


def reference(
    desc: MovingAverageQParamsDescriptor, *, low: Any, high: Any, running_min: Any, running_max: Any, scale: Any,
    zero_point: Any, averaging_const: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in float32, scales and zero points in float64."""
    del scale, zero_point  # they are made anew
    constant, kind = np.float32(averaging_const), np.float32
    first, last = desc.quant_min, desc.quant_max
    with np.errstate(all="ignore"):

        def moved(running: Any, new: Any) -> Any:
            now = decode(new, desc.element).astype(kind)
            return np.where(np.isinf(running), now, running + constant * (now - running)).astype(kind)

        low, high = moved(running_min, low), moved(running_max, high)
        made = {"running_min": low, "running_max": high}
        most = (last - first) // 2
        balanced = desc.symmetric & (low < 0) & (high > 0)
        if desc.symmetric:
            below, above = np.abs(low / kind(-most - 1)), np.abs(high / kind(most))
            step = np.where(below < above, above, below).astype(np.float64)
            low = np.where(balanced, (step * (-most - 1)).astype(kind), low)
            high = np.where(balanced, (step * most).astype(kind), high)
        low, high = np.minimum(low, kind(0)).astype(np.float64), np.maximum(high, kind(0)).astype(np.float64)
        size = ((high - low) / (last - first)).astype(kind)
        size = np.where((size == 0) | np.isinf(kind(1) / size), kind(0.1), size).astype(kind)
        under, over = low / size.astype(np.float64), high / size.astype(np.float64)
        zero = np.where(abs(first) - np.abs(under) < abs(last) - np.abs(over), first - under, last - over)
        zero = np.where(balanced, (first + last) / 2, zero)
        zero = np.where(np.isnan(zero), 0, np.rint(np.clip(zero, first, last)))
        return made | {"scale": size, "zero_point": np.clip(zero, first, last).astype(np.int32)}


PARAMS = Params(
    "MovingAverageQParamsParams", running_min="ptr", running_max="ptr", low="ptr", high="ptr", scale="ptr",
    zero_point="ptr", averaging_const="scalar", channels="i64", strides="i64[6]", first="i32", last="i32",
    symmetric="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry:
    desc = p.desc
    views = (p.running_min, p.running_max, p.low, p.high, p.scale, p.zero_point)
    values = {
        "channels": desc.channels, "strides": [v.strides[0] for v in views], "first": desc.quant_min,
        "last": desc.quant_max, "symmetric": desc.symmetric,
    }  # fmt: skip
    step = Step("move", (max(1, -(-desc.channels // THREADS)), 1, 1), values, {}, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "strided")


class MovingAverageQParamsPlan(Plan):
    """running = running + averaging_const (new - running) of the ends of a range; its scale and zero point.

    Running ends that are infinite become the new ones. With low <= 0 <= high the scale is (high - low) / steps, 0.1 of
    zeros, and the zero point the integer nearest to quant_min - low / scale or to quant_max - high / scale, the one
    with the smaller error. symmetric: low and high of both signs become the ends of an even range, and the zero
    point its middle. What a CUDA device makes in torch.fused_moving_avg_obs_fake_quant; a NaN makes the scale NaN.
    """

    op = "quantize.moving_average_qparams"
    descriptor = MovingAverageQParamsDescriptor
    args = MovingAverageQParamsArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "channels", _geometry, source="quantize/moving_average_qparams.cu",
            kernels=(Kernel("move", "moving_average_qparams<{T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[8192] f32", channels=8192, element="float32", peers=()),)

    @staticmethod
    def case(draw: Any) -> MovingAverageQParamsDescriptor:
        low, high = draw.choice(((-128, 127), (0, 255), (-8, 7), (-127, 127)))
        return MovingAverageQParamsDescriptor(
            channels=draw.sizes(5, 1, 0, 130), quant_min=low, quant_max=high, symmetric=draw.flag(),
            element=draw.element,
        )  # fmt: skip


moving_average_qparams = functional(MovingAverageQParamsPlan)
