"""Tensor maps: what TMA (the copy engine of Hopper GPUs) is told of an array in global memory.

A kernel copies boxes of an array to shared memory and back; the map says where the array's elements are and how a box
lies in shared memory. A geometry gives a `TensorMap` for each `map` field of its kernel's Params; the runtime encodes
it for the pointer of each call.
"""

from __future__ import annotations

from dataclasses import dataclass

from .element import ElementKind

NBYTES = 128  # of an encoded map
_ALIGNMENT, _BOX, _EXTENT, _STRIDE, _RANK = 16, 256, 2**32, 2**40, 5
_SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True)
class TensorMap:
    """An array as TMA sees it; axes are listed innermost first.

    operand: whose pointer it starts at, or "@workspace", and `offset` bytes further. strides: bytes between neighbours
    along every axis but the innermost, which is dense. box: elements along each axis that one copy moves. swizzle: the
    span in bytes within which 16-byte pieces of a box are permuted, 0 for none. Where a box passes the array's end,
    loads fill in zeros and stores write nothing.
    """

    operand: str
    element: ElementKind
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    offset: int = 0

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.box) == len(self.strides) + 1 <= _RANK:
            raise TypeError(f"{self}: shape, box and the strides of all axes but one, of 1 to {_RANK} axes")
        inner = self.box[0] * self.element.itemsize
        if not all(0 < n <= _BOX for n in self.box) or inner % _ALIGNMENT or self.swizzle not in _SWIZZLES:
            raise TypeError(f"{self}: a box has 1 to {_BOX} elements an axis, and rows of whole {_ALIGNMENT} bytes")
        if self.swizzle and inner != self.swizzle:
            raise TypeError(f"{self}: rows of a swizzled box fill the span, {self.swizzle} bytes, got {inner}")

    def refusal(self, pointer: int) -> str | None:
        """Why TMA does not take the array at `pointer`, or None."""
        if (pointer + self.offset) % _ALIGNMENT:
            return f"{self.operand} does not start at a multiple of {_ALIGNMENT} bytes"
        if not all(0 < n <= _EXTENT for n in self.shape):
            return f"{self.operand} has an axis outside 1 to 2**32"
        if any(n % _ALIGNMENT or not 0 <= n < _STRIDE for n in self.strides):
            return f"{self.operand} has strides of {self.strides} bytes, not all multiples of {_ALIGNMENT} below 2**40"
        return None
