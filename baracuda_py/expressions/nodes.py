"""The tree of a formula: inputs, constants, casts and calls of the functions in `functions.py`.

A node is known by its digest, so equal trees are equal wherever they were made, and a dict of nodes finds the parts
that a formula has in common. Passes over a tree go through `ordered`, which never recurses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from ..core.element import ElementKind


class Node:
    """One node: `form` is "input", "constant", "cast" or "call"; `value` the name, number, element or function's name.

    A constant is a bool, an int or a float.
    """

    __slots__ = ("args", "digest", "form", "value")

    form: str
    value: Any
    args: tuple[Node, ...]
    digest: bytes

    def __init__(self, form: str, value: Any, args: tuple[Node, ...] = ()) -> None:
        shown = value.hex() if isinstance(value, float) else str(value)
        held = hashlib.blake2b(f"{form} {type(value).__name__} {shown}".encode(), digest_size=16)
        for arg in args:
            held.update(arg.digest)
        self.form, self.value, self.args, self.digest = form, value, args, held.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Node, (self.form, self.value, self.args)

    def __repr__(self) -> str:
        return f"<{self.form} {self.value}>"


def named(name: str) -> Node:
    """An input."""
    return Node("input", name)


def constant(value: bool | int | float) -> Node:
    """A number."""
    return Node("constant", value)


def converted(x: Node, element: ElementKind) -> Node:
    """x rounded to an element."""
    return Node("cast", element, (x,))


def is_constant(node: Node, value: Any = None) -> bool:
    """Whether a node is a constant, or the number `value`."""
    if node.form != "constant":
        return False
    return value is None or (not isinstance(node.value, bool) and bool(node.value == value))


def ordered(roots: Iterable[Node]) -> list[Node]:
    """Every node under `roots` once, each after its arguments."""
    found: dict[Node, None] = {}
    pending = [(root, False) for root in reversed(list(roots))]
    while pending:
        node, ready = pending.pop()
        if ready:
            found[node] = None
        elif node not in found:
            pending.append((node, True))
            pending.extend((arg, False) for arg in reversed(node.args) if arg not in found)
    return list(found)


def substituted(roots: Iterable[Node], given: dict[Node, Node]) -> list[Node]:
    """The trees with some nodes replaced."""
    roots = list(roots)
    made = dict(given)
    for node in ordered(roots):
        if node not in made:
            args = tuple(made[arg] for arg in node.args)
            made[node] = node if args == node.args else Node(node.form, node.value, args)
    return [made[root] for root in roots]
