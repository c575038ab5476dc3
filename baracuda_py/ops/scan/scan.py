"""scan: prefixes of x along one axis, by one of `ScanKind`; a function per kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Forward, Geometry, Guarantee, Plan, Problem, Ulp, Variant, Vjp, choice, element,
    flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.error_bound import ErrorBound
from ...core.errors import UnsupportedError
from ...schedules.scan import ScanOperands, scan_geometry, scan_kernels, scan_params
from ..reduce.reduce_formulas import all_or_nothing, near_circle
from ..reduce.reduce_kinds import WITH_COMPLEX
from .scan_kinds import (
    AlongAxis, ScanKind, blocks_of_columns, from_rows, problem, rows_of, scan_benchmarks, torch_array, torch_rows,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScanDescriptor(AlongAxis):
    """x has shape `shape`; the scan is along `axis`, negative counting from the end.

    reverse: from the last element to the first. exclusive: an element's own value is not part of its prefix, and the
    first is that of no elements (0, 1, -inf), or `initial`.
    """

    kind: ScanKind = choice(ScanKind, ScanKind.CUMSUM)
    exclusive: bool = flag(False)
    element: ElementKind = element(WITH_COMPLEX)

    def validate(self) -> None:
        if self.element not in self.kind.elements:
            if self.kind.plain is not self.kind:
                what = f"has no NaN: {self.kind.plain.value} is the same"
            elif self.element.is_complex:
                what = "has branches; take the real part or the magnitude first"
            else:
                what = "is not an integer; cast to a float first"
            raise UnsupportedError(f"{self.kind.value} of {self.element} {what}")

    @property
    def result(self) -> ElementKind:
        """The element of y: int64 for integers and bool, as in PyTorch (uint64 for itself)."""
        return self.element if self.element.is_inexact or self.element is ElementKind.U64 else ElementKind.I64

    @property
    def carried(self) -> ElementKind:
        """The element of initial and carry: float32 for floats of up to 32 bits, else that of y."""
        return self.element.acc if self.element.is_inexact else self.result


@dataclass(slots=True, kw_only=True)
class ScanArgs(Args):
    """Any strides; y may be x.

    initial: what stands before each row; carry: what stands after it, the `initial` of a stream's next chunk.
    """

    x: Array = operand("*shape")
    initial: Array | None = operand("*kept_shape", element="carried", optional=True)
    y: Array = output("*shape", element="result", inplace=("x",))
    carry: Array | None = output("*kept_shape", element="carried", optional=True)


def reference(desc: ScanDescriptor, *, x: Any, initial: Any, wanted: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    dtype = x.dtype if desc.element.is_inexact else desc.result.dtype
    add = {ScanKind.CUMSUM: np.add, ScanKind.CUMPROD: np.multiply, ScanKind.LOGCUMSUMEXP: np.logaddexp}[desc.kind.plain]
    rows = rows_of(desc, x).astype(dtype)
    if desc.kind.plain is not desc.kind:
        rows = np.where(np.isnan(rows), dtype.type(desc.kind.nothing), rows)
    if desc.element.is_complex and desc.kind is ScanKind.CUMPROD:
        rows, initial = (None if x is None else all_or_nothing(x) for x in (rows, initial))
    first = np.full(rows.shape[:-1], desc.kind.nothing, dtype) if initial is None else initial.astype(dtype)
    with np.errstate(all="ignore"):
        full = add.accumulate(np.concatenate([first.reshape(rows.shape[:-1])[..., None], rows], axis=-1), axis=-1)
    y = full[..., :-1] if desc.exclusive else full[..., 1:]
    return {"y": from_rows(desc, y), "carry": full[..., -1].reshape(desc.kept_shape)}


PARAMS = scan_params("ScanParams")
OPERANDS = ScanOperands(("x",), ("y",), ("initial",), ("carry",))


def _geometry(p: Problem) -> Geometry | str:
    return scan_geometry(p, OPERANDS, p.desc.axis, reverse=p.desc.reverse, exclusive=p.desc.exclusive)


def _elements(kind: ScanKind | None) -> tuple[ElementKind, ...]:
    return WITH_COMPLEX if kind is None else kind.elements


def _bound(kind: ElementKind, scan: Any) -> ErrorBound:
    if not kind.is_inexact:
        return Exact()
    if scan.plain is ScanKind.CUMPROD:
        return Ulp({ElementKind.F64: 1, ElementKind.C64: 0.75, ElementKind.C128: 2}.get(kind, 0.51))
    # Sums are carried with twice the digits and rounded once. logcumsumexp: each of up to 8 + 5 + 32 merges of a
    # segment, and 10 and one in 1024 of segments, errs by up to 3 half eps; rows of up to 2^26 elements.
    return Forward(1) if scan.plain is ScanKind.CUMSUM else Forward(192)


def in_torch(torch: Any, desc: ScanDescriptor, *, x: Any, initial: Any, wanted: Any) -> Any:
    """torch's function of the kind on x behind `initial`; what it has not (reverse, NaN) by flips and by masking."""
    kind = desc.kind.plain
    rows = torch_rows(desc, x)
    if kind is not desc.kind:
        rows = torch.where(torch.isnan(rows), rows.new_tensor(kind.nothing), rows)
    scan = getattr(torch, kind.value)
    if initial is None:  # not behind nothing: torch's gradient of logcumsumexp of -inf is NaN
        y = scan(rows, -1)
        full = torch.cat((y.new_full((*y.shape[:-1], 1), kind.nothing), y), -1)
    else:
        full = scan(torch.cat((initial.reshape(rows.shape[:-1])[..., None], rows.to(initial.dtype)), -1), -1)
    y = full[..., :-1] if desc.exclusive else full[..., 1:]
    return {"y": torch_array(desc, y), "carry": full[..., -1].reshape(desc.kept_shape)}


class ScanPlan(Plan):
    """y[i] = x[0] + … + x[i] along `axis` (torch.cumsum), their product (cumprod), or log of the sum of exponentials.

    nancumsum and nancumprod (NumPy's) pass over NaN. Integers are added and multiplied in int64 (uint64 of uint64) and
    wrap. Sums and products of floats are carried with more digits than their accumulator has, and products with their
    exponent, so that no product of a part leaves the range; a row's bits depend on its elements alone.

    With `initial`, one value a row, a row goes on from there: y[i] = initial + x[0] + …; `carry` is what stands after a
    row's last element (`initial`, or 0, 1, -inf, of an empty one), so that the `carry` of a chunk is the `initial` of
    the next. Both are float32 (float64 of float64, int64 or uint64 of integers): a stream of floats is rounded to that
    once a chunk, one of integers not at all.
    """

    op = "scan.scan"
    kinds = ScanKind
    descriptor = ScanDescriptor
    args = ScanArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "segments", _geometry, source="scan/scan.cu", elements=_elements,
            kernels=scan_kernels("{KIND}<{T}>", PARAMS, blocks=blocks_of_columns),
            guarantee=Guarantee(_bound, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("ScanBackwardPlan", grads={"x": "dx", "initial": "dinitial"})
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("cumsum", "logcumsumexp")

    @staticmethod
    def case(draw: Any) -> ScanDescriptor:
        shape, axis = problem(draw)
        return ScanDescriptor(
            kind=draw.kind, shape=shape, axis=axis, reverse=draw.flag(), exclusive=draw.flag(), element=draw.element
        )

    @classmethod
    def complete(cls, desc: ScanDescriptor, arrays: dict[str, Any]) -> None:
        """Every other time some elements are NaN, for the kinds that pass over them."""
        if desc.kind is ScanKind.CUMPROD and desc.element.is_complex:
            arrays["x"] = near_circle(arrays["x"])
        if desc.kind.plain is not desc.kind:
            arrays["x"] = with_nan(arrays["x"])


def with_nan(x: Any) -> Any:
    """x, every other time with NaN at every third place."""
    x = np.array(x)
    if x.size and x.flat[0] > 0:
        x.flat[::3] = np.nan
    return x


def scan_function(kind: ScanKind, name: str | None = None, axis: int = -1) -> Any:
    """The function of a kind, under its own name or another library's, with that one's axis where none is given."""
    doc = f"The {kind.value} of x along `axis`; see `ScanPlan`."
    return functional(ScanPlan, name or kind.value, doc, kind=kind, defaults={"axis": axis}, positional=("axis",))


cumsum = scan_function(ScanKind.CUMSUM)
cumprod = scan_function(ScanKind.CUMPROD)
logcumsumexp = scan_function(ScanKind.LOGCUMSUMEXP)
cumlogsumexp = scan_function(ScanKind.LOGCUMSUMEXP, "cumlogsumexp", axis=0)  # jax.lax's
