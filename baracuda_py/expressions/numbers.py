"""The integers of a call of a formula: where they, or what they make among themselves, meet an element that has no such
number, the call is refused. A 0-d device array is not read, and is taken modulo 2ⁿ (`core.numbers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checked import shown
from ..core.element import ElementKind, cast
from ..core.errors import InvalidProblemError
from .program import COEFFICIENT, Program, Step, rank, result_of

_LONGEST = 128  # bits of a number that is computed on the way; longer ones do not fit either


@dataclass(frozen=True)
class _Known:
    """The value of a step that is one number for all elements, and the names of the call that it is made of."""

    value: int
    names: tuple[str, ...]
    given: bool = False

    def text(self) -> str:
        """How a message speaks of it."""
        return self.names[0] if self.given else f"what the formula makes of {' and '.join(self.names)}"


def check(program: Program, names: Sequence[str], numbers: Mapping[str, Any]) -> None:
    """Raise InvalidProblemError where an integer of the call does not fit; None is a number that is not known.

    names: those of the program's scalars, in its order.
    """
    if not any(program.scalars):
        return
    known: list[_Known | None] = []
    for step in program.steps:
        given = [known[i] for i in step.args]
        known.append(_value(step, given, program, names, numbers))
    for index, _ in program.outputs:
        _fits(known[index], result_of(program.steps[index]))


def _value(
    step: Step, given: Sequence[_Known | None], program: Program, names: Sequence[str], numbers: Mapping[str, Any]
) -> _Known | None:
    """What a step is, where that is an integer that the host knows."""
    if step.form == "scalar":
        name = names[step.value]
        value = numbers[name]
        return _Known(int(value), (name,), True) if program.scalars[step.value] and value is not None else None
    if step.form == "constant":
        return _Known(int(step.value), ()) if rank(step.element) == 1 else None
    if step.form == "convert":
        return _converted(step, given[0], program)
    for one, i in zip(given, step.args, strict=True):
        _fits(one, result_of(program.steps[i]))
    if step.form == "cast" and given[0] is not None and rank(step.element) == 1:  # which wraps, as it says
        return _Known(int(cast(np.asarray(given[0].value), step.element)), given[0].names)
    if step.form != "call" or not step.uniform or rank(result_of(step)) != 1 or None in given:
        return None
    return _called(step, [one for one in given if one is not None])


def _converted(step: Step, given: _Known | None, program: Program) -> _Known | None:
    """A number where it meets an element."""
    if given is None:
        return None
    if rank(step.element) != 1 or step.value == COEFFICIENT:
        _fits(given, ElementKind.I64)
        return None
    _fits(given, step.element)
    return given


def _called(step: Step, given: Sequence[_Known]) -> _Known | None:
    """What integers make among themselves, without an end to their range."""
    names = tuple(dict.fromkeys(name for one in given for name in one.names))
    values = [one.value for one in given]
    if step.value.name in ("pow", "bitwise_left_shift") and values[1] > 0:
        bits = values[1] * (abs(values[0]).bit_length() - 1 if step.value.name == "pow" else 1)
        if values[0] and bits > _LONGEST:
            raise _beyond(_Known(0, names), f"a {step.value.name} of {values[0]} by {values[1]}", step.element)
    try:
        made = int(step.value.formula(*(np.array(value, object) for value in values)))
    except (TypeError, ValueError, ZeroDivisionError, AttributeError):  # a function of words of some width
        made = int(step.value.formula(*(np.array(value, step.element.dtype) for value in values)))
    found = _Known(made, names)
    _fits(found, step.element)
    return found


def _fits(one: _Known | None, element: ElementKind) -> None:
    """Raise unless an element has a number."""
    if one is None or not one.names or rank(element) != 1:
        return
    if not int(element.limits.min) <= one.value <= int(element.limits.max):
        raise _beyond(one, shown(one.value), element)


def _beyond(one: _Known, what: str, element: ElementKind) -> InvalidProblemError:
    low, high = int(element.limits.min), int(element.limits.max)
    return InvalidProblemError(f"{one.text()} must lie in [{low}, {high}] as it meets {element}, got {what}")
