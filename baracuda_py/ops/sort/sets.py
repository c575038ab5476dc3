"""Set operations on the elements of arrays, and orders by several keys: sorts, searches and runs, composed."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind, InvalidProblemError, registry
from ...core.checked import shown
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import constant, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..indexing.gather import gather
from ..elementwise.cast import cast
from ..layout.concat import concat
from ..layout.views import movedim
from .isin import member
from .searchsorted import SearchsortedPlan, searchsorted
from .seen import axis_of, numbered, row_of
from .sort import SortPlan, argsort, sort
from .unique import UniqueConsecutivePlan, bound, runs_of


def _sorted(x: Any, name: str, options: dict[str, Any]) -> Any:
    return sort(row_of(x, name), return_indices=False, **options)


def _kept(row: Any, keep: Any, size: int | None, fill: Any, out: Any, options: dict[str, Any]) -> Any:
    """The different elements that are kept, of a sorted row, and how many they are."""
    return runs_of(row, None, keep, size=size, fill=fill, out=out, **options)


@entry(UniqueConsecutivePlan)
def union1d(
    a: Array, b: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements of a and b, ascending, padded, and how many there are (numpy.union1d).

    `size` entries, by default as many as a and b have; see `unique_consecutive` for what is left of them.
    """
    bound(size)
    options = {"stream": stream, "preference": preference}
    both = concat([row_of(a, "a"), row_of(b, "b")], **options)
    return _kept(sort(both, return_indices=False, **options), None, size, fill_value, out, options)


@entry(UniqueConsecutivePlan)
def intersect1d(
    a: Array, b: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements that a and b have both, ascending, padded, and how many there are (numpy.intersect1d).

    `size` entries, by default as many as a has; see `unique_consecutive` for what is left of them.
    """
    bound(size)
    options = {"stream": stream, "preference": preference}
    row = _sorted(a, "a", options)
    return _kept(row, member(row, _sorted(b, "b", options), **options), size, fill_value, out, options)


@entry(UniqueConsecutivePlan)
def setdiff1d(
    a: Array, b: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements of a that b has not, ascending, padded, and how many there are (numpy.setdiff1d).

    `size` entries, by default as many as a has; see `unique_consecutive` for what is left of them.
    """
    bound(size)
    options = {"stream": stream, "preference": preference}
    row = _sorted(a, "a", options)
    return _kept(row, member(row, _sorted(b, "b", options), invert=True, **options), size, fill_value, out, options)


@entry(UniqueConsecutivePlan)
def setxor1d(
    a: Array, b: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements that one of a and b has, ascending, padded, and how many there are (numpy.setxor1d).

    `size` entries, by default as many as a and b have; see `unique_consecutive` for what is left of them.
    """
    bound(size)
    options = {"stream": stream, "preference": preference}
    first, second = _sorted(a, "a", options), _sorted(b, "b", options)
    alone = [member(first, second, invert=True, **options), member(second, first, invert=True, **options)]
    row, indices = sort(concat([first, second], **options), **options)
    return _kept(row, gather(concat(alone, **options), indices, axis=0, **options), size, fill_value, out, options)


def _each(keys: Any) -> list[Any]:
    """The arrays along the first axis of one."""
    shape = read(keys, "keys").shape
    return [numbered(keys, 0, i, "keys") for i in range(shape[0] if shape else 0)]


@entry(SortPlan)
def lexsort(
    keys: Any, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """Where elements stand in the order of several keys, the last of which counts most (numpy.lexsort).

    keys: a list of arrays of one shape, or an array whose first axis they are along. A stable sort by each, and a
    gather between them. int64.
    """
    options = {"stream": stream, "preference": preference}
    given = list(keys) if isinstance(keys, (list, tuple)) else _each(keys)
    if not given:
        raise InvalidProblemError("keys must have an array, got none")
    shapes = [read(key, f"keys[{i}]").shape for i, key in enumerate(given)]
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidProblemError(f"keys must have one shape, got {', '.join(map(str, shapes))}")
    at, _ = axis_of(given[0], axis)
    rest = given[1:] if shapes[0] else []
    order = argsort(given[0], axis=at, out=None if rest else out, **options)
    for number, key in enumerate(rest, 1):
        moved = argsort(gather(key, order, axis=at, **options), axis=at, **options)
        order = gather(order, moved, axis=at, out=out if number == len(rest) else None, **options)
    return order


@entry(SortPlan)
def sort_complex(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Complex numbers in the order of their real parts, equal ones in that of the imaginary ones (numpy.sort_complex).

    Along the last axis. What has a NaN stands behind the others: first in the imaginary part alone, then in the real
    one alone, then in both. A sort by three keys, and a gather.
    """
    found, options = read(x, "x"), {"stream": stream, "preference": preference}
    if not found.element.is_complex or not found.shape:
        raise InvalidProblemError(f"x must be complex and have an axis, got {found.element} of shape {found.shape}")
    fixed = constant(x)
    parts = [registry.public(name)(fixed, **options) for name in ("real", "imag")]
    rank = elementwise("int8(isnan(re)) * 2 + int8(isnan(im))")(re=parts[0], im=parts[1], **options)
    return gather(x, lexsort([parts[1], parts[0], rank], **options), axis=-1, out=out, **options)


@entry(SortPlan)
def sort_key_val(
    keys: Array, values: Array, axis: int = -1, descending: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """keys sorted along `axis`, and the values of the same shape that go with them (jax.lax.sort_key_val): stable."""
    options = {"stream": stream, "preference": preference}
    at, _ = axis_of(keys, axis)
    if read(keys, "keys").shape != read(values, "values").shape:
        raise InvalidProblemError(
            f"values must have the shape of keys {read(keys, 'keys').shape}, got {read(values, 'values').shape}"
        )
    to, to_values = each_of(out, 2)
    y, order = sort(keys, axis=at, descending=descending, out=None if to is None else {"y": to}, **options)
    if not len(order.shape):
        return y, cast(values, read(values, "values").element, out=to_values, **options)
    return y, gather(values, order, axis=at, out=to_values, **options)


@entry(SortPlan)
def merge_sorted(
    a: Array, b: Array, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The sorted rows of a and b as one, along `axis`: equal elements of a first. See `sort` for the order.

    A concat and a stable sort, whose passes read what merging would.
    """
    options = {"stream": stream, "preference": preference}
    at, _ = axis_of(a, axis)
    return sort(concat([a, b], axis=at, **options), axis=at, return_indices=False, out=out, **options)


_METHODS = ("average", "min", "max", "ordinal")


@entry(SearchsortedPlan)
def rankdata(
    x: Array, axis: int = -1, method: str = "average", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The rank of every element in its row along `axis`, counted from 1 (scipy.stats.rankdata).

    method: min or max, the lowest or highest rank of equal ones, or their average, float64; ordinal, each its own, of
    equal ones in their order. Others are int64. A NaN is above every number. A sort, and searches in it.
    """
    if method not in _METHODS:
        raise InvalidProblemError(f"method must be one of {', '.join(_METHODS)}, got {shown(method)}")
    options = {"stream": stream, "preference": preference}
    at, _ = axis_of(x, axis)
    add, scale = registry.public("add"), registry.public("mul")
    if method == "ordinal":
        return add(argsort(argsort(x, axis=at, **options), axis=at, **options), 1, out=out, **options)
    flat = not len(read(x, "x").shape)

    def turned(array: Any) -> Any:
        """Rows along the last axis, of which there is one."""
        if array is None or not flat:
            return None if array is None else movedim(array, at, -1)
        return with_axis(array, 0, "out")

    rows, to = turned(x), turned(out)
    ordered = sort(rows, return_indices=False, **options)
    if method == "max":
        ranks = searchsorted(ordered, rows, right=True, out=to, **options)
    else:
        low = searchsorted(ordered, rows, **options)
        if method == "min":
            ranks = add(low, 1, out=to, **options)
        else:
            both = add(add(low, searchsorted(ordered, rows, right=True, **options), **options), 1, **options)
            ranks = scale(cast(both, ElementKind.F64, **options), 0.5, out=to, **options)
    return out if out is not None else without_axes(ranks, (0,), "y") if flat else movedim(ranks, -1, at)
