"""Pieces of an operand as `TensorRef`s: along an axis, reshaped, in a workspace. No memory is touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..backends.nccl import Piece
from ..core.element import ElementKind
from ..core.tensor import TensorRef, View, dense_strides
from ..core.variant import aligned

Shape = tuple[int, ...]


def viewed(ref: TensorRef) -> View:
    """The same as a view, whose span and density are known."""
    return View(ref.ptr, ref.shape, ref.strides, ref.element)  # type: ignore[arg-type]


def dense(ref: TensorRef) -> bool:
    """Row-major, without gaps."""
    return viewed(ref).dense


def nbytes(shape: Shape, element: ElementKind) -> int:
    """Of a dense array."""
    return math.prod(shape) * element.itemsize


def piece(ref: TensorRef) -> Piece:
    """Dense memory, in bytes."""
    return Piece(ref.ptr, viewed(ref).nbytes)


def made(ptr: int, shape: Shape, element: Any, device: int, strides: Shape | None = None) -> TensorRef:
    """An operand whose parts are known to fit."""
    return TensorRef.of_checked(ptr, shape, dense_strides(shape) if strides is None else strides, element, device)


def parted(ref: TensorRef, counts: Sequence[int], axis: int) -> list[TensorRef]:
    """Pieces of `counts` places along an axis, one after another."""
    step = ref.strides[axis] * ref.element.itemsize  # type: ignore[index,union-attr]
    starts = [0, *accumulate(counts)]
    return [
        made(ref.ptr + start * step if count else ref.ptr, (*ref.shape[:axis], count, *ref.shape[axis + 1 :]),
             ref.element, ref.device, ref.strides)
        for start, count in zip(starts, counts, strict=False)
    ]  # fmt: skip


def even(ref: TensorRef, ranks: int, axis: int) -> list[TensorRef]:
    """A piece for each rank, along an axis."""
    return parted(ref, [ref.shape[axis] // ranks] * ranks, axis)


def flat(ref: TensorRef) -> TensorRef:
    """A dense piece along one axis."""
    return made(ref.ptr, (math.prod(ref.shape),), ref.element, ref.device)


def shares(count: int, ranks: int) -> list[int]:
    """`count` places over the ranks, as evenly as can be."""
    return [count // ranks + (rank < count % ranks) for rank in range(ranks)]


def overlap(a: TensorRef, b: TensorRef) -> bool:
    """Whether the bytes that two operands span meet."""
    (low, high), (start, stop) = viewed(a).span, viewed(b).span
    return a.ptr + low < b.ptr + stop and b.ptr + start < a.ptr + high


def plain(ref: TensorRef) -> TensorRef:
    """The same bytes as unsigned integers, which a copy does not look at."""
    element = ref.element
    size = element.itemsize  # type: ignore[union-attr]
    if size == 16:
        strides = *(2 * step for step in ref.strides), 1  # type: ignore[union-attr]
        return made(ref.ptr, (*ref.shape, 2), ElementKind.U64, ref.device, strides)
    return made(ref.ptr, ref.shape, ElementKind.of(f"uint{8 * size}"), ref.device, ref.strides)


class Room:
    """Pieces of a workspace, each aligned; without memory it only counts."""

    def __init__(self, ptr: int, device: int) -> None:
        self.ptr, self.device, self.used = ptr, device, 0

    def take(self, shape: Shape, element: ElementKind) -> TensorRef:
        found = made(self.ptr + self.used, shape, element, self.device)
        self.used += aligned(nbytes(shape, element))
        return found
