"""shift_scale: y = (x + shift) · scale, an op of a package of its own; `tests/test_outside.py` installs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baracuda_py.calls.functional import functional
from baracuda_py.core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Guarantee,
    Params,
    Plan,
    Problem,
    Relative,
    Scalar,
    Variant,
    element,
    extents,
    operand,
    output,
    scalar,
)  # fmt: skip
from baracuda_py.schedules.map import map_geometry, map_kernels, map_params


@dataclass(frozen=True, kw_only=True)
class ShiftScaleDescriptor(Descriptor):
    """x and y have shape `shape`."""

    shape: tuple[int, ...] = extents()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class ShiftScaleArgs(Args):
    """Any strides; y may be x."""

    x: Array = operand("*shape")
    y: Array = output("*shape", inplace=("x",))
    shift: Scalar = scalar(0.0)
    scale: Scalar = scalar(1.0)


def reference(desc: ShiftScaleDescriptor, *, x: Any, shift: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy, in the dtype x comes in."""
    return {"y": (x + x.dtype.type(shift)) * x.dtype.type(scale)}


PARAMS = Params("ShiftScaleParams", y="ptr", x="ptr", shift="scalar", scale="scalar", **map_params(2))


def _geometry(p: Problem) -> Any:
    return map_geometry(p, (p.y, p.x))


class ShiftScalePlan(Plan):
    """y = (x + shift) · scale."""

    op = "my_ops.shift_scale"
    descriptor, args, reference = ShiftScaleDescriptor, ShiftScaleArgs, staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, source="my_ops/shift_scale.cu", kernels=map_kernels("shift_scale<{T}, {LAYOUT}>", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ShiftScaleDescriptor:
        """Small shapes, with 0, 1 and tails."""
        return ShiftScaleDescriptor(shape=draw.shape(0, 3, 0, 17), element=draw.element)


shift_scale = functional(ShiftScalePlan)
