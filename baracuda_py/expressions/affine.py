"""A formula that is linear in one of its names, as the factor of that name and the rest: factor · h + term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .build import call
from .derive import simplified
from .formula import Formula, output_name
from .nodes import Node, constant, named

TERM, FACTOR = "term", "factor"


@dataclass(frozen=True)
class _Linear:
    """factor · h + term; None is 0."""

    factor: Node | None
    term: Node | None

    def each(self, make: Callable[[Node], Node]) -> _Linear:
        """Both through a linear function."""
        return _Linear(*(None if x is None else make(x) for x in (self.factor, self.term)))

    def plus(self, other: _Linear) -> _Linear:
        """The sum of two."""
        return _Linear(_sum(self.factor, other.factor), _sum(self.term, other.term))


def affine(formula: Formula, name: str) -> Formula:
    """The formula of the outputs `term` and `factor`; raises where it is not linear in `name`."""
    ((_, tree),) = formula.outputs
    known: dict[Node, _Linear] = {named(name): _Linear(constant(1), None)}  # of the nodes that have the name in them
    for node in formula.nodes:
        if any(arg in known for arg in node.args):
            found = _linear(node, known)
            if found is None:
                raise formula.wrong(f"a recurrence is linear in {name}, which this is not", node)
            known[node] = found
    whole = known.get(tree, _Linear(None, tree))
    term, factor = simplified([constant(0) if x is None else x for x in (whole.term, whole.factor)])
    inputs = tuple(one for one in formula.inputs if one != name)
    outputs = ((output_name(TERM, inputs), term), (output_name(FACTOR, inputs), factor))
    return Formula(inputs, outputs, formula.text, formula.spans)


def _linear(node: Node, known: dict[Node, _Linear]) -> _Linear | None:
    """A node whose arguments are known; None where it is not linear."""
    if node.form != "call":
        return None
    args, free = node.args, [arg not in known for arg in node.args]
    each = [known.get(arg, _Linear(None, arg)) for arg in args]
    match node.value:
        case "neg" | "positive":
            return each[0].each(_neg) if node.value == "neg" else each[0]
        case "add":
            return each[0].plus(each[1])
        case "sub":
            return each[0].plus(each[1].each(_neg))
        case "mul" | "fma" if free[0] or free[1]:
            factor, other = (args[0], each[1]) if free[0] else (args[1], each[0])
            product = other.each(lambda x: call("mul", [factor, x]))
            return product.plus(each[2]) if node.value == "fma" else product
        case "div" if free[1]:
            return each[0].each(lambda x: call("div", [x, args[1]]))
        case "where" if free[0]:
            return _Linear(
                _choice(args[0], each[1].factor, each[2].factor), _choice(args[0], each[1].term, each[2].term)
            )
        case "lerp" if free[2]:
            rest = call("sub", [constant(1), args[2]])
            weighed = each[0].each(lambda x: call("mul", [rest, x]))
            return weighed.plus(each[1].each(lambda x: call("mul", [args[2], x])))
    return None


def _neg(x: Node) -> Node:
    return call("neg", [x])


def _sum(a: Node | None, b: Node | None) -> Node | None:
    return b if a is None else a if b is None else call("add", [a, b])


def _choice(condition: Node, a: Node | None, b: Node | None) -> Node | None:
    if a is None and b is None:
        return None
    return call("where", [condition, *(constant(0) if x is None else x for x in (a, b))])
