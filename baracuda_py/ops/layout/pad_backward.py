"""pad_backward: dx = the sum of dy over the places of y that pad filled from each element of x; no atomics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Relative, Variant, View, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.element import COMPLEX
from ...schedules.copy import KERNELS as COPIES
from ...schedules.copy import copy_step, launched, shifted, zeros_step
from ...schedules.map import THREADS
from ...schedules.pad import BACKWARD, KERNELS, SOURCE, backward_step, pad_step
from .pad import PadDescriptor, drawn, source


@dataclass(frozen=True, kw_only=True)
class PadBackwardDescriptor(PadDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class PadBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*out_shape")
    dx: Array = output("*shape")


def reference(desc: PadBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in, axis by axis."""
    for axis, n in enumerate(desc.shape):
        index, held = source(desc, axis)
        dx = np.zeros((n, *dy.shape[:axis], *dy.shape[axis + 1 :]), dy.dtype)
        np.add.at(dx, index[held], np.moveaxis(dy, axis, 0)[held])
        dy = np.moveaxis(dx, 0, axis)
    return {"dx": np.array(dy)}


def _kept(desc: PadBackwardDescriptor, dx: View, dy: View) -> tuple[View, int, View, int]:
    """The elements of dx that a constant padding left in y, and where they stand in dy; both with their offsets."""
    here, there, shape, steps = 0, 0, [], []
    for axis, (n, length, before, gap) in enumerate(
        zip(desc.shape, desc.out_shape, desc.before, desc.gap, strict=True)
    ):
        first = max(0, -(before // gap)) if before < 0 else 0
        stop = min(n, -(-(length - before) // gap)) if length > before else 0
        shape.append(max(0, stop - first))
        here += first * dx.strides[axis]
        there += (before + first * gap) * dy.strides[axis]
        steps.append(gap * dy.strides[axis])
    kept = View(dx.ptr, tuple(shape), dx.strides, dx.element)
    return shifted(kept, here), here, shifted(replace(kept, ptr=dy.ptr, strides=tuple(steps)), there), there


def _geometry(p: Problem) -> Geometry | str:
    desc, dx, dy = p.desc, p.dx, p.dy
    if desc.mode == "constant":
        kept, here, seen, there = _kept(desc, dx, dy)
        steps = [] if kept.size == dx.size else [zeros_step(dx, ("dx", 0))]
        steps.append(copy_step(kept, seen, ("dx", here), ("dy", there)))
        return launched(steps, (dx, dy))
    if not dy.size:
        return launched([zeros_step(dx, ("dx", 0))], (dx, dy))
    if desc.mode == "circular" and desc.shape == desc.out_shape:  # a permutation, and so is its opposite
        back = tuple(-n for n in desc.before)
        return launched([pad_step(dx, dy, back, desc.gap, "circular", bytes(16), ("dx", "dy"))], (dx, dy))
    return launched([backward_step(dx, dy, desc.before, desc.mode, ("dx", "dy"))], (dx, dy))


class PadBackwardPlan(Plan):
    """dx = the sum of dy over what was read of each element of x, in a fixed order; 0 where nothing was."""

    op = "layout.pad_backward"
    direction = "backward"
    descriptor = PadBackwardDescriptor
    args = PadBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "gather", _geometry, SOURCE,
            (*COPIES, *KERNELS, Kernel("pad_backward", "pad_backward<{T}>", BACKWARD, threads=THREADS)),
            elements=(*FLOATS, *COMPLEX), guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[64, 64, 224, 224] bf16 by 1", shape=(64, 64, 224, 224), padding=((0, 0), (0, 0), (1, 1), (1, 1)),
                  element="bfloat16", work=BYTES),
        Benchmark("[64, 64, 224, 224] f32 by 1 reflected", shape=(64, 64, 224, 224), mode="reflect",
                  padding=((0, 0), (0, 0), (1, 1), (1, 1)), element="float32", work=BYTES),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PadBackwardDescriptor:
        return PadBackwardDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int((math.prod(desc.shape) + math.prod(desc.out_shape)) * desc.element.itemsize)


pad_backward = functional(PadBackwardPlan)
