"""linear_scan: h[t] = a[t] h[t - 1] + b[t] along one axis: state-space models, running averages, discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Forward, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import COMPLEX
from ...core.error_bound import ErrorBound
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from ..reduce.reduce_formulas import near_circle
from .scan_kinds import AlongAxis, from_rows, problem, recurrence, rows_of, scan_benchmarks, torch_array, torch_rows


_SHORT = 64


@dataclass(frozen=True, kw_only=True)
class LinearScanDescriptor(AlongAxis):
    """b and h have shape `shape`; the scan is along `axis`, from the last element to the first if `reverse`."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


def factors(rng: Any, desc: LinearScanDescriptor, shape: tuple[int, ...]) -> Any:
    """For tests: normal numbers, along many elements less than 1, so that their products stay in range."""
    made = rng.standard_normal(shape)
    if desc.element.is_complex:
        made = made + 1j * rng.standard_normal(shape)
    short = not desc.shape or desc.shape[desc.axis] <= _SHORT
    return made if short else made / (1 + np.abs(made))


@dataclass(slots=True, kw_only=True)
class LinearScanArgs(Args):
    """Any strides; a broadcasts; h may be a or b. initial: h before each row, 0 where absent; carry: h after it."""

    a: Array = operand("*shape", broadcast=True, values=factors)
    b: Array = operand("*shape")
    initial: Array | None = operand("*kept_shape", element="acc", optional=True)
    h: Array = output("*shape", inplace=("a", "b"))
    carry: Array | None = output("*kept_shape", element="acc", optional=True)


def reference(desc: LinearScanDescriptor, *, a: Any, b: Any, initial: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype b comes in: step by step."""
    rows = rows_of(desc, b)
    first = b.dtype.type(0) if initial is None else initial.reshape(rows.shape[:-1])
    h = recurrence(rows_of(desc, np.broadcast_to(a, desc.shape)), rows, first)
    return {"h": from_rows(desc, h[..., 1:]), "carry": h[..., -1].reshape(desc.kept_shape)}


PARAMS = scan_params("LinearScanParams")
OPERANDS = ScanOperands(("b", "a"), ("h",), ("initial",), ("carry",))


def _geometry(p: Problem) -> Geometry | str:
    a = p.a.broadcast_to(p.desc.shape)
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=p.desc.reverse, views={"a": a})


def recurrence_bound(kind: ElementKind, _: Any = None) -> ErrorBound:
    """Of floats of up to 32 bits, doubles are carried, and rounded once.

    Else each of up to 2 + 5 + 32 merges of a segment, and 10 and one in 1024 of segments, errs by up to 3 half eps.
    """
    return Forward(192 if kind.part is ElementKind.F64 else 1)


def in_torch(torch: Any, desc: LinearScanDescriptor, *, a: Any, b: Any, initial: Any, wanted: Any) -> Any:
    """Step by step."""
    factors, terms = torch_rows(desc, a.expand(desc.shape)), torch_rows(desc, b)
    state = torch.zeros_like(terms[..., 0]) if initial is None else initial.reshape(terms.shape[:-1])
    states = []
    for t in range(terms.shape[-1]):
        state = factors[..., t] * state + terms[..., t]
        states.append(state)
    h = torch.stack(states, -1) if states else torch.zeros_like(terms)
    return {"h": torch_array(desc, h), "carry": state.reshape(desc.kept_shape)}


class LinearScanPlan(Plan):
    """h[t] = a[t] h[t - 1] + b[t] along `axis`, from h[-1] = `initial` (0 where absent); a broadcasts, over time, too.

    The associative scan of affine maps (Blelloch 1990) that state-space models, gated linear recurrences, running
    averages and discounted returns (reverse) are made of. Maps are composed in float64, whatever the element, and
    results rounded once. `carry` is the last h (`initial` of an empty row), the `initial` of a stream's next chunk;
    both are float32 (float64 of float64), so a stream is rounded to that once a chunk. A recurrence that grows may lose
    what cancels: errors are small beside the h of |a|, |b| and |initial|. A complex h that leaves the range of float64
    is infinite or NaN from there on.
    """

    op = "scan.linear_scan"
    descriptor = LinearScanDescriptor
    args = LinearScanArgs
    reference = staticmethod(reference)
    value_policy = "an infinite or NaN a, b or initial makes h NaN from there on"
    variants = (
        Variant(
            "segments", _geometry, source="scan/linear_scan.cu",
            kernels=scan_kernels("kinds::Recurrence<{T}>", PARAMS), elements=(*FLOATS, *COMPLEX),
            guarantee=Guarantee(recurrence_bound, math="float64", batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("LinearScanBackwardPlan", grads={"a": "da", "b": "db", "initial": "dinitial"})
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("linear_scan", kinds=False, peers=())  # torch has a loop

    @staticmethod
    def case(draw: Any) -> LinearScanDescriptor:
        shape, axis = problem(draw)
        return LinearScanDescriptor(shape=shape, axis=axis, reverse=draw.flag(), element=draw.element)

    @classmethod
    def complete(cls, desc: LinearScanDescriptor, arrays: dict[str, Any]) -> None:
        """Complex factors are near the unit circle."""
        if desc.element.is_complex:
            arrays["a"] = near_circle(arrays["a"])


linear_scan = functional(LinearScanPlan)
