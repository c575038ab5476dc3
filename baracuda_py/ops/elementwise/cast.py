"""cast: y = x in another element, rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Params, Plan,
    Problem, Step, Variant, extents, functional, operand, output,
)  # fmt: skip
from ...core import element as element_field
from ...core.element import HALVES, INTS
from ...core.element import cast as cast_values
from ...core.keywords import entry, unexpected
from ...schedules.map import map_geometry, map_kernels, map_params
from ...core.benchmark import Benchmark, EAGER

ELEMENTS = (*FLOATS, *INTS, ElementKind.BOOL)


@dataclass(frozen=True, kw_only=True)
class CastDescriptor(Descriptor):
    """x holds `element`, y holds `to_element`; both have shape `shape`."""

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(ELEMENTS)
    element: ElementKind = element_field(ELEMENTS)

    @property
    def kind(self) -> ElementKind:
        """The column of the table: casts to one element are one family of kernels."""
        return self.to_element

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element


def _points(desc: CastDescriptor) -> tuple[float, ...]:
    """The ends of the target's range, and halves, where rounding and clamping change."""
    limits = desc.to_element.limits
    return (0, 0.5, 1, 1.5, 2.5, float(limits.max), float(limits.max) + 0.5, float(-limits.min), limits.tiny)


@dataclass(slots=True, kw_only=True)
class CastArgs(Args):
    """y may be x itself where both elements are the same."""

    x: Array = operand("*shape", values=Everywhere(_points))
    y: Array = output("*shape", element="to_element", inplace=("x",))


def reference(desc: CastDescriptor, *, x: Any) -> Mapping[str, Any]:
    """One rounding of the stored values."""
    return {"y": np.array(cast_values(x, desc.to_element))}


PARAMS = Params("CastParams", y="ptr", x="ptr", **map_params(2))
_WIDE, _ONE = 16, 1
"""Bytes that a chunk has in the wider element (1: one element), which `cast_width` in cast.cu divides."""


def _geometry(p: Problem) -> Geometry | str:
    found = map_geometry(p, (p.y, p.x))
    if isinstance(found, str):
        return found
    (step,) = found.steps
    assert isinstance(step, Step)
    width = _ONE if step.axes["VEC"] == 1 else _WIDE
    return replace(found, steps=(replace(step, axes={**step.axes, "VEC": width}),))


def in_torch(torch: Any, desc: CastDescriptor, *, x: Any) -> Any:
    """`Tensor.to`; floats clamped to an integer's range first, float64 rounded to odd on its way to 16 bits."""
    target = getattr(torch, str(desc.to_element))
    if x.dtype is torch.float64 and desc.to_element in HALVES:  # torch goes by float32, and would round twice
        single = x.float()
        bits = single.view(torch.int32) - (single.abs() > x.abs()).int()
        return (bits | (single != x).int()).view(torch.float32).to(target)
    if not x.is_floating_point() or target.is_floating_point or target is torch.bool:
        return x.to(target)
    limits = torch.iinfo(target)
    low, high = x <= limits.min, x >= limits.max
    inside = torch.where(low | high | x.isnan(), torch.zeros_like(x), x).to(target).to(torch.int64)
    return inside.masked_fill(low, limits.min).masked_fill(high, min(limits.max, 2**63 - 1)).to(target)


class CastPlan(Plan):
    """y = x.to(to_element), between floats, integers and bool.

    To a float: to nearest even, once. Float to integer: toward zero, clamped to the range, NaN to 0. Integer to
    integer: wraps. To bool: x != 0, so that NaN is True. fp8 and 4-bit elements are casts of their own.
    """

    op = "elementwise.cast"
    kinds = ELEMENTS
    descriptor = CastDescriptor
    args = CastArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "map", _geometry, source="elementwise/cast.cu",
            kernels=map_kernels(
                "cast_map<{KIND}, {T}, {LAYOUT}>", PARAMS, "baracuda::cast_width<{KIND}, {T}>({VEC})",
                lambda kind: (_WIDE, _ONE),
            ),
            elements=ELEMENTS,
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("bf16 to f32 134M", shape=1 << 27, element="bfloat16", to_element="float32", peers=(EAGER,)),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CastDescriptor:
        return CastDescriptor(shape=draw.shape(0, 4, 0, 17), to_element=draw.kind, element=draw.element)


_cast = functional(CastPlan, "cast")


@entry(CastPlan)
def cast(
    x: Array, to_element: Any, *, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any
) -> Any:
    """x as `to_element` (any dtype-like), rounded once; see `CastPlan`."""
    if unknown:
        raise unexpected(cast, unknown)
    return _cast(x, to_element=ElementKind.of(to_element), out=out, stream=stream, preference=preference)
