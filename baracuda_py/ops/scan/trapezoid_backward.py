"""trapezoid_backward: the gradient of the area under y with respect to y, and to where it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant, operand,
    output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape, View
from ...core.variant import Step
from ...schedules.reduce import Launches, reduce_kernels, reduce_launches, reduce_params
from ...schedules.runs import run_kernel, run_params, run_step
from .differences import Piece
from .linear_scan_backward import away_from, kept_view
from .trapezoid import TrapezoidDescriptor, TrapezoidPlan


@dataclass(slots=True, kw_only=True)
class TrapezoidBackwardArgs(Args):
    """Any strides. dx has x's shape, which broadcasts; a gradient not asked for is None."""

    darea: Array = operand("*kept_shape")
    y: Array = operand("*shape")
    x: Array | None = operand("*shape", broadcast=True, optional=True)
    spacing: Scalar = scalar(1.0)
    dy: Array | None = output("*shape", optional=True)
    dx: Array | None = output("*shape", like="x", optional=True)


def reference(desc: TrapezoidDescriptor, *, darea: Any, y: Any, x: Any, spacing: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype y comes in: half the difference of what stands on either side."""
    heights, slopes, half = np.moveaxis(y, desc.axis, -1), darea[..., None], y.dtype.type(0.5)
    n = heights.shape[-1]
    if n < 2:
        return {"dy": np.zeros_like(y), "dx": None if x is None else np.zeros_like(x)}
    made = {}
    with np.errstate(all="ignore"):
        if x is None:
            shares = np.full(n, y.dtype.type(spacing), y.dtype)
            shares[:1] *= half
            shares[-1:] *= half
        else:
            at = np.moveaxis(np.broadcast_to(x, desc.shape), desc.axis, -1)
            behind = np.concatenate([at[..., 1:], at[..., -1:]], -1)
            before = np.concatenate([at[..., :1], at[..., :-1]], -1)
            shares = (behind - before) * half
            whole = np.moveaxis(slopes * _rises(heights) * half, -1, desc.axis)
            away = away_from(x.shape, desc.shape)
            made["dx"] = whole.sum(axis=away, keepdims=True).reshape(x.shape)
            if desc.axis in away:  # every panel has width 0, whatever x is
                made["dx"] = np.zeros_like(x)
        made["dy"] = np.moveaxis(slopes * shares, -1, desc.axis)
    return made


def _rises(y: Any) -> Any:
    """y[i - 1] - y[i + 1] along the last axis; at the ends less, or plus, the sum of the two."""
    ends = -(y[..., :1] + y[..., 1:2]), y[..., -2:-1] + y[..., -1:]
    return np.concatenate([ends[0], y[..., :-2] - y[..., 2:], ends[1]], -1)


PARAMS = reduce_params(
    "TrapezoidBackwardParams", ("darea", "low", "high"), low_sign="i32", high_sign="i32", share="f64", spacing="scalar"
)


RUN_PARAMS = Params(
    "TrapezoidRunsParams", y="ptr", x="ptr", darea="ptr", rising="i32", spacing="scalar", **run_params(3)
)
_KERNELS = (
    *reduce_kernels("kinds::Sum<{T}>", PARAMS, source="Mapped<Shares<{T}>, {T}, {T}, {T}>"),
    *(
        run_kernel(f"trapezoid_{name}<{{T}}>", RUN_PARAMS, "scan/trapezoid_runs.cu", name, blocks)
        for name, blocks in (("sides", 4), ("steps", 6))
    ),
)


@dataclass(frozen=True)
class _Share:
    """Elements first … of a gradient: darea (low_sign low + high_sign high) / 2, or darea times a share of the step."""

    first: int
    count: int
    low: int = 0  # elements that low and high are further along the axis
    high: int = 0
    low_sign: int = 0
    high_sign: int = 0
    share: float = 0.0


def _shares(n: int, signs: tuple[int, int] | None) -> Iterator[_Share]:
    """Ends and middle of a gradient of n elements; signs: of what stands before and behind (None: of the step)."""
    if n < 2:
        yield _Share(0, n)
    elif signs is None:
        yield from (_Share(0, 1, share=0.5), _Share(1, n - 2, share=1.0), _Share(n - 1, 1, share=0.5))
    else:
        before, behind = signs
        yield _Share(0, 1, 0, 1, -1, behind)
        yield _Share(1, n - 2, -1, 1, before, behind)
        yield _Share(n - 1, 1, -1, 0, before, 1)


def _geometry(p: Problem) -> Geometry | str:
    n = p.desc.shape[p.desc.axis]
    steps: list[Any] = []
    used, coalesced = 0, True
    for name, source, signs in (("dy", "x", (-1, 1)), ("dx", "y", (1, -1))):
        if p.views[name] is None:
            continue
        given = p.views[source]
        if (step := _along_runs(p, name, source)) is not None:
            steps.append(step)
            continue
        shares = _shares(n, None if given is None else signs)
        if name == "dx" and _still(p):
            shares = iter((_Share(0, n),))
        for share in shares:
            found = _launch(p, name, "y" if given is None else source, share, used)
            if isinstance(found, str):
                return found
            steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return Geometry(tuple(steps), used, "inner_contiguous" if coalesced else "strided")


def _along_runs(p: Problem, name: str, source: str) -> Step | None:
    """One launch of the whole gradient `name`, where nothing is summed and rows are runs of memory."""
    desc, given, out = p.desc, p.views[source], p.views[name]
    assert out is not None
    if desc.shape[desc.axis] < 2 or (name == "dx" and away_from(p.x.shape, desc.shape)):
        return None
    x = None if given is None else given.broadcast_to(desc.shape)
    # An output of x's shape that nothing is summed into has y's extents, but may lack its first axes of extent 1.
    y = out.broadcast_to(desc.shape)
    values = {"y": name, "x": "@null" if x is None else source, "rising": name == "dy"}
    kernel = "steps" if x is None else "sides"
    return run_step(kernel, y, x, desc.axis, shift=-1, each=(p.darea,), values=values)


def _still(p: Problem) -> bool:
    """Whether x is broadcast along the axis."""
    return p.desc.axis in away_from(p.x.shape, p.desc.shape)


def _launch(p: Problem, name: str, source: str, share: _Share, base: int) -> Launches | str:
    """One launch, of elements share.first … of the gradient `name`, from operand `source`."""
    desc, axis = p.desc, p.desc.axis
    away = () if name == "dy" else away_from(p.x.shape, desc.shape)
    if not share.count and axis not in away:
        return Launches((), base, True)
    shape: Shape = (*desc.shape[:axis], share.count, *desc.shape[axis + 1 :])
    whole = Piece(0, desc.shape[axis], p.views[source].broadcast_to(desc.shape), source)
    (low, low_place), (high, high_place) = (
        whole.part(axis, share.first + by, share.count) for by in (share.low, share.high)
    )
    strides = (*p.darea.strides[:axis], 0, *p.darea.strides[axis:])
    out, place = p.views[name], (name, 0)
    if axis not in away:
        lead = len(desc.shape) - len(out.shape)
        out, place = Piece(0, desc.shape[axis], out, name).part(axis - lead, share.first, share.count)
    values = {
        "low": low_place, "high": high_place, "y": place, "low_sign": share.low_sign, "high_sign": share.high_sign,
        "share": share.share,
    }  # fmt: skip
    operands = (View(p.darea.ptr, shape, strides, p.darea.element), low, high)
    return reduce_launches(
        p.device, operands, (kept_view(out, away, shape),), away, mapped=True, values=values, base=base
    )


class TrapezoidBackwardPlan(Plan):
    """dy[i] = darea times half the width of the panels on either side; dx[i] = darea (y[i - 1] - y[i + 1]) / 2.

    At the ends there is one panel. Sums over the axes along which x is broadcast are in float32 (float64 of float64).
    """

    op = "scan.trapezoid_backward"
    direction = "backward"
    descriptor = TrapezoidDescriptor
    args = TrapezoidBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tree", _geometry, source="scan/trapezoid_backward.cu",
            kernels=_KERNELS,
            guarantee=Guarantee(Relative(4), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[16384, 8192] bf16, axis 1", shape=(16384, 8192), axis=1, also=("dy",), element="bfloat16"),
    )
    case = staticmethod(TrapezoidPlan.case)


trapezoid_backward = functional(TrapezoidBackwardPlan)
