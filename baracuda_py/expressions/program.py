"""A formula for operands of given elements, as steps: what device code and reference are both made from.

Every step has an element. Floats of 16 bits are computed in float32, what flows into float64 in float64, and neither is
rounded in between: only a cast rounds. Integers are in their own width and wrap. Numbers (constants, and scalars, which
are the inputs that a call gives as numbers) are *weak*: `x + 1` has the element of x, whatever it is, and `x * 0.5` too
where x is a float. What numbers make among themselves is computed in float64 or int64, once a thread, and rounded where
it meets an operand. An integer that an integer operand does not have is refused: a constant here, a number of a call by
`numbers.check`. Operands of several elements are promoted as in PyTorch: bool to integer to float, and to the wider
of two of a sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.element import HALVES, ElementKind
from ..core.numbers import LEAST, MOST, modulo
from .errors import ExpressionError
from .formula import Formula
from .function import Function, Rule
from .functions import functions
from .nodes import Node, Work, driven

E = ElementKind
COEFFICIENT = "coefficient"
"""The `value` of a step that takes a number modulo 2ⁿ, as it multiplies."""
_COEFFICIENTS = ("alpha", "value")
_DEFAULT = (E.BOOL, E.I64, E.F32)
_WIDE = (E.BOOL, E.I64, E.F64)
"""Of a bool, an integer, a float: what numbers are where no operand says, and what they are computed in."""


def rank(element: ElementKind) -> int:
    """0 of bool, 1 of integers, 2 of floats."""
    return 2 if element.is_float else 0 if element is E.BOOL else 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What a node is: its element (None: weak), its rank, and whether it is one number for all elements."""

    element: ElementKind | None
    rank: int
    uniform: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `form`: input, scalar, constant, convert, cast or call; `value`: its number or function.

    stored: whether the value is one of the element's own, not of the wider type that computes it.
    """

    form: str
    element: ElementKind
    args: tuple[int, ...] = ()
    value: Any = None
    uniform: bool = False
    stored: bool = False


@dataclass
class Program:
    """Steps, the outputs as (step, element), the elements of the array inputs, and which scalars are integers."""

    inputs: tuple[ElementKind, ...]
    scalars: tuple[bool, ...]
    steps: list[Step] = field(default_factory=list)
    outputs: list[tuple[int, ElementKind]] = field(default_factory=list)

    @property
    def results(self) -> tuple[ElementKind, ...]:
        """The elements of the outputs."""
        return tuple(element for _, element in self.outputs)


def program_of(
    formula: Formula, arrays: Mapping[str, ElementKind], scalars: Mapping[str, bool],
    results: Sequence[ElementKind | None] | None = None,
) -> Program:  # fmt: skip
    """The steps of a formula. arrays: the operands' elements. scalars: name → whether it is an integer.

    results: the elements of the outputs, where they are to be others than the formula's own. Raises ExpressionError.
    """
    lowering = _Lowering(formula, arrays, scalars)
    wanted = results or (None,) * len(formula.outputs)
    for (_, tree), element in zip(formula.outputs, wanted, strict=True):
        lowering.output(tree, element)
    return lowering.program


def promoted(a: ElementKind, b: ElementKind) -> ElementKind | None:
    """The element that two have in common; None where integers have none."""
    if a is b or rank(a) != rank(b):
        return a if rank(a) >= rank(b) else b
    if rank(a) == 2:
        return E.F32 if a.bits == b.bits else a if a.bits > b.bits else b
    common = np.promote_types(a.dtype, b.dtype)
    return ElementKind.of(common) if common.kind in "iu" else None


def _widens(element: ElementKind | None, wanted: ElementKind | None) -> bool:
    """Whether floats are wanted in float64 that are computed in float32."""
    if element is None or wanted is None or not (element.is_float and wanted.is_float):
        return False
    return element.acc is not wanted.acc and wanted is E.F64


class _Lowering:
    def __init__(self, formula: Formula, arrays: Mapping[str, ElementKind], scalars: Mapping[str, bool]) -> None:
        self.formula = formula
        self.arrays = {name: i for i, name in enumerate(arrays)}
        self.scalars = {name: i for i, name in enumerate(scalars)}
        self.program = Program(tuple(arrays.values()), tuple(scalars.values()))
        self.made: dict[tuple[Node, ElementKind], int] = {}
        self.found: dict[Any, int] = {}
        self.kinds: dict[Node, Kind] = {}
        for node in formula.nodes:
            self.kinds[node] = self._kind(node)

    # -- what each node is -----------------------------------------------------------------------------

    def _kind(self, node: Node) -> Kind:
        args = [self.kinds[arg] for arg in node.args]
        uniform = all(arg.uniform for arg in args)
        if node.form == "input":
            if node.value in self.arrays:
                element = self.program.inputs[self.arrays[node.value]]
                return Kind(element, rank(element), False)
            return Kind(None, 1 if self.program.scalars[self.scalars[node.value]] else 2, True)
        if node.form == "constant":
            return Kind(None, (bool, int, float).index(type(node.value)), True)
        if node.form == "cast":
            return Kind(node.value, rank(node.value), uniform)
        function = functions()[node.value]
        if function.rule is Rule.CHOICE:
            return Kind(*self._joined(node, args[1:]), uniform)
        if function.rule is Rule.LOGIC:
            return Kind(E.BOOL, 0, uniform)
        served = self._served(node, function, args)
        return Kind(*served, uniform) if function.rule is Rule.NUMBER else Kind(E.BOOL, 0, uniform)

    def _joined(self, node: Node, args: Sequence[Kind]) -> tuple[ElementKind | None, int]:
        """The element and rank that arguments have in common."""
        level = max(arg.rank for arg in args)
        strong = [arg.element for arg in args if arg.element is not None]
        if not strong:
            return None, level
        found = strong[0]
        for other in strong[1:]:
            common = promoted(found, other)
            if common is None:
                raise self.formula.wrong(f"{found} and {other} have no common integer; cast one of them", node)
            found = common
        return (found, level) if rank(found) == level else (_DEFAULT[level], level)

    def _served(self, node: Node, function: Function, args: Sequence[Kind]) -> tuple[ElementKind | None, int]:
        """What the arguments come to, if the function serves it."""
        element, level = self._joined(node, args)
        if element is None and _WIDE[level] not in function.elements:
            if E.F64 not in function.elements:
                raise self.formula.wrong(f"{function.name} is not for floats; write int64(…)", node)
            return None, 2  # of integers among themselves
        if element is None or element in function.elements:
            return element, level
        if level == 2:
            raise self.formula.wrong(f"{function.name} of {element}: it is for integers and bool", node)
        name, example = self.formula.operand_text(node), "float32" if level else "int32"
        if function.name == "div":
            raise self.formula.wrong(f"{element} / {element} is no integer: write a // b, or {example}(a) / b", node)
        raise self.formula.wrong(
            f"{function.name} of {element} is not served: cast to another element, {example}({name})", node
        )

    # -- steps -----------------------------------------------------------------------------------------

    def output(self, tree: Node, wanted: ElementKind | None) -> None:
        kind = self.kinds[tree]
        element = wanted or kind.element or _DEFAULT[kind.rank]
        weak = kind.element is None and kind.rank <= rank(element)
        lowest = element if weak or _widens(kind.element, element) else None
        self.program.outputs.append((driven(self.lower(tree, lowest)), element))

    def lower(self, node: Node, wanted: ElementKind | None) -> Work:
        """The step that has a node's value, as `wanted` (by default as it is)."""
        kind = self.kinds[node]
        if kind.element is not None:
            if _widens(kind.element, wanted) and self._is_served(node, wanted):
                return (yield self.emit(node, wanted))  # type: ignore[arg-type]
            return self.convert((yield self.emit(node, kind.element)), wanted, node)
        if node.form == "constant":
            return self.constant(node.value, wanted or _WIDE[kind.rank], node)
        if kind.uniform:
            return self.convert((yield self.emit(node, _WIDE[kind.rank])), wanted, node)
        return (yield self.emit(node, wanted or _DEFAULT[kind.rank]))

    def _is_served(self, node: Node, wanted: ElementKind | None) -> bool:
        """Whether the node is an operation that can be done in a wider type."""
        if node.form != "call":
            return False
        function = functions()[node.value]
        return function.rule in (Rule.NUMBER, Rule.CHOICE) and wanted in function.elements

    def emit(self, node: Node, element: ElementKind) -> Work:
        known = self.made.get((node, element))
        if known is None:
            known = self.made[node, element] = yield self._emit(node, element)
        return known

    def _emit(self, node: Node, element: ElementKind) -> Work:
        if node.form == "input":
            if node.value in self.arrays:
                return self.step(Step("input", element, value=self.arrays[node.value], stored=True))
            return self.step(Step("scalar", element, value=self.scalars[node.value], uniform=True))
        if node.form == "constant":
            return self.constant(node.value, element, node)
        if node.form == "cast":
            return (yield self._cast(node, element))
        function = functions()[node.value]
        args = node.args
        if function.rule in (Rule.COMPARE, Rule.TEST):
            element = self._common(node, function)  # of the functor; its result is bool
        decide = len(args) if function.rule is Rule.LOGIC else 1 if function.rule is Rule.CHOICE else 0
        steps: list[int] = []
        for i, (arg, parameter) in enumerate(zip(args, function.parameters, strict=False)):
            steps.append((yield self.truth(arg) if i < decide else self._factor(arg, element, parameter)))
        if function.in_element and element in HALVES:
            steps = [self._in_element(i, element) for i in steps]
        uniform = all(self.program.steps[i].uniform for i in steps)
        return self.step(Step("call", element, tuple(steps), function, uniform))

    def _factor(self, node: Node, element: ElementKind, parameter: str) -> Work:
        """An argument's step; of a coefficient that meets integers what it is modulo 2ⁿ."""
        if parameter not in _COEFFICIENTS or rank(element) != 1 or self.kinds[node].element is not None:
            return (yield self.lower(node, element))
        if node.form == "constant" and isinstance(node.value, int) and LEAST <= node.value <= MOST:
            return self.constant(int(modulo(node.value, element)), element, node)
        return self.convert((yield self.emit(node, _WIDE[self.kinds[node].rank])), element, node, COEFFICIENT)

    def constant(self, value: bool | int | float, element: ElementKind, node: Node) -> int:
        """A number as an element has it; raises where it has none."""
        if rank(element) == 0:
            value = bool(value)
        elif rank(element) == 2:
            value = float(value)
        elif not int(element.limits.min) <= value <= int(element.limits.max):
            raise self.formula.wrong(f"{value} is no {element}", node)
        return self.step(Step("constant", element, value=value, uniform=True))

    def _in_element(self, index: int, element: ElementKind) -> int:
        """A number rounded to the element; any other step as it is."""
        step = self.program.steps[index]
        return self.step(Step("cast", element, (index,), None, True, True)) if step.uniform else index

    def _common(self, node: Node, function: Function) -> ElementKind:
        """What the arguments of a comparison are compared in."""
        kinds = [self.kinds[arg] for arg in node.args]
        element, level = self._served(node, function, kinds)
        if element is None:
            return _WIDE[level] if all(kind.uniform for kind in kinds) else _DEFAULT[level]
        return element

    def _cast(self, node: Node, element: ElementKind) -> Work:
        (arg,) = node.args
        given = yield self.lower(arg, element if _widens(self.kinds[arg].element, element) else None)
        step = self.program.steps[given]
        if step.element is element and (step.stored or not element.is_float or element.acc is element):
            return given
        return self.step(Step("cast", element, (given,), None, step.uniform, True))

    def truth(self, node: Node) -> Work:
        return self.convert((yield self.lower(node, None)), E.BOOL, node)

    def convert(self, index: int, wanted: ElementKind | None, node: Node, how: str | None = None) -> int:
        """A step's value in another element, or the same step where that is computed in the same type."""
        step = self.program.steps[index]
        element = self.result(step)
        if wanted is None or wanted is element:
            return index
        if step.form == "constant":
            return self.constant(step.value, wanted, node)
        if element.is_float and wanted.is_float and element.acc is wanted.acc:
            return index
        return self.step(Step("convert", wanted, (index,), how, step.uniform))

    def result(self, step: Step) -> ElementKind:
        """The element of a step's value."""
        return result_of(step)

    def step(self, step: Step) -> int:
        value = step.value.name if isinstance(step.value, Function) else repr(step.value)  # True, 1 and 1.0 differ
        key = (step.form, step.element, step.args, value)
        if key not in self.found:
            self.program.steps.append(step)
            self.found[key] = len(self.program.steps) - 1
        return self.found[key]


def result_of(step: Step) -> ElementKind:
    """The element of a step's value: bool where it compares or decides."""
    if step.form == "call" and step.value.rule in (Rule.COMPARE, Rule.TEST, Rule.LOGIC):
        return E.BOOL
    return step.element


__all__ = ["ExpressionError", "Kind", "Program", "Step", "program_of", "promoted", "rank", "result_of"]
