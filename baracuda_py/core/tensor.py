"""Views without data: what validation and dispatch know of an array (pointer, shape, strides)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checked import INT64, whole, wholes
from .element import ElementKind
from .errors import BufferTooSmallError, InvalidProblemError
from .memo import cached_property

Shape = tuple[int, ...]
AXES = 8  # merged axes that a kernel takes: `max_axes` of kernels/include/baracuda/index.cuh


def dense_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class View:
    """A typed strided view. Strides are in elements; `ptr` is 0 when only the shape is known."""

    ptr: int
    shape: Shape
    strides: Shape
    element: ElementKind

    @cached_property
    def span(self) -> tuple[int, int]:
        """Byte offsets [low, high) touched, relative to `ptr`."""
        low = high = 0
        if self.size:
            for extent, stride in zip(self.shape, self.strides, strict=True):
                reach = (extent - 1) * stride
                low, high = low + min(reach, 0), high + max(reach, 0)
            size = self.element.itemsize
            low, high = low * size, (high + 1) * size
        return low, high

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.element.itemsize

    @property
    def dense(self) -> bool:
        """Row-major without gaps (axes of extent 1 are free); an empty view is dense."""
        step = 1
        if 0 in self.shape:
            return True
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def inner_dense(self) -> bool:
        """The last axis has stride 1 (or extent 1, or nothing is there)."""
        return not self.shape or self.shape[-1] <= 1 or self.strides[-1] == 1 or not self.size

    @property
    def wide_index(self) -> bool:
        """Whether offsets pass 32 bits: Σ (n−1)·|stride| ≥ 2³¹."""
        reach = sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))
        return reach >= 2**31 and 0 not in self.shape

    def aligned(self, nbytes: int = 16) -> bool:
        """Whether the pointer and every stride but the last are multiples of `nbytes` bytes."""
        size = self.element.itemsize
        pitches = zip(self.shape[:-1], self.strides[:-1], strict=True)
        return self.ptr % nbytes == 0 and all(n == 1 or (s * size) % nbytes == 0 for n, s in pitches)

    def broadcast_to(self, shape: Shape) -> View:
        """The same memory seen with `shape`, broadcast axes with stride 0."""
        lead = len(shape) - len(self.shape)
        strides = (0,) * lead + tuple(
            0 if n == 1 and m != 1 else s for n, m, s in zip(self.shape, shape[lead:], self.strides, strict=True)
        )
        return View(self.ptr, tuple(shape), strides, self.element)

    def reshaped(self, shape: Shape) -> View | None:
        """The same memory seen with `shape`, or None where that needs a copy."""
        probe = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), self.shape, self.strides)
        try:
            probe = np.reshape(probe, shape, copy=False)
        except ValueError:
            return None
        return View(self.ptr, tuple(shape), probe.strides, self.element)


@dataclass(frozen=True)
class TensorRef:
    """Raw device (or host) memory as an operand: pointer, shape, strides in elements, element, bytes owned.

    Checked when made. `nbytes`, when given, is what is owned from `ptr` on, and is checked against the view's reach
    (BufferTooSmallError). `device` is the CUDA ordinal, -1 for host memory.
    """

    ptr: int
    shape: Shape
    strides: Shape | None = None
    element: ElementKind | str = ElementKind.F32
    nbytes: int | None = None
    device: int = 0

    def __post_init__(self) -> None:
        ptr = whole("ptr", self.ptr, 0, 2**64 - 1)
        shape = wholes("shape", self.shape)
        element = ElementKind.of(self.element)
        strides = dense_strides(shape) if self.strides is None else wholes("strides", self.strides, -INT64, INT64)
        if len(strides) != len(shape):
            raise InvalidProblemError(f"TensorRef has {len(shape)} extents but {len(strides)} strides")
        nbytes = None if self.nbytes is None else whole("nbytes", self.nbytes, 0)
        low, high = addressable(ptr, shape, strides, element.itemsize)
        if nbytes is not None and (nbytes < high or low < 0):
            raise BufferTooSmallError(high - low, nbytes if low == 0 else 0)
        device = whole("device", self.device, -1, 2**31 - 1)
        self.__dict__.update(ptr=ptr, shape=shape, strides=strides, element=element, nbytes=nbytes, device=device)

    @classmethod
    def of_checked(cls, ptr: int, shape: Shape, strides: Shape, element: ElementKind, device: int) -> TensorRef:
        """One whose parts a reader has checked already."""
        made = object.__new__(cls)
        made.__dict__.update(ptr=ptr, shape=shape, strides=strides, element=element, nbytes=None, device=device)
        return made


def addressable(ptr: int, shape: Shape, strides: Shape, itemsize: int) -> tuple[int, int]:
    """The byte span [low, high) of a view, relative to `ptr`; raises where 64-bit index arithmetic cannot hold it.

    An axis of extent 0 counts as 1, and strides nobody steps along are bounded, too: both are handed on.
    """
    count, low, high, widest = itemsize, 0, 0, 0
    for extent, stride in zip(shape, strides, strict=True):
        count *= extent or 1
        reach = (extent - 1) * stride if extent else 0
        if reach > 0:
            high += reach
        else:
            low += reach
        widest = max(widest, stride, -stride)
    low, high = low * itemsize, (high + 1) * itemsize
    if count > INT64 or widest * itemsize > INT64 or high - low > INT64:
        raise InvalidProblemError(f"shape {shape} strides {strides} of {itemsize}-byte elements pass 64 bits")
    if 0 in shape:
        return 0, 0
    if ptr and (ptr + low < 0 or ptr + high > 2**64):
        raise InvalidProblemError(f"shape {shape} strides {strides} at address {ptr:#x} reach out of memory")
    return low, high


def broadcast_shape(shapes: Mapping[str, Any], names: Iterable[str], between: str = " and ") -> Shape:
    """The shape that those of some operands broadcast to, absent ones aside; `between` their names in the error."""
    given = {name: tuple(shapes[name]) for name in names if shapes.get(name) is not None}
    try:
        return np.broadcast_shapes(*given.values())
    except ValueError:
        said = between.join(f"{name} {shape}" for name, shape in given.items())
        raise InvalidProblemError(f"{said} do not broadcast together") from None


def merge_axes(shape: Shape, strides: Iterable[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """Merge neighbouring axes that every operand steps through evenly, drop extent-1 axes.

    Takes a shape common to all operands and each operand's strides; order of elements is kept.
    """
    operands = [list(s) for s in strides]
    merged: list[int] = []
    kept: list[list[int]] = [[] for _ in operands]
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        here = [s[axis] for s in operands]
        if merged and all(k[-1] == extent * h for k, h in zip(kept, here, strict=True)):
            merged[-1] *= extent
            for k, h in zip(kept, here, strict=True):
                k[-1] = h
        else:
            merged.append(extent)
            for k, h in zip(kept, here, strict=True):
                k.append(h)
    return tuple(merged), tuple(tuple(k) for k in kept)


def pad(values: Sequence[int]) -> list[int]:
    """Filled up with zeros to the `AXES` entries that a parameter array has."""
    return [*values, *(0,) * (AXES - len(values))]


def shares_memory(a: View, b: View) -> bool:
    """Whether two views touch a common byte: spans first, then NumPy's exact test on pointer-only views."""
    if a.ptr + a.span[0] >= b.ptr + b.span[1] or b.ptr + b.span[0] >= a.ptr + a.span[1]:
        return False
    try:
        return np.shares_memory(_pointer_view(a), _pointer_view(b), max_work=_WORK)  # type: ignore[arg-type]  # the stubs know only 0 and -1
    except (np.exceptions.TooHardError, ValueError):
        return True  # too hard, or larger than an address space: better refused than raced


_WORK = 100_000  # the exact test is exponential in the worst case; this is about a millisecond


class _Memory:
    def __init__(self, view: View) -> None:
        size = view.element.itemsize
        self.__array_interface__ = {
            "version": 3,
            "data": (view.ptr, True),
            "shape": view.shape,
            "strides": tuple(s * size for s in view.strides),
            "typestr": f"|V{size}",
        }


def _pointer_view(view: View) -> np.ndarray:
    return np.asarray(_Memory(view))
