"""Jagged arrays: rows of different lengths one after the other, to rows of one length and back (torch.ops.fbgemm)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import real, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..indexing.take import TakePlan, take
from .segment_kinds import beyond
from .segment_index import segment_padded, segment_spread


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(TakePlan)
def jagged_to_padded_dense(
    values: Array, offsets: Array, max_length: int, padding_value: float = 0.0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[b, l, ...] = values[offsets[b] + l, ...], and padding_value behind the end of row b (fbgemm's).

    values: [total, ...], offsets: [rows + 1], y: [rows, max_length, ...]; what is longer is cut. 2 launches, 3 with a
    padding_value. The gradient of values is what dy has in their places.
    """
    options = {"stream": stream, "preference": preference}
    shape, length = shape_of(values, "values"), whole("max_length", max_length, 0)
    if not shape:
        raise InvalidProblemError("values must have an axis of tokens, got a number")
    index = segment_padded(offsets, tokens=shape[0], length=length, absent=beyond(offsets), **options)
    if not real("padding_value", padding_value):
        return take(values, index, axis=0, out=out, **options)
    y = take(values, index, axis=0, **options)
    for _ in shape[1:]:
        index = with_axis(index, -1, "index")
    return _formula("where(i < 0, v, y)")(i=index, y=y, v=padding_value, out=out, **options)


@entry(TakePlan)
def dense_to_jagged(
    dense: Array, offsets: Array, total: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """values[offsets[b] + l, ...] = dense[b, l, ...] (fbgemm's), 0 where l is behind the end of dense.

    dense: [rows, length, ...], of one run of memory; offsets: [rows + 1]; total: how many values there are, the last
    offset. 2 launches. What else jagged rows need are `segment_sum`, `segment_softmax` … by offsets, `add` of values.
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(dense, "dense")
    if len(shape) < 2:
        raise InvalidProblemError(f"dense must be [rows, length, ...], got shape {shape}")
    rows = reshaped(dense, (math.prod(shape[:2]), *shape[2:]), "dense")
    if rows is None:
        raise InvalidProblemError("dense must be one run of memory over its first two axes; copy it to a dense array")
    index = segment_spread(
        offsets, tokens=total, num_segments=shape[0], length=shape[1], absent=beyond(offsets), **options
    )
    return take(rows, index, axis=0, out=out, **options)
