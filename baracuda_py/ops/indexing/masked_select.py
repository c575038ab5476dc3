"""masked_select: the elements that a mask chooses, in order (torch.masked_select, numpy.extract), and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element, extents,
    integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import derived
from ...core.element import cast
from ...core.errors import InvalidProblemError
from ...core.numbers import met
from ...schedules.compact import (
    compact_geometry, compact_kernels, in_order, mask_params, source_fields, stored_bits,
)  # fmt: skip
from .indexed import MOVED, SUMMED


@dataclass(frozen=True, kw_only=True)
class MaskedSelectDescriptor(Descriptor):
    """x and mask have shape `shape`, y is a vector of `size`, by default of as many as x has, which always suffices.

    fill_value: of the elements of y behind those chosen.
    """

    shape: tuple[int, ...] = extents()
    size: int = integer(derived(lambda desc: math.prod(desc.shape)), minimum=0)
    fill_value: float = number(0.0, infinite=True)
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        if not self.element.is_inexact and abs(met("fill_value", self.fill_value, self.element, "element")) > 2**53:
            raise InvalidProblemError(f"fill_value must be an integer of 53 bits, got {self.fill_value:.0f}")


@dataclass(slots=True, kw_only=True)
class MaskedSelectArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    mask: Array = operand("*shape", element=ElementKind.BOOL)
    y: Array = output("size")
    count: Array = output("", element=ElementKind.I64)


def reference(desc: MaskedSelectDescriptor, *, x: Any, mask: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    found = x[mask]
    with np.errstate(all="ignore"):
        fill = np.asarray(cast(np.array(desc.fill_value), desc.element)).view(x.dtype)
    y = np.full(desc.size, fill, x.dtype)
    y[: found.size] = found[: desc.size]
    return {"y": y, "count": np.array(found.size, np.int64)}


PARAMS = mask_params("MaskedSelectParams")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    merged, source = in_order((p.mask, p.x, None)), source_fields(p.y)
    if isinstance(merged, str) or isinstance(source, str):
        return merged if isinstance(merged, str) else str(source)
    params = {
        **merged, **source, "y": "@null", "source": "y", "size": desc.size, "cyclic": False,
        "fill": stored_bits(desc.fill_value, desc.element),
    }  # fmt: skip
    axes = {"BYTES": desc.element.itemsize}
    return compact_geometry("select", p.x.size, params, axes, (p.x, p.mask, p.y), "fill", axes)


def in_torch(torch: Any, desc: MaskedSelectDescriptor, *, x: Any, mask: Any) -> Any:
    """torch.masked_select, cut or filled up."""
    found = torch.masked_select(x, mask)[: desc.size]
    y = torch.nn.functional.pad(found, (0, desc.size - found.numel()), value=desc.fill_value)
    return y, mask.sum()


class MaskedSelectPlan(Plan):
    """y = the elements of x where `mask` holds, in row-major order; count: how many there are (torch.masked_select).

    The number stays on the device: where it is less than `size` the elements of y behind it are fill_value, where it is
    more y has the first `size` of them. One pass over mask and x; the same result in every run.
    """

    op = "indexing.masked_select"
    descriptor = MaskedSelectDescriptor
    args = MaskedSelectArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("MaskedSelectBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "look_back", _geometry, "indexing/compact.cu", compact_kernels(PARAMS, "select", "fill"), elements=MOVED,
            guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "half of [16384, 16384] bf16", shape=(16384, 16384), size=1 << 27, element="bfloat16",
            make=lambda torch, desc: {"mask": torch.rand(desc.shape) < 0.5},
        ),
    )  # fmt: skip

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        return True  # by their ranks, which count from the first element of all

    @staticmethod
    def case(draw: Any) -> MaskedSelectDescriptor:
        fill = draw.choice((0.0, 2.0)) if draw.element.is_inexact else 0.0
        return MaskedSelectDescriptor(fill_value=fill, **select_case(draw))


def select_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields: sizes too small, just enough, too large; now and then several tiles."""
    shape = draw.choice((draw.shape(0, 4, 0, 7), (4100,), (3, 40, 70)))
    return {"shape": shape, "size": draw.choice((None, 0, 5, math.prod(shape) + 3)), "element": draw.element}


@dataclass(frozen=True, kw_only=True)
class MaskedSelectBackwardDescriptor(MaskedSelectDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)


@dataclass(slots=True, kw_only=True)
class MaskedSelectBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("size")
    mask: Array = operand("*shape", element=ElementKind.BOOL)
    dx: Array = output("*shape")


def backward_reference(desc: MaskedSelectBackwardDescriptor, *, dy: Any, mask: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    dx = np.zeros(desc.shape, dy.dtype)
    places = np.flatnonzero(mask)[: desc.size]
    dx.reshape(-1)[places] = dy[: places.size]
    return {"dx": dx}


BACKWARD_PARAMS = mask_params("MaskedSelectBackwardParams")


def _backward_geometry(p: Problem) -> Geometry | str:
    merged, source = in_order((p.mask, None, p.dx)), source_fields(p.dy)
    if isinstance(merged, str) or isinstance(source, str):
        return merged if isinstance(merged, str) else str(source)
    params = {
        **merged, **source, "y": "dx", "x": "@null", "source": "dy", "count": "@null", "size": p.desc.size,
        "cyclic": False, "fill": [0, 0], "status": "@null",
    }  # fmt: skip
    axes = {"BYTES": p.desc.element.itemsize}
    return compact_geometry("scatter", p.dx.size, params, axes, (p.dy, p.mask, p.dx))


class MaskedSelectBackwardPlan(Plan):
    """dx = dy at the rank of each element that the mask chose, 0 elsewhere."""

    op = "indexing.masked_select_backward"
    direction = "backward"
    descriptor = MaskedSelectBackwardDescriptor
    args = MaskedSelectBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "look_back", _backward_geometry, "indexing/compact.cu", compact_kernels(BACKWARD_PARAMS, "scatter"),
            elements=SUMMED, guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    benchmarks = MaskedSelectPlan.benchmarks

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        return True  # by their ranks, which count from the first element of all

    @staticmethod
    def case(draw: Any) -> MaskedSelectBackwardDescriptor:
        return MaskedSelectBackwardDescriptor(**select_case(draw))


masked_select_backward = functional(MaskedSelectBackwardPlan)
