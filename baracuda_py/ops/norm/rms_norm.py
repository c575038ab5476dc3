"""rms_norm: x / sqrt(mean(x²) + eps) · weight over the trailing axes (Zhang and Sennrich 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, OpCategory, Params, Plan, Problem, Relative, Step,
    Variant, element, extents, functional, number, operand, output,
)  # fmt: skip
from ...schedules.rows import merge_rows, row_params

_X = "*batch_shape *normalized_shape"
THREADS = 256


@dataclass(frozen=True, kw_only=True)
class RMSNormDescriptor(Descriptor):
    """x has shape (*batch_shape, *normalized_shape); the mean is over normalized_shape."""

    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    eps: float = number(1e-6, minimum=0.0)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class RMSNormArgs(Args):
    """`rstd` = 1 / sqrt(mean(x²) + eps), in the accumulator's element, is what the backward takes."""

    x: Array = operand(_X)
    weight: Array | None = operand("*normalized_shape", optional=True)
    y: Array = output(_X, inplace=("x",))
    rstd: Array | None = output("*batch_shape", element="acc", optional=True, layout="dense")


def reference(desc: RMSNormDescriptor, *, x: Any, weight: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    axes = tuple(range(len(desc.batch_shape), x.ndim))
    rstd = 1 / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + x.dtype.type(desc.eps))
    y = x * rstd if weight is None else x * rstd * weight
    return {"y": y, "rstd": rstd.reshape(desc.batch_shape)}


PARAMS = Params("RMSNormParams", x="ptr", weight="ptr", y="ptr", rstd="ptr", rstd_stride="i64", eps="f64", **row_params(3))


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"THREADS": (THREADS,), "VEC": (16 // kind.itemsize,), "DENSE": (True, False), "WIDE": (True, False)}


def _geometry(p: Problem) -> Geometry | str:
    split = len(p.desc.batch_shape)
    weight = None if p.weight is None else p.weight.broadcast_to(p.x.shape)
    rows = merge_rows((p.x, weight, p.y), split)
    if isinstance(rows, str):
        return rows
    width = 16 // p.desc.element.itemsize
    axes = {"THREADS": THREADS, "VEC": width, "DENSE": rows.dense, "WIDE": rows.dense and rows.vector() == width}
    step = Step("rms_norm", (rows.rows, 1, 1), {**rows.params(), "eps": p.desc.eps, "rstd_stride": 1}, axes, THREADS)
    return Geometry((step,), layout=rows.layout)


class RMSNormPlan(Plan):
    """y = x / sqrt(mean(x², over normalized_shape) + eps) · weight (torch.nn.functional.rms_norm)."""

    op = "norm.rms_norm"
    category = OpCategory.NORMALIZATION
    descriptor = RMSNormDescriptor
    args = RMSNormArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "row", _geometry, source="norm/rms_norm.cu",
            kernels=(Kernel("rms_norm", "rms_norm<{T}, {THREADS}, {VEC}, {DENSE}, {WIDE}>", PARAMS, _axes, threads="THREADS"),),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RMSNormDescriptor:
        return RMSNormDescriptor(
            batch_shape=draw.shape(0, 3, 0, 5), normalized_shape=draw.sizes(1, 7, 64, 1000, 4099),
            eps=draw.number(1e-8, 1e-2), element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("normalized_shape", shapes["weight"] if "weight" in shapes else shapes["x"][-1:])


rms_norm = functional(RMSNormPlan)
