"""The reductions: a kind is a row of this table and a functor, whose gradient stands under reduce/gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...core import FLOATS, ElementKind, Exact, Forward, Ulp
from ...core.element import COMPLEX, INTS
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind, WithFunctor
from . import reduce_formulas as formulas
from . import reduce_torch as oracle
from .reduce_formulas import Axes

EVERY = (*FLOATS, *INTS, ElementKind.BOOL)
NUMBERS = (*FLOATS, *INTS)
INEXACT = (*FLOATS, *COMPLEX)
WITH_COMPLEX = (*EVERY, *COMPLEX)


def _same(element: ElementKind) -> ElementKind:
    return element


def total(element: ElementKind) -> ElementKind:
    """Integers and bool are totalled in int64, as in PyTorch; uint64 in itself."""
    return element if element.is_inexact or element is ElementKind.U64 else ElementKind.I64


def _part(element: ElementKind) -> ElementKind:
    return element.part


def _bool(element: ElementKind) -> ElementKind:
    return ElementKind.BOOL


def _index(element: ElementKind) -> ElementKind:
    return ElementKind.I64


# A float's sum passes at most log2(8) + 8 + 5 additions in its segment and 8 + 5 in each of at most 7 merges of 256
# segments (2^63 elements); each errs by half an eps of what it adds. A mean's division is one more.
sum_bound = Forward(56)


def _summed(element: ElementKind) -> ErrorBound:
    return sum_bound if element.is_inexact else Exact()


def exact(element: ElementKind) -> ErrorBound:
    """Moves, counts and integers."""
    return Exact()


def rounded(double: float) -> Callable[[ElementKind], ErrorBound]:
    """Carried in double, so that other floats are rounded once; `double` ulp for float64.

    Both parts of a complex number are rounded.
    """

    def bound(element: ElementKind) -> ErrorBound:
        if not element.is_inexact:
            return Exact()
        if element.is_complex:
            return Ulp(0.75 if element is ElementKind.C64 else max(double, 2))
        return Ulp(double if element is ElementKind.F64 else 0.51)

    return bound


@dataclass(frozen=True)
class Reduction(WithFunctor):
    """A row: the functor's name, the formula in NumPy, elements, y's element, the bound, torch's function, and names.

    formula: (x, axes) → y, and what `takes` names of the descriptor. ordered: the result depends on the order of the
    elements (sums of floats, places). nonempty: undefined for none. widened: y may be float32 of 16-bit floats.
    torch: (torch, x, axes, descriptor) → y, the function of the kind's name by default. merge: makes one of the results
    of two parts, exactly where elements are integers. defaults: of the attributes that the function takes, where those
    of the library that the name is of are not the descriptor's.
    """

    folder: ClassVar[str] = "reduce"

    functor: str
    formula: Callable[..., Any]
    elements: tuple[ElementKind, ...] = FLOATS
    result: Callable[[ElementKind], ElementKind] = _same
    bound: Callable[[ElementKind], ErrorBound] = _summed
    ordered: bool = True
    nonempty: bool = False
    takes: tuple[str, ...] = ()
    widened: bool = False
    torch: Callable[..., Any] | None = None
    aliases: tuple[str, ...] = ()
    merge: np.ufunc | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _nan(value: float, x: Any) -> Any:
    return formulas.without_nan(x, value)


def _extreme(functor: str, formula: Callable[[Any, Axes], Any], **facts: Any) -> Reduction:
    return Reduction(functor, formula, bound=exact, ordered=False, nonempty=True, **facts)


def _size(element: ElementKind) -> ErrorBound:
    return rounded(0)(element) if element.is_complex else Exact()  # hypot errs


def _extreme_norm(functor: str, find: Callable[..., Any], order: float) -> Reduction:
    return Reduction(
        functor, lambda x, axes: find(np.abs(x), axis=axes), INEXACT, _part, _size, ordered=False, nonempty=True,
        torch=oracle.norm(order),
    )  # fmt: skip


def _place(functor: str, formula: Callable[[Any, Axes], Any], **facts: Any) -> Reduction:
    return Reduction(functor, formula, result=_index, bound=exact, nonempty=True, **facts)


def _bits(functor: str, combine: np.ufunc, of: Callable[[Any, int], Any], aliases: tuple[str, ...] = ()) -> Reduction:
    return Reduction(
        functor, formulas.bits(combine), (*INTS, ElementKind.BOOL), bound=exact, ordered=False, torch=oracle.bits(of),
        aliases=aliases, merge=combine,
    )  # fmt: skip


def _root(formula: Callable[[Any, Axes, int], Any]) -> Callable[[Any, Axes, int], Any]:
    return lambda x, axes, correction: np.sqrt(formula(x, axes, correction))


_SPREAD: dict[str, Any] = {"bound": rounded(512), "takes": ("correction",)}
_NAN_SPREAD: dict[str, Any] = {**_SPREAD, "defaults": {"correction": 0}}  # NumPy's names, and its ddof
_WITH_PARTS: dict[str, Any] = {"elements": INEXACT, "result": _part}
_TRUTH: dict[str, Any] = {"elements": WITH_COMPLEX, "result": _bool, "bound": exact, "ordered": False}


class ReduceKind(TableKind):
    """What a ReducePlan computes, by PyTorch's names and definitions; those that it lacks by NumPy's."""

    SUM = (
        "sum",
        Reduction("sums/Sum", formulas.total, WITH_COMPLEX, total, widened=True, aliases=("reduce_sum",), merge=np.add),
    )
    MEAN = "mean", Reduction("sums/Mean", formulas.mean, INEXACT, widened=True)
    PROD = (
        "prod",
        Reduction(
            "prod/Prod", formulas.product, WITH_COMPLEX, total, rounded(1), widened=True, torch=oracle.prod,
            aliases=("reduce_prod",), merge=np.multiply,
        ),
    )  # fmt: skip
    AMAX = (
        "amax",
        _extreme(
            "extremes/Amax",
            lambda x, axes: np.max(x, axis=axes),
            elements=EVERY,
            aliases=("max", "reduce_max"),
            merge=np.maximum,
        ),
    )
    AMIN = (
        "amin",
        _extreme(
            "extremes/Amin",
            lambda x, axes: np.min(x, axis=axes),
            elements=EVERY,
            aliases=("min", "reduce_min"),
            merge=np.minimum,
        ),
    )
    PTP = (
        "ptp",
        Reduction(
            "extremes/Ptp",
            formulas.peak_to_peak,
            NUMBERS,
            bound=rounded(0.501),
            ordered=False,
            nonempty=True,
            torch=oracle.ptp,
        ),
    )
    ANY = "any", Reduction("counts/Any", lambda x, axes: np.any(x != 0, axis=axes), merge=np.logical_or, **_TRUTH)
    ALL = "all", Reduction("counts/All", lambda x, axes: np.all(x != 0, axis=axes), merge=np.logical_and, **_TRUTH)
    COUNT_NONZERO = (
        "count_nonzero",
        Reduction(
            "counts/CountNonzero",
            lambda x, axes: formulas.total(x != 0, axes),
            WITH_COMPLEX,
            _index,
            exact,
            ordered=False,
            merge=np.add,
        ),
    )
    XOR_SUM = (
        "xor_sum",
        _bits("bits/XorSum", np.bitwise_xor, lambda held, count: held % 2 == 1, aliases=("reduce_xor",)),
    )
    REDUCE_OR = "reduce_or", _bits("bits/BitsOfAny", np.bitwise_or, lambda held, count: held > 0)
    REDUCE_AND = "reduce_and", _bits("bits/BitsOfAll", np.bitwise_and, lambda held, count: held == count)
    ARGMAX = "argmax", _place("places/Argmax", formulas.place(np.argmax), elements=EVERY, torch=oracle.place("argmax"))
    ARGMIN = "argmin", _place("places/Argmin", formulas.place(np.argmin), elements=EVERY, torch=oracle.place("argmin"))
    SUM_SQUARES = (
        "sum_squares",
        Reduction(
            "sums/SumSquares",
            lambda x, axes: formulas.total(np.square(x), axes),
            widened=True,
            torch=oracle.sum_squares,
        ),
    )
    L0_NORM = (
        "l0_norm",
        Reduction(
            "counts/L0Norm",
            lambda x, axes: formulas.total((x != 0).astype(x.real.dtype), axes),
            bound=rounded(0.501),
            ordered=False,
            torch=oracle.norm(0),
            **_WITH_PARTS,
        ),
    )
    L1_NORM = (
        "l1_norm",
        Reduction(
            "sums/L1Norm",
            lambda x, axes: formulas.total(np.abs(x), axes),
            INEXACT,
            _part,
            widened=True,
            torch=oracle.norm(1),
        ),
    )
    L2_NORM = (
        "l2_norm",
        Reduction(
            "norms/L2Norm", formulas.l2_norm, INEXACT, _part, bound=rounded(64), widened=True, torch=oracle.norm(2)
        ),
    )
    P_NORM = (
        "p_norm",
        Reduction(
            "norms/PNorm", formulas.p_norm, bound=rounded(256), takes=("p",), torch=oracle.norm(None), **_WITH_PARTS
        ),
    )
    MAX_NORM = "max_norm", _extreme_norm("extremes/MaxNorm", np.max, float("inf"))
    MIN_NORM = "min_norm", _extreme_norm("extremes/MinNorm", np.min, -float("inf"))
    LOGSUMEXP = "logsumexp", Reduction("logsumexp/Logsumexp", formulas.logsumexp, bound=lambda _: Forward(80))
    LOGMEANEXP = (
        "logmeanexp",
        Reduction("logsumexp/Logmeanexp", formulas.logmeanexp, bound=lambda _: Forward(82), torch=oracle.logmeanexp),
    )
    VAR = "var", Reduction("spread/Var", formulas.variance, torch=oracle.spread("var"), **_SPREAD, **_WITH_PARTS)
    STD = "std", Reduction("spread/Std", _root(formulas.variance), torch=oracle.spread("std"), **_SPREAD, **_WITH_PARTS)
    NANSUM = ("nansum", Reduction("sums/Nansum", lambda x, axes: formulas.total(_nan(0, x), axes), widened=True))
    NANMEAN = "nanmean", Reduction("sums/Nanmean", formulas.nanmean, widened=True)
    NANPROD = (
        "nanprod",
        Reduction(
            "prod/Nanprod", lambda x, axes: formulas.product(_nan(1, x), axes), bound=rounded(1), torch=oracle.nanprod
        ),
    )
    NANMAX = (
        "nanmax",
        _extreme("extremes/Nanmax", formulas.nan_extreme(np.max, -np.inf), torch=oracle.nan_extreme("amax")),
    )
    NANMIN = (
        "nanmin",
        _extreme("extremes/Nanmin", formulas.nan_extreme(np.min, np.inf), torch=oracle.nan_extreme("amin")),
    )
    NANARGMAX = (
        "nanargmax",
        _place("places/Nanargmax", formulas.nan_place(np.argmax, -np.inf), torch=oracle.nan_place("argmax")),
    )
    NANARGMIN = (
        "nanargmin",
        _place("places/Nanargmin", formulas.nan_place(np.argmin, np.inf), torch=oracle.nan_place("argmin")),
    )
    NANVAR = "nanvar", Reduction("spread/Nanvar", formulas.nanvar, torch=oracle.nan_spread(1), **_NAN_SPREAD)
    NANSTD = "nanstd", Reduction("spread/Nanstd", _root(formulas.nanvar), torch=oracle.nan_spread(0.5), **_NAN_SPREAD)

    row: Reduction

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"kinds::{self.row.cpp}"


def reduce_elements(kind: ReduceKind | None) -> tuple[ElementKind, ...]:
    """The elements a kind takes."""
    return WITH_COMPLEX if kind is None else kind.row.elements


def reduce_bound(element: ElementKind, kind: ReduceKind) -> ErrorBound:
    """The error bound of a kind."""
    return kind.row.bound(element)


WIDENED = tuple(kind for kind in ReduceKind if kind.row.widened)
"""Kinds that reduce 16-bit floats into float32."""
