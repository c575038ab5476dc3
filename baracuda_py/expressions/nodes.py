"""The tree of a formula: inputs, constants, casts and calls of the functions in `functions.py`.

A node is known by its digest, so equal trees are equal wherever they were made, and a dict of nodes finds the parts
that a formula has in common. A tree may be as deep as it is large: passes over it go through `ordered`, or are written
as generators that `driven` runs, and never recurse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from typing import Any, TypeAlias

from ..core.element import ElementKind

Flat: TypeAlias = "tuple[tuple[str, Any, tuple[int, ...]], ...]"
"""Trees as rows (form, value, numbers of the rows that are its arguments), each after its arguments: for pickles."""

Work: TypeAlias = Generator["Work", Any, Any]
"""A function that yields the calls it needs the results of, and returns its own."""


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
        self.form, self.value, self.args = form, value, args
        held = hashlib.blake2b(self.said.encode(), digest_size=16)
        for arg in args:
            held.update(arg.digest)
        self.digest = held.digest()

    @property
    def said(self) -> str:
        """What the node is, without its arguments: 1, 1.0 and True differ."""
        shown = self.value.hex() if isinstance(self.value, float) else str(self.value)
        return f"{self.form} {type(self.value).__name__} {shown}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _last, (flattened((self,)),)

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


def flattened(roots: Iterable[Node]) -> Flat:
    """The rows of trees."""
    nodes = ordered(roots)
    place = {node: i for i, node in enumerate(nodes)}
    return tuple((node.form, node.value, tuple(place[arg] for arg in node.args)) for node in nodes)


def raised(rows: Flat) -> list[Node]:
    """The nodes of rows, in their order."""
    nodes: list[Node] = []
    for form, value, args in rows:
        nodes.append(Node(form, value, tuple(nodes[i] for i in args)))
    return nodes


def _last(rows: Flat) -> Node:
    return raised(rows)[-1]


def driven(work: Work) -> Any:
    """The result of a function that asks for others by yielding them: as if they were called, on no stack of calls."""
    pending: list[Work] = [work]
    value: Any = None
    error: Exception | None = None
    while pending:
        try:
            asked = pending[-1].send(value) if error is None else pending[-1].throw(error)
        except StopIteration as done:
            pending.pop()
            value, error = done.value, None
        except Exception as failure:
            pending.pop()
            value, error = None, failure
        else:
            pending.append(asked)
            value = error = None
    if error is not None:
        raise error
    return value
