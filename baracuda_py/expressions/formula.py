"""`Formula`: named inputs, named outputs, their trees, and the text that they came from or read as."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.memo import cached_property
from .errors import ExpressionError, Span
from .nodes import Flat, Node, flattened, named, ordered, raised, substituted

RESULT = "result"
"""The name of an output that the formula gives none."""
MOST_INPUTS, MOST_OUTPUTS, MOST_NODES = 24, 24, 2000
"""What a kernel's parameters have room for, and what a compiler takes in good time."""


def fresh(name: str, taken: Container[str]) -> str:
    """A name like this one that is not taken."""
    while name in taken:
        name += "_"
    return name


def output_name(name: str, inputs: Sequence[str]) -> str:
    """The name of an output that the formula gives none: neither it nor its cotangent, d and the name, is an input."""
    return fresh(name, {*inputs, *(one[1:] for one in inputs if one.startswith("d"))})


@dataclass(frozen=True)
class Formula:
    """inputs: names in the order in which calls give them. outputs: names and trees. spans: where nodes stand in text.

    Two formulas are equal if their names and trees are, node by node: what is kept by formulas is found by no hash
    alone.
    """

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, Node], ...]
    text: str = field(default="", compare=False)
    spans: Mapping[Node, Span] = field(default_factory=dict, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Formula):
            return self is other
        return self.inputs == other.inputs and self.outputs == other.outputs and self._written == other._written

    @cached_property
    def _written(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The trees as rows: what each node is, and the numbers of its arguments."""
        place = {node: i for i, node in enumerate(self.nodes)}
        return tuple((node.said, tuple(place[arg] for arg in node.args)) for node in self.nodes)

    def __post_init__(self) -> None:
        if len(self.inputs) > MOST_INPUTS:
            raise ExpressionError(f"a formula has at most {MOST_INPUTS} inputs, got {len(self.inputs)}")
        if len(self.outputs) > MOST_OUTPUTS:
            raise ExpressionError(
                f"a formula has at most {MOST_OUTPUTS} outputs, got {len(self.outputs)}; a part whose name begins with "
                "an underscore is none"
            )
        if (count := sum(1 for node in self.nodes if node.args)) > MOST_NODES:
            raise ExpressionError(f"a formula has at most {MOST_NODES} operations, got {count}")

    @property
    def roots(self) -> list[Node]:
        """The trees of the outputs."""
        return [tree for _, tree in self.outputs]

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node once, each after its arguments."""
        return ordered(self.roots)

    @cached_property
    def digest(self) -> str:
        """A hash of the trees that does not depend on what the inputs are called."""
        plain = {named(name): named(f"{i}") for i, name in enumerate(self.inputs)}
        held = hashlib.blake2b(digest_size=16)
        for tree in substituted(self.roots, plain):
            held.update(tree.digest)
        return held.hexdigest()

    def wrong(self, message: str, node: Node | None = None) -> ExpressionError:
        """An error that points at a node."""
        span = None if node is None else self.spans.get(node)
        return ExpressionError(message, self.text, span)

    def operand_text(self, node: Node) -> str:
        """The text of a node's first argument, for advice."""
        start, stop = self.spans.get(node.args[0], (0, 0)) if node.args else (0, 0)
        return self.text[start:stop] or "x"

    def reordered(self, inputs: Sequence[str]) -> Formula:
        """The same with its inputs in another order."""
        return Formula(tuple(inputs), self.outputs, self.text, self.spans)

    def __reduce__(self) -> tuple[Any, ...]:
        rows = flattened((*self.roots, *self.spans))
        place = {node: i for i, node in enumerate(ordered((*self.roots, *self.spans)))}
        outputs = tuple((name, place[tree]) for name, tree in self.outputs)
        spans = tuple((place[node], span) for node, span in self.spans.items())
        return _loaded, (self.inputs, rows, outputs, self.text, spans)


def _loaded(inputs: tuple[str, ...], rows: Flat, outputs: Sequence[Any], text: str, spans: Sequence[Any]) -> Formula:
    """A formula from its pickle: outputs and spans have the numbers of rows for nodes."""
    nodes = raised(rows)
    trees = tuple((name, nodes[i]) for name, i in outputs)
    return Formula(inputs, trees, text, {nodes[i]: span for i, span in spans})
