"""trapezoid, cumulative_trapezoid: the area under y along one axis by the trapezoidal rule, whole and so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, Vjp, axis,
    element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape, View
from ...core.variant import Kernel
from ...core.arrays import read
from ...schedules.reduce import reduce_kernels, reduce_launches, reduce_params
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params


@dataclass(frozen=True, kw_only=True)
class TrapezoidDescriptor(Descriptor):
    """y has shape `shape`; the area is taken along `axis`, negative counting from the end."""

    shape: Shape = extents()
    axis: int = axis(-1)
    element: ElementKind = element()

    @property
    def kept_shape(self) -> Shape:
        """The shape without the axis."""
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    @property
    def panels(self) -> Shape:
        """The shape of what lies between neighbours."""
        return (*self.shape[: self.axis], max(self.shape[self.axis] - 1, 0), *self.shape[self.axis + 1 :])


@dataclass(slots=True, kw_only=True)
class TrapezoidArgs(Args):
    """Any strides. x: where y is taken, of any order; without it neighbours are `spacing` apart."""

    y: Array = operand("*shape")
    x: Array | None = operand("*shape", broadcast=True, optional=True)
    spacing: Scalar = scalar(1.0)
    area: Array = output("*kept_shape")


@dataclass(slots=True, kw_only=True)
class CumulativeTrapezoidArgs(Args):
    """Any strides. x: where y is taken, of any order; without it neighbours are `spacing` apart."""

    y: Array = operand("*shape")
    x: Array | None = operand("*shape", broadcast=True, optional=True)
    spacing: Scalar = scalar(1.0)
    area: Array = output("*panels")


def _areas(desc: TrapezoidDescriptor, y: Any, x: Any, spacing: Any) -> Any:
    """The area of every panel, in the dtype y comes in, along the last axis."""
    heights = np.moveaxis(y, desc.axis, -1)
    half = y.dtype.type(0.5)
    if x is None:
        width = half * y.dtype.type(spacing)
    else:
        width = half * np.diff(np.moveaxis(np.broadcast_to(x, desc.shape), desc.axis, -1), axis=-1)
    return np.asarray((heights[..., :-1] + heights[..., 1:]) * width)


def reference(desc: TrapezoidDescriptor, *, y: Any, x: Any, spacing: Any) -> Mapping[str, Any]:
    """NumPy in the dtype y comes in."""
    with np.errstate(all="ignore"):
        return {"area": np.asarray(np.sum(_areas(desc, y, x, spacing), axis=-1))}


def cumulative_reference(desc: TrapezoidDescriptor, *, y: Any, x: Any, spacing: Any) -> Mapping[str, Any]:
    """NumPy in the dtype y comes in."""
    with np.errstate(all="ignore"):
        return {"area": np.moveaxis(np.cumsum(_areas(desc, y, x, spacing), axis=-1), -1, desc.axis)}


def _ends(p: Problem) -> tuple[dict[str, View], dict[str, Any]]:
    """What stands at the low and the high end of each panel, y and, where given, x; and where it lies in memory."""
    desc = p.desc
    views, places = {}, {}
    for name, ends in (("y", ("low", "high")), ("x", ("left", "right"))):
        if p.views[name] is None:
            continue
        whole = p.views[name].broadcast_to(desc.shape)
        step = whole.strides[desc.axis] * whole.element.itemsize if desc.shape[desc.axis] > 1 else 0
        for end, shift in zip(ends, (0, step), strict=True):
            views[end] = View(whole.ptr + shift, desc.panels, whole.strides, whole.element)
            places[end] = (name, shift)
    return views, places


PARAMS = reduce_params("TrapezoidParams", ("low", "high"), ("y",), spacing="scalar")
SPACED_PARAMS = reduce_params("SpacedTrapezoidParams", ("low", "high", "left", "right"))
ROWS_PARAMS = reduce_params("TrapezoidRowsParams", ("low",), ("y",), spacing="scalar")
_SOURCE = "Mapped<Panels<{T}>, {T}, {T}>"
_SPACED_SOURCE = "Mapped<SpacedPanels<{T}>, {T}, {T}, {T}, {T}>"


def _rows_kernels() -> tuple[Kernel, ...]:
    """Of rows that are read once, in aligned chunks: the others read two views."""
    made = reduce_kernels("kinds::Sum<{T}>", ROWS_PARAMS, source="PanelRow<{T}>", prefix="run_")
    return tuple(replace(k, source="scan/trapezoid_rows.cu") for k in made if k.name in ("run_rows", "run_partials"))


def _along_rows(p: Problem, low: View) -> Geometry | None:
    """The launches where rows of y are runs of aligned chunks, None where they are not."""
    if p.y.strides[p.desc.axis] != 1:
        return None
    values = {"low": "y", "y": "area"}
    found = reduce_launches(
        p.device, (low,), (p.area,), (p.desc.axis,), mapped=True, values=values, prefix="run_"
    )  # fmt: skip
    if isinstance(found, str) or found.steps[0].kernel != "run_rows":
        return None
    return Geometry(found.steps, found.used, "inner_contiguous")


def _geometry(p: Problem) -> Geometry | str:
    views, places = _ends(p)
    if "left" not in views and (rows := _along_rows(p, views["low"])) is not None:
        return rows
    found = reduce_launches(
        p.device, tuple(views.values()), (p.area,), (p.desc.axis,), mapped=True, values={**places, "y": "area"},
        prefix="spaced_" if "left" in views else "",
    )  # fmt: skip
    if isinstance(found, str):
        return found
    return Geometry(found.steps, found.used, "inner_contiguous" if found.coalesced else "strided")


SCAN_PARAMS = scan_params("CumulativeTrapezoidParams", spacing="scalar")


def _cumulative_geometry(p: Problem) -> Geometry | str:
    views, places = _ends(p)
    operands = ScanOperands(tuple(views), ("area",))
    prefix = "spaced_" if "left" in views else ""
    return scan_geometry(
        p, operands, p.desc.axis, reverse=False, views=views, places=places, prefix=prefix, wide=False
    )  # y[i] and y[i + 1] are not both aligned


def in_torch(torch: Any, desc: TrapezoidDescriptor, *, y: Any, x: Any, spacing: Any) -> Any:
    """torch.trapezoid."""
    if x is None:
        return torch.trapezoid(y, dx=spacing, dim=desc.axis)
    return torch.trapezoid(y, x.expand(desc.shape), dim=desc.axis)


def cumulative_in_torch(torch: Any, desc: TrapezoidDescriptor, *, y: Any, x: Any, spacing: Any) -> Any:
    """torch.cumulative_trapezoid."""
    if x is None:
        return torch.cumulative_trapezoid(y, dx=spacing, dim=desc.axis)
    return torch.cumulative_trapezoid(y, x.expand(desc.shape), dim=desc.axis)


def _case(draw: Any) -> TrapezoidDescriptor:
    if draw.flag():
        shape = draw.shape(1, 4, 0, 6)
        return TrapezoidDescriptor(shape=shape, axis=draw.integer(0, len(shape) - 1), element=draw.element)
    n = draw.sizes(9, 1, 41, 131, 1101, 4200, rare=(9000, 40001))
    shape, along = draw.choice((((2, n), 1), ((n, 17), 0), ((n,), 0))) if n <= 4200 else ((n,), 0)
    return TrapezoidDescriptor(shape=shape, axis=along, element=draw.element)


def _benchmarks() -> tuple[Benchmark, ...]:
    return tuple(
        Benchmark(f"[16384, 8192] bf16, axis {along}", shape=(16384, 8192), axis=along, element="bfloat16")
        for along in (1, 0)
    )


class TrapezoidPlan(Plan):
    """area = the sum of (y[i] + y[i + 1]) / 2 times x[i + 1] - x[i], or `spacing`, along `axis` (torch.trapezoid).

    Summed in float32 (float64 of float64); of fewer than two elements it is 0.
    """

    op = "scan.trapezoid"
    descriptor = TrapezoidDescriptor
    args = TrapezoidArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="scan/trapezoid.cu",
            kernels=(
                *reduce_kernels("kinds::Sum<{T}>", PARAMS, source=_SOURCE),
                *reduce_kernels(
                    "kinds::Sum<{T}>", SPACED_PARAMS, source=_SPACED_SOURCE, prefix="spaced_",
                ),
                *_rows_kernels(),
            ),
            guarantee=Guarantee(Relative(4), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("TrapezoidBackwardPlan", grads={"y": "dy", "x": "dx"})
    torch = staticmethod(in_torch)
    benchmarks = _benchmarks()
    case = staticmethod(_case)


class CumulativeTrapezoidPlan(Plan):
    """area[i] = the area of the first i + 1 panels along `axis` (torch.cumulative_trapezoid), one fewer than y has.

    Panels are computed and summed in float64, of float64 summed with twice its digits, and rounded once.
    """

    op = "scan.cumulative_trapezoid"
    descriptor = TrapezoidDescriptor
    args = CumulativeTrapezoidArgs
    reference = staticmethod(cumulative_reference)
    variants = (
        Variant(
            "segments", _cumulative_geometry, source="scan/cumulative_trapezoid.cu",
            kernels=(
                *scan_kernels("kinds::Areas<{T}, false>", SCAN_PARAMS, wide=False),
                *scan_kernels("kinds::Areas<{T}, true>", SCAN_PARAMS, prefix="spaced_", wide=False),
            ),
            guarantee=Guarantee(Relative(2), math="float64", batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("CumulativeTrapezoidBackwardPlan", grads={"y": "dy", "x": "dx"})
    torch = staticmethod(cumulative_in_torch)
    benchmarks = _benchmarks()
    case = staticmethod(_case)


_trapezoid: Any = functional(TrapezoidPlan)
_cumulative: Any = functional(CumulativeTrapezoidPlan)


def _along(y: Array, x: Array | None, dx: Scalar, along: int) -> Array | None:
    """x as it broadcasts to y: of one axis it lies along that of the panels, as in PyTorch and NumPy."""
    if x is None:
        return None
    if type(dx) not in (int, float) or dx != 1:
        raise InvalidProblemError(f"dx is the step where there is no x; with x it must be 1, got {shown(dx)}")
    rank, own = len(read(y, "y").shape), read(x, "x").shape
    if type(along) is not int or len(own) != 1 or rank < 2 or along in (-1, rank - 1) or not -rank <= along < rank:
        return x
    return x.reshape((own[0],) + (1,) * (rank - 1 - along % rank))


@entry(TrapezoidPlan)
def trapezoid(
    y: Array, x: Array | None = None, *, dx: Scalar = 1.0, axis: int = -1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The area under y along `axis`, at places x or `dx` apart (torch.trapezoid); see `TrapezoidPlan`."""
    x = _along(y, x, dx, axis)
    return _trapezoid(y, x, spacing=dx, axis=axis, out=out, stream=stream, preference=preference)


trapz = trapezoid


@entry(CumulativeTrapezoidPlan)
def cumulative_trapezoid(
    y: Array, x: Array | None = None, *, dx: Scalar = 1.0, axis: int = -1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The area under y so far along `axis` (torch.cumulative_trapezoid); see `CumulativeTrapezoidPlan`."""
    x = _along(y, x, dx, axis)
    return _cumulative(y, x, spacing=dx, axis=axis, out=out, stream=stream, preference=preference)
