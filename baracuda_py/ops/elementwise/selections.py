"""Choices among many arrays: select, select_n, choose, piecewise, each a formula of `where` in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.memo import memo
from ...expressions.elementwise import Expression, elementwise
from .binary_numbers import NUMBERS, element_of
from .cast import cast
from .ternary import TernaryPlan
from .ternary_functions import where
from .ternary_kinds import TernaryKind

_MOST = 8  # choices of one launch; of more, several launches, each of which takes the others' result as what is left


@memo()
def _first_that_holds(count: int) -> Expression:
    """value0 where condition0 holds, else value1 where condition1 does, …, else rest."""
    text = "rest"
    for i in reversed(range(count)):
        text = f"where(condition{i}, value{i}, {text})"
    return elementwise(text)


@memo()
def _at(start: int, count: int, wrapped: int) -> Expression:
    """value0 where index is `start` (or less, for 0), value1 where it is one more, …, else rest."""
    text = "rest"
    for i in reversed(range(start, start + count)):
        text = f"where({_is(i, wrapped)}, value{i - start}, {text})"
    return elementwise(text)


def _is(place: int, wrapped: int) -> str:
    """Whether the index, modulo `wrapped` where that is not 0, is a place; below 0 it is the first."""
    index = f"remainder(index, {wrapped})" if wrapped else "index"
    return f"{index} {'==' if place else '<='} {place}"


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple)) or not values:
        raise InvalidProblemError(f"{name} must be a list of arrays or numbers with one at least, got {shown(values)}")
    return list(values)


def _condition(name: str, value: Any) -> Any:
    if type(value) not in NUMBERS and element_of(value) is ElementKind.BOOL:
        return value
    got = shown(value) if type(value) in NUMBERS else element_of(value)
    raise InvalidProblemError(f"{name} must be a bool array, got {got}")


def _has_complex(values: Sequence[Any]) -> bool:
    return any(type(v) is complex or (type(v) not in NUMBERS and element_of(v).is_complex) for v in values)


def _selected(conditions: Sequence[Any], values: Sequence[Any], rest: Any, out: Any, **more: Any) -> Any:
    if _has_complex((*values, rest)):  # formulas have no complex numbers
        for condition, value in reversed(list(zip(conditions, values, strict=True))):
            rest = where(condition, value, rest, **more)
        return rest if out is None else cast(rest, element_of(out), out=out, **more)
    for start in reversed(range(0, len(conditions), _MOST)):
        some = range(start, min(start + _MOST, len(conditions)))
        named = {f"condition{i - start}": conditions[i] for i in some}
        named |= {f"value{i - start}": values[i] for i in some}
        to = {"out": out} if start == 0 and out is not None else {}
        rest = _first_that_holds(len(some))(**named, rest=rest, **to, **more)
    return rest


@entry(TernaryPlan, kind=TernaryKind.WHERE)
def select(
    conditions: Any, choices: Any, default: Any = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Of lists, the first choice whose condition holds, else `default` (numpy.select), in one launch of up to eight.

    Choices and `default` are arrays or numbers, which promote and broadcast. Three arrays instead of lists are
    jax.lax.select's: select(condition, where true, where false) is `where`.
    """
    more = {"stream": stream, "preference": preference}
    if not isinstance(conditions, (list, tuple)):
        return where(conditions, choices, default, out=out, **more)
    held, values = _listed("conditions", conditions), _listed("choices", choices)
    if len(held) != len(values):
        raise InvalidProblemError(f"conditions and choices must be as many, got {len(held)} and {len(values)}")
    held = [_condition(f"conditions[{i}]", value) for i, value in enumerate(held)]
    return _selected(held, values, default, out, **more)


@entry(TernaryPlan, kind=TernaryKind.WHERE)
def choose(
    index: Array, choices: Any, *, mode: str = "clip", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """choices[index] element by element (numpy.choose), index and the choices broadcast, in one launch of up to nine.

    mode: "clip", an index below 0 is the first and one beyond the end the last, or "wrap", the index counts modulo
    their number. NumPy's "raise" would have to wait for the device.
    """
    if not isinstance(mode, str) or mode not in ("clip", "wrap"):
        raise InvalidProblemError(f'mode must be "clip" or "wrap" (nothing is read back to raise), got {shown(mode)}')
    values = _listed("choices", choices)
    more = {"stream": stream, "preference": preference}
    return _chosen("index", index, values, len(values) if mode == "wrap" else 0, out, **more)


@entry(TernaryPlan, kind=TernaryKind.WHERE)
def select_n(which: Array, *cases: Any, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """cases[which] element by element (jax.lax.select_n); a bool `which` has two, the first where it is False.

    An index outside is the first case, or the last.
    """
    more = {"stream": stream, "preference": preference}
    values = _listed("cases", cases)
    if element_of(which) is not ElementKind.BOOL:
        return _chosen("which", which, values, 0, out, **more)
    if len(values) > 2:
        raise InvalidProblemError(f"which is bool, so there are two cases at most, got {len(values)}")
    return _selected([which], values[-1:], values[0], out, **more)


def _chosen(name: str, index: Any, values: list[Any], wrapped: int, out: Any, **more: Any) -> Any:
    element = element_of(index)
    if not element.is_integer:
        raise InvalidProblemError(f"{name} must be an array of integers, got {element}; cast it first")
    if len(values) > element.limits.max:
        raise InvalidProblemError(f"{name} is {element} and cannot tell {len(values)} choices apart; cast it first")
    values = [*values, values[0]] if len(values) == 1 else values
    count, rest = len(values) - 1, values[-1]
    if _has_complex(values):
        conditions = [elementwise(_is(i, wrapped))(index, **more) for i in range(count)]
        return _selected(conditions, values[:-1], rest, out, **more)
    for start in reversed(range(0, count, _MOST)):
        some = range(start, min(start + _MOST, count))
        named = {f"value{i - start}": values[i] for i in some}
        to = {"out": out} if start == 0 and out is not None else {}
        rest = _at(start, len(some), wrapped)(index=index, **named, rest=rest, **to, **more)
    return rest


@entry(TernaryPlan, kind=TernaryKind.WHERE)
def piecewise(
    x: Array, conditions: Any, functions: Any, *args: Any, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Function i of x where condition i holds, of several the last; else the further function, or 0 (numpy.piecewise).

    A function is called with all of x and with `args`, and returns an array that broadcasts; a number or an array
    stands for itself. The result has x's element and x's shape.
    """
    held = list(conditions) if isinstance(conditions, (list, tuple)) else [conditions]
    held = [_condition(f"conditions[{i}]", value) for i, value in enumerate(held)]
    made = [f(x, *args) if callable(f) else f for f in _listed("functions", functions)]
    if len(made) not in (len(held), len(held) + 1):
        raise InvalidProblemError(
            f"{len(held)} conditions have {len(held)} or {len(held) + 1} functions, got {len(made)}"
        )
    rest = made[-1] if len(made) > len(held) else 0
    more = {"stream": stream, "preference": preference}
    y = _selected(held[::-1], made[: len(held)][::-1], rest, None, **more)
    element = element_of(x)
    if out is None and element_of(y) is element:
        return y
    return cast(y, element, out=out, **more)
