"""complex_binary_backward: the gradients of `complex_binary`, summed where a or b was broadcast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Guarantee, Params, Plan, Relative, Scalar, Variant, choice, element, extents,
    flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, Benchmark
from ...core.element import COMPLEX
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...schedules.map import map_kernels, map_params
from ...schedules.reduce import reduce_kernels, reduce_params
from .binary import binary_case
from .binary_backward import gradient_map, gradient_sum, summed
from .complex_binary import complete_numbers, ordered
from .complex_binary_kinds import WITH_GRADIENT, ComplexBinaryKind


@dataclass(frozen=True, kw_only=True)
class ComplexBinaryBackwardDescriptor(Descriptor):
    """As `ComplexBinaryDescriptor`: dy has shape `shape`, a and b have shapes that broadcast to it."""

    kind: ComplexBinaryKind = choice(ComplexBinaryKind)
    shape: tuple[int, ...] = extents()
    with_number: bool = flag(False)
    reverse: bool = flag(False)
    element: ElementKind = element(COMPLEX)

    def validate(self) -> None:
        if self.kind not in WITH_GRADIENT:
            raise InvalidProblemError(f"{self.kind.value} is a truth value and has no gradient")


@dataclass(slots=True, kw_only=True)
class ComplexBinaryBackwardArgs(Args):
    """Any strides. da has a's shape, db b's; either may be None, and db is where b is a number."""

    dy: Array = operand("*shape")
    a: Array = operand("*shape", broadcast=True)
    b: Array | None = operand("*shape", broadcast=True, instead="with_number")
    da: Array | None = output("*shape", like="a", optional=True)
    db: Array | None = output("*shape", like="b", optional=True)
    number: Scalar = scalar(0.0)
    imag: Scalar = scalar(0.0)


def reference(
    desc: ComplexBinaryBackwardDescriptor, *, dy: Any, a: Any, b: Any, number: Any, imag: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype a and b come in."""
    left, right = ordered(desc, a, b, number, imag)
    gradients = desc.kind.row.gradient
    assert gradients is not None
    found = {}
    for name, shape in (("da", a.shape), ("db", np.shape(b))):
        if name in wanted:
            with np.errstate(all="ignore"):
                whole = gradients[(name == "db") != desc.reverse](dy, left, right)
                found[name] = summed(np.broadcast_to(whole, desc.shape), shape)
    return found


_NUMBERS = {"number": "scalar", "imag": "scalar", "number_place": "i32"}
PARAMS = Params(
    "ComplexBinaryBackwardParams", d_left="ptr", d_right="ptr", dy="ptr", left="ptr", right="ptr", **_NUMBERS,
    **map_params(5),
)  # fmt: skip
SUM_PARAMS = reduce_params("ComplexBinaryBackwardSumParams", ("dy", "left", "right"), second="i32", **_NUMBERS)
_MAP = map_kernels("complex_binary_backward<{KIND}, {T}, {LAYOUT}>", PARAMS)
_SUM = tuple(
    replace(kernel, source="elementwise/complex_binary_backward_sum.cu")
    for kernel in reduce_kernels(
        "kinds::Sum<{T}>", SUM_PARAMS, source="Mapped<ComplexSummand<{KIND}, {T}>, {T}, {T}, {T}>"
    )
)


def _bound(kind: ElementKind, op: Any) -> ErrorBound:
    found: ErrorBound = op.row.slope
    return found


class ComplexBinaryBackwardPlan(Plan):
    """da = dy conj(∂f/∂a) and db = dy conj(∂f/∂b), each summed over the axes its operand was broadcast along.

    As in PyTorch, the gradient of pow for a is 0 where b is 0, that for b is 0 where a is 0 and the real part of b not
    negative. Errors are relative to the gradients' magnitudes. Sums are in the element, in an order that shapes alone
    fix.
    """

    op = "elementwise.complex_binary_backward"
    direction = "backward"
    kinds = WITH_GRADIENT
    descriptor = ComplexBinaryBackwardDescriptor
    args = ComplexBinaryBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", gradient_map, source="elementwise/complex_binary_backward.cu", kernels=_MAP, elements=COMPLEX,
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
        Variant(
            "sum", gradient_sum, source="elementwise/complex_binary_backward.cu", kernels=(*_MAP, *_SUM),
            elements=COMPLEX, guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "mul 67M complex64", also=("da", "db"), shape=1 << 26, kind="mul", element="complex64", peers=(EAGER,)
        ),
    )

    @staticmethod
    def case(draw: Any) -> ComplexBinaryBackwardDescriptor:
        """Small shapes of any rank; rows and columns to sum, of a lane's to several segments."""
        drawn = binary_case(draw)
        if draw.flag():
            long = draw.sizes(9, 40, 131, 1030, rare=(20000,))
            drawn["shape"] = draw.choice(((long,), (draw.sizes(3, 8, 33), long), (long, draw.sizes(8, 33, 64))))
            drawn["shape"] = drawn["shape"] if long < 2000 else (long,)
        return ComplexBinaryBackwardDescriptor(**drawn)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", shapes["dy"])  # of a and b alone both may be broadcast

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        complete_numbers(desc, arrays)
        if desc.kind is ComplexBinaryKind.POW:
            # A sum of terms that leave the range has infinities of either sign, and beside a power of 0 the gradient is
            # a product of subnormal numbers, which have no digits.
            number = complex(_tame(np.asarray(complex(arrays["number"], arrays["imag"]))))
            arrays["number"], arrays["imag"] = number.real, number.imag
            if arrays.get("b") is not None:
                arrays["b"] = _tame(arrays["b"])


def _tame(power: np.ndarray) -> np.ndarray:
    """Powers no larger than 3, and none but 0 that is smaller than 1e-20; infinite ones are NaN."""
    with np.errstate(all="ignore"):
        size = np.abs(power)
        found = power / np.maximum(size / 3, 1)
    return np.asarray(np.where(size < 1e-20, 0, found), power.dtype)


_made: dict[Any, Any] = {}


def call_complex_backward(kind: ComplexBinaryKind, dy: Any, a: Any, b: Any, **more: Any) -> Any:
    """(da, db) of two complex arrays."""
    made = _made.get(kind)
    if made is None:
        name = f"{kind.value}_backward"
        made = functional(ComplexBinaryBackwardPlan, name, kind=kind, with_number=False, reverse=False)
        made = _made.setdefault(kind, made)
    return made(dy, a, b, **more)


def call_backward_with_number(
    kind: ComplexBinaryKind, dy: Any, array: Any, value: Any, reverse: bool, **more: Any
) -> Any:
    """The gradient for the array beside a number."""
    made = _made.get((kind, reverse))
    if made is None:
        name = f"{kind.value}_backward"
        made = functional(ComplexBinaryBackwardPlan, name, kind=kind, with_number=True, reverse=reverse)
        made = _made.setdefault((kind, reverse), made)
    value = complex(value)
    return made(dy, array, number=value.real, imag=value.imag, **more)
