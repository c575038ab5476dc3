"""unwrap: x without the jumps of whole periods between neighbours along one axis (numpy.unwrap)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, element,
    operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from .scan_kinds import AlongAxis, from_rows, problem, rows_of, scan_benchmarks, torch_array, torch_rows


@dataclass(frozen=True, kw_only=True)
class UnwrapDescriptor(AlongAxis):
    """x and y have shape `shape`; neighbours are along `axis`. reverse: the last element is kept, not the first."""

    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class UnwrapArgs(Args):
    """Any strides. period: of the values, above 0; discont: the least jump that is one, no less than half a period."""

    x: Array = operand("*shape")
    period: Scalar = scalar(2 * math.pi)
    discont: Scalar = scalar(0.0)
    y: Array = output("*shape")


def reference(desc: UnwrapDescriptor, *, x: Any, period: Any, discont: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    rows = rows_of(desc, x)
    period, least = x.dtype.type(period), x.dtype.type(discont)
    with np.errstate(all="ignore"):
        jumps = rows[..., 1:] - rows[..., :-1]
        shifted = jumps + period / 2
        turns = np.floor_divide(shifted, period)
        turns = np.where((turns * period == shifted) & (jumps > 0), turns - 1, turns)
        turns = np.where(np.abs(jumps) < least, x.dtype.type(0), turns)
        before = np.concatenate([np.zeros_like(rows[..., :1]), np.cumsum(turns, axis=-1)], -1)
        return {"y": from_rows(desc, rows - before * period)}


PARAMS = scan_params("UnwrapParams", period="scalar", discont="scalar")
OPERANDS = ScanOperands(("x", "x"), ("y",))


def _geometry(p: Problem) -> Geometry | str:
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=p.desc.reverse)


def in_torch(torch: Any, desc: UnwrapDescriptor, *, x: Any, period: Any, discont: Any) -> Any:
    """Differences, their whole periods, and a sum of those: torch has none."""
    rows = torch_rows(desc, x)
    jumps = rows[..., 1:] - rows[..., :-1]
    shifted = jumps + period / 2
    turns = torch.floor_divide(shifted, period)  # NaN of infinite jumps
    turns = torch.where((turns * period == shifted) & (jumps > 0), turns - 1, turns)
    turns = torch.where(jumps.abs() < discont, torch.zeros_like(turns), turns)
    before = torch.cat((torch.zeros_like(rows[..., :1]), turns.cumsum(-1)), -1)
    return torch_array(desc, rows - before * period)


class UnwrapPlan(Plan):
    """y = x less a whole number of periods, so that neighbours along `axis` differ by half a period at most.

    numpy.unwrap: a jump of half a period stays as it is, upwards too; one of less than `discont` stays, too. Turns are
    counted, exactly below 2^53, in float64, and results rounded once. After a NaN or an infinity everything is NaN, and
    from a jump on that is beyond the range of float64. Where it has a gradient it is dy: turns stand still.
    """

    op = "scan.unwrap"
    descriptor = UnwrapDescriptor
    args = UnwrapArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "segments", _geometry, source="scan/unwrap.cu", kernels=scan_kernels("kinds::Unwrapped<{T}>", PARAMS),
            guarantee=Guarantee(Relative(4), math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("unwrap", kinds=False, peers=())

    @staticmethod
    def case(draw: Any) -> UnwrapDescriptor:
        shape, along = problem(draw)
        return UnwrapDescriptor(shape=shape, axis=along, reverse=draw.flag(), element=draw.element)


unwrap = functional(UnwrapPlan)
