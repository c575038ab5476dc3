"""scan: prefixes of x along one axis, by one of `ScanKind`; running extremes with their places; a function per kind."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Forward, Geometry, Guarantee, Plan, Problem, Ulp,
    Variant, axis, choice, element, extents, flag, functional, operand, output, where,
)  # fmt: skip
from ...core.benchmark import EAGER, Benchmark
from ...core.element import INTS
from ...core.error_bound import ErrorBound
from ...core.errors import UnsupportedError
from ...core.tensor import Shape
from ...core.variant import Spills
from ...schedules.scan import scan_geometry, scan_kernels, scan_params
from ..reduce.reduce_kinds import EVERY


class ScanKind(enum.Enum):
    """What a ScanPlan computes, by PyTorch's names."""

    CUMSUM = "cumsum"
    CUMPROD = "cumprod"
    LOGCUMSUMEXP = "logcumsumexp"

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.value.capitalize()}"


class ScanExtremeKind(enum.Enum):
    """What a ScanExtremePlan computes, by PyTorch's names."""

    CUMMAX = "cummax"
    CUMMIN = "cummin"

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.value.capitalize()}"


def _elements(kind: ScanKind | None) -> tuple[ElementKind, ...]:
    return FLOATS if kind is ScanKind.LOGCUMSUMEXP else EVERY


@dataclass(frozen=True, kw_only=True)
class ScanDescriptor(Descriptor):
    """x has shape `shape`; the scan is along `axis`, negative counting from the end.

    reverse: from the last element to the first. exclusive: an element's own value is not part of its prefix, and the
    first is that of no elements: 0, 1, -inf.
    """

    kind: ScanKind = choice(ScanKind, ScanKind.CUMSUM)
    shape: Shape = extents()
    axis: int = axis(-1, scalar=True)
    reverse: bool = flag(False)
    exclusive: bool = flag(False)
    element: ElementKind = element(EVERY)

    def validate(self) -> None:
        if self.element not in _elements(self.kind):
            raise UnsupportedError(f"{self.kind.value} of {self.element} is not an integer; cast to a float first")

    @property
    def result(self) -> ElementKind:
        """The element of y: int64 for integers and bool, as in PyTorch (uint64 for itself)."""
        return self.element if self.element.is_float or self.element is ElementKind.U64 else ElementKind.I64


@dataclass(slots=True, kw_only=True)
class ScanArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    y: Array = output("*shape", element="result")


@dataclass(frozen=True, kw_only=True)
class ScanExtremeDescriptor(Descriptor):
    """x has shape `shape`; the scan is along `axis`, from the last element to the first if `reverse`."""

    kind: ScanExtremeKind = choice(ScanExtremeKind, ScanExtremeKind.CUMMAX)
    shape: Shape = extents()
    axis: int = axis(-1, scalar=True)
    reverse: bool = flag(False)
    element: ElementKind = element(EVERY)


@dataclass(slots=True, kw_only=True)
class ScanExtremeArgs(Args):
    """y: the extreme so far; indices: where it stands along the axis. Any strides."""

    x: Array = operand("*shape")
    y: Array = output("*shape")
    indices: Array = output("*shape", element=ElementKind.I64)


def _along(desc: Any, x: Any, scan: Callable[[Any], Any]) -> Any:
    """`scan` along the last axis of x turned as the descriptor says, and turned back."""
    rows = np.moveaxis(x.reshape(desc.shape or (1,)), desc.axis, -1)
    y = scan(rows[..., ::-1] if desc.reverse else rows)
    y = y[..., ::-1] if desc.reverse else y
    return np.array(np.moveaxis(y, -1, desc.axis)).reshape(desc.shape)


def reference(desc: ScanDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    dtype = x.dtype if desc.element.is_float else desc.result.dtype
    scans = {
        ScanKind.CUMSUM: (np.add, 0), ScanKind.CUMPROD: (np.multiply, 1), ScanKind.LOGCUMSUMEXP: (np.logaddexp, -np.inf)
    }  # fmt: skip
    add, nothing = scans[desc.kind]

    def scan(rows: Any) -> Any:
        given = rows.astype(dtype)
        if desc.exclusive:
            given = np.concatenate([np.full_like(given[..., :1], nothing), given[..., :-1]], axis=-1)
        return add.accumulate(given, axis=-1)

    with np.errstate(all="ignore"):
        return {"y": _along(desc, x, scan)}


def extreme_reference(desc: ScanExtremeDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: NaN wins, and of equals the last."""
    most = desc.kind is ScanExtremeKind.CUMMAX
    n = (desc.shape or (1,))[desc.axis]

    def best(rows: Any) -> Any:
        return (np.maximum if most else np.minimum).accumulate(rows, axis=-1)

    def places(rows: Any) -> Any:
        top = best(rows)
        is_best = (rows == top) | (rows != rows)
        found = np.maximum.accumulate(np.where(is_best, np.arange(n), 0), axis=-1)
        return n - 1 - found if desc.reverse else found

    with np.errstate(all="ignore"):
        return {"y": _along(desc, x, best), "indices": _along(desc, x, places)}


PARAMS = scan_params("ScanParams")


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = [p.x, p.y, p.views.get("indices")]
    if not desc.shape:
        views = [None if v is None else v.reshaped((1,)) for v in views]
    exclusive = getattr(desc, "exclusive", False)
    x, y, indices = views
    return scan_geometry(p, x, y, indices, desc.axis, reverse=desc.reverse, exclusive=exclusive)


def _bound(kind: ElementKind, scan: Any) -> ErrorBound:
    if not kind.is_float:
        return Exact()
    if scan is ScanKind.CUMPROD:
        return Ulp(1 if kind is ElementKind.F64 else 0.51)
    # Sums are carried with twice the digits and rounded once. logcumsumexp: each of up to 8 + 5 + 32 merges of a
    # segment, and 10 and one in 1024 of segments, errs by up to 3 half eps; rows of up to 2^26 elements.
    return Forward(1) if scan is ScanKind.CUMSUM else Forward(192)


def _row(name: str, elements: Any, guarantee: Guarantee, spills: Spills = MappingProxyType({})) -> tuple[Variant, ...]:
    kernels = scan_kernels("{KIND}<{T}>", PARAMS, spills)
    return (Variant(name, _geometry, source="scan/scan.cu", elements=elements, kernels=kernels, guarantee=guarantee),)


_SPILLS: Spills = {  # of the extremes, which carry a place beside a value
    "rows": where(element=(ElementKind.F16, ElementKind.BF16), WIDE=True, TOTALS=False),
    "neighbours": where(kind=ScanExtremeKind.CUMMAX, element=ElementKind.U16, TOTALS=False),
}


def _problem(draw: Any) -> tuple[Shape, int]:
    """Short and long rows along any axis."""
    if draw.flag():
        shape = draw.shape(0, 4, 0, 6)
        return shape, draw.integer(0, max(len(shape) - 1, 0))
    n = draw.sizes(9, 1, 40, 131, 300, 1100, 4200)
    if draw.flag():
        return (draw.sizes(1, 3, 9) if n <= 1100 else 2, n), -1
    return (n, draw.sizes(8, 17, 33) if n <= 1100 else 8), 0


def in_torch(torch: Any, desc: ScanDescriptor, *, x: Any) -> Any:
    """torch's function of the kind; `reverse` and `exclusive`, which it has not, by flips and a shift."""
    rows = x.reshape(desc.shape or (1,))
    y = getattr(torch, desc.kind.value)(rows.flip(desc.axis) if desc.reverse else rows, desc.axis)
    if desc.exclusive:
        nothing = {ScanKind.CUMSUM: 0, ScanKind.CUMPROD: 1, ScanKind.LOGCUMSUMEXP: float("-inf")}[desc.kind]
        first = y.new_full([1 if a == desc.axis else n for a, n in enumerate(y.shape)], nothing)
        y = torch.cat((first, y), desc.axis).narrow(desc.axis, 0, rows.shape[desc.axis])
    return (y.flip(desc.axis) if desc.reverse else y).reshape(desc.shape)


def extreme_in_torch(torch: Any, desc: ScanExtremeDescriptor, *, x: Any) -> Any:
    """torch's cummax or cummin, of the flipped rows and flipped back for `reverse`."""
    rows = x.reshape(desc.shape or (1,))
    y, indices = getattr(torch, desc.kind.value)(rows.flip(desc.axis) if desc.reverse else rows, desc.axis)
    if desc.reverse:
        y, indices = y.flip(desc.axis), rows.shape[desc.axis] - 1 - indices.flip(desc.axis)
    return y.reshape(desc.shape), indices.reshape(desc.shape)


def _benchmarks(*kinds: str) -> tuple[Benchmark, ...]:
    """Rows, columns and few long rows."""
    return tuple(
        Benchmark(
            f"{kind} {list(shape)} {element.name.lower()}, axis {axis}", kind=kind, shape=shape, axis=axis,
            element=element, target=0.90, peers=(EAGER,),
        )
        for element in (ElementKind.F32, ElementKind.BF16)
        for kind in kinds
        for shape, axis in (((65536, 2048), 1), ((2048, 65536), 0), ((64, 1 << 20), 1))
    )  # fmt: skip


class ScanPlan(Plan):
    """y[i] = x[0] + … + x[i] along `axis` (torch.cumsum), their product (cumprod), or log of the sum of exponentials.

    Integers are added and multiplied in int64 (uint64 of uint64) and wrap. Sums and products of floats are carried with
    more digits than their accumulator has; a row's bits depend on its elements alone.
    """

    op = "scan.scan"
    kinds = ScanKind
    descriptor = ScanDescriptor
    args = ScanArgs
    reference = staticmethod(reference)
    variants = _row("segments", _elements, Guarantee(_bound, batch_invariant=True))
    torch = staticmethod(in_torch)
    benchmarks = _benchmarks("cumsum", "logcumsumexp")

    @staticmethod
    def case(draw: Any) -> ScanDescriptor:
        shape, axis = _problem(draw)
        return ScanDescriptor(
            kind=draw.kind, shape=shape, axis=axis, reverse=draw.flag(), exclusive=draw.flag(), element=draw.element
        )


class ScanExtremePlan(Plan):
    """y[i] = the largest (cummax) or smallest (cummin) of x[0] … x[i] along `axis`, and its place (torch.cummax).

    A NaN is the extreme from where it stands on; of equals the last one's place is given.
    """

    op = "scan.scan_extreme"
    kinds = ScanExtremeKind
    descriptor = ScanExtremeDescriptor
    args = ScanExtremeArgs
    reference = staticmethod(extreme_reference)
    variants = _row("segments", (*FLOATS, *INTS, ElementKind.BOOL), Guarantee(Exact(), batch_invariant=True), _SPILLS)
    torch = staticmethod(extreme_in_torch)
    benchmarks = _benchmarks("cummax")

    @staticmethod
    def case(draw: Any) -> ScanExtremeDescriptor:
        shape, axis = _problem(draw)
        return ScanExtremeDescriptor(kind=draw.kind, shape=shape, axis=axis, reverse=draw.flag(), element=draw.element)


def _function(plan: type[Plan], kind: Any) -> Any:
    return functional(plan, kind.value, f"The {kind.value} of x along `axis`; see `{plan.__name__}`.", kind=kind)


cumsum = _function(ScanPlan, ScanKind.CUMSUM)
cumprod = _function(ScanPlan, ScanKind.CUMPROD)
logcumsumexp = _function(ScanPlan, ScanKind.LOGCUMSUMEXP)
cummax = _function(ScanExtremePlan, ScanExtremeKind.CUMMAX)
cummin = _function(ScanExtremePlan, ScanExtremeKind.CUMMIN)
