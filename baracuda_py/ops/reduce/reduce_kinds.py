"""The reductions: a kind is a row of this table and a functor of kernels/reduce/kinds.cuh."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import FLOATS, ElementKind, Exact, Forward, Ulp
from ...core.element import INTS
from ...core.error_bound import ErrorBound

Axes = tuple[int, ...]
EVERY = (*FLOATS, *INTS, ElementKind.BOOL)


def _same(element: ElementKind) -> ElementKind:
    return element


def total(element: ElementKind) -> ElementKind:
    """Integers and bool are totalled in int64, as in PyTorch; uint64 in itself."""
    return element if element.is_float or element is ElementKind.U64 else ElementKind.I64


def _bool(element: ElementKind) -> ElementKind:
    return ElementKind.BOOL


def _index(element: ElementKind) -> ElementKind:
    return ElementKind.I64


# A float's sum passes at most log2(8) + 8 + 5 additions in its segment and 8 + 5 in each of at most 7 merges of 256
# segments (2^63 elements); each errs by half an eps of what it adds. A mean's division is one more.
sum_bound = Forward(56)


def _summed(element: ElementKind) -> ErrorBound:
    return sum_bound if element.is_float else Exact()


def _exact(element: ElementKind) -> ErrorBound:
    return Exact()


def _rounded(double: float) -> Callable[[ElementKind], ErrorBound]:
    """Carried in double, so that other floats are rounded once; `double` ulp for float64."""

    def bound(element: ElementKind) -> ErrorBound:
        if not element.is_float:
            return Exact()
        return Ulp(double if element is ElementKind.F64 else 0.51)

    return bound


@dataclass(frozen=True)
class Reduction:
    """A row: the functor's name, the formula in NumPy (x, axes, correction → y), elements, y's element and the bound.

    ordered: the result depends on the order of the elements (sums of floats, places). nonempty: undefined for none.
    """

    cpp: str
    formula: Callable[[Any, Axes, int], Any]
    elements: tuple[ElementKind, ...]
    result: Callable[[ElementKind], ElementKind] = _same
    bound: Callable[[ElementKind], ErrorBound] = _summed
    ordered: bool = True
    nonempty: bool = False
    corrected: bool = False


def _dtype(x: Any) -> Any:
    """What a total of x is kept in."""
    return x.dtype if x.dtype.kind == "f" else np.uint64 if x.dtype == np.uint64 else np.int64


def _count(x: Any, axes: Axes) -> int:
    return int(np.prod([x.shape[a] for a in axes], dtype=object)) if axes else 1


def _sum(x: Any, axes: Axes, _: int = 0) -> Any:
    return np.sum(x, axis=axes, dtype=_dtype(x))


def _mean(x: Any, axes: Axes, _: int = 0) -> Any:
    return _sum(x, axes) / x.dtype.type(_count(x, axes))


def _place(find: Callable[..., Any]) -> Callable[[Any, Axes, int], Any]:
    def formula(x: Any, axes: Axes, _: int) -> Any:
        kept = [a for a in range(x.ndim) if a not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(*(x.shape[a] for a in kept), _count(x, axes))
        return np.asarray(find(rows, axis=-1), np.int64)

    return formula


def _l2_norm(x: Any, axes: Axes, _: int) -> Any:
    """By the power of two of the largest element, so that no square leaves the range."""
    top = np.max(np.abs(x), axis=axes, keepdims=True, initial=0)
    exponent = np.where(np.isfinite(top), np.frexp(np.where(np.isfinite(top), top, 1))[1], 0)
    root = np.sqrt(_sum(np.square(np.ldexp(x, -exponent)), axes))
    return np.ldexp(root, exponent.reshape(root.shape))


def _logsumexp(x: Any, axes: Axes, _: int) -> Any:
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.log(_sum(np.exp(x - shift), axes))
    return total + shift.reshape(total.shape)


def _var(x: Any, axes: Axes, correction: int) -> Any:
    n = _count(x, axes)
    mean = np.sum(x, axis=axes, keepdims=True) / x.dtype.type(n)
    return _sum(np.square(x - mean), axes) / x.dtype.type(max(n - correction, 0))


class ReduceKind(enum.Enum):
    """What a ReducePlan computes, by PyTorch's names and definitions."""

    SUM = "sum", Reduction("Sum", _sum, EVERY, total)
    MEAN = "mean", Reduction("Mean", _mean, FLOATS)
    PROD = (
        "prod",
        Reduction("Prod", lambda x, axes, _: np.prod(x, axis=axes, dtype=_dtype(x)), EVERY, total, bound=_rounded(1)),
    )
    AMAX = (
        "amax",
        Reduction("Amax", lambda x, axes, _: np.max(x, axis=axes), EVERY, bound=_exact, ordered=False, nonempty=True),
    )
    AMIN = (
        "amin",
        Reduction("Amin", lambda x, axes, _: np.min(x, axis=axes), EVERY, bound=_exact, ordered=False, nonempty=True),
    )
    ANY = (
        "any",
        Reduction("Any", lambda x, axes, _: np.any(x != 0, axis=axes), EVERY, _bool, bound=_exact, ordered=False),
    )
    ALL = (
        "all",
        Reduction("All", lambda x, axes, _: np.all(x != 0, axis=axes), EVERY, _bool, bound=_exact, ordered=False),
    )
    COUNT_NONZERO = (
        "count_nonzero",
        Reduction("CountNonzero", lambda x, axes, _: _sum(x != 0, axes), EVERY, _index, bound=_exact, ordered=False),
    )
    ARGMAX = "argmax", Reduction("Argmax", _place(np.argmax), EVERY, _index, bound=_exact, nonempty=True)
    ARGMIN = "argmin", Reduction("Argmin", _place(np.argmin), EVERY, _index, bound=_exact, nonempty=True)
    NANSUM = (
        "nansum",
        Reduction("Nansum", lambda x, axes, _: _sum(np.where(np.isnan(x), x.dtype.type(0), x), axes), FLOATS),
    )
    SUM_SQUARES = "sum_squares", Reduction("SumSquares", lambda x, axes, _: _sum(np.square(x), axes), FLOATS)
    L1_NORM = "l1_norm", Reduction("L1Norm", lambda x, axes, _: _sum(np.abs(x), axes), FLOATS)
    L2_NORM = "l2_norm", Reduction("L2Norm", _l2_norm, FLOATS, bound=_rounded(64))
    LOGSUMEXP = "logsumexp", Reduction("Logsumexp", _logsumexp, FLOATS, bound=lambda _: Forward(80))
    VAR = "var", Reduction("Var", _var, FLOATS, bound=_rounded(512), corrected=True)
    STD = "std", Reduction("Std", lambda *given: np.sqrt(_var(*given)), FLOATS, bound=_rounded(512), corrected=True)

    def __new__(cls, name: str, row: Reduction) -> ReduceKind:
        kind = object.__new__(cls)
        kind._value_ = name
        kind.row = row
        return kind

    row: Reduction

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.row.cpp}"


def reduce_elements(kind: ReduceKind | None) -> tuple[ElementKind, ...]:
    """The elements a kind takes."""
    return EVERY if kind is None else kind.row.elements


def reduce_bound(element: ElementKind, kind: ReduceKind) -> ErrorBound:
    """The error bound of a kind."""
    return kind.row.bound(element)
