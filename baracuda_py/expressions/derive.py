"""The gradient of a formula as a formula: cotangents come in, and every input's share of them goes out.

The tree is walked once from its outputs to its inputs. What forward and backward have in common is one node, and so
is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.memo import memo
from . import build
from .derivatives import RULES, STEPS
from .errors import ExpressionError
from .formula import Formula, fresh
from .function import Function, Rule
from .functions import functions
from .nodes import Node, constant, is_constant, named, ordered, substituted
from .parse import parse
from .show import shown

_COTANGENT = "d"


def gradient(formula: Formula, wrt: Sequence[str]) -> Formula:
    """The formula of the outputs `grad_x` for the inputs `wrt`; its inputs are all inputs, then the cotangents.

    A cotangent is called `d` and its output's name, a gradient as `gradient_names` has it.
    """
    cotangents = cotangents_of(formula)
    if clash := [name for name in cotangents if name in formula.inputs]:
        raise ExpressionError(f"the cotangent {clash[0]} has the name of an input; give the output another name")
    parts: dict[Node, list[Node]] = {}
    for cotangent, (_, tree) in zip(cotangents, formula.outputs, strict=True):
        parts.setdefault(tree, []).append(named(cotangent))
    leads = _leading_to({named(name) for name in wrt}, formula.nodes)
    for node in reversed(formula.nodes):
        if node in parts and node in leads and node.args:
            share = _sum(parts[node])
            for arg, part in zip(node.args, _shares(formula, node, share, leads), strict=True):
                if part is not None:
                    parts.setdefault(arg, []).append(part)
    trees = [_sum(parts[named(name)]) if named(name) in parts else constant(0.0) for name in wrt]
    outputs = tuple(zip(gradient_names(formula, wrt), simplified(trees), strict=True))
    text, spans = shown(outputs)
    return Formula((*formula.inputs, *cotangents), outputs, text, spans)


def cotangents_of(formula: Formula) -> list[str]:
    """What the cotangents are called."""
    return [f"d{name}" for name, _ in formula.outputs]


def gradient_names(formula: Formula, wrt: Sequence[str]) -> list[str]:
    """What the gradients are called: grad_ and the operand's name, unless that is an operand's own."""
    taken, found = {*formula.inputs, *cotangents_of(formula)}, list[str]()
    for name in wrt:
        found.append(fresh(f"grad_{name}", {*taken, *found}))
    return found


def _leading_to(inputs: set[Node], nodes: Sequence[Node]) -> set[Node]:
    """The nodes that some of the inputs are in."""
    found = set(inputs)
    for node in nodes:
        if any(arg in found for arg in node.args):
            found.add(node)
    return found


def _shares(formula: Formula, node: Node, share: Node, leads: set[Node]) -> list[Node | None]:
    """What each argument gets of a node's cotangent; None is nothing."""
    if node.form == "cast":
        return [share if node.value.is_float else None]
    function = functions()[node.value]
    nothing: list[Node | None] = [None] * len(node.args)
    if function.rule not in (Rule.NUMBER, Rule.CHOICE) or function.name in STEPS or not _of_floats(function):
        return nothing
    rule = RULES.get(function.name)
    if rule is None:
        raise formula.wrong(f"no derivative of {function.name} is known", node)
    names, _, *_ = rule
    given = {named(name): arg for name, arg in zip(names.split(), node.args, strict=False)}
    given[named(_COTANGENT)] = share
    found = list(nothing)
    for i, text in enumerate(rule[1:]):
        if i < len(node.args) and node.args[i] in leads:
            if not text and function.rule is Rule.NUMBER and function.name != "copysign":
                raise formula.wrong(f"no derivative of {function.name} by its argument {i + 1} is known", node)
            found[i] = substituted([_rule_tree(text)], given)[0] if text else None
    return found


def is_smooth(name: str) -> bool:
    """Whether a function is continuous, with a rule for its derivative."""
    return name in RULES and name not in STEPS and functions()[name].rule is Rule.NUMBER and name not in _JUMPS


_JUMPS = frozenset({"remainder", "fmod", "frac", "copysign", "hardshrink", "threshold"})


def _of_floats(function: Function) -> bool:
    return any(element.is_float for element in function.elements)


@memo()
def _rule_tree(text: str) -> Node:
    return parse(text).outputs[0][1]


def _sum(parts: Sequence[Node]) -> Node:
    total = parts[0]
    for part in parts[1:]:
        total = build.call("add", (total, part))
    return total


def simplified(roots: Sequence[Node]) -> list[Node]:
    """The same values by fewer operations: constants folded, factors of 1 and signs that meet left out."""
    made: dict[Node, Node] = {}
    for node in ordered(roots):
        args = tuple(made[arg] for arg in node.args)
        made[node] = _simpler(node, args) if args else node
    return [made[root] for root in roots]


def _simpler(node: Node, args: tuple[Node, ...]) -> Node:
    if node.form != "call":
        return Node(node.form, node.value, args)
    name = node.value
    if name == "neg" and _is(args[0], "neg"):
        return args[0].args[0]
    if name in ("mul", "div") and is_constant(args[1], 1):
        return args[0]
    if name == "mul" and is_constant(args[0], 1):
        return args[1]
    if name == "mul" and _is(args[0], "neg") and _is(args[1], "neg"):
        return Node("call", "mul", (args[0].args[0], args[1].args[0]))
    if name in ("add", "sub") and _is(args[1], "neg"):
        return Node("call", "sub" if name == "add" else "add", (args[0], args[1].args[0]))
    if name == "add" and _is(args[0], "neg"):
        return Node("call", "sub", (args[1], args[0].args[0]))
    if name == "where" and args[1] == args[2]:
        return args[1]
    return build.made(functions()[name], args)


def _is(node: Node, name: str) -> bool:
    return node.form == "call" and node.value == name
