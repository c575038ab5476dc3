"""batch_norm_inference: y = (x - running_mean) / sqrt(running_var + eps) · weight + bias of each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Step, Variant, Vjp, element, flag,
    number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.channels import ROW, THREADS, Planes, channel_case, single_kernel
from ...schedules.norms import affine_elements
from ...schedules.reduce import REDUCE
from ...core.variant import aligned
from .channel_norm import APPLY_KERNELS, across, applied, apply_step

_X = "batch channels *spatial"


@dataclass(frozen=True, kw_only=True)
class BatchNormInferenceDescriptor(Planes):
    """As `Planes`. inverse: `running_var` is 1 / sqrt(var + eps), as `channel_norm` returns it, and eps is not read."""

    eps: float = number(1e-5, minimum=0.0)
    inverse: bool = flag(False)
    element: ElementKind = element()

    @property
    def given(self) -> bool:
        """What the backward reads of it: the statistics do not move with x."""
        return True

    @property
    def statistic_elements(self) -> tuple[ElementKind, ...]:
        """The elements that running_mean and running_var may have, each its own."""
        return affine_elements(self.element)


def _positive(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.random(shape) + 0.25


@dataclass(slots=True, kw_only=True)
class BatchNormInferenceArgs(Args):
    """Any strides. mean and rstd are what the backward takes, in the accumulator's element."""

    x: Array = operand(_X)
    running_mean: Array = operand("channels", element="statistic_elements")
    running_var: Array = operand("channels", element="statistic_elements", values=_positive)
    weight: Array | None = operand("channels", element="weight_element", optional=True)
    bias: Array | None = operand("channels", element="weight_element", optional=True)
    y: Array = output(_X, inplace=("x",))
    mean: Array | None = output("channels", element="acc", optional=True, layout="dense")
    rstd: Array | None = output("channels", element="acc", optional=True, layout="dense")


def reference(
    desc: BatchNormInferenceDescriptor, *, x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        rstd = running_var if desc.inverse else 1 / np.sqrt(running_var + x.dtype.type(desc.eps))
        z = (x.reshape(desc.split_shape) - across(desc, running_mean)) * across(desc, rstd)
        return {"y": applied(desc, z, weight, bias), "mean": running_mean, "rstd": rstd}


GIVEN = Params(
    "ChannelGivenParams", mean="ptr", var="ptr", table="workspace", saved_mean="ptr", saved_rstd="ptr", rows="i64",
    mean_stride="i64", var_stride="i64", eps="f64", mean_wide="i32", var_wide="i32", inverse="i32",
    **REDUCE,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    last = apply_step(p, 0)
    if isinstance(last, str):
        return last
    values = {
        "mean": "running_mean", "var": "running_var", "saved_mean": "mean", "saved_rstd": "rstd", "table": 0,
        "rows": desc.channels, "mean_stride": p.running_mean.strides[0], "var_stride": p.running_var.strides[0],
        "eps": desc.eps, "mean_wide": p.running_mean.element is not desc.element,
        "var_wide": p.running_var.element is not desc.element, "inverse": desc.inverse,
    }  # fmt: skip
    first = Step("given", (max(1, -(-desc.channels // THREADS)), 1, 1), values, {}, THREADS)
    return Geometry((first, *last.steps), aligned(desc.channels * ROW), last.layout)


def in_torch(
    torch: Any, desc: BatchNormInferenceDescriptor, *, x: Any, running_mean: Any, running_var: Any, weight: Any,
    bias: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """torch's batch_norm with training=False."""
    if desc.inverse:
        return NotImplemented
    y = torch.nn.functional.batch_norm(x, running_mean, running_var, weight, bias, False, 0.1, desc.eps)
    return {"y": y, "mean": running_mean, "rstd": torch.rsqrt(running_var + desc.eps)}


class BatchNormInferencePlan(Plan):
    """y = (x - running_mean) / sqrt(running_var + eps) · weight + bias of each channel (torch's batch_norm).

    x, y (batch, channels, *spatial), channels first or last by their strides; the others (channels). The statistics are
    constants: the gradient of x is dy · weight · rstd, and they have none. With `inverse`, running_var is rstd itself,
    as statistics that were gathered elsewhere come (torch.batch_norm_elemt). y may be x.
    """

    op = "norm.batch_norm_inference"
    descriptor = BatchNormInferenceDescriptor
    args = BatchNormInferenceArgs
    autocast = "widest"
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="norm/channel_norm.cu",
            kernels=(single_kernel("given", "channel_norm_given<{T}>", GIVEN), *APPLY_KERNELS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("ChannelNormBackwardPlan", grads={"x": "dx", "weight": "dweight", "bias": "dbias"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[256, 256, 56, 56] bf16", also=("weight", "bias"), batch=256, channels=256, spatial=(56, 56),
                  element="bfloat16"),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BatchNormInferenceDescriptor:
        drawn = channel_case(draw, "batch")
        return BatchNormInferenceDescriptor(
            batch=drawn["batch"], channels=drawn["channels"], spatial=drawn["spatial"], element=draw.element,
            eps=draw.number(1e-8, 1e-2), inverse=draw.integer(0, 3) == 3,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip


batch_norm_inference = functional(BatchNormInferencePlan, follows="x")
