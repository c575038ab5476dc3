"""segment_reduce as PyTorch calls it: by lengths or offsets, along any axis."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of
from ...schedules.segments import By
from ..scan.scan import cumsum
from . import segment_reduce as page
from .segment_kinds import flat
from .segment_reduce import SegmentReducePlan

_KINDS = ("sum", "mean", "prod", "max", "min")


@entry(SegmentReducePlan)
def segment_reduce(
    data: Array, reduce: str, *, lengths: Array | None = None, offsets: Array | None = None, axis: int = 0,
    initial: float | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Segments along an axis of data combined (torch.segment_reduce): reduce is sum, mean, prod, max or min.

    lengths: [..., segments], how many elements each has, which sum to the axis; or offsets: [segments + 1], along axis
    0. The axes before `axis` are those of lengths, and of one run of memory. initial: what every segment begins with (a
    mean is divided by the elements alone); without it an empty one is 0, NaN, 1, -inf or inf. Two launches more where
    lengths are given. See `SegmentReducePlan`.
    """
    if not isinstance(reduce, str) or reduce not in _KINDS:
        raise InvalidProblemError(f"reduce must be one of {', '.join(_KINDS)}, got {shown(reduce)}")
    if (lengths is None) == (offsets is None):
        raise InvalidProblemError("segment_reduce takes lengths or offsets, one of them")
    shape = shape_of(data, "data")
    axis = whole("axis", axis, -len(shape), len(shape) - 1) % max(len(shape), 1)
    options: dict[str, Any] = {"stream": stream, "preference": preference}
    facts = {"with_empty": True, "empty": math.nan} if reduce == "mean" and initial is None else {}
    if initial is not None:
        facts = {"with_initial": True, "initial": initial}
    function = getattr(page, f"segment_{reduce}")
    if offsets is not None:
        if axis:
            raise InvalidProblemError(f"offsets are those of axis 0, got axis {axis}; give lengths")
        return function(data, offsets, by=By.OFFSETS.value, out=out, **facts, **options)
    found = shape_of(lengths, "lengths")
    if found[:-1] != shape[:axis] or len(found) != axis + 1:
        raise InvalidProblemError(f"lengths must be [{', '.join(map(str, (*shape[:axis], 'segments')))}], got {found}")
    tokens = reshaped(data, (math.prod(shape[: axis + 1]), *shape[axis + 1 :]), "data")
    if tokens is None:
        raise InvalidProblemError(f"data must be one run of memory up to axis {axis}; copy it to a dense array")
    ends = cumsum(flat(lengths, found, "lengths"), axis=0, **options)
    whole_out = None if out is None else flat_rows(out, len(found))
    y = function(tokens, ends, by=By.ENDS.value, out=whole_out, **facts, **options)
    return out if out is not None else reshaped(y, (*found, *shape[axis + 1 :]), "y")


def flat_rows(out: Any, axes: int) -> Any:
    """The first axes of an array as one."""
    shape = shape_of(out, "out")
    made = reshaped(out, (math.prod(shape[:axes]), *shape[axes:]), "out")
    if made is None:
        raise InvalidProblemError("out must be one run of memory over its segments")
    return made
