"""Which argument of a call is not what its annotation takes: asked once a function has failed, never before.

A function written by hand computes with its options before a descriptor checks them, and Python's own error of a string
among numbers names no operand. Arguments that all fit leave the error as it is: it is then the function's own defect.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from ..core.arrays import read
from ..core.checked import INT64, real, sequence, shown, truth, whole, wholes
from ..core.element import ElementKind
from ..core.errors import BaracudaError, InvalidProblemError
from ..core.intake import stream_pointer
from ..core.memory import lacking
from ..core.preference import PlanPreference
from ..core.views import VIEWED, no_views
from ..interop.packages import package_name

_ONE_OF = re.compile(r" \| (?![^\[]*\])")  # between the alternatives of an annotation, not inside of brackets


def explained(
    error: Exception, shown_as: inspect.Signature, args: Iterable[Any], given: Mapping[str, Any]
) -> BaracudaError | None:
    """What a function should have raised in the place of an error that is not ours; None where the error is right."""
    if isinstance(error, BaracudaError):
        return None
    told = lacking(error, "what it computes with")
    return told if told is not None or isinstance(error, MemoryError) else misfit(error, shown_as, args, given)


def raise_explained(
    error: Exception, shown_as: inspect.Signature, args: Iterable[Any], given: Mapping[str, Any]
) -> NoReturn:
    """Raise what a function should have raised in the place of an error, or the error itself where it is right."""
    refused = explained(error, shown_as, args, given)
    if refused is None:
        raise error
    raise refused from error


def misfit(
    error: Exception, shown_as: inspect.Signature, args: Iterable[Any], given: Mapping[str, Any]
) -> InvalidProblemError | None:
    """The error for the first argument that its annotation does not take, or has no views; None where all fit."""
    try:
        bound = shown_as.bind(*args, **given).arguments
    except TypeError:
        return None  # Python says what is wrong
    for name, value in bound.items():
        annotation = shown_as.parameters[name].annotation
        if value is not shown_as.parameters[name].default and (wrong := _refused(annotation, name, value)) is not None:
            return wrong
    if isinstance(error, (AttributeError, TypeError)):
        for name, value in bound.items():
            lacking = str(error).startswith(f"'{type(value).__name__}' object ")  # as Python says it
            if lacking and package_name(type(value)) not in VIEWED:
                return no_views(value, name)
    return None


def _refused(annotation: Any, name: str, value: Any) -> InvalidProblemError | None:
    said = _ONE_OF.split(annotation) if isinstance(annotation, str) else ["Any"]
    errors: list[BaracudaError] = []
    for one in said:
        if one not in _TAKES:
            return None
        try:
            _TAKES[one][1](name, value)
        except BaracudaError as error:
            errors.append(error)
        else:
            return None
    if len(errors) == 1:  # which may say more than that it is none
        return InvalidProblemError(*errors[0].args)
    return InvalidProblemError(f"{name} must be {' or '.join(_TAKES[one][0] for one in said)}, got {shown(value)}")


def _is(*kinds: type) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not issubclass(type(value), kinds):
            raise InvalidProblemError(f"{name} must be a {kinds[0].__name__}, got {shown(value)}")

    return check


def _array(name: str, value: Any) -> None:
    """An array, or a number, which some functions take in its place."""
    if type(value) is int:
        real(name, value)
    elif not isinstance(value, (bool, int, float, complex, np.generic)):
        read(value, name)


def _arrays(name: str, value: Any) -> None:
    for i, one in enumerate(sequence(name, value, "arrays")):
        read(one, f"{name}[{i}]")


def _number(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        real(name, value)


def _integers(name: str, value: Any) -> None:
    wholes(name, value, -INT64 - 1, what="integers")


def _out(name: str, value: Any) -> None:
    if not isinstance(value, (list, tuple, Mapping)):
        read(value, name)


_TAKES: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "None": ("None", _is(type(None))),
    "bool": ("True or False", truth),
    "int": ("an integer", whole),
    "float": ("a number", real),
    "str": ("a string", _is(str)),
    "Sequence[int]": ("a tuple of integers", _integers),
    "Array": ("an array", _array),
    "Sequence[Array]": ("a list of arrays", _arrays),
    "Scalar": ("a number", _number),
    "DType": ("an element", lambda name, value: ElementKind.of(value)),
    "Out": ("an array", _out),
    "Stream": ("a stream", lambda name, value: stream_pointer(value)),
    "PlanPreference": ("a PlanPreference", _is(PlanPreference)),
}
