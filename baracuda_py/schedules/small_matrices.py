"""Small matrices: whole batches of up to 64 rows and columns in one launch, in shared memory.

A group of threads has a matrix, as many as it has lines (kernels/linalg/small.cuh), a block several groups. Matrices
may have any strides; a block reads them along the axis that is dense.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step
from .map import divider

LARGEST = 64  # rows or columns
GROUPS = (1, 8, 16, 32, 64)  # threads of a matrix
_SERIAL = 4  # rows and columns up to which one thread has a matrix
_WARP = 32  # a group of more threads is a block of its own
_BESIDE = 3  # elements a line beside the matrices
_THREADS = 128
_MOST = 64 * 1024  # bytes of shared memory that a block takes where a matrix needs less


def small_kernel(name: str, struct: str, *operands: str, source: str, **more: str | int) -> Kernel:
    """The kernel of a source; its operands are matrices, vectors or numbers of a batch. more: fields of its own."""
    count = len(operands)
    params = Params(
        struct, **dict.fromkeys(operands, "ptr"), count="i64", batch_shape=f"i64[{AXES}]",
        batch=f"i64[{count}][{AXES}]", strides=f"i64[{count}][2]", by_place=f"u32[{count}][3]",
        by_minor=f"u32[{count}][3]", rows="i32", columns="i32", pitch="i32", size="i32", arrays="i32", batch_rank="i32",
        by_columns="i32", **more,
    )  # fmt: skip
    axes = {"G": GROUPS}
    return Kernel(name, f"{source}<{{T}}, {{G}}>", params, axes, threads=_THREADS, source=f"linalg/{source}.cu")


def group_of(rows: int, columns: int) -> int:
    """Threads of a matrix."""
    most = max(rows, columns)
    return 1 if most <= _SERIAL else next(group for group in GROUPS[1:] if most <= group)


def small_geometry(
    kernel: str, shape: tuple[int, int], batch_shape: Sequence[int], operands: Mapping[str, View | None],
    arrays: int = 1, **more: Any,
) -> Geometry | str:  # fmt: skip
    """The launch for matrices of a shape, or why not; operands in the order of the kernel's.

    arrays: how many matrices of that shape a group keeps in shared memory. more: values of the kernel's own fields.
    """
    rows, columns = shape
    if max(shape) > LARGEST:
        return f"matrices of more than {LARGEST} rows or columns"
    rank, count = len(batch_shape), math.prod(batch_shape)
    views = list(operands.values())
    merged, batch = merge_axes(tuple(batch_shape), [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(merged) > AXES:
        return f"more than {AXES} axes of the batch remain after merging"
    group, pitch = group_of(*shape), columns | 1
    size = rows * pitch | 1
    element = next(v for v in views if v).element
    nbytes = (arrays * size + _BESIDE * max(group, _SERIAL)) * element.itemsize
    groups = min(_THREADS // group, 1 << max(0, (_MOST // nbytes).bit_length() - 1)) if group <= _WARP else 1
    threads = max(groups * group, _WARP)
    groups = threads // group
    blocks = -(-count // groups)
    if blocks >= 2**31:
        return "2^31 or more blocks"
    extents = [(1, 1, *v.shape[rank:])[-2:] if v else (0, 0) for v in views]
    steps = [(0, 0, *v.strides[rank:])[-2:] if v else (0, 0) for v in views]
    by_columns = [abs(down) < abs(right) and n > 1 for (n, _), (down, right) in zip(extents, steps, strict=True)]
    params = {
        "count": count, "batch_shape": pad(merged), "batch": [pad(s) for s in batch], "batch_rank": len(merged),
        "strides": steps, "rows": rows, "columns": columns, "pitch": pitch, "size": size, "arrays": arrays,
        "by_place": [divider(n * m) for n, m in extents],
        "by_minor": [divider(n if turned else m) for (n, m), turned in zip(extents, by_columns, strict=True)],
        "by_columns": sum(1 << i for i, turned in enumerate(by_columns) if turned), **more,
    }  # fmt: skip
    step = Step(kernel, (blocks, 1, 1), params, {"G": group}, threads, groups * nbytes)
    layout = "contiguous" if all(v.dense for v in views if v) else "strided"
    return Geometry((step,) if count else (), layout=layout)
