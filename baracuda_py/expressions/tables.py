"""The kinds of the elementwise tables as functions of formulas. What the tables look like is known here alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..core.element import ElementKind
from ..core.error_bound import ErrorBound, Exact
from ..ops.elementwise import binary, unary_formulas, unary_kinds
from .function import Function

HEADERS = ("elementwise/functors.cuh", "elementwise/binary.cuh")
"""The files under kernels/ that hold the functors."""


def table_functions() -> Iterator[Function]:
    """A function for each kind."""
    for kind in unary_kinds.UnaryKind:
        yield _unary(kind)
    for pair in binary.BinaryKind:
        yield _binary(pair)


def _unary(kind: unary_kinds.UnaryKind) -> Function:
    formula, alpha = unary_formulas.FORWARD[kind], unary_kinds.ALPHA.get(kind)
    coefficient = "{A}(0)" if alpha is None else "{1}"
    return Function(
        kind.value,
        ("x",) if alpha is None else ("x", "alpha"),
        f"{kind.cpp}<{{T}}>::value({{0}}, {coefficient})",
        partial(_without_alpha, formula) if alpha is None else formula,
        elements=unary_kinds.unary_elements(kind),
        defaults={} if alpha is None else {"alpha": alpha},
        halves=True,  # of those without code of their own for 16 bits, both forms are one
        **_errors(unary_kinds.unary_bound, kind),
    )


def _without_alpha(formula: Any, x: Any) -> Any:
    return formula(x, None)


def _binary(kind: binary.BinaryKind) -> Function:
    return Function(
        kind.value, ("a", "b"), f"{kind.cpp}<{{T}}>::value({{0}}, {{1}})", binary._FORMULAS[kind],
        elements=binary.binary_elements(kind), **_errors(binary._bound, kind),
    )  # fmt: skip


def _errors(bound_of: Any, kind: Any) -> dict[str, Any]:
    """The bound of a kind, and whether it is exact: a float64 result that is rounded at all is not."""

    def bound(element: ElementKind) -> ErrorBound:
        return bound_of(element, kind)  # type: ignore[no-any-return]

    return {"bound": bound, "exact": isinstance(bound(ElementKind.F64), Exact)}
