"""scan_extreme_backward: dx = dy added up where the running extremes stood, in their order; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Forward, Geometry, Guarantee, Plan, Problem, Scalar, Variant, element,
    operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import decode
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from .scan_extreme import ScanExtremeDescriptor, ScanExtremePlan
from .scan_extreme import reference as forward
from .scan_kinds import ScanExtremeKind, from_rows, places, rows_of, scan_benchmarks, torch_array, torch_rows


@dataclass(frozen=True, kw_only=True)
class ScanExtremeBackwardDescriptor(ScanExtremeDescriptor):
    """The forward's fields."""

    element: ElementKind = element(FLOATS)


@dataclass(slots=True, kw_only=True)
class ScanExtremeBackwardArgs(Args):
    """Any strides; dx may be dy. indices and offset are the forward's; dcarry is the gradient of its `carry`."""

    dy: Array = operand("*shape")
    indices: Array = operand("*shape", element=ElementKind.I64)
    dcarry: Array | None = operand("*kept_shape", optional=True)
    offset: Scalar = scalar(0, integer=True)
    dx: Array = output("*shape", inplace=("dy",))
    dinitial: Array | None = output("*kept_shape", optional=True)


def reference(
    desc: ScanExtremeBackwardDescriptor, *, dy: Any, indices: Any, dcarry: Any, offset: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: run by run, from the end."""
    slopes, found = rows_of(desc, dy), rows_of(desc, indices)
    n = desc.count
    own = places(desc, offset)
    total = np.zeros(slopes.shape[:-1], dy.dtype) if dcarry is None else np.array(dcarry.reshape(slopes.shape[:-1]))
    dx = np.zeros_like(slopes)
    for t in reversed(range(n)):
        same = found[..., t] == found[..., t + 1] if t + 1 < n else True
        total = slopes[..., t] + np.where(same, total, dy.dtype.type(0))
        dx[..., t] = np.where(found[..., t] == own[t], total, 0)
    if n:
        total = np.where(found[..., 0] == own[0], dy.dtype.type(0), total)
    return {"dx": from_rows(desc, dx), "dinitial": total.reshape(desc.kept_shape)}


PARAMS = scan_params("ScanExtremeBackwardParams", offset="iscalar")
OPERANDS = ScanOperands(("dy", "indices"), ("dx",), ("dcarry",), ("dinitial",))


def _geometry(p: Problem) -> Geometry | str:
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=not p.desc.reverse)


def in_torch(
    torch: Any, desc: ScanExtremeBackwardDescriptor, *, dy: Any, indices: Any, dcarry: Any, offset: Any, wanted: Any
) -> Any:
    """torch's gradient, dy added up at the indices; what lies beyond the row is the extreme's before it."""
    slopes, found = torch_rows(desc, dy), torch_rows(desc, indices) - int(offset)
    n = slopes.shape[-1]
    places = n - 1 - found if desc.reverse else found
    if dcarry is not None:
        last = places[..., -1:] if n else places.new_zeros((*places.shape[:-1], 1))
        slopes, places = torch.cat((slopes, dcarry.reshape(last.shape)), -1), torch.cat((places, last), -1)
    places = torch.where((places >= 0) & (places < n), places, n)
    total = slopes.new_zeros((*slopes.shape[:-1], n + 1)).scatter_add(-1, places, slopes)
    return {"dx": torch_array(desc, total[..., :n]), "dinitial": total[..., n].reshape(desc.kept_shape)}


class ScanExtremeBackwardPlan(Plan):
    """dx[i] = the sum of dy[j] over the j whose running extreme stands at i, from the last to the first.

    Those j are a run of equal indices that begins at i. The run that begins at no place of its own, as the extreme that
    came before the row does, goes to `dinitial`; the last run has `dcarry`, too. Sums are carried with more digits than
    the accumulator has.
    """

    op = "scan.scan_extreme_backward"
    direction = "backward"
    kinds = ScanExtremeKind
    descriptor = ScanExtremeBackwardDescriptor
    args = ScanExtremeBackwardArgs
    reference = staticmethod(reference)
    value_policy = "a run of equal indices that does not begin at the place they name hands nothing back"
    variants = (
        Variant(
            "segments", _geometry, source="scan/scan_backward.cu", kernels=scan_kernels("{KIND}Backward<{T}>", PARAMS),
            guarantee=Guarantee(Forward(1), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("cummax")

    @staticmethod
    def case(draw: Any) -> ScanExtremeBackwardDescriptor:
        found = ScanExtremePlan.case(draw)
        return ScanExtremeBackwardDescriptor(
            kind=found.kind, shape=found.shape, axis=found.axis, reverse=found.reverse, element=draw.element
        )

    @classmethod
    def complete(cls, desc: ScanExtremeBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """indices become those of a forward: of the other operand's values, behind an extreme at place -7."""
        x = decode(arrays["dy"], desc.element).astype(np.float64)
        before = {"initial": np.zeros(desc.kept_shape), "initial_indices": np.full(desc.kept_shape, -7)}
        made = forward(desc, x=x, **before, offset=arrays["offset"], wanted=set())
        arrays["indices"] = made["indices"].astype(np.int64)


scan_extreme_backward = functional(ScanExtremeBackwardPlan)
