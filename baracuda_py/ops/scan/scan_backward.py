"""scan_backward: gradients of the scans, by scans the other way; products with any number of zeros in linear time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Forward, Geometry, Guarantee, Plan, Problem, Relative, Variant, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import COMPLEX, HALVES, cast, decode
from ...core.error_bound import ErrorBound
from ...core.tensor import View, dense_strides
from ...core.variant import aligned
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from .linear_scan import recurrence_bound
from .linear_scan_backward import gradients, states_before
from .scan import ScanDescriptor, ScanPlan
from .scan import reference as forward
from .scan_kinds import ScanKind, blocks_of_columns, from_rows, rows_of, scan_benchmarks

_WITH_X = (ScanKind.CUMPROD, ScanKind.LOGCUMSUMEXP, ScanKind.NANCUMSUM, ScanKind.NANCUMPROD)
_WITH_Y = (ScanKind.CUMPROD, ScanKind.LOGCUMSUMEXP, ScanKind.NANCUMPROD)


@dataclass(frozen=True, kw_only=True)
class ScanBackwardDescriptor(ScanDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class ScanBackwardArgs(Args):
    """Any strides. x and initial are the forward's inputs, y its output; dcarry is the gradient of its `carry`.

    y of 16-bit logcumsumexp is not read: it is rounded by more than its gradient bears, and found anew.
    """

    dy: Array = operand("*shape")
    x: Array | None = operand("*shape", kinds=_WITH_X)
    y: Array | None = operand("*shape", kinds=_WITH_Y)
    initial: Array | None = operand("*kept_shape", element="carried", optional=True)
    dcarry: Array | None = operand("*kept_shape", element="carried", optional=True)
    dx: Array = output("*shape")
    dinitial: Array | None = output("*kept_shape", element="carried", optional=True, needs="initial")


def reference(
    desc: ScanBackwardDescriptor, *, dy: Any, x: Any, y: Any, initial: Any, dcarry: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    slopes: Any = rows_of(desc, dy)
    values, made = (slopes if a is None else rows_of(desc, a) for a in (x, y))
    kept = slopes.shape[:-1]
    dlast = np.zeros(kept, dy.dtype) if dcarry is None else dcarry.reshape(kept)
    with np.errstate(all="ignore"):
        if desc.kind.plain is ScanKind.CUMSUM:
            dx, dfirst = _sums(desc, slopes, dlast)
        elif desc.kind.plain is ScanKind.CUMPROD:
            factors = values if desc.kind is desc.kind.plain else np.where(np.isnan(values), dy.dtype.type(1), values)
            dx, dfirst = _products(desc, slopes, factors, made, initial, dlast)
        else:
            if desc.element in HALVES:
                made = rows_of(desc, forward(desc, x=x, initial=initial, wanted=set())["y"])
            dx, dfirst = _exponentials(desc, slopes, values, made, initial, dlast, dcarry is not None)
    if desc.kind is not desc.kind.plain:
        dx = np.where(np.isnan(values), dy.dtype.type(0), dx)
    return {"dx": from_rows(desc, dx), "dinitial": dfirst.reshape(desc.kept_shape)}


def _sums(desc: ScanBackwardDescriptor, slopes: Any, dlast: Any) -> tuple[Any, Any]:
    full = np.add.accumulate(np.concatenate([dlast[..., None], slopes[..., ::-1]], -1), axis=-1)[..., ::-1]
    return full[..., 1:] if desc.exclusive else full[..., :-1], full[..., 0]


def _products(
    desc: ScanBackwardDescriptor, slopes: Any, factors: Any, made: Any, initial: Any, dlast: Any
) -> tuple[Any, Any]:
    """A product is the recurrence h[t] = x[t] h[t - 1]; an exclusive one shows h[t - 1]."""
    if not desc.exclusive:
        dx, _, dfirst = gradients(desc, slopes, factors, states_before(made, initial, 1), dlast)
        return dx, dfirst
    later = np.concatenate([slopes[..., 1:], np.zeros_like(slopes[..., :1])], -1)
    dx, _, dfirst = gradients(desc, later, factors, made, dlast)
    return dx, dfirst + slopes[..., 0] if slopes.shape[-1] else dfirst


def _exponentials(
    desc: ScanBackwardDescriptor, slopes: Any, values: Any, made: Any, initial: Any, dlast: Any, carried: bool
) -> tuple[Any, Any]:
    """dx[i] = exp(x[i]) times the sum of dy[j] exp(-y[j]), in logarithms; a y of -inf has nothing to hand back."""
    first = np.full(dlast.shape, -np.inf, dlast.dtype) if initial is None else initial.reshape(dlast.shape)
    last = first if not slopes.shape[-1] else made[..., -1]
    if desc.exclusive and slopes.shape[-1]:
        last = np.logaddexp(last, values[..., -1])
    slopes = np.concatenate([slopes, dlast[..., None]], -1)
    sums = np.concatenate([made, last[..., None]], -1)
    weights = np.log(np.abs(slopes)) - sums
    nothing = (sums == -np.inf) | ((slopes == 0) & ~np.isnan(sums))
    nothing[..., -1] |= not carried
    own = np.concatenate([values, first[..., None]], -1)
    parts = []
    for chosen in (~(slopes < 0), slopes < 0):
        part = np.where(chosen & ~nothing, weights, -np.inf).astype(slopes.dtype)
        parts.append(np.logaddexp.accumulate(part[..., ::-1], axis=-1)[..., ::-1])
    n = values.shape[-1]
    from_ = 1 if desc.exclusive else 0
    dx = np.exp(parts[0][..., from_ : n + from_] + values) - np.exp(parts[1][..., from_ : n + from_] + values)
    dfirst = np.exp(parts[0][..., 0] + own[..., -1]) - np.exp(parts[1][..., 0] + own[..., -1])
    return dx, dfirst


PARAMS = scan_params("ScanBackwardParams")
_OPERANDS = {
    ScanKind.CUMSUM: ("dy",), ScanKind.CUMPROD: ("dy", "x", "y"), ScanKind.LOGCUMSUMEXP: ("dy", "y", "x"),
    ScanKind.NANCUMSUM: ("dy", "x"), ScanKind.NANCUMPROD: ("dy", "x", "y", "x"),
}  # fmt: skip


_F32, _F64, _C128 = ElementKind.F32, ElementKind.F64, ElementKind.C128


def _blocks(element: ElementKind, kind: ScanKind) -> int:
    return 0 if kind is ScanKind.NANCUMSUM else blocks_of_columns(element, kind)  # that reads x, too


def _exponentials_geometry(p: Problem) -> Geometry | str:
    """Of 16-bit floats the forward's results in float first, in the workspace."""
    desc = p.desc
    if desc.element not in HALVES:
        return _geometry(p)
    full = View(0, desc.shape, dense_strides(desc.shape), desc.element.acc)
    held: dict[str, Any] = {"views": {"y": full}, "places": {"y": ("@workspace", 0)}}
    first = scan_geometry(
        p, ScanOperands(("x",), ("y",), ("initial",)), desc.axis, reverse=desc.reverse, exclusive=desc.exclusive,
        prefix="sums_", base=aligned(full.nbytes), **held,
    )  # fmt: skip
    if isinstance(first, str):
        return first
    last = _geometry(p, base=first.workspace, **held)
    return last if isinstance(last, str) else Geometry((*first.steps, *last.steps), last.workspace, last.layout)


def _geometry(p: Problem, **more: Any) -> Geometry | str:
    desc = p.desc
    operands = ScanOperands(_OPERANDS[desc.kind], ("dx",), ("dcarry", "initial"), ("dinitial",))
    shifted = desc.exclusive and desc.kind.plain is ScanKind.CUMPROD
    exclusive = desc.exclusive and not shifted
    return scan_geometry(p, operands, desc.axis, reverse=not desc.reverse, exclusive=exclusive, shifted=shifted, **more)


def _elements(kind: ScanKind | None) -> tuple[ElementKind, ...]:
    return (*FLOATS, *COMPLEX) if kind in (None, ScanKind.CUMSUM, ScanKind.CUMPROD) else FLOATS


def _bound(kind: ElementKind, scan: Any) -> ErrorBound:
    if scan.plain is ScanKind.CUMPROD:
        return recurrence_bound(kind)
    return Forward(1) if scan.plain is ScanKind.CUMSUM else Relative(4)


class ScanBackwardPlan(Plan):
    """dx of a scan: what the prefixes that hold x[i] hand back to it.

    cumsum: dx[i] = dy[i] + dy[i + 1] + …. cumprod: dx[i] = y[i - 1] S[i] with S[i] = dy[i] + x[i + 1] S[i + 1]: no
    division, so zeros, any number of them, are elements like others. logcumsumexp: dx[i] = exp(x[i]) times the sum of
    dy[j] exp(-y[j]), in logarithms (as PyTorch's), where y = -inf hands nothing back. NaN that the forward passed over
    get 0. With `dcarry` the forward's `carry` hands back, too; `dinitial` is the gradient of its `initial`.
    """

    op = "scan.scan_backward"
    direction = "backward"
    kinds = ScanKind
    descriptor = ScanBackwardDescriptor
    args = ScanBackwardArgs
    reference = staticmethod(reference)
    value_policy = "cumprod: an infinite or NaN dy, x or dcarry makes dx NaN from there back"
    variants = (
        Variant(
            "segments", _geometry, source="scan/scan_backward.cu", elements=_elements,
            kinds=tuple(kind for kind in ScanKind if kind is not ScanKind.LOGCUMSUMEXP),
            kernels=scan_kernels("{KIND}Backward<{T}>", PARAMS, blocks=_blocks),
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
        Variant(
            "exponentials", _exponentials_geometry, source="scan/scan_backward.cu", elements=_elements,
            kinds=(ScanKind.LOGCUMSUMEXP,),
            kernels=(
                *scan_kernels("{KIND}Backward<{T}>", PARAMS, blocks=_blocks),
                *scan_kernels("{KIND}InFull<{T}>", PARAMS, prefix="sums_", elements=HALVES,
                              blocks=blocks_of_columns),
            ),
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = scan_benchmarks("cumsum", "cumprod", "logcumsumexp")

    @staticmethod
    def case(draw: Any) -> ScanBackwardDescriptor:
        found = ScanPlan.case(draw)
        return ScanBackwardDescriptor(
            kind=found.kind, shape=found.shape, axis=found.axis, reverse=found.reverse, exclusive=found.exclusive,
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: ScanBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes the output of the forward."""
        if desc.element.is_complex:  # a part that is NaN leaves the other without a bound
            for name in ("dy", "dcarry"):
                if arrays.get(name) is not None:
                    arrays[name] = np.where(np.isfinite(arrays[name]), arrays[name], 1).astype(arrays[name].dtype)
        if arrays["x"] is not None:
            ScanPlan.complete(desc, arrays)
        if arrays["y"] is not None:
            wide = np.complex128 if desc.element.is_complex else np.float64
            x = decode(arrays["x"], desc.element).astype(wide)
            initial = None if arrays["initial"] is None else arrays["initial"].astype(wide)
            arrays["y"] = np.array(cast(forward(desc, x=x, initial=initial, wanted=set())["y"], desc.element))


scan_backward = functional(ScanBackwardPlan)
