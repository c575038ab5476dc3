"""The equations of einsum: what its labels name, of which extents, and where one is wrong.

An equation is text, "ij,jk->ik", or lists of integers beside the operands, which are written as text so that an error
can point at a character of either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

from ...core.checked import shown, whole
from ...core.errors import ExpressionError, InvalidProblemError, Span
from ...core.memo import memo

Label: TypeAlias = "str | int"
"""A letter or an integer; of an axis that an ellipsis stands for its place from the end: -1 is the last."""

DOTS = "..."


@dataclass(frozen=True)
class Term:
    """The labels of an operand or of the result, with `DOTS` among them, and the characters that each stands at."""

    labels: tuple[Any, ...]
    spans: tuple[Span, ...]
    whole: Span

    def expanded(self, covered: int) -> tuple[Label, ...]:
        """The labels, those of `covered` axes in the place of an ellipsis."""
        return tuple(one for label in self.labels for one in (range(-covered, 0) if label == DOTS else (label,)))


@dataclass(frozen=True)
class Text:
    """An equation without shapes; `output` is None where it is implied."""

    text: str
    inputs: tuple[Term, ...]
    output: Term | None

    def __hash__(self) -> int:
        return hash(self.text)

    def wrong(self, message: str, span: Span) -> NoReturn:
        raise ExpressionError(f"einsum: {message}", self.text, (span[0], max(span[1], span[0] + 1)))


@dataclass(frozen=True)
class Equation:
    """An equation and its operands' shapes: labels of every axis, and what each label's extent is."""

    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]
    extents: dict[Label, int]


@memo(4096)
def parse(text: str) -> Text:
    """An equation as written: letters, an ellipsis, commas, an arrow; spaces say nothing."""
    arrow = text.find("->")
    end = len(text) if arrow < 0 else arrow
    bounds = [-1, *(at for at, letter in enumerate(text[:end]) if letter == ","), end]
    inputs = tuple(_term(text, start + 1, stop) for start, stop in pairwise(bounds))
    found = Text(text, inputs, None if arrow < 0 else _term(text, arrow + 2, len(text)))
    return _checked(found)


def _term(text: str, start: int, stop: int) -> Term:
    labels, spans, at = list[str](), list[Span](), start
    while at < stop:
        letter = text[at]
        width = 3 if text.startswith(DOTS, at) and at + 3 <= stop else 1
        if width == 3 or letter.isalpha():
            labels.append(text[at : at + width])
            spans.append((at, at + width))
        elif not letter.isspace():
            said = "an ellipsis is three dots" if letter == "." else "labels are letters"
            if letter in "->":
                said = "the arrow is -> and stands once"
            elif letter == ",":
                said = "there is one result"
            Text(text, (), None).wrong(f"{said}, got {letter!r}", (at, at + 1))
        at += width
    return Term(tuple(labels), tuple(spans), (start, stop))


def of_lists(inputs: Sequence[Any], output: Any) -> Text:
    """The equation that lists of integers and ellipses say; `output` is None where it is implied."""
    written: list[str] = []
    terms: list[Term] = []
    for place, one in enumerate([*inputs, *([] if output is None else [output])]):
        start = sum(map(len, written))
        text, term = _listed(one, start + (4 if output is not None and place == len(inputs) else 2 if place else 0))
        written.append((" -> " if output is not None and place == len(inputs) else ", " if place else "") + text)
        terms.append(term)
    found = Text("".join(written), tuple(terms[: len(inputs)]), None if output is None else terms[-1])
    return _checked(found)


def _listed(one: Any, start: int) -> tuple[str, Term]:
    """The text of a list of labels that begins at a character of the equation's, and the list as a term."""
    if not isinstance(one, (list, tuple)):
        raise InvalidProblemError(f"einsum: after each operand stands a list of its labels, got {shown(one)}")
    labels, spans, parts = list[Any](), list[Span](), list[str]()
    at = start + 1
    for label in one:
        dots = label is Ellipsis or (isinstance(label, str) and label == DOTS)
        labels.append(DOTS if dots else whole("einsum: a label in a list that is no ellipsis", label, 0))
        parts.append(str(labels[-1]))
        spans.append((at, at + len(parts[-1])))
        at += len(parts[-1]) + 2
    text = f"[{', '.join(parts)}]"
    return text, Term(tuple(labels), tuple(spans), (start, start + len(text)))


def _checked(found: Text) -> Text:
    """The equation, whose labels may stand as they do."""
    known = {label for term in found.inputs for label in term.labels}
    for term in found.inputs:
        _once(found, term, (DOTS,), "an operand has one ellipsis")
    if found.output is not None:
        _once(found, found.output, None, "a label stands once in the result")
        for label, span in zip(found.output.labels, found.output.spans, strict=True):
            if label not in known and label != DOTS:
                found.wrong(f"the label {label} of the result is in no operand", span)
    return found


def _once(found: Text, term: Term, labels: Any, said: str) -> None:
    seen = set()
    for label, span in zip(term.labels, term.spans, strict=True):
        if label in seen and (labels is None or label in labels):
            found.wrong(f"{said}, got {label} again", span)
        seen.add(label)


def solved(found: Text, shapes: tuple[tuple[int, ...], ...]) -> Equation:
    """The equation for operands of these shapes."""
    try:
        return _remembered(found, shapes)
    except TypeError:  # sizes that are symbols of a trace have no hash
        return _solved(found, shapes)


def _solved(found: Text, shapes: tuple[tuple[int, ...], ...]) -> Equation:
    if len(shapes) != len(found.inputs):
        span = found.inputs[min(len(shapes), len(found.inputs) - 1)].whole
        found.wrong(f"{len(found.inputs)} operands are named, {len(shapes)} given", span)
    covered = [_covered(found, place, shape) for place, shape in enumerate(shapes)]
    inputs = tuple(term.expanded(n) for term, n in zip(found.inputs, covered, strict=True))
    extents = _extents(found, inputs, covered, shapes)
    if found.output is not None:
        output = found.output.expanded(max(covered, default=0))
    else:
        count = Counter(label for labels in inputs for label in labels)
        dots = tuple(range(-max(covered, default=0), 0))
        output = (*dots, *sorted(label for label, n in count.items() if n == 1 and label not in dots))
    return Equation(inputs, output, extents)


_remembered = memo(4096)(_solved)


def _covered(found: Text, place: int, shape: tuple[int, ...]) -> int:
    """How many axes of an operand its ellipsis stands for."""
    term = found.inputs[place]
    named = len(term.labels) - (DOTS in term.labels)
    if len(shape) < named or (len(shape) > named and DOTS not in term.labels):
        least = "at least " if DOTS in term.labels else ""
        found.wrong(f"operand {place} has shape {shape}, and {least}{named} axes are named", term.whole)
    return len(shape) - named


def _extents(
    found: Text, inputs: Sequence[tuple[Label, ...]], covered: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> dict[Label, int]:
    """What each label's extent is; 1 gives way to any other, but not within an operand."""
    extents: dict[Label, int] = {}
    for place, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        own: dict[Label, int] = {}
        for axis, (label, extent) in enumerate(zip(labels, shape, strict=True)):
            if own.setdefault(label, extent) != extent:
                at = _span(found.inputs[place], axis, covered[place])
                found.wrong(
                    f"operand {place} of shape {shape} has no diagonal: {label} is {own[label]}, then {extent}", at
                )
            known = extents.get(label, 1)
            if extent != 1 and known not in (1, extent):
                at = _span(found.inputs[place], axis, covered[place])
                found.wrong(f"{_named(label)} is {known} before, and {extent} in operand {place} of shape {shape}", at)
            extents[label] = known if extent == 1 else extent
    return extents


def _named(label: Label) -> str:
    return f"axis {label} of the ellipsis" if isinstance(label, int) and label < 0 else str(label)


def _span(term: Term, axis: int, covered: int) -> Span:
    """The characters that an axis of an operand stands at."""
    for label, span in zip(term.labels, term.spans, strict=True):
        axis -= covered if label == DOTS else 1
        if axis < 0:
            return span
    return term.whole
