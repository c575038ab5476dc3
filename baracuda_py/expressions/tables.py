"""The kinds of the elementwise tables as functions of formulas. What the tables look like is known here alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.error_bound import Exact
from ..ops.elementwise.binary_kinds import BinaryKind
from ..ops.elementwise.ternary_kinds import TernaryKind
from ..ops.elementwise.unary_kinds import UnaryKind
from .function import Function, Rule

HEADERS: Mapping[str, str] = {
    "unary": "", "unary_special": "elementwise/special.cuh", "unary_bessel": "elementwise/bessel.cuh",
    "unary_gamma": "elementwise/gamma.cuh", "unary_integral": "elementwise/integrals.cuh",
}  # fmt: skip
"""The files of unary functors that formulas may include, by the kernel that they are of, for rows that name none."""
_DEFAULTS: Mapping[str, float] = {"alpha": 1.0}
_OTHERWISE = ("nextafter", "isclose", "nan_to_num", "multigammaln")
"""Kinds whose coefficients are no numbers of the formula's own element, or follow from it, or say how many terms."""
_TERNARY: Mapping[str, tuple[str, ...]] = {
    "clamp": ("x", "low", "high"), "lerp": ("a", "b", "weight"), "fma": ("a", "b", "c"),
    "addcmul": ("x", "a", "b", "value"), "addcdiv": ("x", "a", "b", "value"),
}  # fmt: skip


def table_functions() -> Iterator[Function]:
    """A function for each kind."""
    yield from (_unary(kind) for kind in UnaryKind if kind.row.kernel in HEADERS and kind.value not in _OTHERWISE)
    yield from (_binary(kind) for kind in BinaryKind if kind.value not in _OTHERWISE)
    yield from (_ternary(kind) for kind in TernaryKind if kind.value in _TERNARY)


def table_aliases() -> Mapping[str, str]:
    """Further names of kinds."""
    rows = [(kind.value, kind.row.aliases) for kind in (*UnaryKind, *BinaryKind)]
    return {alias: name for name, aliases in rows for alias in aliases}


def _unary(kind: UnaryKind) -> Function:
    row = kind.row
    names = [one.name for one in row.coefficients]
    passed = ", ".join(f"{{{i + 1}}}" for i in range(len(names)))
    given = {one.name: one.absent if one.default is None else one.default for one in row.coefficients}
    cpp = f"{row.cpp}<{{T}}>::value({{0}}{f', {{{{{passed}}}}}' if names else ''})"
    return Function(
        kind.value, ("x", *names), cpp, row.formula,
        Rule.TEST if row.predicate else Rule.NUMBER, row.elements,
        {name: value for name, value in given.items() if isinstance(value, (int, float))},
        halves=True,  # of those without code of their own for 16 bits, both forms are one
        bound=row.error, exact=isinstance(row.error(ElementKind.F64), Exact), header=row.header or HEADERS[row.kernel],
    )  # fmt: skip


def _binary(kind: BinaryKind) -> Function:
    row = kind.row
    passed = ", ".join(f"{{{i}}}" for i in range(2 + len(row.coefficients)))
    return Function(
        kind.value, ("a", "b", *row.coefficients), f"{row.cpp}<{{T}}>::value({passed})", row.formula,
        Rule.COMPARE if row.predicate else Rule.NUMBER, row.elements,
        {name: _DEFAULTS[name] for name in row.coefficients}, bound=row.error,
        exact=isinstance(row.error(ElementKind.F64), Exact), in_element=row.in_element, header=row.header,
    )  # fmt: skip


def _ternary(kind: TernaryKind) -> Function:
    row, names = kind.row, _TERNARY[kind.value]

    def formula(a: Any, b: Any, c: Any, value: Any = 1) -> Any:
        return row.formula(a, b, c, value, ElementKind.F64)  # the element is for other kinds

    last = "{3}" if row.scaled else "{A}(1)"
    return Function(
        kind.value, names, f"ternary_kinds::{row.cpp}<{{T}}>::value({{0}}, {{1}}, {{2}}, {last})", formula,
        elements=row.elements, defaults={"value": 1.0} if row.scaled else {}, bound=row.bound,
        exact=isinstance(row.bound(ElementKind.F64), Exact), header=row.header,
    )  # fmt: skip
