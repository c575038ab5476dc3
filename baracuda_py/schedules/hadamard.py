"""Rows in tiles of shared memory, transformed in rounds of what registers hold: `kernels/quantize/hadamard_tile.cuh`.

Bit q of an element's place in its row is level q of the transform. The first and the last round of a tile hold chunks
of 16 bytes, whose lowest bits are those within a chunk, beside a window of bits above; between, each round holds a
window. Which window, and which levels are done in it, follows from the length of a row and its element alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.element import HALVES, ElementKind
from ..core.memo import cached_property
from ..core.tensor import View
from .rows import Rows

ROUNDS = 4  # the most a tile takes: its parameters are arrays of as many
LONGEST = 4096
"""Elements of a row of 16-bit floats up to which a thread holds 32; of longer ones it holds 64."""
PARAMS = {
    "shift": f"i32[{ROUNDS}]", "levels": f"i32[{ROUNDS}]", "rounds": "i32", "k": "i32", "tile_rows": "i32",
}  # fmt: skip
"""What a kernel of tiles has beside the rows."""


def split_last(view: View | None, *extents: int) -> View | None:
    """The last axis as several."""
    if view is None:
        return None
    strides, step = [], view.strides[-1]
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return View(view.ptr, (*view.shape[:-1], *extents), (*view.strides[:-1], *reversed(strides)), view.element)


def held_by(element: ElementKind) -> tuple[int, ...]:
    """How many elements a thread may hold."""
    return (16,) if element is ElementKind.F64 else (32, 64) if element in HALVES else (32,)


def _twos(n: int) -> int:
    """How often two divides n."""
    return (n & -n).bit_length() - 1


@dataclass(frozen=True)
class Tiling:
    """Tiles of rows of n = base · 2ᵏ elements; at_least: rows that a tile is a multiple of."""

    element: ElementKind
    base: int
    k: int
    at_least: int = 1

    @property
    def n(self) -> int:
        return self.base << self.k

    @cached_property
    def held(self) -> int:
        """Elements a thread holds in a round."""
        few = self.base > 1 or self.n <= LONGEST
        return held_by(self.element)[0 if few else -1]

    @property
    def kernel(self) -> str:
        """The name of the kernels that take it."""
        return "base" if self.base > 1 else "tile" if self.held == held_by(self.element)[-1] else "short"

    @cached_property
    def rows(self) -> int:
        """Rows of a tile: a power of two times `at_least`, so that the windows of all rounds lie within it."""
        least = 4096 * 4 // self.element.acc.itemsize // (16 if self.base > 1 else 1)
        rows = self.at_least
        while (rows << self.k) < least or _twos(rows << self.k) < self.levels + self.chunk:
            rows *= 2
        return rows

    @property
    def levels(self) -> int:
        """Of those that a thread has in a round."""
        return self.held.bit_length() - 1

    @property
    def chunk(self) -> int:
        """Levels within a chunk of 16 bytes."""
        return (16 // self.element.itemsize).bit_length() - 1

    @property
    def bits(self) -> int:
        """The number of elements of a tile is a multiple of two to this power."""
        return _twos(self.rows << self.k)

    @property
    def size(self) -> int:
        return self.rows * self.n

    @property
    def busy(self) -> int:
        """Threads that a round has work for."""
        return self.size // self.held

    def threads(self, most: int) -> int:
        """Threads of a block, whole warps."""
        return min(most, -(-self.busy // 32) * 32)

    @property
    def smem(self) -> int:
        """Bytes of a tile: 16 between lines of 128 of them, and behind some lines more, as `Tile::at` says."""
        lines = (self.size * self.element.acc.itemsize - 1) // 128
        gaps = lines + lines // 4 + (lines // 32 * 2 if self.base == 1 else 0)
        return self.size * self.element.acc.itemsize + 16 * gaps

    def rounds(self) -> list[tuple[int, int, int]]:
        """(first bit of the window, levels from, to) of each round."""
        bits, above = self.bits, self.levels - self.chunk
        made, done, end = [(bits - above, 0, self.k)], self.chunk, min(self.k, bits - above)
        # One round at least lies between where levels are left, so that threads in a row store chunks in a row.
        while end - done > above or (done == self.chunk and done < end):
            made.append((done, done, min(done + self.levels, end)))
            done = made[-1][2]
        return [*made, (done if done < end else bits - above, done, end)]

    def params(self) -> Mapping[str, Any]:
        """The fields of `PARAMS`: of each round the window and how many of its levels are done; the last is last."""
        *before, last = self.rounds()
        assert len(before) < ROUNDS
        found = [*before, *[(0, 0, 0)] * (ROUNDS - 1 - len(before)), last]
        return {
            "shift": [shift for shift, _, _ in found],
            "levels": [max(high - max(low, shift), 0) for shift, low, high in found],
            "rounds": len(before) + 1, "k": self.k, "tile_rows": self.rows,
        }  # fmt: skip


def in_chunks(rows: Rows, width: int) -> bool:
    """Whether all rows lie in aligned chunks of `width` elements, along at most two axes."""
    whole = rows.cols % width == 0 and rows.rows < 2**32 and rows.outer.rank <= 2
    return whole and rows.run and rows.access(width)
