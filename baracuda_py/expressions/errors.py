"""What is wrong with a formula, and where."""

from __future__ import annotations

from ..core.errors import InvalidProblemError
from ..core.exported import exported

Span = tuple[int, int]
"""First character of a part of a formula's text, and the one after its last."""


@exported
class ExpressionError(InvalidProblemError):
    """A formula that has no meaning, or none for the operands given; the message points at the characters.

    `text` is the formula and `span` the characters meant, from the first to the one after the last.
    """

    def __init__(self, message: str, text: str = "", span: Span | None = None) -> None:
        self.text, self.span = text, span
        super().__init__(f"{message}\n{pointed(text, span)}" if text and span else message)


def pointed(text: str, span: Span) -> str:
    """The line of `text` that a span begins in, and under it what points at the span."""
    start = min(max(span[0], 0), len(text))
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last]
    width = max(1, min(span[1], first + len(line)) - start)
    return f"  {line}\n  {' ' * (start - first)}{'^' * width}"
