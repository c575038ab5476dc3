"""`Descriptor`: what selects a kernel (extents, attributes, element); frozen, hashable, validated.

A page declares fields with the helpers below; each carries its own check, so ops write none by hand.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .checked import INT32, INT64, MISSING, Checked, checked, shown, truth, whole, wholes
from .element import FLOATS, ElementKind
from .errors import InvalidProblemError, UnsupportedError


def extent(default: Any = MISSING, minimum: int = 0) -> Any:
    """A size: an integer >= `minimum` that 64 bits hold."""
    return checked(lambda name, value: whole(name, value, minimum), default)


def integer(default: Any = MISSING, minimum: int | None = None, maximum: int | None = None) -> Any:
    """An integer attribute of 64 bits; None passes when it is the default."""
    low, high = -INT64 - 1 if minimum is None else minimum, INT64 if maximum is None else maximum

    def check(name: str, value: Any) -> int | None:
        return None if value is None and default is None else whole(name, value, low, high)

    return checked(check, default)


def extents(default: Any = MISSING) -> Any:
    """A tuple of sizes (an int stands for a 1-tuple). None passes when it is the default."""

    def check(name: str, value: Any) -> tuple[int, ...] | None:
        if value is None and default is None:
            return None
        return wholes(name, (value,) if isinstance(value, (int, np.integer)) else value)

    return checked(check, default)


def per_axis(default: Any = MISSING, minimum: int = 0) -> Any:
    """An integer for every spatial axis, or a tuple with one for each; None passes when it is the default.

    How many axes there are another field tells: the page makes it a tuple by `spread`.
    """

    def check(name: str, value: Any) -> int | tuple[int, ...] | None:
        if value is None and default is None:
            return None
        if isinstance(value, (int, np.integer)):
            return whole(name, value, minimum, INT32)
        return wholes(name, value, minimum, INT32, "integers")

    return checked(check, default)


def spread(name: str, value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    """The value of a `per_axis` field as a tuple of one integer an axis."""
    if isinstance(value, int):
        return (value,) * axes
    if len(value) != axes:
        raise InvalidProblemError(f"{name} must be an integer or one for each of the {axes} axes, got {value}")
    return value


def shapes(default: Any = MISSING) -> Any:
    """A tuple of shapes, for list operands."""

    def check(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
        if isinstance(value, (str, bytes, bytearray, int, np.integer)):
            raise InvalidProblemError(f"{name} must be a tuple of shapes, got {shown(value)}")
        return tuple([wholes(f"{name}[{i}]", shape) for i, shape in enumerate(value)])

    return checked(check, default)


def number(
    default: Any = MISSING, minimum: float = -math.inf, maximum: float = math.inf, above: float = -math.inf
) -> Any:
    """A finite float in [minimum, maximum] and > `above`; None passes when it is the default."""

    def check(name: str, value: Any) -> float | None:
        if value is None and default is None:
            return None
        try:
            if isinstance(value, (str, bytes, bytearray, bool, np.bool_)) or getattr(value, "ndim", None):
                raise TypeError
            result = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidProblemError(f"{name} must be a finite number, got {shown(value)}") from None
        if not math.isfinite(result):
            raise InvalidProblemError(f"{name} must be finite, got {shown(value)}")
        if not minimum <= result <= maximum or not result > above:
            low = f"> {above}" if above > -math.inf else f">= {minimum}"
            raise InvalidProblemError(f"{name} must be {low} and <= {maximum}, got {shown(value)}")
        return result

    return checked(check, default)


def flag(default: Any = MISSING) -> Any:
    """A bool."""
    return checked(truth, default)


def choice(values: Any, default: Any = MISSING) -> Any:
    """One of an Enum's members (or its value), or one of a tuple of strings; None passes when it is the default."""

    def check(name: str, value: Any) -> Any:
        if value is None and default is None:
            return None
        if isinstance(values, type) and issubclass(values, enum.Enum):
            try:
                return values(value)
            except ValueError:
                names: Any = [member.value for member in values]
        else:
            if value in values:
                return values[values.index(value)]
            names = list(values)
        raise InvalidProblemError(f"{name} must be one of {names}, got {shown(value)}")

    return checked(check, default)


def element(kinds: tuple[ElementKind, ...] = FLOATS, default: Any = MISSING) -> Any:
    """An element kind out of `kinds`; takes any dtype-like. None passes when it is the default."""

    def check(name: str, value: Any) -> ElementKind | None:
        if value is None and default is None:
            return None
        kind = ElementKind.of(value)
        if kind not in kinds:
            raise UnsupportedError(f"{name} {kind} is not supported; it may be one of {', '.join(map(str, kinds))}")
        return kind

    return checked(check, default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descriptor(Checked):
    """Base of all descriptors: subclasses are `@dataclass(frozen=True, kw_only=True)`."""

    if TYPE_CHECKING:
        element: ElementKind  # declared by every page, with the kinds it serves

    def __post_init__(self) -> None:
        super().__post_init__()
        self.validate()

    def validate(self) -> None:
        """Relations between fields; raise InvalidProblemError."""

    @property
    def acc(self) -> ElementKind:
        """The accumulator's element, in which statistics are saved: f32, f64 for f64."""
        return self.element.acc
