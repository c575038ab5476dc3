"""What functions of sparse matrices share: formulas, counts that are read back, sums of complex numbers, keys."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

from ..core.arrays import read
from ..core.checked import shown, whole
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import cut, shape_of
from ..expressions.elementwise import elementwise
from ..interop.packages import package_name
from ..ops.elementwise.complex_pair import complex as complex_of
from ..ops.elementwise.complex_unary import imag, real
from ..ops.layout.creation import arange
from ..ops.segment.segment_kinds import beyond, narrow
from ..ops.segment.segment_reduce import segment_sum
from ..ops.sort.searchsorted import searchsorted
from .formats import COO

Options = dict[str, Any]
MOST = 2**62
"""Above how many places a matrix has none of our keys."""


@cache
def formula(text: str) -> Any:
    """An elementwise formula."""
    return elementwise(text)


def is_complex(x: Any, name: str = "values") -> bool:
    """Whether the elements are complex."""
    return read(x, name).element.is_complex


def host_count(number: Any, keyword: str, options: Options) -> int:
    """A count that stands on the device, read back: this waits for the stream."""
    try:
        with contextlib.ExitStack() as stack:
            if options.get("stream") is not None:
                stack.enter_context(beside(number, options["stream"]))
            return int(number)
    except Exception as error:
        traced = package_name(type(number)) == "jax" and isinstance(error, TypeError)
        if traced or type(error).__name__ == "DataDependentOutputException":
            raise InvalidProblemError(
                f"how many entries there are cannot be read back in a trace; say {keyword}="
            ) from error
        raise


def numbers_of(count: int, like: Any, options: Options, step: int = 1) -> Any:
    """0, step, 2 step, …, `count` of them, int64."""
    with beside(like, options.get("stream")):
        return arange(0, count * step, step, ElementKind.I64, like=like)


def places(shape: tuple[int, int], like: Any) -> int:
    """How many places a matrix has, as keys must name each."""
    count = shape[0] * shape[1]
    if count >= 2**31 and narrow(like):
        raise InvalidProblemError(
            f"a matrix of shape {shape} has more than 2^31 places, whose keys need JAX's option jax_enable_x64"
        )
    if count > MOST:
        raise InvalidProblemError(f"a matrix of shape {shape} has more than 2^62 places, the keys of its entries")
    return count


def keys_of(a: COO, options: Options) -> Any:
    """row · columns + column of every entry, the number of places for one outside the matrix: int64."""
    rows, cols = a.shape
    text = "where(r >= 0 and r < m and c >= 0 and c < n, int64(r) * n + int64(c), p)"
    return formula(text)(r=a.rows, c=a.columns, m=rows, n=cols, p=places(a.shape, a.rows), **options)


def bounds_of(keys: Any, rows: int, cols: int, options: Options, element: Any = ElementKind.I64) -> Any:
    """The offsets of rows, of the sorted keys of entries."""
    edges = numbers_of(rows + 1, keys, options, max(cols, 1))
    return searchsorted(keys, edges, index_element=element, **options)


def known_at(keys: Any, count: int, options: Options) -> Any:
    """Keys as places for `take`, what is outside left out."""
    return formula("where(k < p, k, b)")(k=keys, p=count, b=beyond(keys), **options)


def total(values: Any, index: Any, count: int, by: str, out: Any, options: Options) -> Any:
    """The sums of segments; an id of `count` or above, or below 0, is of none. Complex numbers by their parts."""
    facts: Options = {"num_segments": count, "by": by, **options}
    if not is_complex(values):
        return segment_sum(values, index, out=out, **facts)
    sums = [segment_sum(part(values, **options), index, **facts) for part in (real, imag)]
    return complex_of(*sums, out=out, **options)


def first_of(array: Any, count: int, name: str) -> Any:
    """The first elements along axis 0, a view."""
    return array if shape_of(array, name)[0] == count else cut(array, (slice(0, count),), name)


def index_element(array: Any) -> Any:
    """int32 or int64, as the index has."""
    return read(array, "index").element


def size_of(size: Any, keyword: str = "size") -> int | None:
    """A number of entries that the caller says, or None."""
    return None if size is None else whole(keyword, size, 0)


def axis_of(axis: Any) -> int:
    """0 or 1."""
    if axis not in (0, 1, -1, -2) or isinstance(axis, bool):
        raise InvalidProblemError(f"axis must be 0 or 1 (or -2, -1), got {shown(axis)}")
    return int(axis) % 2
