"""linear_scan_backward: gradients of h[t] = a[t] h[t - 1] + b[t], by the same recurrence the other way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Plan, Problem, Variant, functional, operand, output,
)  # fmt: skip
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from .linear_scan import LinearScanDescriptor, LinearScanPlan, recurrence_bound
from .linear_scan import in_torch as forward_in_torch
from .scan_kinds import AlongAxis, from_rows, recurrence, rows_of, scan_benchmarks, torch_array, torch_rows


@dataclass(slots=True, kw_only=True)
class LinearScanBackwardArgs(Args):
    """Any strides, 0 included. h is the forward's output; dcarry the gradient of its `carry`."""

    dh: Array = operand("*shape")
    a: Array = operand("*shape")
    h: Array = operand("*shape")
    initial: Array | None = operand("*kept_shape", element="acc", optional=True)
    dcarry: Array | None = operand("*kept_shape", element="acc", optional=True)
    da: Array | None = output("*shape", optional=True)
    db: Array | None = output("*shape", optional=True)
    dinitial: Array | None = output("*kept_shape", element="acc", optional=True, needs="initial")


def gradients(desc: AlongAxis, dh: Any, a: Any, before: Any, dlast: Any) -> tuple[Any, Any, Any]:
    """(da, db, dinitial) of h[t] = a[t] h[t - 1] + b[t] from rows in the order of the scan; before[t] = h[t - 1]."""
    last = dh.dtype.type(0) if dlast is None else dlast.reshape(dh.shape[:-1])
    ones = np.ones((*a.shape[:-1], 1), a.dtype)
    # g[t] = dh[t] + a[t + 1] g[t + 1]; beyond the end stands dlast, which a factor of 1 hands on.
    factors = np.concatenate([a[..., 1:], ones], -1)[..., : a.shape[-1]]
    g = recurrence(factors[..., ::-1], dh[..., ::-1], last)[..., ::-1]
    dfirst = g[..., 0] * a[..., 0] if a.shape[-1] else g[..., 0]
    return g[..., :-1] * before, g[..., :-1], dfirst


def states_before(h: Any, initial: Any, nothing: float) -> Any:
    """h[t - 1] of rows in the order of the scan, from `initial` or nothing."""
    first = np.full(h.shape[:-1], nothing, h.dtype) if initial is None else initial.reshape(h.shape[:-1])
    return np.concatenate([first[..., None], h], -1)[..., :-1]


def reference(
    desc: LinearScanDescriptor, *, dh: Any, a: Any, h: Any, initial: Any, dcarry: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype dh comes in: step by step."""
    slopes, factors, states = (rows_of(desc, x) for x in (dh, a, h))
    da, db, dfirst = gradients(desc, slopes, factors, states_before(states, initial, 0), dcarry)
    return {"da": from_rows(desc, da), "db": from_rows(desc, db), "dinitial": dfirst.reshape(desc.kept_shape)}


PARAMS = scan_params("LinearScanBackwardParams")
OPERANDS = ScanOperands(("dh", "a", "h"), ("da", "db"), ("dcarry", "initial"), ("dinitial",))


def _geometry(p: Problem) -> Geometry | str:
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=not p.desc.reverse)


def in_torch(
    torch: Any, desc: LinearScanDescriptor, *, dh: Any, a: Any, h: Any, initial: Any, dcarry: Any, wanted: Any
) -> Any:
    """autograd of the forward, with the b that makes this h of these a."""
    states, kept = torch_rows(desc, h), desc.kept_shape
    first = torch.zeros_like(states[..., :1]) if initial is None else initial.reshape((*states.shape[:-1], 1))
    terms = states - torch_rows(desc, a) * torch.cat((first, states), -1)[..., :-1]
    given = {"a": a, "b": torch_array(desc, terms), "initial": first.reshape(kept)}
    given = {name: value.detach().requires_grad_() for name, value in given.items()}
    with torch.enable_grad():
        made = forward_in_torch(torch, desc, **given, wanted=set())
    slopes = (dh, torch.zeros_like(made["carry"]) if dcarry is None else dcarry)
    found = torch.autograd.grad((made["h"], made["carry"]), tuple(given.values()), slopes, allow_unused=True)
    return {
        f"d{name}": torch.zeros_like(value) if slope is None else slope
        for (name, value), slope in zip(given.items(), found, strict=True)
    }


class LinearScanBackwardPlan(Plan):
    """db[t] = dh[t] + a[t + 1] db[t + 1], da[t] = db[t] h[t - 1], dinitial = a[0] db[0]; beyond the end stands dcarry.

    Deterministic; carried in float64, as the forward.
    """

    op = "scan.linear_scan_backward"
    direction = "backward"
    descriptor = LinearScanDescriptor
    args = LinearScanBackwardArgs
    reference = staticmethod(reference)
    value_policy = "an infinite or NaN dh, a or dcarry makes da and db NaN from there back"
    variants = (
        Variant(
            "segments", _geometry, source="scan/linear_scan.cu",
            kernels=scan_kernels("kinds::RecurrenceBackward<{T}>", PARAMS),
            guarantee=Guarantee(recurrence_bound, math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("linear_scan_backward", kinds=False)
    case = staticmethod(LinearScanPlan.case)


linear_scan_backward = functional(LinearScanBackwardPlan)
