"""array_equal and array_equiv: whether all elements of two arrays are equal, in one launch."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...calls.entries import entry
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from .reduce import ReducePlan

_EQUAL = reduction("a == b", "all")
_EQUAL_OR_NAN = reduction("(a == b) | (a != a) & (b != b)", "all")
_UNEQUAL = reduction("(a != a) & (a == a)", "any")  # False, without a look at the values of no elements


def _all_equal(a: Any, b: Any, equal_nan: bool, options: Any) -> Any:
    return (_EQUAL_OR_NAN if equal_nan else _EQUAL)(a, b, **options)


@entry(ReducePlan)
def array_equal(
    a: Array, b: Array, *, equal_nan: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Whether a and b have one shape and equal elements, as a 0-d array: nothing waits for it (numpy.array_equal).

    With equal_nan a NaN is equal to a NaN. One launch.
    """
    options = {"out": out, "stream": stream, "preference": preference}
    shapes = read(a, "a").shape, read(b, "b").shape
    if shapes[0] == shapes[1]:
        return _all_equal(a, b, equal_nan, options)
    return _UNEQUAL((a if len(shapes[0]) else b)[..., :0], **options)


@entry(ReducePlan)
def array_equiv(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Whether a and b, broadcast together, have equal elements, as a 0-d array (numpy.array_equiv). One launch.

    Shapes that do not broadcast raise InvalidProblemError.
    """
    return _all_equal(a, b, False, {"out": out, "stream": stream, "preference": preference})
