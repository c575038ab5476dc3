"""Operands on several GPUs, refused before a function of several calls launches the first of them.

Each plan refuses operands that are not on its own device. A function that calls several would have launched some of
them by then, and one that takes only the shape or the element of an operand would serve what it should not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..interop.packages import package_name
from .device import driver_device_count
from .errors import DeviceMismatchError
from .ordinals import ordinal

_PACKAGES = ("cupy", "torch", "jax")
_known: dict[type, bool] = {}  # whether values of a type may be on a GPU


def check_one_device(signature: inspect.Signature, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Raise DeviceMismatchError where arrays among the arguments, or in lists of them, are on several GPUs.

    Host memory is left to the plans: some operands may be numbers of the host.
    """
    first = -1
    for value in (*args, *given.values()):
        kind = type(value)
        if kind is list or kind is tuple or kind is dict:
            held: Iterable[Any] = _arrays((value,))
        elif _may_be_on_a_gpu(kind):
            held = (value,)
        else:
            continue
        for array in held:
            at = _place(array)
            if first < 0 <= at:
                if not several():
                    return
                first = at
            elif first != at >= 0:
                raise _mismatch(signature, args, given)


def several() -> bool:
    """Whether arrays can be on different GPUs; asked only where one is on a GPU."""
    return driver_device_count() > 1


def arrays_within(values: Iterable[Any], is_array: Callable[[Any], bool]) -> Iterator[Any]:
    """The arrays among values, also those in lists of lists and in dicts."""
    for value in values:
        if isinstance(value, (list, tuple, dict)):
            yield from arrays_within(value.values() if isinstance(value, dict) else value, is_array)
        elif is_array(value):
            yield value


def is_array(value: Any) -> bool:
    """Whether a value is an array of any package, which a NumPy number is not."""
    if isinstance(value, (type, np.generic)):
        return False
    try:
        return hasattr(value, "shape") and hasattr(value, "dtype")
    except MemoryError:
        raise
    except Exception:  # of an object that raises; whichever call reads it says what it is
        return False


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    return arrays_within(values, lambda value: _may_be_on_a_gpu(type(value)))


def _may_be_on_a_gpu(kind: type) -> bool:
    found = _known.get(kind)
    if found is None:
        is_array = package_name(kind) in _PACKAGES and hasattr(kind, "shape") and hasattr(kind, "dtype")
        found = _known[kind] = is_array
    return found


def _place(array: Any) -> int:
    """The ordinal, or -1 where there is none to tell: whoever reads the array says what is wrong with it."""
    try:
        return ordinal(array)
    except MemoryError:
        raise
    except Exception:
        return -1


def _mismatch(signature: inspect.Signature, args: tuple[Any, ...], given: Mapping[str, Any]) -> DeviceMismatchError:
    bound = signature.bind_partial(*args, **given).arguments
    found = [(name, _place(array)) for name, value in bound.items() for array in _arrays((value,))]
    (name, first), *rest = [(name, at) for name, at in found if at >= 0]
    other, at = next((name, at) for name, at in rest if at != first)
    return DeviceMismatchError(f"{other} is on cuda:{at}, {name} is on cuda:{first}; copy the array there first")
