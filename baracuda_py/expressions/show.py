"""Trees as text that parses to the same trees: of formulas that were traced or derived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .errors import Span
from .formula import RESULT, fresh
from .nodes import Node, ordered

# Operator and how tightly it binds; a comparison binds least.
_INFIX: Mapping[str, tuple[str, int]] = {
    "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1), "eq": ("==", 1), "ne": ("!=", 1),
    "bitwise_or": ("|", 2), "bitwise_xor": ("^", 3), "bitwise_and": ("&", 4), "add": ("+", 6), "sub": ("-", 6),
    "mul": ("*", 7), "div": ("/", 7), "floor_divide": ("//", 7), "remainder": ("%", 7), "pow": ("**", 9),
}  # fmt: skip
_PREFIX: Mapping[str, tuple[str, int]] = {"neg": ("-", 8), "bitwise_not": ("~", 8)}
_ATOM = 10
_LONG = 60  # characters of a part that is written once and named
_DEEP = 90  # brackets within each other; Python's parser takes 200


def shown(outputs: Sequence[tuple[str, Node]]) -> tuple[str, dict[Node, Span]]:
    """The text of a formula and where its nodes stand. Long parts that are used again get names."""
    roots = [tree for _, tree in outputs]
    uses = Counter(arg for node in ordered(roots) for arg in node.args)
    writer = _Writer()
    taken = {*(name for name, _ in outputs), *(node.value for node in ordered(roots) if node.form == "input")}
    for node in ordered(roots):
        long = len(writer.measured(node)) > _LONG and uses[node] > 1
        if node.args and (long or writer.depths[node] > _DEEP):
            writer.line(fresh(f"_{len(writer.named)}", taken), node)
    plain = [tree for name, tree in outputs if name == RESULT]
    if plain and len(outputs) == 1:
        writer.line("", plain[0])
    else:
        for name, tree in outputs:
            writer.line(name, tree)
    return writer.text, writer.spans


class _Writer:
    def __init__(self) -> None:
        self.text = ""
        self.named: dict[Node, str] = {}
        self.spans: dict[Node, Span] = {}
        self.texts: dict[Node, tuple[str, int]] = {}
        self.depths: dict[Node, int] = {}

    def line(self, name: str, node: Node) -> None:
        """One statement."""
        if self.text:
            self.text += "\n"
        self.text += f"{name} = " if name else ""
        self.write(node, 0)
        if name.startswith("_"):
            self.named[node] = name
            self.texts[node], self.depths[node] = (name, _ATOM), 0

    def measured(self, node: Node) -> str:
        """The text of a node whose arguments were measured, as far as it matters how long it is."""
        pieces, level = self.pieces(node)
        inner = "".join(p if isinstance(p, str) else self.within(p[0], p[1]) for p in pieces)
        self.texts[node] = inner[: 2 * _LONG], level
        inside = (p for p in pieces if not isinstance(p, str))
        bracketed = ((one, wanted == 0 or self.texts[one][1] < wanted) for one, wanted in inside)
        self.depths[node] = max((self.depths[one] + brackets for one, brackets in bracketed), default=0)
        return inner

    def within(self, node: Node, level: int) -> str:
        text, own = self.texts[node]
        return f"({text})" if own < level else text

    def pieces(self, node: Node) -> tuple[list[str | tuple[Node, int]], int]:
        """A node as text and nodes with the level that each must have, and its own level."""
        if node in self.named:
            return [self.named[node]], _ATOM
        if node.form == "input":
            return [node.value], _ATOM
        if node.form == "constant":
            return [_number(node.value)], _ATOM if not str(node.value).startswith("-") else 8
        if node.form == "cast":
            return [f"{node.value}(", (node.args[0], 0), ")"], _ATOM
        if node.value in _PREFIX:
            sign, level = _PREFIX[node.value]
            return [sign, (node.args[0], level)], level
        if node.value in _INFIX:
            sign, level = _INFIX[node.value]
            left = level + 1 if level == 1 or sign == "**" else level
            return [(node.args[0], left), f" {sign} ", (node.args[1], level + 1)], level
        parts: list[str | tuple[Node, int]] = [f"{node.value}("]
        for i, arg in enumerate(node.args):
            parts += [", "] if i else []
            parts.append((arg, 0))
        return [*parts, ")"], _ATOM

    def write(self, root: Node, level: int) -> None:
        """Append a node's text, noting where each part of it stands."""
        starts: list[tuple[Node, int]] = []
        pending: list[str | tuple[Node, int] | None] = [(root, level)]
        while pending:
            part = pending.pop()
            if part is None:
                node, start = starts.pop()
                self.spans.setdefault(node, (start, len(self.text)))
            elif isinstance(part, str):
                self.text += part
            else:
                node, wanted = part
                pieces, own = self.pieces(node)
                close = own < wanted
                self.text += "(" if close else ""
                starts.append((node, len(self.text)))
                pending += [")"] if close else []
                pending.append(None)
                pending += reversed(pieces)


def _number(value: bool | int | float) -> str:
    text = repr(value)
    return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(text, text)
