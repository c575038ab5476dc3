"""`Descriptor`: what selects a kernel (extents, attributes, element); frozen, hashable, validated.

A page declares fields with the helpers below; each carries its own check, so ops write none by hand.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .element import FLOATS, ElementKind
from .errors import InvalidProblemError, UnsupportedError
from .memo import memo

_MISSING = dataclasses.MISSING
Check = Callable[[str, Any], Any]


def _field(check: Check, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"check": check})


def _integer(name: str, value: Any, minimum: int | None, maximum: int | None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidProblemError(f"{name} must be an integer, got {value!r}") from None
    if (
        isinstance(value, bool)
        or (minimum is not None and number < minimum)
        or (maximum is not None and number > maximum)
    ):
        span = f">= {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"
        raise InvalidProblemError(f"{name} must be an integer {span}, got {value!r}")
    return number


def extent(default: Any = _MISSING, minimum: int = 0) -> Any:
    """A size: an integer >= `minimum`."""
    return _field(lambda name, value: _integer(name, value, minimum, None), default)


def integer(default: Any = _MISSING, minimum: int | None = None, maximum: int | None = None) -> Any:
    """An integer attribute; None passes when it is the default."""

    def check(name: str, value: Any) -> int | None:
        return None if value is None and default is None else _integer(name, value, minimum, maximum)

    return _field(check, default)


def extents(default: Any = _MISSING) -> Any:
    """A tuple of sizes (an int stands for a 1-tuple). None passes when it is the default."""

    def check(name: str, value: Any) -> tuple[int, ...] | None:
        if value is None and default is None:
            return None
        items = (value,) if isinstance(value, int) else value
        try:
            return tuple(_integer(name, item, 0, None) for item in items)
        except TypeError:
            raise InvalidProblemError(f"{name} must be a tuple of sizes, got {value!r}") from None

    return _field(check, default)


def shapes(default: Any = _MISSING) -> Any:
    """A tuple of shapes, for list operands."""

    def check(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(_integer(name, item, 0, None) for item in shape) for shape in value)

    return _field(check, default)


def number(
    default: Any = _MISSING, minimum: float = -math.inf, maximum: float = math.inf, above: float = -math.inf
) -> Any:
    """A finite float in [minimum, maximum] and > `above`; None passes when it is the default."""

    def check(name: str, value: Any) -> float | None:
        if value is None and default is None:
            return None
        try:
            result = float(value)
        except (TypeError, ValueError):
            raise InvalidProblemError(f"{name} must be a finite number, got {value!r}") from None
        if not math.isfinite(result):
            raise InvalidProblemError(f"{name} must be finite, got {value!r}")
        if not minimum <= result <= maximum or not result > above:
            low = f"> {above}" if above > -math.inf else f">= {minimum}"
            raise InvalidProblemError(f"{name} must be {low} and <= {maximum}, got {value!r}")
        return result

    return _field(check, default)


def flag(default: Any = _MISSING) -> Any:
    """A bool."""

    def check(name: str, value: Any) -> bool:
        if value is True or value is False:
            return value
        raise InvalidProblemError(f"{name} must be True or False, got {value!r}")

    return _field(check, default)


def choice(values: Any, default: Any = _MISSING) -> Any:
    """One of an Enum's members (or its value), or one of a tuple of strings."""

    def check(name: str, value: Any) -> Any:
        if isinstance(values, type) and issubclass(values, enum.Enum):
            try:
                return values(value)
            except ValueError:
                names: Any = [member.value for member in values]
        else:
            if value in values:
                return value
            names = list(values)
        raise InvalidProblemError(f"{name} must be one of {names}, got {value!r}")

    return _field(check, default)


def element(kinds: tuple[ElementKind, ...] = FLOATS, default: Any = _MISSING) -> Any:
    """An element kind out of `kinds`; takes any dtype-like. None passes when it is the default."""

    def check(name: str, value: Any) -> ElementKind | None:
        if value is None and default is None:
            return None
        kind = ElementKind.of(value)
        if kind not in kinds:
            raise UnsupportedError(f"{name} {kind} is not supported; it may be one of {', '.join(map(str, kinds))}")
        return kind

    return _field(check, default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descriptor:
    """Base of all descriptors: subclasses are `@dataclass(frozen=True, kw_only=True)`."""

    if TYPE_CHECKING:
        element: ElementKind  # declared by every page, with the kinds it serves

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)):
            value = getattr(self, name)
            checked = check(name, value)
            if checked is not value:
                object.__setattr__(self, name, checked)
        self.validate()

    def validate(self) -> None:
        """Relations between fields; raise InvalidProblemError."""

    @property
    def acc(self) -> ElementKind:
        """The accumulator's element, in which statistics are saved: f32, f64 for f64."""
        return self.element.acc


def check_field(cls: type[Descriptor], name: str, value: Any) -> Any:
    """A value as the descriptor's field would hold it; raises what the field's own check raises."""
    check = dict(_checks(cls)).get(name)
    return value if check is None else check(name, value)


@memo()
def _checks(cls: type[Descriptor]) -> tuple[tuple[str, Check], ...]:
    return tuple((f.name, f.metadata["check"]) for f in dataclasses.fields(cls) if "check" in f.metadata)
