"""linear_scan_backward: gradients of h[t] = a[t] h[t - 1] + b[t], by the same recurrence the other way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Forward, Geometry, Guarantee, Plan, Problem, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import COMPLEX
from ...core.error_bound import ErrorBound
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import aligned
from ...schedules.reduce import reduce_kernels, reduce_launches, reduce_params
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from ..reduce.reduce_kinds import sum_bound
from .linear_scan import LinearScanDescriptor, LinearScanPlan, factors, recurrence_bound
from .linear_scan import in_torch as forward_in_torch
from .scan_kinds import AlongAxis, from_rows, recurrence, rows_of, scan_benchmarks, torch_array, torch_rows


@dataclass(slots=True, kw_only=True)
class LinearScanBackwardArgs(Args):
    """Any strides; a broadcasts, da has its shape. h is the forward's output, dcarry the gradient of its `carry`."""

    dh: Array = operand("*shape")
    a: Array = operand("*shape", broadcast=True, values=factors)
    h: Array = operand("*shape")
    initial: Array | None = operand("*kept_shape", element="acc", optional=True)
    dcarry: Array | None = operand("*kept_shape", element="acc", optional=True)
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", optional=True)
    dinitial: Array | None = output("*kept_shape", element="acc", optional=True, needs="initial")


def gradients(desc: AlongAxis, dh: Any, a: Any, before: Any, dlast: Any) -> tuple[Any, Any, Any]:
    """(da, db, dinitial) of h[t] = a[t] h[t - 1] + b[t] from rows in the order of the scan; before[t] = h[t - 1]."""
    last = dh.dtype.type(0) if dlast is None else dlast.reshape(dh.shape[:-1])
    a, before = np.conj(a), np.conj(before)
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
    slopes, factors, states = (rows_of(desc, np.broadcast_to(x, desc.shape)) for x in (dh, a, h))
    whole, db, dfirst = gradients(desc, slopes, factors, states_before(states, initial, 0), dcarry)
    da = from_rows(desc, whole).sum(axis=away_from(a.shape, desc.shape), keepdims=True).reshape(a.shape)
    return {"da": da, "db": from_rows(desc, db), "dinitial": dfirst.reshape(desc.kept_shape)}


def away_from(shape: Shape, whole: Shape) -> tuple[int, ...]:
    """The axes along which an array of this shape is broadcast to the whole."""
    lead = len(whole) - len(shape)
    return tuple(i for i, n in enumerate(whole) if i < lead or (shape[i - lead] == 1 and n != 1))


PARAMS = scan_params("LinearScanBackwardParams")
OPERANDS = ScanOperands(("dh", "a", "h"), ("da", "db"), ("dcarry", "initial"), ("dinitial",))
SUM_PARAMS = reduce_params("RecurrenceSumParams", ("terms",))
_HALVES = (ElementKind.F16, ElementKind.BF16)
_SUMS = tuple(
    replace(kernel, source="scan/recurrence_sums.cu")
    for kernel in reduce_kernels("kinds::Sum<{T}>", SUM_PARAMS, source="Mapped<Terms<{A}>, {A}>", prefix="sum_",
                                 width=lambda element: 16 // element.acc.itemsize)
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """The scan; where a is broadcast, its terms go to the workspace in the accumulator and are summed from there."""
    desc, a = p.desc, p.a.broadcast_to(p.desc.shape)
    away = away_from(p.a.shape, desc.shape)
    views, places, prefix, terms = {"a": a}, {}, "", None
    if p.da is not None and away:
        terms = View(0, desc.shape, dense_strides(desc.shape), desc.acc)
        views["da"], places["da"] = terms, ("@workspace", 0)
        prefix = "summed_" if desc.element in _HALVES else ""
    base = 0 if terms is None else aligned(terms.nbytes)
    found = scan_geometry(
        p, OPERANDS, desc.axis, reverse=not desc.reverse, views=views, places=places, prefix=prefix, base=base
    )
    if terms is None or isinstance(found, str):
        return found
    kept = kept_view(p.da, away, desc.shape)
    at = {"terms": ("@workspace", 0), "y": "da"}
    sums = reduce_launches(
        p.device, (terms,), (kept,), away, mapped=True, values=at, prefix="sum_", base=found.workspace
    )
    if isinstance(sums, str):
        return sums
    return Geometry((*found.steps, *sums.steps), sums.used, found.layout)


def kept_view(view: View, away: tuple[int, ...], whole: Shape) -> View:
    """The view without the axes along which it is broadcast to the whole."""
    lead = len(whole) - len(view.shape)
    rest = [i - lead for i in range(len(whole)) if i not in away]
    return View(view.ptr, tuple(view.shape[i] for i in rest), tuple(view.strides[i] for i in rest), view.element)


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    scanned = recurrence_bound(element)
    assert isinstance(scanned, Forward)
    return Forward(scanned.c + sum_bound.c + 1)  # terms round to the accumulator before they are summed


def in_torch(
    torch: Any, desc: LinearScanDescriptor, *, dh: Any, a: Any, h: Any, initial: Any, dcarry: Any, wanted: Any
) -> Any:
    """autograd of the forward, with the b that makes this h of these a."""
    if not desc.count:
        return NotImplemented
    states, kept = torch_rows(desc, h), desc.kept_shape
    first = torch.zeros_like(states[..., :1]) if initial is None else initial.reshape((*states.shape[:-1], 1))
    terms = states - torch_rows(desc, a.expand(desc.shape)) * torch.cat((first, states), -1)[..., :-1]
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

    Deterministic; carried in float64, as the forward. Where a is broadcast, da is summed over those axes in float32
    (float64 of float64), in an order that shapes alone fix.
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
            kernels=(
                *scan_kernels("kinds::RecurrenceBackward<{T}>", PARAMS),
                *scan_kernels(
                    "kinds::SummedRecurrenceBackward<{T}>", PARAMS, prefix="summed_", elements=_HALVES
                ),
                *_SUMS,
            ),
            elements=(*FLOATS, *COMPLEX), guarantee=Guarantee(_bound, math="float64", batch_invariant=True),
            may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("linear_scan_backward", kinds=False, peers=(), also=("da", "db"))
    case = staticmethod(LinearScanPlan.case)

    @classmethod
    def complete(cls, desc: LinearScanDescriptor, arrays: dict[str, Any]) -> None:
        """As the forward's."""
        LinearScanPlan.complete(desc, arrays)


linear_scan_backward = functional(LinearScanBackwardPlan)
