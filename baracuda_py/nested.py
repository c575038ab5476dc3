"""torch.nested's names: rows of different lengths as values one after the other and the offsets of their ends.

    rows = bc.nested.nested_tensor([a, b])  # Nested(values [total, ...], offsets [rows + 1])
    padded = bc.nested.to_padded_tensor(rows, 0.0, max_length=8)

A `Nested` is a pair: `bc.segment_sum(*rows, by="offsets")`, `bc.segment_softmax`, `bc.jagged_to_padded_dense`,
`bc.flash_sdpa_varlen` and what else takes offsets takes its two arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .core.checked import whole
from .core.element import ElementKind
from .core.errors import InvalidProblemError
from .core.outputs import beside
from .core.views import cut, reshaped, shape_of, with_axis
from .expressions.elementwise import elementwise
from .ops.elementwise.cast import cast
from .ops.indexing.mask_functions import masked_select as selected
from .ops.indexing.take import take
from .ops.layout.concat import concat
from .ops.layout.creation import arange, zeros
from .ops.layout.made import from_host
from .ops.reduce.reduce import amax, count_nonzero  # type: ignore[attr-defined]  # made from a table
from .ops.scan.scan import cumsum
from .ops.segment.jagged import dense_to_jagged, jagged_to_padded_dense
from .sparse.parts import host_count

__all__ = [
    "Nested", "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged",
    "to_padded_tensor",
]  # fmt: skip
Options = dict[str, Any]


class Nested(NamedTuple):
    """Row i is values[offsets[i] : offsets[i + 1]]; values [total, ...], offsets [rows + 1] of int64 or int32."""

    values: Any
    offsets: Any


def nested_tensor(rows: Sequence[Any], *, out: Any = None, stream: Any = None, preference: Any = None) -> Nested:
    """Rows [length, ...] one after the other (torch.nested.nested_tensor, layout jagged): a copy, with gradients.

    Lengths may differ, the other extents not. The offsets are made of the shapes; `out` gets the values.
    """
    if not isinstance(rows, (list, tuple)) or not rows or any(not shape_of(one, "rows") for one in rows):
        raise InvalidProblemError("rows must be a list of arrays [length, ...], one at least")
    ends = np.cumsum([0, *(shape_of(one, "rows")[0] for one in rows)], dtype=np.int64)
    values = concat(list(rows), axis=0, out=out, stream=stream, preference=preference)
    return Nested(values, from_host(ends, rows[0], stream))


def as_nested_tensor(rows: Any, *, stream: Any = None, preference: Any = None) -> Nested:
    """`nested_tensor` of a list; a `Nested` as it is (torch.nested.as_nested_tensor)."""
    return rows if isinstance(rows, Nested) else nested_tensor(rows, stream=stream, preference=preference)


def nested_tensor_from_jagged(values: Any, offsets: Any = None, lengths: Any = None, *, stream: Any = None,
                              preference: Any = None) -> Nested:  # fmt: skip
    """The pair of values and offsets, or of the lengths that they are summed of (torch's of that name); no copy."""
    if not shape_of(values, "values"):
        raise InvalidProblemError("values must have an axis of tokens, got a number")
    if (offsets is None) == (lengths is None):
        raise InvalidProblemError("give offsets [rows + 1] or lengths [rows], one of them; gaps between rows are none")
    if offsets is None:
        offsets = _ends(lengths, {"stream": stream, "preference": preference})
    if len(shape_of(offsets, "offsets")) != 1 or not shape_of(offsets, "offsets")[0]:
        raise InvalidProblemError(f"offsets must be [rows + 1], got shape {shape_of(offsets, 'offsets')}")
    return Nested(values, offsets)


def _ends(lengths: Any, options: Options) -> Any:
    """0, and the sums of lengths."""
    found = cast(cumsum(lengths, axis=0, **options), ElementKind.I64, **options)
    with beside(found, options["stream"]):
        first = zeros((1,), ElementKind.I64, like=found)
    return concat([first, found], axis=0, **options)


def to_padded_tensor(
    nested: Any, padding: float, max_length: int | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """[rows, max_length, ...]: each row, and `padding` behind its end (torch.nested.to_padded_tensor).

    max_length: by default that of the longest row, which is read back, so that this waits; what is longer is cut. See
    `jagged_to_padded_dense`. Gradients of the values.
    """
    values, offsets = nested
    options: Options = {"stream": stream, "preference": preference}
    if max_length is None:
        count = shape_of(offsets, "offsets")[0]
        edges = [cut(offsets, (place,), "offsets") for place in (slice(1, count), slice(0, count - 1))]
        gaps = elementwise("int64(a) - int64(b)")(a=edges[0], b=edges[1], **options)
        max_length = host_count(amax(gaps, **options), "max_length", options) if count > 1 else 0
    return jagged_to_padded_dense(values, offsets, max_length, padding, out=out, **options)


def narrow(
    x: Any, start: Any, length: Any, total: int | None = None, *, stream: Any = None, preference: Any = None
) -> Nested:  # fmt: skip
    """x[i, start[i] : start[i] + length[i]] of each row of x [rows, n, ...] (torch.nested.narrow along axis 1).

    start: a number, or int32 or int64 [rows]; length [rows]. total: the sum of lengths, which is read back by default:
    this waits. A copy, of two launches; what lies beyond x is 0. Gradients of x. x: one run of memory.
    """
    options: Options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if len(shape) < 2 or shape_of(length, "length") != shape[:1]:
        raise InvalidProblemError(
            f"x must be [rows, n, ...] and length [rows], got shapes {shape} and {shape_of(length, 'length')}"
        )
    offsets = _ends(length, options)
    if total is None:
        total = host_count(offsets[-1], "total", options)
    if isinstance(start, int) and start == 0:
        return Nested(dense_to_jagged(x, offsets, total, **options), offsets)
    rows = reshaped(x, (shape[0] * shape[1], *shape[2:]), "x")
    if rows is None:
        raise InvalidProblemError("x must be one run of memory over its first two axes; copy it to a dense array")
    with beside(offsets, stream):
        own = with_axis(arange(0, shape[0], 1, ElementKind.I64, like=offsets), -1, "rows")
        place = with_axis(arange(0, shape[1], 1, ElementKind.I64, like=offsets), 0, "rows")
    first = start if isinstance(start, int) else with_axis(start, -1, "start")
    at = elementwise("where(int64(s) + j < n and int64(s) + j >= 0, i * n + int64(s) + j, -1)")
    moved = at(s=first, i=own, j=place, n=shape[1], **options)
    index = dense_to_jagged(moved, offsets, whole("total", total, 0), **options)
    return Nested(
        take(rows, elementwise("where(i < 0, e, i)")(i=index, e=shape[0] * shape[1], **options), axis=0, **options),
        offsets,
    )


def masked_select(x: Any, mask: Any, size: int | None = None, *, stream: Any = None, preference: Any = None) -> Nested:
    """The elements of x [rows, n] where `mask` holds, row by row (torch.nested.masked_select).

    size: of the values, by default that of x, which always suffices, so nothing waits; what is left over are zeros
    behind the last offset. Gradients of x.
    """
    options: Options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if len(shape) != 2 or shape_of(mask, "mask") != shape:
        raise InvalidProblemError(f"x and mask must be [rows, n], got shapes {shape} and {shape_of(mask, 'mask')}")
    values, _ = selected(x, mask, size=size, **options)
    return Nested(values, _ends(count_nonzero(mask, axis=1, **options), options))
