"""Data parallelism: gradients summed over ranks, many in one message.

Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..core import Array
from ..core.arrays import read
from ..core.checked import sequence, whole
from ..core.errors import InvalidProblemError
from ..core.views import reshaped, shape_of
from ..interop.packages import package_name
from ..ops.elementwise.cast import cast
from ..ops.layout.concat import concat
from .collectives import all_reduce
from .shares import flat, options, refuse_traced, size_of

BUCKET_BYTES = 25 << 20


def gradients_of(given: Sequence[Array]) -> list[Any]:
    """Arrays as they are, and of torch's parameters that have a gradient, that."""
    found = []
    for one in sequence("gradients", given, "arrays"):
        if package_name(type(one)) == "torch" and one.requires_grad:
            found += [] if one.grad is None else [one.grad]
        else:
            found.append(one)
    refuse_traced(*found)
    return found


def buckets(arrays: Sequence[Any], limit: int) -> Iterator[list[Any]]:
    """Arrays in their order, as lists of one element and device with up to `limit` bytes, or one array of more."""
    held: list[Any] = []
    kind, filled = None, 0
    for one in arrays:
        found = read(one, "gradients")
        size = math.prod(found.shape) * found.element.itemsize
        if held and (kind != (found.element, found.device) or filled + size > limit):
            yield held
            held, filled = [], 0
        held.append(one)
        kind, filled = (found.element, found.device), filled + size
    if held:
        yield held


def packed(arrays: Sequence[Any], stream: Any, out: Any = None) -> Any:
    """Arrays of one element behind each other."""
    return concat([flat(one, stream) for one in arrays], 0, out=out, stream=stream)


def unpack(line: Any, arrays: Sequence[Any], stream: Any) -> None:
    """What `packed` made, written to the arrays."""
    at = 0
    for one in arrays:
        found = read(one, "arrays")
        count = math.prod(found.shape)
        cast(line[at : at + count].reshape(found.shape), str(found.element), out=one, stream=stream)
        at += count


def all_reduce_gradients(
    gradients: Sequence[Array], comm: Any = None, *, op: Any = "mean", bucket_bytes: int = BUCKET_BYTES,
    stream: Any = None, preference: Any = None,
) -> list[Any]:  # fmt: skip
    """Writes to every gradient its mean (sum, …) over the ranks, and returns them.

    gradients: arrays of any shapes, elements and strides, or torch's parameters, whose .grad is meant; of those without
    one nothing is done. Every rank gives as many, alike and in the same order. They are sent in buckets of up to
    bucket_bytes, in the order in which they are given; an array of more goes alone, and without a copy where it is
    dense. Order of sums as in `all_reduce`: neither buckets nor their size change bits. Not recorded by autograd.
    Errors: those of `all_reduce`; `MismatchError` where the ranks' buckets differ.
    """
    whole("bucket_bytes", bucket_bytes, 1)
    found = gradients_of(gradients)
    for one in found:
        if not read(one, "gradients").element.is_float:
            raise InvalidProblemError(f"gradients must be floats, got {read(one, 'gradients').element}")
    if size_of(comm) == 1:
        return found
    wire, _ = options(stream, preference)
    for bucket in buckets(found, bucket_bytes):
        view = reshaped(bucket[0], (math.prod(shape_of(bucket[0], "gradients")),), "gradients")
        if len(bucket) == 1 and view is not None:
            all_reduce(view, comm, op, out=view, **wire)
        else:
            line = packed(bucket, stream)
            unpack(all_reduce(line, comm, op, out=line, **wire), bucket, stream)
    return found
