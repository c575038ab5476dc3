"""Small matrices: whole batches of up to 64 rows in one launch, each in shared memory with threads of its own.

A group of threads has a matrix, as many as it has rows (kernels/linalg/small.cuh), a block several groups. Matrices may
have any strides; a block reads them along the axis that is dense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Step
from .map import divider

LARGEST = 64  # rows
GROUPS = (1, 8, 16, 32, 64)  # threads of a matrix
_SERIAL = 4  # rows up to which one thread has a matrix
_THREADS = 128
MOST = 64 * 1024  # bytes of shared memory that a block takes where one matrix needs less


def small_params(name: str, *operands: str, **more: str | int) -> Params:
    """The struct of a kernel whose operands are matrices, or numbers, of a batch; and fields of its own."""
    count = len(operands)
    return Params(
        name, **dict.fromkeys(operands, "ptr"), count="i64", batch_shape=f"i64[{AXES}]", batch=f"i64[{count}][{AXES}]",
        strides=f"i64[{count}][2]", by_square="u32[3]", by_side="u32[3]", n="i32", pitch="i32", size="i32",
        batch_rank="i32", by_columns="i32", **more,
    )  # fmt: skip


def threads_of(n: int) -> int:
    """Threads of a matrix of n rows."""
    return 1 if n <= _SERIAL else next(group for group in GROUPS[1:] if n <= group)


def small_geometry(
    kernel: str, n: int, batch_shape: Sequence[int], operands: Mapping[str, View | None], arrays: int = 1,
    more: Mapping[str, Any] | None = None,
) -> Geometry | str:  # fmt: skip
    """The launch, or why not: matrices n x n, and numbers, of a batch; operands in the order of the kernel's struct.

    arrays: how many matrices a group keeps in shared memory. more: values of the kernel's own fields.
    """
    if n > LARGEST:
        return f"matrices of more than {LARGEST} rows"
    rank, count = len(batch_shape), math.prod(batch_shape)
    views = list(operands.values())
    shape, batch = merge_axes(tuple(batch_shape), [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} axes of the batch remain after merging"
    group, pitch = threads_of(n), n | 1
    size = n * pitch | 1
    bytes_each = arrays * size * next(v for v in views if v).element.itemsize
    most = max(1, MOST // bytes_each) if group < GROUPS[-1] else 1
    groups = max(1, min(_THREADS // group, 1 << (most.bit_length() - 1)))
    threads = max(groups * group, 32)
    groups = threads // group
    blocks = -(-count // groups)
    if blocks >= 2**31:
        return "2^31 or more blocks"
    matrices = [v if v and len(v.shape) == rank + 2 else None for v in views]
    params = {
        "count": count, "batch_shape": pad(shape), "batch": [pad(s) for s in batch], "batch_rank": len(shape),
        "strides": [v.strides[-2:] if v else (0, 0) for v in matrices], "n": n, "pitch": pitch, "size": size,
        "by_square": divider(n * n), "by_side": divider(n),
        "by_columns": sum(1 << i for i, v in enumerate(matrices) if v and abs(v.strides[-2]) < abs(v.strides[-1])),
        **(more or {}),
    }  # fmt: skip
    step = Step(kernel, (blocks, 1, 1), params, {"G": group}, threads, groups * bytes_each)
    layout = "contiguous" if all(v.dense for v in views if v) else "strided"
    return Geometry((step,) if count else (), layout=layout)
