"""The kinds of the elementwise tables as functions of formulas. What the tables look like is known here alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core.element import ElementKind
from ..core.error_bound import Exact
from ..ops.elementwise.binary_kinds import BinaryKind
from ..ops.elementwise.unary_kinds import UnaryKind
from .function import Function, Rule

SPECIAL = "elementwise/special.cuh"
"""The file under kernels/ with the functors of kinds that are `special`; expression.cuh includes those of the others."""

_DEFAULTS: Mapping[str, float] = {"alpha": 1.0}
_OTHERWISE = ("nextafter", "isclose")
"""Kinds whose coefficients are no numbers of the formula's own element."""


def table_functions() -> Iterator[Function]:
    """A function for each kind."""
    yield from map(_unary, UnaryKind)
    yield from (_binary(kind) for kind in BinaryKind if kind.value not in _OTHERWISE)


def table_aliases() -> Mapping[str, str]:
    """Further names of kinds."""
    rows = [(kind.value, kind.row.aliases) for kind in (*UnaryKind, *BinaryKind)]
    return {alias: name for name, aliases in rows for alias in aliases}


def _unary(kind: UnaryKind) -> Function:
    row = kind.row
    names = [one.name for one in row.coefficients]
    passed = ", ".join(f"{{{i + 1}}}" for i in range(len(names)))
    given = {one.name: one.absent if one.default is None else one.default for one in row.coefficients}
    return Function(
        kind.value, ("x", *names), f"{row.cpp}<{{T}}>::value({{0}}{f', {{{{{passed}}}}}' if names else ''})", row.formula,
        Rule.TEST if row.predicate else Rule.NUMBER, row.elements,
        {name: value for name, value in given.items() if isinstance(value, (int, float))},
        halves=True,  # of those without code of their own for 16 bits, both forms are one
        bound=row.error, exact=isinstance(row.error(ElementKind.F64), Exact), header=SPECIAL if row.special else "",
    )  # fmt: skip


def _binary(kind: BinaryKind) -> Function:
    row = kind.row
    passed = ", ".join(f"{{{i}}}" for i in range(2 + len(row.coefficients)))
    return Function(
        kind.value, ("a", "b", *row.coefficients), f"{row.cpp}<{{T}}>::value({passed})", row.formula,
        Rule.COMPARE if row.predicate else Rule.NUMBER, row.elements,
        {name: _DEFAULTS[name] for name in row.coefficients}, bound=row.error,
        exact=isinstance(row.error(ElementKind.F64), Exact), in_element=row.in_element,
    )  # fmt: skip
