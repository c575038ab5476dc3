"""causal_conv1d_backward: gradients of a causal convolution, one pass over x and dy; no atomics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.variant import aligned
from ..elementwise.unary_formulas import sigmoid
from ...schedules.geometry import strides_of
from .causal_conv import (
    COMMON, I32, POLICY, TAPS, THREADS, CausalConvDescriptor, Windows, agree, common, conv_case, layout_class,
    random_bounds, random_positions, random_rows, spans, state_step, taps, walk, walk_kernel,
)  # fmt: skip
from .causal_conv1d import STATES, X, conv_benchmarks, infer_states


@dataclass(frozen=True, kw_only=True)
class CausalConv1dBackwardDescriptor(CausalConvDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class CausalConv1dBackwardArgs(Args):
    """Any strides; operands of the forward, dfinal_states the gradient of its final_states. Each output may be None."""

    dy: Array = operand(X)
    x: Array = operand(X)
    weight: Array = operand("channels width")
    bias: Array | None = operand("channels", optional=True)
    initial_states: Array | None = operand(STATES, optional=True)
    positions: Array | None = operand("batch length", element=I32, optional=True, values=random_positions)
    rows: Array | None = operand("batch length", element=I32, instead="dense", values=random_rows)
    bounds: Array | None = operand("num_bounds", element=I32, instead="dense", values=random_bounds)
    dfinal_states: Array | None = operand(STATES, optional=True)
    dx: Array | None = output(X, optional=True)
    dweight: Array | None = output("channels width", optional=True)
    dbias: Array | None = output("channels", optional=True, needs="bias")
    dinitial_states: Array | None = output(STATES, optional=True, needs="initial_states")


def reference(
    desc: CausalConv1dBackwardDescriptor, *, dy: Any, x: Any, weight: Any, bias: Any, initial_states: Any,
    positions: Any, rows: Any, bounds: Any, dfinal_states: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in: tap by tap."""
    windows, kept = Windows.of(desc, positions, rows, bounds), desc.kept
    there = (windows.reach >= 0)[:, None]
    with np.errstate(all="ignore"):
        g = dy
        if desc.activation == "silu":
            z = windows.sums(x, weight, bias, initial_states)
            s = sigmoid(z)
            g = dy * (s * (1 + z * (1 - s)))
        g = np.where(there, g, dy.dtype.type(0))
        dx, dweight = np.zeros_like(x), np.zeros_like(weight)
        dinitial = np.zeros((desc.states, desc.channels, kept), x.dtype)
        t = np.arange(desc.length)
        for back in range(desc.width):
            part = weight[:, kept - back, None] * g
            own = (windows.reach >= back)[:, None]
            dx[..., : max(desc.length - back, 0)] += np.where(own, part, 0)[..., back:]
            seen = windows.element(x, initial_states, back)
            dweight[:, kept - back] = np.sum(np.where(there, g * seen, 0), axis=(0, 2))
            for b, at in zip(*np.nonzero(windows.state & (windows.reach < back)), strict=True):
                dinitial[windows.row[b, at], :, kept - back + windows.reach[b, at]] += part[b, :, at]
        if dfinal_states is not None:
            start, end = spans(desc, bounds)
            row = np.broadcast_to(np.arange(desc.batch)[:, None], windows.reach.shape) if rows is None else rows
            for b in range(desc.batch):
                for s in range(desc.states):
                    at = t[(row[b] == s) & (t >= start[s]) & (t < end[s]) & (end[s] - t <= kept)]
                    dx[b][:, at] += dfinal_states[s][:, kept - (end[s] - at)]
            for s, count in enumerate((end - start).tolist()):
                if count < kept:
                    dinitial[s, :, count:] += dfinal_states[s, :, : kept - count]
    return {"dx": dx, "dweight": dweight, "dbias": g.sum(axis=(0, 2)), "dinitial_states": dinitial}


PARAMS = Params(
    "CausalConv1dBackwardParams", **COMMON, dy="ptr", dfinal_states="ptr", dx="ptr", dweight="ptr", dbias="ptr",
    dinitial_states="ptr", partials="ptr", dy_strides="i64[3]", dfinal_strides="i64[3]", dx_strides="i64[3]",
    dinitial_strides="i64[3]", dweight_strides="i64[2]", dbias_step="i64", parts="i64",
)  # fmt: skip
_SPAN = 128  # steps of a thread across channels: slopes of those ahead are made again


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = tuple(v for v in (p.x, p.dy, p.dx) if v is not None)
    found, room = walk(desc, views, _SPAN), taps(desc)
    if isinstance(found, str):
        return found
    summed = p.dweight is not None or p.dbias is not None
    values = {
        **common(p), "dy_strides": strides_of(p.dy, 3), "dfinal_strides": strides_of(p.dfinal_states, 3),
        "dx_strides": strides_of(p.dx, 3), "dinitial_strides": strides_of(p.dinitial_states, 3),
        "dweight_strides": strides_of(p.dweight, 2), "dbias_step": strides_of(p.dbias, 1)[0], "parts": found.parts,
        "partials": ("@workspace", 0) if summed else "@null",
    }  # fmt: skip
    steps, workspace = [], 0
    if p.dx is not None or summed:
        axes = {"LAYOUT": found.layout, "TAPS": room}
        if desc.batch and desc.length:
            steps.append(Step("slopes", found.grid, {**values, **found.params}, axes, THREADS))
    if summed:
        items = desc.channels * (room + 1)
        workspace = aligned(found.parts * items * desc.element.acc.itemsize)
        steps.append(Step("fold", (max(1, -(-items * 8 // THREADS)), 1, 1), values, {"TAPS": room}, THREADS))
    if p.dinitial_states is not None:
        steps.append(state_step("first", desc, values, {"TAPS": room}))
    return Geometry(
        tuple(steps), workspace, layout_class(views, found), order="" if found.layout != "Across" else "across"
    )


class CausalConv1dBackwardPlan(Plan):
    """dx[t] = Σ_j w[j] g[t + j], dw[j] = Σ g[t] x[t - j], dbias = Σ g, with g = dy act'(z) and w by distance in time.

    z, the sum before the activation, is made anew. dweight and dbias are summed in an order that shapes, and whether
    channels lie last, fix.
    """

    op = "recurrence.causal_conv1d_backward"
    direction = "backward"
    descriptor = CausalConv1dBackwardDescriptor
    args = CausalConv1dBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "walk", _geometry, source="recurrence/causal_conv1d_backward.cu",
            kernels=(
                walk_kernel("slopes", "causal_conv1d_slopes<{T}, conv::{LAYOUT}, {TAPS}>", PARAMS),
                Kernel("fold", "causal_conv1d_fold<{T}, {TAPS}>", PARAMS, {"TAPS": TAPS}, threads=THREADS),
                Kernel("first", "causal_conv1d_first<{T}, {TAPS}>", PARAMS, {"TAPS": TAPS}, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(2)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = conv_benchmarks("bias", "dx", "dweight", "dbias")

    @staticmethod
    def case(draw: Any) -> CausalConv1dBackwardDescriptor:
        made: CausalConv1dBackwardDescriptor = conv_case(draw, CausalConv1dBackwardDescriptor)
        return made

    @classmethod
    def complete(cls, desc: CausalConv1dBackwardDescriptor, arrays: dict[str, Any]) -> None:
        agree(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_states(shapes, facts)


causal_conv1d_backward = functional(CausalConv1dBackwardPlan)
