"""What scans share: their kinds, the axis of a descriptor, and rows turned so that formulas run along the last axis."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import FLOATS, Descriptor, ElementKind, axis, extents, flag
from ...core.benchmark import EAGER, Benchmark
from ...core.tensor import Shape
from ..reduce.reduce_kinds import WITH_COMPLEX


class ScanKind(enum.Enum):
    """What a ScanPlan computes, by PyTorch's names, and NumPy's of those that pass over NaN."""

    CUMSUM = "cumsum"
    CUMPROD = "cumprod"
    LOGCUMSUMEXP = "logcumsumexp"
    NANCUMSUM = "nancumsum"
    NANCUMPROD = "nancumprod"

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.value.capitalize()}"

    @property
    def elements(self) -> tuple[ElementKind, ...]:
        """The elements it takes."""
        return WITH_COMPLEX if self in (ScanKind.CUMSUM, ScanKind.CUMPROD) else FLOATS

    @property
    def plain(self) -> ScanKind:
        """The kind that it is where no element is NaN."""
        return {ScanKind.NANCUMSUM: ScanKind.CUMSUM, ScanKind.NANCUMPROD: ScanKind.CUMPROD}.get(self, self)

    @property
    def nothing(self) -> float:
        """The value of no elements."""
        return {ScanKind.CUMSUM: 0, ScanKind.CUMPROD: 1, ScanKind.LOGCUMSUMEXP: -np.inf}[self.plain]


def blocks_of_columns(element: ElementKind, kind: ScanKind) -> int:
    """How many blocks that scan columns a multiprocessor holds at least: 4 where no registers spill by it, or any."""
    total = kind.plain is ScanKind.CUMSUM or not element.is_inexact
    return 4 if total and element.itemsize >= 4 else 0


class ScanExtremeKind(enum.Enum):
    """What a ScanExtremePlan computes, by PyTorch's names."""

    CUMMAX = "cummax"
    CUMMIN = "cummin"

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.value.capitalize()}"


@dataclass(frozen=True, kw_only=True)
class AlongAxis(Descriptor):
    """Operands have shape `shape`; the scan is along `axis`, negative counting from the end.

    reverse: from the last element to the first.
    """

    shape: Shape = extents()
    axis: int = axis(-1, scalar=True)
    reverse: bool = flag(False)

    @property
    def kept_shape(self) -> Shape:
        """The shape without the axis: of what a row has one of."""
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    @property
    def count(self) -> int:
        """Elements of a row."""
        return self.shape[self.axis] if self.shape else 1


def rows_of(desc: AlongAxis, x: Any) -> Any:
    """x with the rows along its last axis, in the order of the scan."""
    rows = np.moveaxis(x.reshape(desc.shape or (1,)), desc.axis, -1)
    return rows[..., ::-1] if desc.reverse else rows


def from_rows(desc: AlongAxis, rows: Any) -> Any:
    """The array whose `rows_of` these are."""
    rows = rows[..., ::-1] if desc.reverse else rows
    return np.array(np.moveaxis(rows, -1, desc.axis)).reshape(desc.shape)


def places(desc: AlongAxis, offset: Any) -> Any:
    """Where the elements of a row stand, in the order of the scan, counted from `offset`, modulo 2^64."""
    own = np.arange(desc.count)[::-1] if desc.reverse else np.arange(desc.count)
    return own + np.int64((int(offset) + 2**63) % 2**64 - 2**63)


def recurrence(a: Any, b: Any, first: Any) -> Any:
    """h[0] = first, h[t + 1] = a[t] h[t] + b[t] along the last axis, of one element more than a and b have.

    NaN from the first a, b or `first` on that is infinite or NaN.
    """
    h = np.empty((*b.shape[:-1], b.shape[-1] + 1), b.dtype)
    with np.errstate(all="ignore"):
        h[..., 0] = first + 0 * first
        terms = b + 0 * a + 0 * b  # NaN, or b
        for t in range(b.shape[-1]):
            h[..., t + 1] = a[..., t] * h[..., t] + terms[..., t]
    return h


def torch_rows(desc: AlongAxis, x: Any) -> Any:
    """`rows_of` on tensors."""
    rows = x.reshape(desc.shape or (1,)).movedim(desc.axis, -1)
    return rows.flip(-1) if desc.reverse else rows


def torch_array(desc: AlongAxis, rows: Any) -> Any:
    """`from_rows` on tensors."""
    return (rows.flip(-1) if desc.reverse else rows).movedim(-1, desc.axis).reshape(desc.shape)


def problem(draw: Any) -> tuple[Shape, int]:
    """Short and long rows along any axis."""
    if draw.flag():
        shape = draw.shape(0, 4, 0, 6)
        return shape, draw.integer(0, max(len(shape) - 1, 0))
    if draw.flag():
        n = draw.sizes(9, 1, 40, 131, 300, 1100, 4200, rare=(40000,))
        return (draw.sizes(1, 3, 9) if n <= 1100 else 2 if n <= 4200 else 1, n), -1
    n = draw.sizes(9, 1, 40, 131, 300, 1100, 4200, rare=(8200,))
    return (n, draw.sizes(8, 17, 33) if n <= 1100 else 16 if n > 4200 else 8), 0


def scan_benchmarks(
    *names: str, kinds: bool = True, peers: tuple[str, ...] = (EAGER,), also: tuple[str, ...] = ()
) -> tuple[Benchmark, ...]:
    """Rows, columns and few long rows; the names are kinds, or label an op that has none."""
    made = []
    for element in (ElementKind.F32, ElementKind.BF16):
        for name in names:
            for shape, along in (((65536, 2048), 1), ((2048, 65536), 0), ((64, 1 << 20), 1)):
                label = f"{name} {list(shape)} {element.name.lower()}, axis {along}"
                facts: dict[str, Any] = {"shape": shape, "axis": along, "element": element}
                if kinds:
                    facts["kind"] = name
                target = 0.90 if along == 0 or shape[1] < 1 << 20 else 0.65  # the longest rows are read twice
                made.append(Benchmark(label, target=target, peers=peers, also=also, **facts))
    return tuple(made)
