"""Images resampled along columns: the geometry of kernels/image/resample_walk.cuh."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...core import ElementKind, Geometry, Problem, Step, View
from ...schedules.map import THREADS

MOST = 64  # rows of the target that a block walks through
WALK_FIELDS: dict[str, Any] = {"columns": "i64", "walk": "i64", "walk_most": MOST}


def read_columns(kind: ElementKind) -> int:
    """Columns of a thread that makes outputs."""
    return 2 if kind is ElementKind.F64 else 4


def walk(
    p: Problem, made: Geometry | str, target: View, source: View, each: int, axes: dict[str, Any]
) -> Geometry | str:  # fmt: skip
    """The launch of threads with `each` columns, from that of planes, which says how those lie."""
    if isinstance(made, str):
        return made
    desc, step = p.desc, made.steps[0]
    assert isinstance(step, Step)
    if step.params["inner"] or desc.spatial_rank > 2:
        return "planes are neighbours in memory, or have three axes"
    height, width = step.params["points"][2:]
    if max(*desc.spatial_shape, *desc.size) >= 2**16 or source.shape[-1] * abs(source.strides[-1]) >= 2**31:
        return "images have sides of 2^16 elements or more"
    if width < 2 * each:
        return f"rows of {width} elements are too short to be walked along"
    columns = -(-width // each)
    items = columns * math.prod(target.shape[: len(desc.shape) - desc.spatial_rank])
    blocks = max(1, -(-items // THREADS))
    rows = MOST  # fewer where blocks are few, though each reads a few rows for itself
    while rows > 8 and blocks * -(-height // rows) < 4 * p.device.sms:
        rows //= 2
    if -(-height // rows) >= 2**16 or blocks >= 2**31:
        return "more than 2^16 strips of rows"
    params = {**step.params, "items": items, "columns": columns, "walk": rows}
    walked = replace(step, kernel="walk", grid=(blocks, -(-height // rows), 1), params=params, axes={"N": each, **axes})
    return replace(made, steps=(walked,))
