"""`Descriptor`: what selects a kernel (extents, attributes, element); frozen, hashable, validated.

A page declares fields with the helpers below; each carries its own check, so ops write none by hand. A default is a
value, None (which then passes), or `derived(lambda desc: …)`, which other fields give where the field is None.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..interop.dynamo import PLAN, broken_at
from .checked import INT32, INT64, MAX_AXES, MISSING, Checked, checked, learned, sequence, shown, truth, whole, wholes
from .element import FLOATS, ElementKind
from .errors import InvalidProblemError, UnsupportedError


def extent(default: Any = MISSING, minimum: int = 0) -> Any:
    """A size: an integer >= `minimum` that 64 bits hold."""
    return checked(lambda name, value: whole(name, value, minimum), default, accepts="int")


def integer(default: Any = MISSING, minimum: int | None = None, maximum: int | None = None) -> Any:
    """An integer attribute of 64 bits."""
    low, high = -INT64 - 1 if minimum is None else minimum, INT64 if maximum is None else maximum

    return checked(lambda name, value: whole(name, value, low, high), default, accepts="int")


def extents(default: Any = MISSING) -> Any:
    """A tuple of sizes (an int stands for a 1-tuple)."""

    def check(name: str, value: Any) -> tuple[int, ...]:
        return wholes(name, _tuple(value))

    return checked(check, default, accepts="int | Sequence[int]")


def axes(default: Any = MISSING, of: str = "shape", ordered: bool = False) -> Any:
    """Axes of the field `of`: a number, a tuple of them, or None for all; negative numbers count from the end.

    Held as a tuple of different numbers in [0, rank), ascending unless `ordered`. `of` is a shape, or a field or
    property that is the rank itself. Of rank 0, axis 0 may be named, as in PyTorch, and is no axis.
    """

    def check(name: str, value: Any) -> tuple[int, ...] | None:
        if value is None:
            return None
        return wholes(name, _tuple(value), -MAX_AXES, MAX_AXES - 1, "axes")

    def settle(desc: Any, name: str, value: tuple[int, ...] | None) -> tuple[int, ...]:
        rank = _count(desc, of)
        if value is None:
            return tuple(range(rank))
        held = tuple([_axis(name, axis, max(rank, 1), of, desc) for axis in value])
        if twice := [axis for axis in held if held.count(axis) > 1]:
            raise InvalidProblemError(f"{name} names axis {twice[0]} of {of} {getattr(desc, of)} twice, got {value}")
        return () if not rank else held if ordered else tuple(sorted(held))

    return checked(check, default, settle, "int | Sequence[int] | None")


def axis(default: Any = MISSING, of: str = "shape", scalar: bool = False) -> Any:
    """One axis of the field `of`, negative from the end; held in [0, rank). With `scalar`, rank 0 counts as 1."""

    def settle(desc: Any, name: str, value: int) -> int:
        return _axis(name, value, max(_count(desc, of), int(scalar)), of, desc)

    return checked(lambda name, value: whole(name, value, -MAX_AXES, MAX_AXES - 1), default, settle, "int")


def _axis(name: str, value: int, rank: int, of: str, desc: Any) -> int:
    if not -rank <= value < rank:
        allowed = f"be in [{-rank}, {rank - 1}]" if rank else "name an axis, of which there is none"
        raise InvalidProblemError(f"{name} must {allowed} for {of} {getattr(desc, of)}, got {value}")
    return value % rank


def per_axis(default: Any = MISSING, minimum: int = 0, maximum: int = INT32, of: str | None = None) -> Any:
    """An integer for every axis, or a tuple with one for each.

    With `of`, which names the field or property that is their number or has one item for each, it is held as a tuple
    of as many; without, the page makes it one by `spread`.
    """

    def check(name: str, value: Any) -> int | tuple[int, ...]:
        if isinstance(value, (int, np.integer)):
            return whole(name, value, minimum, maximum)
        return wholes(name, value, minimum, maximum, "integers")

    def settle(desc: Any, name: str, value: Any) -> Any:
        return None if value is None else spread(name, value, _count(desc, str(of)))

    return checked(check, default, None if of is None else settle, "int | Sequence[int]")


def pairs(default: Any = MISSING, minimum: int = 0, maximum: int = INT32, of: str = "shape") -> Any:
    """(before, after) of every axis, as padding takes: an integer, or one item for each axis, an integer or a pair.

    An integer is both. Held as a tuple of pairs, one for each axis that `of` has or counts (see `per_axis`).
    """

    def pair(name: str, value: Any) -> tuple[int, int]:
        if isinstance(value, (int, np.integer)):
            return (whole(name, value, minimum, maximum),) * 2
        held = wholes(name, value, minimum, maximum, "integers")
        if len(held) != 2:
            raise InvalidProblemError(f"{name} must be an integer or a pair (before, after), got {shown(value)}")
        return held[0], held[1]

    def check(name: str, value: Any) -> Any:
        if isinstance(value, (int, np.integer)):
            return whole(name, value, minimum, maximum)
        return tuple([pair(f"{name}[{i}]", item) for i, item in enumerate(sequence(name, value, "pairs"))])

    def settle(desc: Any, name: str, value: Any) -> Any:
        if value is None:
            return None
        count = _count(desc, of)
        return ((value, value),) * count if isinstance(value, int) else spread(name, value, count)

    return checked(check, default, settle, "int | Sequence[int | Sequence[int]]")


def spread(name: str, value: Any, axes: int) -> Any:
    """The value of a `per_axis` field as a tuple of one item an axis."""
    if isinstance(value, int):
        return (value,) * axes
    if len(value) != axes:
        raise InvalidProblemError(f"{name} must be an integer or one for each of the {axes} axes, got {value}")
    return value


def _tuple(value: Any) -> Any:
    """An integer stands for a tuple of one."""
    return (value,) if isinstance(value, (int, np.integer)) else value


def _count(desc: Any, of: str) -> int:
    """A field or property that is a number of axes, or has an item for each."""
    found = getattr(desc, of)
    return found if isinstance(found, int) else len(found)


def shapes(default: Any = MISSING) -> Any:
    """A tuple of shapes, for list operands."""

    def check(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
        if isinstance(value, (str, bytes, bytearray, int, np.integer)):
            raise InvalidProblemError(f"{name} must be a tuple of shapes, got {shown(value)}")
        return tuple([wholes(f"{name}[{i}]", shape) for i, shape in enumerate(value)])

    return checked(check, default, accepts="Sequence[Sequence[int]]")


def number(
    default: Any = MISSING, minimum: float = -math.inf, maximum: float = math.inf, above: float = -math.inf,
    infinite: bool = False,
) -> Any:  # fmt: skip
    """A finite float in [minimum, maximum] and > `above`; with `infinite`, an infinity too."""
    kind = "number" if infinite else "finite number"

    def check(name: str, value: Any) -> float:
        learned(name, value)
        try:
            if isinstance(value, (str, bytes, bytearray, bool, np.bool_)) or getattr(value, "ndim", None):
                raise TypeError
            result = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidProblemError(f"{name} must be a {kind}, got {shown(value)}") from None
        if math.isnan(result) or (math.isinf(result) and not infinite):
            raise InvalidProblemError(f"{name} must be a {kind}, got {shown(value)}")
        if not minimum <= result <= maximum or not (above == -math.inf or result > above):
            low = f"> {above}" if above > -math.inf else f">= {minimum}"
            raise InvalidProblemError(f"{name} must be {low} and <= {maximum}, got {shown(value)}")
        return result

    return checked(check, default, accepts="float")


def flag(default: Any = MISSING) -> Any:
    """A bool."""
    return checked(truth, default, accepts="bool")


def choice(values: Any, default: Any = MISSING) -> Any:
    """One of an Enum's members (or its value), or one of a tuple of strings."""

    def check(name: str, value: Any) -> Any:
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

    enumerated = isinstance(values, type) and issubclass(values, enum.Enum)
    said = f"{values.__name__} | str" if enumerated else f"Literal[{', '.join(map(repr, values))}]"
    return checked(check, default, accepts=said)


def element(kinds: tuple[ElementKind, ...] = FLOATS, default: Any = MISSING) -> Any:
    """An element kind out of `kinds`; takes any dtype-like."""

    def check(name: str, value: Any) -> ElementKind:
        kind = ElementKind.of(value)
        if kind not in kinds:
            raise UnsupportedError(f"{name} {kind} is not supported; it may be one of {', '.join(map(str, kinds))}")
        return kind

    return checked(check, default, accepts="DType")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descriptor(Checked):
    """Base of all descriptors: subclasses are `@dataclass(frozen=True, kw_only=True)`."""

    if TYPE_CHECKING:
        element: ElementKind  # declared by every page, with the kinds it serves

    @broken_at(PLAN)
    def __post_init__(self) -> None:
        super().__post_init__()
        self.validate()

    def validate(self) -> None:
        """Relations between fields; raise InvalidProblemError."""

    @property
    def acc(self) -> ElementKind:
        """The accumulator's element, in which statistics are saved: f32, f64 for f64."""
        return self.element.acc
