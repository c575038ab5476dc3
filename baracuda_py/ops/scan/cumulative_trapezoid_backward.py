"""cumulative_trapezoid_backward: what the areas under y so far hand back to y, and to where it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Plan, Problem, Relative, Scalar, Variant, operand,
    output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import aligned
from ...schedules.reduce import Launches, reduce_kernels, reduce_launches, reduce_params
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from .differences import Piece
from .linear_scan_backward import away_from, kept_view
from .trapezoid import CumulativeTrapezoidPlan, TrapezoidDescriptor


@dataclass(slots=True, kw_only=True)
class CumulativeTrapezoidBackwardArgs(Args):
    """Any strides. dx has x's shape, which broadcasts; a gradient not asked for is None."""

    darea: Array = operand("*panels")
    y: Array = operand("*shape")
    x: Array | None = operand("*shape", broadcast=True, optional=True)
    spacing: Scalar = scalar(1.0)
    dy: Array | None = output("*shape", optional=True)
    dx: Array | None = output("*shape", like="x", optional=True)


def _beside(panels: Any) -> tuple[Any, Any]:
    """What stands for the panel before each element, and for that behind; 0 beyond the ends."""
    nothing = np.zeros_like(panels[..., :1]) if panels.shape[-1] else np.zeros((*panels.shape[:-1], 1), panels.dtype)
    return np.concatenate([nothing, panels], -1), np.concatenate([panels, nothing], -1)


def reference(desc: TrapezoidDescriptor, *, darea: Any, y: Any, x: Any, spacing: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype y comes in."""
    heights, half, made = np.moveaxis(y, desc.axis, -1), y.dtype.type(0.5), {}
    if not heights.shape[-1]:
        return {"dy": np.zeros_like(y), "dx": None if x is None else np.zeros_like(x)}
    with np.errstate(all="ignore"):
        tails = np.moveaxis(darea, desc.axis, -1)[..., ::-1].cumsum(-1)[..., ::-1]
        if x is None:
            widths = np.full_like(tails, y.dtype.type(spacing))
        else:
            widths = np.diff(np.moveaxis(np.broadcast_to(x, desc.shape), desc.axis, -1), axis=-1)
            before, behind = _beside(tails * (half * (heights[..., :-1] + heights[..., 1:])))
            away = away_from(x.shape, desc.shape)
            whole = np.moveaxis(before - behind, -1, desc.axis)
            made["dx"] = whole.sum(axis=away, keepdims=True).reshape(x.shape)
            if desc.axis in away:  # every panel has width 0, whatever x is
                made["dx"] = np.zeros_like(x)
        before, behind = _beside(tails * (half * widths))
        made["dy"] = np.moveaxis(before + behind, -1, desc.axis)
    return made


SCAN_PARAMS = scan_params("TailParams")
PARAMS = reduce_params(
    "CumulativeTrapezoidBackwardParams", ("before", "behind", "low", "own", "high"), has_before="i32",
    has_behind="i32", heights="i32", even="i32", spacing="scalar",
)  # fmt: skip
_OPERANDS = ScanOperands(("darea",), ("tails",))
_PLACE = ("@workspace", 0)


@dataclass(frozen=True)
class _Part:
    """Elements first … of a gradient, which have a panel before them, behind them, or both."""

    first: int
    count: int
    before: bool
    behind: bool


def _parts(n: int, still: bool) -> Iterator[_Part]:
    """Ends and middle of a gradient of n elements; all of it where it is 0."""
    if n < 2 or still:
        yield _Part(0, n, False, False)
    else:
        yield from (_Part(0, 1, False, True), _Part(1, n - 2, True, True), _Part(n - 1, 1, True, False))


def _geometry(p: Problem) -> Geometry | str:
    desc, n = p.desc, p.desc.shape[p.desc.axis]
    tails = View(0, desc.panels, dense_strides(desc.panels), ElementKind.F64)
    base = aligned(max(tails.nbytes, tails.element.itemsize))  # an element is read even where there is none
    steps: list[Any] = []
    if tails.size:
        scanned = scan_geometry(
            p, _OPERANDS, desc.axis, reverse=True, views={"tails": tails}, places={"tails": _PLACE}, base=base
        )
        if isinstance(scanned, str):
            return scanned
        steps, base = [*scanned.steps], scanned.workspace
    coalesced = True
    for name in ("dy", "dx"):
        if p.views[name] is None:
            continue
        still = name == "dx" and desc.axis in away_from(p.x.shape, desc.shape)
        for part in _parts(n, still):
            found = _launch(p, name, tails, part, base)
            if isinstance(found, str):
                return found
            steps, base, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Geometry(tuple(steps), base, "inner_contiguous" if coalesced else "strided")


def _launch(p: Problem, name: str, tails: View, part: _Part, base: int) -> Launches | str:
    """One launch, of elements part.first … of the gradient `name`."""
    desc, axis = p.desc, p.desc.axis
    away = () if name == "dy" else away_from(p.x.shape, desc.shape)
    if not part.count and axis not in away:
        return Launches((), base, True)
    shape: Shape = (*desc.shape[:axis], part.count, *desc.shape[axis + 1 :])
    nothing = View(0, shape, (0,) * len(shape), tails.element), _PLACE
    panels = Piece(0, tails.shape[axis], tails, "@workspace")
    sides = [
        panels.part(axis, part.first + by, part.count) if there else nothing
        for by, there in ((-1, part.before), (0, part.behind))
    ]
    source = "y" if name == "dx" or p.x is None else "x"
    whole = Piece(0, desc.shape[axis], p.views[source].broadcast_to(desc.shape), source)
    given = [whole.part(axis, part.first + by, part.count) for by in (-int(part.before), 0, int(part.behind))]
    out, place = p.views[name], (name, 0)
    if axis not in away:
        lead = len(desc.shape) - len(out.shape)
        out, place = Piece(0, desc.shape[axis], out, name).part(axis - lead, part.first, part.count)
    values = dict(zip(("before", "behind", "low", "own", "high"), (at for _, at in (*sides, *given)), strict=True))
    values |= {
        "y": place, "has_before": part.before, "has_behind": part.behind, "heights": name == "dx",
        "even": p.x is None,
    }  # fmt: skip
    operands = [view for view, _ in (*sides, *given)]
    return reduce_launches(
        p.device, operands, (kept_view(out, away, shape),), away, mapped=True, values=values, prefix="sum_", base=base
    )


class CumulativeTrapezoidBackwardPlan(Plan):
    """dy[i] = half the widths of the panels beside y[i], each times the sum of darea from its own area on.

    dx[i] likewise takes half the sum of the heights of the panel before x[i], less that of the panel behind it.
    Sums of darea are carried with more digits than float64 (of float64) has and kept in float64; sums over the axes
    along which x is broadcast are in float32 (float64 of float64).
    """

    op = "scan.cumulative_trapezoid_backward"
    direction = "backward"
    descriptor = TrapezoidDescriptor
    args = CumulativeTrapezoidBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "segments", _geometry, source="scan/cumulative_trapezoid_backward.cu",
            kernels=(
                *scan_kernels("kinds::Tails<{T}>", SCAN_PARAMS),
                *reduce_kernels(
                    "kinds::Sum<{T}>", PARAMS, source="Mapped<PanelShares<{T}>, double, double, {T}, {T}, {T}>",
                    width=lambda element: 2, prefix="sum_",
                ),
            ),
            guarantee=Guarantee(Relative(4), math="float64", batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[16384, 8192] bf16, axis 1", shape=(16384, 8192), axis=1, also=("dy",), element="bfloat16"),
    )
    case = staticmethod(CumulativeTrapezoidPlan.case)


cumulative_trapezoid_backward = functional(CumulativeTrapezoidBackwardPlan)
