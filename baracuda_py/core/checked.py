"""Values that come from outside: integers told from lookalikes, dataclasses whose fields check themselves.

Whatever a caller's object does when it is looked at (an attribute, `__index__`, `__repr__` that raises), the caller
gets this package's typed error.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import islice
from typing import Any

import numpy as np

from ..interop.torch_rules import recorded, requires_grad
from .errors import BaracudaError, InvalidProblemError, UnsupportedError
from .memo import PLANS_KEPT, memo

MISSING = dataclasses.MISSING
Check = Callable[[str, Any], Any]
Settle = Callable[[Any, str, Any], Any]

MAX_AXES = 32  # what NumPy's iterators, and so the reference, take
INT64 = 2**63 - 1
INT32 = 2**31 - 1
_SHOWN = 200  # characters of a value that a message quotes


def shown(value: Any) -> str:
    """`repr(value)` for a message: never raises, cut where it is long."""
    try:
        text = repr(value)
    except MemoryError:
        raise
    except Exception as error:
        kind = type(value).__name__
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {kind} ({failure(error)})"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def failure(error: BaseException) -> str:
    """An exception of somebody else's code as text for a message."""
    try:
        text = " ".join(str(error).split())
    except MemoryError:
        raise
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text[:_SHOWN]}" if text else name


def whole(name: str, value: Any, minimum: int = -INT64 - 1, maximum: int = INT64) -> int:
    """An integer of any package in [minimum, maximum]; bools and floats are none."""
    if type(value) is int and minimum <= value <= maximum:
        return value
    try:
        number = operator.index(value)
    except MemoryError:
        raise
    except Exception:
        raise InvalidProblemError(f"{name} must be an integer, got {shown(value)}") from None
    if minimum <= number <= maximum and not isinstance(value, (bool, np.bool_)):
        return number
    if maximum != INT64:
        span = f"in [{minimum}, {maximum}]"
    else:
        span = "of 64 bits" if number > INT64 or minimum < -INT64 else f">= {minimum}"
    raise InvalidProblemError(f"{name} must be an integer {span}, got {shown(value)}")


def learned(name: str, value: Any) -> None:
    """Refuses a number that autograd follows where a Python number is made of it: no gradient would reach it."""
    if requires_grad((value,)) and recorded(value):
        raise UnsupportedError(
            f"{name}: it requires grad, and a number of this call has no gradient; give its .detach(), or call under "
            "torch.no_grad()"
        )


def real(name: str, value: Any) -> float:
    """A Python float of a number; strings and truth values are none."""
    learned(name, value)
    try:
        if not isinstance(value, (str, bytes, bool, np.bool_)):
            return float(value)
    except MemoryError:
        raise
    except Exception as error:  # whatever the object's own conversion raises
        raise InvalidProblemError(f"{name} must be a number, got {shown(value)}") from error
    raise InvalidProblemError(f"{name} must be a number, got {shown(value)}")


def truth(name: str, value: Any) -> bool:
    """True or False, NumPy's included; numbers and strings are neither."""
    if value is True or value is False:
        return value is True
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidProblemError(f"{name} must be True or False, got {shown(value)}")


def require_some(given: Mapping[str, Any], *names: str) -> None:
    """Refuses None, or nothing, for all of these names."""
    if any(given.get(name) is not None for name in names):
        return
    if len(names) == 1:
        raise InvalidProblemError(f"{names[0]} is None; give it")
    all_of = f"{', '.join(names[:-1])} and {names[-1]} are {'both' if len(names) == 2 else 'all'} None"
    raise InvalidProblemError(f"{all_of}; give one of them at least")


def sequence(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """At most 32 items, one an axis, of any ordered iterable."""
    if type(value) is not tuple and (
        not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping, Set))
    ):
        raise InvalidProblemError(f"{name} must be a tuple of {what}, got {shown(value)}")
    try:
        items = tuple(islice(value, MAX_AXES + 1))
    except Exception as error:  # an array without axes, or an object that cannot be read
        raise InvalidProblemError(f"{name} must be a tuple of {what}, got {shown(value)}") from error
    if len(items) > MAX_AXES:
        raise InvalidProblemError(f"{name} must have at most {MAX_AXES} axes, got more: {shown(items)}")
    return items


def wholes(name: str, value: Any, minimum: int = 0, maximum: int = INT64, what: str = "sizes") -> tuple[int, ...]:
    """A tuple of at most 32 integers from any ordered iterable."""
    return tuple([whole(name, item, minimum, maximum) for item in sequence(name, value, what)])


class Checked:
    """Base of frozen dataclasses whose fields, made by `checked`, carry their own check.

    First every field is checked by itself; then those that depend on others are settled, in the order of declaration.
    """

    def __post_init__(self) -> None:
        for name, check in checks(type(self)):
            value = getattr(self, name)
            if (accepted := _accept(check, name, value)) is not value:
                object.__setattr__(self, name, accepted)
        for name, settle in _settles(type(self)):
            value = getattr(self, name)
            if (settled := settle(self, name, value)) is not value:
                object.__setattr__(self, name, settled)


@dataclasses.dataclass(frozen=True)
class Derived:
    """A default that other fields give; see `derived`."""

    of: Callable[[Any], Any]
    settle: Callable[[Any, Any], Any] | None = None

    def __call__(self, desc: Any, name: str, value: Any) -> Any:
        if value is None:
            return self.of(desc)
        return value if self.settle is None else self.settle(desc, value)


def derived(of: Callable[[Any], Any], settle: Callable[[Any, Any], Any] | None = None) -> Any:
    """As the default of a field: a field that is not given (None) holds `of(descriptor)`.

    The fields that `of` reads have been checked; of those that are derived too, it may read the ones declared before.
    `settle(descriptor, value)`, if any, makes of a value that is given the one to hold, or raises.
    """
    return Derived(of, settle)


def checked(check: Check, default: Any = MISSING, settle: Settle | None = None, accepts: str = "Any") -> Any:
    """A dataclass field; `check(name, value)` returns the value to hold or raises. None passes where it is the default.

    accepts: what `check` takes, as an annotation.
    `settle(descriptor, name, value)` does the same once every field is checked; so does a default made by `derived`.
    """
    facts: dict[str, Any] = {"check": check, "accepts": accepts}
    if isinstance(default, Derived):
        first, then, default = default, settle, None
        settle = first if then is None else lambda desc, name, value: then(desc, name, first(desc, name, value))
    if default is None:
        facts["check"] = lambda name, value: None if value is None else check(name, value)
    if settle is not None:
        facts["settle"] = settle
    return dataclasses.field(default=default, metadata=facts)


@memo(maxsize=PLANS_KEPT)
def checks(cls: type[Any]) -> tuple[tuple[str, Check], ...]:
    """The fields of a `Checked` class with their checks."""
    return tuple((f.name, f.metadata["check"]) for f in dataclasses.fields(cls) if "check" in f.metadata)


@memo(maxsize=PLANS_KEPT)
def _settles(cls: type[Any]) -> tuple[tuple[str, Settle], ...]:
    return tuple((f.name, f.metadata["settle"]) for f in dataclasses.fields(cls) if "settle" in f.metadata)


def check_field(cls: type[Any], name: str, value: Any) -> Any:
    """A value as the class's field would hold it; raises what the field's own check raises."""
    check = dict(checks(cls)).get(name)
    return value if check is None else _accept(check, name, value)


def _accept(check: Check, name: str, value: Any) -> Any:
    try:
        return check(name, value)
    except (BaracudaError, MemoryError):
        raise
    except Exception as error:
        raise InvalidProblemError(f"{name} cannot be {shown(value)}: {failure(error)}") from error
