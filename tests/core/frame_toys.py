"""Ops without kernels, to test the frame with: every kind of operand, row and parameter. None is registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda_py.core import (
    ArchSku,
    Args,
    Array,
    Descriptor,
    ElementKind,
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Plan,
    Problem,
    Scalar,
    Step,
    Ulp,
    Variant,
    element,
    extents,
    inout,
    operand,
    output,
    scalar,
    shapes,
)


@dataclass(frozen=True, kw_only=True)
class AxpyDescriptor(Descriptor):
    shape: tuple[int, ...] = extents()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class AxpyArgs(Args):
    x: Array = operand("*shape")
    bias: Array | None = operand("*shape", optional=True, broadcast=True)
    y: Array = output("*shape", inplace=("x",))
    total: Array | None = output("", element="acc", optional=True, needs="bias")
    alpha: Scalar = scalar(2.0)
    step: Scalar = scalar(1, integer=True)


def axpy(desc: Any, *, x: Any, bias: Any, alpha: Any, step: Any, wanted: set[str]) -> Mapping[str, Any]:
    y = x.dtype.type(alpha) * x * x.dtype.type(step)
    y = y if bias is None else y + bias
    return {"y": y, "total": np.sum(y)}


AXPY = Params(
    "AxpyParams", x="ptr", bias="ptr", y="ptr", total="ptr", held="ptr", scratch="workspace", flag="status",
    alpha="scalar", step="iscalar", n="i64", rank="i32", strides="i64[3][4]", eps="f32",
)  # fmt: skip


def _step(p: Problem, kernel: str, vec: int, scratch: int = 0) -> Step:
    view = p.x
    strides = [[*v.strides, *(0,) * (4 - len(v.strides))] for v in (view, p.y)]
    values = {"n": view.size, "rank": len(view.shape), "strides": strides, "eps": 0.1, "scratch": scratch}
    values["held"] = ("@workspace", scratch) if scratch else "@null"
    return Step(kernel, (max(1, view.size), 1, 1), values, {"VEC": vec}, 128)


def _dense(p: Problem) -> Geometry | str:
    if not all(v.dense for v in p.flat()):
        return "an operand is not dense"
    if not all(v.ptr % 16 == 0 for v in p.flat()):
        return "a pointer is not 16-byte aligned"
    return Geometry((_step(p, "axpy", 4),))


def _strided(p: Problem) -> Geometry | str:
    if len(p.x.shape) > 4:
        return "more than 4 axes"
    return Geometry((_step(p, "axpy", 1), _step(p, "second", 1, 256)), 1024, "strided")


_KERNELS = (
    Kernel("axpy", "axpy<{T}, {VEC}>", AXPY, {"VEC": (1, 4)}, threads=128),
    Kernel("second", "second<{T}, {VEC}>", AXPY, lambda kind: {"VEC": (1,)}, threads=128),
)


class AxpyPlan(Plan):
    descriptor = AxpyDescriptor
    args = AxpyArgs
    reference = staticmethod(axpy)
    variants = (
        Variant("hopper", lambda p: "not in tests", source="toy.cu", design=ArchSku.SM90A, guarantee=Guarantee(Ulp(3))),
        Variant("atomic", _dense, source="toy.cu", kernels=_KERNELS, guarantee=Guarantee(Ulp(1), deterministic=False)),
        Variant("dense", _dense, source="toy.cu", kernels=_KERNELS, guarantee=Guarantee(Ulp(1))),
        Variant("strided", _strided, source="toy.cu", kernels=_KERNELS, guarantee=Guarantee(Ulp(2))),
    )

    @staticmethod
    def case(draw: Any) -> AxpyDescriptor:
        return AxpyDescriptor(shape=draw.shape(0, 3, 0, 5), element=draw.element)


AxpyPlan.op = "test.axpy"  # set after the class is made: such a plan is not registered


@dataclass(frozen=True, kw_only=True)
class UpdateDescriptor(Descriptor):
    shapes: tuple[tuple[int, ...], ...] = shapes()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class UpdateArgs(Args):
    params: list[Array] = inout(many="shapes")
    grads: list[Array] = operand(many="shapes")
    lr: Scalar = scalar(0.1)


def update(desc: Any, *, params: Any, grads: Any, lr: Any) -> Mapping[str, Any]:
    return {"params": [p - p.dtype.type(lr) * g for p, g in zip(params, grads, strict=True)]}


UPDATE = Params("UpdateParams", params="ptr[4]", grads="ptr[4]", sizes="i64[4]", lr="scalar")


def _update(p: Problem) -> Geometry | str:
    if not all(v.dense for v in p.flat()):
        return "an operand is not dense"
    count = len(p.params)
    steps = []
    for start in range(0, count, 4):
        stop = min(start + 4, count)
        values = {
            "params": ("params", start, stop),
            "grads": ("grads", start, stop),
            "sizes": [v.size for v in p.params[start:stop]],
        }
        steps.append(Step("update", (stop - start, 1, 1), values, {}, 256))
    return Geometry(tuple(steps))


class UpdatePlan(Plan):
    descriptor = UpdateDescriptor
    args = UpdateArgs
    reference = staticmethod(update)
    variants = (
        Variant(
            "all",
            _update,
            source="toy.cu",
            kernels=(Kernel("update", "update<{T}>", UPDATE),),
            guarantee=Guarantee(Ulp(2)),
        ),
    )

    @staticmethod
    def case(draw: Any) -> UpdateDescriptor:
        count = draw.integer(0, 6)
        return UpdateDescriptor(shapes=tuple(draw.shape(0, 2, 0, 4) for _ in range(count)), element=draw.element)


UpdatePlan.op = "test.update"
