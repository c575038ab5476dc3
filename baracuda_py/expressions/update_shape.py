"""`UpdateShape`: the formula of an update, what its names are, and how each list is stored."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.element import ElementKind
from ..core.memo import cached_property, keep
from .build import call
from .formula import Formula
from .nodes import converted, named, substituted
from .parse import Parser
from .program import Program, program_of
from .shape import ARRAY, REAL, WHOLE, Roles

GRAD, SCALE = "g", "grad_scale"
"""The gradient's name, and the number that multiplies it wherever a formula reads it."""
OWN = (
    "found_inf", "seed", "offset", "shapes", "blocks", "singles", "stochastic", "compensation", "states8bit",
    "self", SCALE,
)  # fmt: skip
"""Words of every update, which are no names of a formula."""
BLOCK = 256
"""Elements of a state in 8 bits that share a scale."""


class UpdateParser(Parser):
    """Parts that may assign what they read, one after the other: `m = b * m + g; p = p - lr * m`."""

    def _bind(self, statement: ast.Assign) -> None:
        (target, *more) = statement.targets
        if more or not isinstance(target, ast.Name):
            self.fail("one name stands before =", more[0] if more else target)
        tree = self.node(statement.value)
        self.check_name(target.id, target)
        self.bound[target.id] = tree

    def check_name(self, name: str, tree: ast.expr) -> None:
        """Refuse a name that an operand or part cannot have."""
        if name in OWN:
            self.fail(f"{name} is a word of every update; give the operand another name", tree)
        super().check_name(name, tree)


def update_formula(text: str, defaults: Sequence[str]) -> Formula:
    """The formula of an update, its names in the order of calls: p, g, what is assigned, other names, defaults last."""
    parser = UpdateParser(text, {})
    found = parser.formula()
    if not parser.bound or any(name not in parser.bound for name, _ in found.outputs):
        raise found.wrong("an update assigns: write p = …")
    outputs = tuple(name for name, _ in found.outputs)
    held = [name for name in found.inputs if name in outputs]
    first = [name for name in ("p", GRAD) if name in (*found.inputs, *outputs)]
    rest = [name for name in (*held, *outputs, *found.inputs) if name not in first]
    order = dict.fromkeys((*first, *rest))
    inputs = sorted((name for name in order if name in found.inputs), key=defaults.__contains__)
    return Formula(tuple(inputs), found.outputs, found.text, found.spans)


def scaled(formula: Formula) -> Formula:
    """The same with the gradient multiplied by `grad_scale`; a formula without one is left."""
    if GRAD not in formula.inputs:
        return formula
    g = named(GRAD)
    trees = substituted(formula.roots, {g: call("mul", (g, named(SCALE)))})
    outputs = tuple((name, tree) for (name, _), tree in zip(formula.outputs, trees, strict=True))
    return Formula((*formula.inputs, SCALE), outputs, formula.text, formula.spans)


def compensated(formula: Formula, pairs: Mapping[str, tuple[str, ElementKind]]) -> Formula:
    """The same with lists kept as a sum of two: what rounding cuts off a value is held by the second list."""
    inputs, outputs = formula.inputs, list(formula.outputs)
    for name, (low, kind) in pairs.items():
        whole = call("add", (named(name), named(low)))
        trees = substituted([tree for _, tree in outputs], {named(name): whole})
        outputs = [(n, tree) for (n, _), tree in zip(outputs, trees, strict=True)]
        at = next(i for i, (n, _) in enumerate(outputs) if n == name)
        value = outputs[at][1]
        high = converted(value, kind)
        outputs[at] = (name, high)
        outputs.append((low, call("sub", (value, high))))
        inputs = (*inputs, low)
    return Formula(inputs, tuple(outputs), formula.text, formula.spans)


@dataclass(frozen=True)
class UpdateShape:
    """A formula whose inputs are what `roles` says; `stochastic` is rounded at random, `coded` lists are 8-bit codes.

    coded: (name, kind) of each, a kind of `update_codes.KINDS`. singles: the lists of 0-d arrays, one number a tensor.
    """

    formula: Formula
    roles: Roles
    stochastic: str = ""
    coded: tuple[tuple[str, str], ...] = ()
    singles: tuple[str, ...] = ()

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The inputs that are lists."""
        return tuple(n for n, role in zip(self.formula.inputs, self.roles, strict=True) if role == ARRAY)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The lists that are assigned."""
        return tuple(name for name, _ in self.formula.outputs)

    @cached_property
    def lists(self) -> tuple[str, ...]:
        """All lists: what is read, then what is only written."""
        return (*self.read, *(name for name in self.written if name not in self.read))

    @cached_property
    def scalars(self) -> Mapping[str, bool]:
        """The inputs that are numbers, and whether they are integers."""
        return {n: r == WHOLE for n, r in zip(self.formula.inputs, self.roles, strict=True) if r != ARRAY}

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """The lists that have the tensors' shapes."""
        return tuple(name for name in self.lists if name not in self.singles)

    @cached_property
    def codes(self) -> Mapping[str, str]:
        """The lists of codes, and their kinds."""
        return dict(self.coded)

    @cached_property
    def digest(self) -> str:
        """A hash of the trees, of what the inputs are and of how they are kept, whatever they are called."""
        roles = "".join(role[0] for role in self.roles)
        place = {name: i for i, name in enumerate(self.lists)}
        kept = (
            [place[name] for name in self.written],
            place.get(self.stochastic),
            [(place[n], k) for n, k in self.coded],
            [place[n] for n in self.singles],
        )
        return hashlib.blake2b(f"{self.formula.digest} {roles} {kept}".encode(), digest_size=16).hexdigest()

    def program(self, compute: ElementKind) -> Program:
        """The steps, all of them in `compute`, float32 or float64."""
        key = (self, compute)
        return _programs.get(key) or keep(_programs, key, self._program(compute), 1024)

    def _program(self, compute: ElementKind) -> Program:
        arrays = dict.fromkeys(self.read, compute)
        return program_of(self.formula, arrays, self.scalars, [compute] * len(self.written))


_programs: dict[tuple[UpdateShape, ElementKind], Program] = {}

__all__ = ["BLOCK", "GRAD", "OWN", "REAL", "SCALE", "UpdateShape", "compensated", "scaled", "update_formula"]
