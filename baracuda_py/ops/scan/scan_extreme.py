"""scan_extreme: running extremes of x along one axis with their places, by one of `ScanExtremeKind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Scalar, Variant, Vjp, choice, element,
    operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import INTS
from ...core.errors import InvalidProblemError
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from ..reduce.reduce_kinds import EVERY
from .scan_kinds import (
    AlongAxis, ScanExtremeKind, from_rows, places, problem, rows_of, scan_benchmarks, torch_array, torch_rows,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScanExtremeDescriptor(AlongAxis):
    """x has shape `shape`; the scan is along `axis`, from the last element to the first if `reverse`."""

    kind: ScanExtremeKind = choice(ScanExtremeKind, ScanExtremeKind.CUMMAX)
    element: ElementKind = element(EVERY)

    @property
    def nothing(self) -> Any:
        """The extreme of no elements: what every element beats or equals."""
        most = self.kind is ScanExtremeKind.CUMMAX
        if self.element.is_float:
            return -np.inf if most else np.inf
        if self.element is ElementKind.BOOL:
            return not most
        return int(self.element.limits.min if most else self.element.limits.max)


@dataclass(slots=True, kw_only=True)
class ScanExtremeArgs(Args):
    """y: the extreme so far; indices: where it stands along the axis, counted from `offset`. Any strides; y may be x.

    initial, initial_indices: the extreme before each row and its place, given together; carry, carry_indices: those
    after it. A chunk of a stream takes as `offset` the elements before it.
    """

    x: Array = operand("*shape")
    initial: Array | None = operand("*kept_shape", optional=True)
    initial_indices: Array | None = operand("*kept_shape", element=ElementKind.I64, optional=True)
    offset: Scalar = scalar(0, integer=True)
    y: Array = output("*shape", inplace=("x",))
    indices: Array = output("*shape", element=ElementKind.I64)
    carry: Array | None = output("*kept_shape", optional=True)
    carry_indices: Array | None = output("*kept_shape", element=ElementKind.I64, optional=True)


def reference(
    desc: ScanExtremeDescriptor, *, x: Any, initial: Any, initial_indices: Any, offset: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in: NaN wins, and of equals the last."""
    rows, n = rows_of(desc, x), desc.count
    kept = rows.shape[:-1]
    first = np.full(kept, desc.nothing, x.dtype) if initial is None else initial.reshape(kept)
    place = np.full(kept, -1) if initial is None else initial_indices.reshape(kept)
    own = np.broadcast_to(places(desc, offset), rows.shape)
    given, known = (np.concatenate([a[..., None], b], -1) for a, b in ((first, rows), (place, own)))
    with np.errstate(all="ignore"):
        best = (np.maximum if desc.kind is ScanExtremeKind.CUMMAX else np.minimum).accumulate(given, axis=-1)
        holds = (given == best) | (given != given)
    last = np.maximum.accumulate(np.where(holds, np.arange(n + 1), 0), axis=-1)
    found = np.take_along_axis(known, last, -1)
    y, indices = (from_rows(desc, a[..., 1:]) for a in (best, found))
    carry, carry_indices = (np.array(a[..., -1]).reshape(desc.kept_shape) for a in (best, found))
    return {"y": y, "indices": indices, "carry": carry, "carry_indices": carry_indices}


PARAMS = scan_params("ScanExtremeParams", offset="iscalar")
OPERANDS = ScanOperands(("x",), ("y", "indices"), ("initial", "initial_indices"), ("carry", "carry_indices"))


def _geometry(p: Problem) -> Geometry | str:
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=p.desc.reverse)


def _blocks(element: ElementKind, _: ScanExtremeKind) -> int:
    return 4 if element.itemsize == 8 else 0  # left to itself the compiler lets these spill


def in_torch(
    torch: Any, desc: ScanExtremeDescriptor, *, x: Any, initial: Any, initial_indices: Any, offset: Any, wanted: Any
) -> Any:
    """torch's cummax or cummin of x behind `initial`; rows are flipped, and flipped back, for `reverse`."""
    rows = torch_rows(desc, x)
    n, more = rows.shape[-1], initial is not None
    if n == 0:
        return NotImplemented  # torch has no extreme of nothing
    if more:
        rows = torch.cat((initial.reshape(rows.shape[:-1])[..., None], rows), -1)
    y, found = getattr(torch, desc.kind.value)(rows, -1)
    at = found - int(more)
    indices = (n - 1 - at if desc.reverse else at) + int(offset)
    if more:
        indices = torch.where(at < 0, initial_indices.reshape(rows.shape[:-1])[..., None], indices)
    ends = {"carry": y[..., -1].reshape(desc.kept_shape), "carry_indices": indices[..., -1].reshape(desc.kept_shape)}
    start = int(more)
    return {"y": torch_array(desc, y[..., start:]), "indices": torch_array(desc, indices[..., start:]), **ends}


class ScanExtremePlan(Plan):
    """y[i] = the largest (cummax) or smallest (cummin) of x[0] … x[i] along `axis`, and its place (torch.cummax).

    A NaN is the extreme from where it stands on; of equals the last one's place is given. With `initial` and
    `initial_indices` a row goes on from that extreme and place, and `offset` is added to the places of x, so that the
    `carry` and `carry_indices` of a chunk are what the next begins with: chunks give the bits of the whole. The extreme
    of an empty row without `initial` is what every element beats, at place -1.
    """

    op = "scan.scan_extreme"
    kinds = ScanExtremeKind
    descriptor = ScanExtremeDescriptor
    args = ScanExtremeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "segments", _geometry, source="scan/scan.cu", elements=(*FLOATS, *INTS, ElementKind.BOOL),
            kernels=scan_kernels("{KIND}<{T}>", PARAMS, blocks=_blocks),
            guarantee=Guarantee(Exact(), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("ScanExtremeBackwardPlan", grads={"x": "dx", "initial": "dinitial"})
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("cummax")

    @staticmethod
    def case(draw: Any) -> ScanExtremeDescriptor:
        shape, axis = problem(draw)
        return ScanExtremeDescriptor(kind=draw.kind, shape=shape, axis=axis, reverse=draw.flag(), element=draw.element)

    @classmethod
    def check(cls, desc: ScanExtremeDescriptor, views: Mapping[str, Any]) -> None:
        given = [views.get(name) is not None for name in ("initial", "initial_indices")]
        if given[0] != given[1]:
            lacks, has = ("initial", "initial_indices") if given[1] else ("initial_indices", "initial")
            raise InvalidProblemError(f"{has} goes with {lacks}, which is None; give both or neither")

    @classmethod
    def complete(cls, desc: ScanExtremeDescriptor, arrays: dict[str, Any]) -> None:
        """`initial` and its places are both given or neither is; the places are none of the row's own."""
        if arrays["initial"] is None or arrays["initial_indices"] is None:
            arrays["initial"] = arrays["initial_indices"] = None
        else:
            arrays["initial_indices"] = np.asarray(-2 - np.abs(arrays["initial_indices"]))


def _function(kind: ScanExtremeKind) -> Any:
    return functional(
        ScanExtremePlan,
        kind.value,
        f"The {kind.value} of x along `axis`; see `ScanExtremePlan`.",
        kind=kind,
        positional=("axis",),
    )


cummax = _function(ScanExtremeKind.CUMMAX)
cummin = _function(ScanExtremeKind.CUMMIN)
