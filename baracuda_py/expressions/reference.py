"""The NumPy reference of a formula: its steps by the tables' formulas, floats in the dtype that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.element import ElementKind, cast
from ..core.numbers import modulo
from .function import Rule
from .program import Program, Step, rank


@np.errstate(all="ignore")
def evaluate(program: Program, arrays: Sequence[Any], scalars: Sequence[Any], compute: Any) -> list[Any]:
    """The outputs. Floats are `compute` but what numbers make among themselves, which is float64 as on a device."""
    values: list[Any] = []
    for step in program.steps:
        values.append(np.asarray(_value(step, values, program, arrays, scalars, compute)))
    results = []
    for index, element in program.outputs:
        value = values[index]
        results.append(value.astype(compute) if element.is_float else cast(value, element))
    return results


def _value(
    step: Step, values: Sequence[Any], program: Program, arrays: Sequence[Any], scalars: Sequence[Any], compute: Any
) -> Any:
    own: Any = np.dtype(np.float64) if step.uniform else compute
    if step.form == "input":
        return arrays[step.value]
    if step.form == "scalar":
        given = scalars[step.value]
        return modulo(given, ElementKind.I64) if program.scalars[step.value] else np.array(given).astype(np.float64)
    if step.form == "constant":
        return _number(step, own)
    args = [values[i] for i in step.args]
    if step.form == "cast":
        return _floating(cast(args[0], step.element), own)
    if step.form == "convert":
        return _converted(args[0], step, own)
    args = [_floating(arg, own) for arg in args]
    made = np.asarray(step.value.formula(*args))
    if step.value.rule in (Rule.COMPARE, Rule.TEST, Rule.LOGIC):
        return made.astype(np.bool_)
    return made.astype(own) if step.element.is_float else made.astype(step.element.dtype)


def _floating(value: Any, dtype: Any) -> Any:
    """Floats of any width in one dtype."""
    return value.astype(dtype) if value.dtype.kind not in "biu" and value.dtype != dtype else value


def _number(step: Step, own: Any) -> Any:
    """A constant as kernels have it: rounded to the accumulator."""
    if rank(step.element) == 2:
        return np.array(step.value, np.float64).astype(step.element.acc.dtype).astype(own)
    return np.array(step.value).astype(step.element.dtype)


def _converted(value: Any, step: Step, own: Any) -> Any:
    if step.element is ElementKind.BOOL:
        return value != 0
    if not step.element.is_float:
        return cast(value, step.element)
    if value.dtype.kind == "f" and step.uniform:  # numbers are rounded where they meet an operand
        return value.astype(step.element.acc.dtype).astype(own)
    return value.astype(own)
