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
from ...core.element import INTS
from ...core.element import cast as cast_values
from ...core.keywords import entry, unexpected
from ...schedules.map import map_geometry, map_kernels, map_params

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
                "cast_map<{KIND}, {T}, {LAYOUT}>", PARAMS, "cast_width<{KIND}, {T}>({VEC})",
                lambda kind: (_WIDE, _ONE),
            ),
            elements=ELEMENTS,
            guarantee=Guarantee(Exact(), batch_invariant=True, native=True),
        ),
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
