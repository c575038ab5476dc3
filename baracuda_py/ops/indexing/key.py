"""The key of advanced indexing: slices, numbers, None, dots and index arrays, as NumPy takes them, made a plan's."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.args import broadcasts_to
from ...core.checked import shown
from ...core.element import INDICES, ElementKind, cast
from ...core.errors import InvalidProblemError
from ...core.numbers import met
from ...core.outputs import beside
from ...core.views import broadcast, shape_of
from ...interop.packages import package_name
from ...core.arrays import read
from ...interop.jax_arrays import placed
from .nonzero import nonzero

NOWHERE = np.iinfo(np.int64).min  # names nothing, on purpose
FULL = slice(None)


@dataclass(frozen=True)
class Key:
    """What a key says of each axis of x: a slice, a number, or an index array; None: an axis put in."""

    shape: tuple[int, ...]
    items: tuple[Any, ...]

    @classmethod
    def of(cls, x: Any, key: Any, size: int | None = None, bounded: bool = False) -> Key:
        """A key checked against x. Arrays of bool become the positions of what they choose, `size` of them.

        bounded: without a size they are as many as may be.
        """
        shape = shape_of(x, "x")
        given = list(key) if isinstance(key, (tuple, list)) else [key]
        items: list[Any] = []
        for n, item in enumerate(given):
            items += _item(item, f"key[{n}]", size, bounded)
        taken = sum(item is not None and item is not Ellipsis for item in items)
        dots = [n for n, item in enumerate(items) if item is Ellipsis]
        if taken > len(shape) or len(dots) > 1:
            what = f"{taken} axes" if taken > len(shape) else "its dots twice"
            raise InvalidProblemError(f"key must have at most an item for each axis of {shape}, it names {what}")
        at = dots[0] if dots else len(items)
        items[at : at + 1] = [FULL] * (len(shape) - taken)
        if not any(is_array(item) for item in items):
            raise InvalidProblemError("key must have an index array: without one x[key] is a view already")
        axis = 0
        for item in items:
            if isinstance(item, int) and not -shape[axis] <= item < shape[axis]:
                raise InvalidProblemError(f"key names {item} of axis {axis} of x, of extent {shape[axis]}")
            axis += item is not None
        return cls(shape, tuple(items))

    @property
    def whole(self) -> bool:
        """Whether each axis of x has an index array or is taken whole."""
        return all(is_array(item) or item == FULL for item in self.items)

    @property
    def arrays(self) -> list[Any]:
        """The index arrays."""
        return [item for item in self.items if is_array(item)]

    @property
    def place(self) -> int:
        """How many axes of the result stand before those of the indices: NumPy's rule, numbers being indices."""
        indexed = [n for n, item in enumerate(self.items) if is_array(item) or isinstance(item, int)]
        neighbours = indexed[-1] - indexed[0] == len(indexed) - 1
        return indexed[0] if neighbours else 0

    def view(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """(x without what slices and numbers leave out, the axes of that with an index array)."""
        basic = tuple(FULL if is_array(item) else item for item in self.items)
        kept = [item for item in self.items if not isinstance(item, int)]
        axes = tuple(n for n, item in enumerate(kept) if is_array(item))
        if self.whole:
            return x, axes
        if package_name(type(x)) not in ("numpy", "cupy", "torch", "jax"):
            raise InvalidProblemError(f"x: no views are made of a {type(x).__name__}; give whole slices")
        try:
            return x[basic], axes
        except (ValueError, IndexError, TypeError) as error:
            raise InvalidProblemError(f"x: {package_name(type(x))} makes no view of this key ({error})") from None


def is_array(item: Any) -> bool:
    """Whether an item of a key is an index array."""
    return not (item is None or item is Ellipsis or isinstance(item, (slice, int)))


def _item(item: Any, name: str, size: int | None, bounded: bool) -> list[Any]:
    """An item checked: a mask is an index for each of its axes."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, (bool, np.bool_, list, tuple, str, float)):
        raise InvalidProblemError(f"{name} must be an index array, a slice, an integer, None or …, got {shown(item)}")
    if isinstance(item, (int, np.integer)):
        return [operator.index(item)]
    found = read(item, name)
    if found.element in INDICES:
        return [item]
    if found.element is not ElementKind.BOOL:
        raise InvalidProblemError(f"{name} must be int64, int32 or bool, got {found.element}")
    if size is None and not bounded:
        raise InvalidProblemError(f"{name} is a mask, and how many it chooses is known on the device: give size=")
    if not found.shape:
        raise InvalidProblemError(f"{name} must have an axis at least, got a mask without")
    places, _ = nonzero(item, size=size, fill_value=NOWHERE)
    return [places[axis] for axis in range(len(found.shape))]


def numbers_like(x: Any, values: range, stream: Any = None) -> Any:
    """Whole numbers, evenly spaced, as an int64 vector in the package and on the device of x, made on a stream."""
    package = package_name(type(x))
    if package not in ("numpy", "cupy", "jax", "torch"):
        raise InvalidProblemError(f"x: no indices are made for a {type(x).__name__}; give whole slices")
    with beside(x, stream):
        if package == "torch":
            torch = sys.modules["torch"]
            return values.start + values.step * torch.arange(len(values), device=x.device)
        if package == "jax":
            return placed(np.array(values, np.int64), x)
        made = np if package == "numpy" else sys.modules["cupy"]
        return made.arange(values.start, values.stop, values.step, dtype=np.int64)


def nowhere(*places: Any) -> int:
    """What names nothing, on purpose, among sums of such places: the least number of their integer."""
    return min(int(read(x, "places").element.limits.min) for x in places)


def number_like(x: Any, value: Any, name: str = "values", stream: Any = None) -> Any:
    """A number as an array without axes, of x's element, package and device, made on a stream; an array as it is."""
    if not isinstance(value, (bool, int, float, complex, np.generic)):
        return value
    package, element = package_name(type(x)), read(x, "x").element
    if package not in ("numpy", "cupy", "jax", "torch"):
        raise InvalidProblemError(f"{name} must be an array where x is a {type(x).__name__}, got {shown(value)}")
    if isinstance(value, (complex, np.complexfloating)) and not element.is_complex:
        raise InvalidProblemError(f"{name} {shown(value)} is complex and x is {element}; give its real part")
    if element.is_integer or element is ElementKind.BOOL:
        met(name, value, element, "element")  # type: ignore[arg-type]
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(cast(np.asarray(value), element))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidProblemError(f"{name} must be a number of {element}, got {shown(value)} ({error})") from None
    with beside(x, stream):
        if package == "torch":
            return sys.modules["torch"].tensor(made.item(), dtype=x.dtype, device=x.device)
        if package == "jax":
            return placed(made, x)
        return made if package == "numpy" else sys.modules["cupy"].asarray(made)


def broadcast_to(x: Any, shape: Sequence[int], name: str) -> Any:
    """x as a view of a shape that it broadcasts to."""
    own = shape_of(x, name)
    if not broadcasts_to(own, tuple(shape)):
        raise InvalidProblemError(f"{name} must broadcast to shape {tuple(shape)}, got {own}")
    return broadcast(x, shape, name)


def trailing(array: Any, count: int) -> Any:
    """An array with so many axes of extent 1 behind its own."""
    place = (Ellipsis, *(None,) * count)
    return array[place] if count else array
