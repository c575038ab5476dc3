"""The functional layer's `layout=`: plans take [batch, heads, sequence, d]; "bshd" passes views, axes swapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core import TensorRef
from ...core.checked import failure, shown
from ...core.errors import InvalidProblemError
from ...core.outputs import allocating, handed, maker, ordinal
from ...interop.arrays import package_name, read

LAYOUTS = ("bhsd", "bshd")
PAGE_LAYOUTS = ("hnd", "nhd")  # of paged caches: [page, heads, cell, d] and [page, cell, heads, d]


def is_swapped(layout: str, layouts: Sequence[str] = LAYOUTS) -> bool:
    """Whether the caller's arrays have the second of the layouts: heads after the sequence."""
    if not isinstance(layout, str) or layout not in layouts:
        raise InvalidProblemError(f"layout must be one of {list(layouts)}, got {shown(layout)}")
    return layout == layouts[1]


def swap(array: Any) -> Any:
    """Axes 1 and 2 exchanged, over the same memory."""
    if array is None:
        return None
    if isinstance(array, TensorRef):
        (a, b, c, d), (p, q, r, s) = array.shape, array.strides or ()
        return TensorRef(array.ptr, (a, c, b, d), (p, r, q, s), array.element, array.nbytes, array.device)
    try:
        return array.swapaxes(1, 2)
    except Exception as error:
        shape_of(array, "an operand of layout=")
        raise InvalidProblemError(
            f"layout= takes arrays that have views of themselves, got a {type(array).__name__} ({failure(error)})"
        ) from error


def shape_of(array: Any, name: str) -> tuple[int, ...]:
    """The four extents of an operand."""
    shape = read(array, name).shape
    if len(shape) != 4:
        raise InvalidProblemError(f"{name} must have four axes, got shape {shape}")
    return shape


def swapped_call(
    function: Callable[..., Any], operands: Sequence[Any], facts: Mapping[str, Any], names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]], out: Any, stream: Any, preference: Any,
) -> Any:  # fmt: skip
    """Call the plan's function with outputs made in the caller's layout.

    `names` are the outputs asked for, in order; `shapes` those to swap, with their shapes in the caller's layout.
    """
    given, lead = named_outputs(out, names), operands[0]
    made = [name for name in shapes if given.get(name) is None]
    if made:
        kind, place = read(lead, "q").element, (package_name(type(lead)), ordinal(lead))
        with allocating(*place, stream):
            given.update({name: maker(lead, shapes[name], kind, place[1])() for name in made})
    views = {name: swap(array) if name in shapes else array for name, array in given.items() if array is not None}
    result = function(*operands, **facts, out=views, stream=stream, preference=preference)
    if made:
        with allocating(*place, stream):
            given.update({name: handed(given[name], kind, lead) for name in made})
    results = dict(zip(names, result if len(names) > 1 else (result,), strict=True))
    values = tuple(given[name] if name in shapes else value for name, value in results.items())
    return values[0] if len(values) == 1 else values


def named_outputs(out: Any, names: Sequence[str]) -> dict[str, Any]:
    """What `out=` gives, by name; `names` are the outputs asked for, in order."""
    if out is None or isinstance(out, Mapping):
        return dict(out or {})
    values = out if isinstance(out, (list, tuple)) else (out,)
    if len(values) != len(names):
        raise InvalidProblemError(f"out= must give {len(names)} arrays, got {len(values)}")
    return dict(zip(names, values, strict=True))
