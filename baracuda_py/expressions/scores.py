"""Formulas of attention's scores and masks: what a text or a Python function says, as trees.

A score's formula has the names `s`, the score, and `b`, `h`, `q`, `k`, the numbers of its batch, query head, query and
key; a mask's has all of them but s. A name with brackets, `bias[h, q - k]`, is an element of a table; any other is a
number. In the trees a table's element is an input of its own, an `Access`, whose place is a formula as well.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core.memo import cached_property
from .errors import ExpressionError, Span
from .formula import RESULT, Formula
from .nodes import Node, Work, named, ordered, substituted
from .parse import Parser
from .show import shown
from .trace import Symbol, symbol, trace

SCORE = "s"
PLACES = ("b", "h", "q", "k")
MOST_AXES = 4
"""Axes that a table may have."""


@dataclass(frozen=True)
class Access:
    """An element of a table: `indices` has an output for each of its axes, of places, numbers and other accesses."""

    table: str
    indices: Formula

    @property
    def name(self) -> str:
        """What the element is called in trees: its text, such as bias[h, q - k]."""
        return access_name(self.table, self.indices.roots)


def access_name(table: str, indices: Iterable[Node]) -> str:
    """The text of an element of a table."""
    return f"{table}[{', '.join(shown([(RESULT, tree)])[0] for tree in indices)}]"


@dataclass(frozen=True)
class ScoreFormula:
    """What becomes of scores: `score` gives the new one, `mask` whether a key is seen; None leaves them.

    accesses: of tables, each after those that its place depends on.
    """

    score: Formula | None
    mask: Formula | None
    accesses: tuple[Access, ...]

    @cached_property
    def tables(self) -> Mapping[str, int]:
        """The tables in the order of their first use, and their numbers of axes."""
        return {access.table: len(access.indices.outputs) for access in self.accesses}

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The names that are numbers, in the order of their first use."""
        known = {SCORE, *PLACES, *(access.name for access in self.accesses)}
        every = [name for formula in self.formulas for name in formula.inputs if name not in known]
        return tuple(dict.fromkeys(every))

    @cached_property
    def formulas(self) -> tuple[Formula, ...]:
        """Every formula: of the score, of the mask, of indices."""
        given = (self.score, self.mask, *(access.indices for access in self.accesses))
        return tuple(formula for formula in given if formula is not None)

    def wrong(self, message: str, table: str) -> ExpressionError:
        """An error that points at the first element of a table."""
        element = named(next(access.name for access in self.accesses if access.table == table))
        holds = next((formula for formula in self.formulas if element in formula.spans), self.formulas[0])
        return holds.wrong(message, element)

    @cached_property
    def of_mask(self) -> ScoreFormula | None:
        """The mask alone, with the tables that it reads; None where there is none."""
        if self.mask is None:
            return None
        needed = set(self.mask.inputs)
        for access in reversed(self.accesses):
            if access.name in needed:
                needed.update(access.indices.inputs)
        return ScoreFormula(None, self.mask, tuple(access for access in self.accesses if access.name in needed))

    @cached_property
    def places(self) -> frozenset[str]:
        """Which of b, h, q and k it names."""
        return frozenset(name for formula in self.formulas for name in formula.inputs if name in PLACES)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a call gives by name: tables, then numbers."""
        return (*self.tables, *self.numbers)

    @cached_property
    def digest(self) -> str:
        """A hash of all trees that does not depend on what tables and numbers are called."""
        plain = {named(name): named(f"number {i}") for i, name in enumerate(self.numbers)}
        plain |= {named(access.name): named(f"access {i}") for i, access in enumerate(self.accesses)}
        order = list(self.tables)
        held = hashlib.blake2b(digest_size=16)
        for formula in (self.score, self.mask):
            held.update(b"-" if formula is None else substituted(formula.roots, plain)[0].digest)
        for access in self.accesses:
            held.update(f"table {order.index(access.table)}".encode())
            for tree in substituted(access.indices.roots, plain):
                held.update(tree.digest)
        return held.hexdigest()

    @cached_property
    def text(self) -> str:
        """The formulas as they were written or read."""
        said = [("score", self.score), ("mask", self.mask)]
        return "; ".join(f"{name} {formula.text}" for name, formula in said if formula is not None)


def score_formula(score: Any, mask: Any, reserved: Iterable[str] = ()) -> ScoreFormula:
    """The formula of two texts or functions, either of which may be None; `reserved` names are no operands."""
    if score is None and mask is None:
        raise ExpressionError("attention by a formula needs score= or mask=, got neither")
    found: dict[str, Access] = {}
    trees = [None if given is None else _formula(given, found, frozenset(reserved)) for given in (score, mask)]
    made = ScoreFormula(trees[0], trees[1], tuple(found.values()))
    ranks: dict[str, int] = {}
    for access in made.accesses:
        rank = ranks.setdefault(access.table, len(access.indices.outputs))
        if rank != len(access.indices.outputs):
            raise access.indices.wrong(f"{access.table} has {rank} axes elsewhere", access.indices.roots[0])
    for formula in made.formulas:
        for name in formula.inputs:
            if name in made.tables:
                raise formula.wrong(f"{name} is a table; write {name}[…]", named(name))
    if made.mask is not None and SCORE in made.mask.inputs:
        raise made.mask.wrong("a mask does not depend on the score s; make the score -inf instead", named(SCORE))
    return made


def _formula(given: Any, found: dict[str, Access], reserved: frozenset[str]) -> Formula:
    if callable(given):
        return _traced(given, found, reserved)
    parser = _ScoreParser(given, found, reserved)
    return _one(parser.formula())


def _one(formula: Formula) -> Formula:
    """The formula with those inputs alone that its value depends on."""
    if len(formula.outputs) != 1:
        raise formula.wrong(f"a score or mask is one value, the formula has {len(formula.outputs)}")
    return Formula(_inputs(formula.roots), formula.outputs, formula.text, formula.spans)


def _inputs(trees: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.value for node in ordered(trees) if node.form == "input")


def _indices(trees: list[Node], text: str, spans: Mapping[Node, Span]) -> Formula:
    """The formula of a table's indices; spans may become more as the text is read on."""
    return Formula(_inputs(trees), tuple((f"i{n}", tree) for n, tree in enumerate(trees)), text, spans)


def _is_word(name: str, reserved: frozenset[str]) -> bool:
    """Whether attention has a name, or that of its gradient, or one that asks for a result."""
    return name not in (SCORE, *PLACES) and bool(
        name in reserved or f"d{name}" in reserved or name.startswith("return_")
    )


class _ScoreParser(Parser):
    """Reads a text in which names with brackets are elements of tables."""

    def __init__(self, text: str, found: dict[str, Access], reserved: frozenset[str]) -> None:
        super().__init__(text, {})
        self.found, self.reserved = found, reserved
        self.tables: set[str] = set()

    def input(self, name: str, tree: ast.expr) -> Node:
        if name in self.tables:
            self.fail(f"{name} is a table; write {name}[…]", tree)
        return super().input(name, tree)

    def check_name(self, name: str, tree: ast.expr) -> None:
        super().check_name(name, tree)
        if _is_word(name, self.reserved):
            self.fail(f"{name} is a word of attention; give the operand another name", tree)

    def item(self, tree: ast.Subscript) -> Work:
        if not isinstance(tree.value, ast.Name):
            self.fail("a table stands by its name, as in bias[h, q - k]", tree.value)
        table, parts = tree.value.id, tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if table in self.bound or table in self.inputs or table in (SCORE, *PLACES):
            self.fail(f"{table} is a number, and no table", tree.value)
        self.check_name(table, tree.value)
        for part in parts:
            if isinstance(part, (ast.Slice, ast.Starred)) or (isinstance(part, ast.Constant) and part.value is None):
                self.fail("an element of a table has an index for each axis", part)
        if not 1 <= len(parts) <= MOST_AXES:
            self.fail(f"a table has 1 to {MOST_AXES} axes, got {len(parts)}", tree)
        indices = yield self.each(parts)
        for part, index in zip(parts, indices, strict=True):
            if named(SCORE) in ordered([index]):
                self.fail("an index does not depend on the score s", part)
        self.tables.add(table)
        access = Access(table, _indices(indices, self.text, self.spans))
        self.found.setdefault(access.name, access)
        self.inputs[access.name] = None
        return named(access.name)


def _item(found: dict[str, Access], of: Node, place: Any) -> Symbol:
    """What brackets make of a parameter, which is a table then."""
    table, parts = of.value, place if isinstance(place, tuple) else (place,)
    if of.form != "input" or table in (SCORE, *PLACES):
        raise ExpressionError(f"{table} is a number, and no table")
    if not 1 <= len(parts) <= MOST_AXES or any(part is None or isinstance(part, slice) for part in parts):
        raise ExpressionError(f"{table} has an index for each axis, of which a table has 1 to {MOST_AXES}")
    trees = [symbol(part).node for part in parts]
    if named(SCORE) in ordered(trees):
        raise ExpressionError(f"an index of {table} does not depend on the score s")
    text, spans = shown([(f"i{n}", tree) for n, tree in enumerate(trees)])
    access = Access(table, _indices(trees, text, spans))
    found.setdefault(access.name, access)
    return Symbol(named(access.name))


def _traced(function: Callable[..., Any], found: dict[str, Access], reserved: frozenset[str]) -> Formula:
    """The formula of a Python function, whose parameters are told apart by their names and by what is done to them."""
    formula = _one(trace(function, lambda node: Symbol(node, partial(_item, found))))
    if clash := [name for name in formula.inputs if _is_word(name.partition("[")[0], reserved)]:
        raise ExpressionError(f"{clash[0]} is a word of attention; give the operand another name")
    return formula
