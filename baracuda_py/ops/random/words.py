"""What distributions draw from, in NumPy: the twin of `kernels/random/streams.cuh`, bit for bit up to logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .philox import philox4x32, philox_bits

_64 = 0xFFFFFFFFFFFFFFFF


def words32(seed: Any, offset: Any, count: int) -> np.ndarray:
    """A word of 32 bits for each element."""
    return philox_bits(seed, offset, count)


def words64(seed: Any, offset: Any, count: int) -> np.ndarray:
    """A word of 64 bits for each element: words 2 n and 2 n + 1 of the stream."""
    halves = philox_bits(seed, offset, 2 * count).astype(np.uint64).reshape(-1, 2)
    found: np.ndarray = halves[:, 1] << np.uint64(32) | halves[:, 0]
    return found


def open_interval(words: np.ndarray) -> np.ndarray:
    """(w + 1/2) / 2^bits in float32 for 32 bits and float64 for 64, in (0, 1)."""
    return _open(words, 8 * words.dtype.itemsize)


def open_signed(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest bit as a sign, and the others in (0, 1)."""
    one = words.dtype.type(1)
    return _open(words >> one, 8 * words.dtype.itemsize - 1), (words & one).astype(bool)


def _open(words: np.ndarray, bits: int) -> np.ndarray:
    kind = np.float32 if words.dtype.itemsize == 4 else np.float64
    value = words.astype(kind) * kind(2.0**-bits) + kind(2.0 ** -(bits + 1))
    found: np.ndarray = np.minimum(value, np.nextafter(kind(1), kind(0)))
    return found


def normal_pairs(first: np.ndarray, second: np.ndarray, wide: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two standard normal variates of each pair of words, in `wide`."""
    bits = 8 * first.dtype.itemsize
    r = np.sqrt(-2 * np.log(open_interval(first).astype(wide)))
    signed = (second << second.dtype.type(2)).view(f"i{first.dtype.itemsize}")
    kind = np.float32 if bits == 32 else np.float64
    f = (signed.astype(kind) * kind(2.0**-bits)).astype(wide)
    quarter = 2 * np.arctan(wide(1)) * f
    s, c = np.sin(quarter), np.cos(quarter)
    q = (second >> second.dtype.type(bits - 2)).astype(np.int64)
    x, y = np.where(q & 1, s, c), np.where(q & 1, c, s)
    return r * np.where((q == 1) | (q == 2), -x, x), r * np.where(q >= 2, -y, y)


def normals(words: np.ndarray, wide: Any) -> np.ndarray:
    """A standard normal variate for each word; of an odd number the last one's partner is among them."""
    z = np.empty(words.size, wide)
    z[0::2], z[1::2] = normal_pairs(words[0::2], words[1::2], wide)
    return z


class Tries:
    """Blocks of elements of their own: try j of element n is block j 2^48 + n."""

    def __init__(self, seed: Any, offset: Any, elements: np.ndarray) -> None:
        self.seed, self.offset = int(seed) & _64, int(offset) & _64
        self.elements = elements.astype(np.uint64)

    def of(self, which: np.ndarray) -> Tries:
        """Those of some of the elements."""
        return Tries(self.seed, self.offset, self.elements[which])

    def block(self, j: int) -> np.ndarray:
        """uint32 [elements, 4]."""
        at = self.elements + np.uint64(j << 48)
        counter = np.empty((at.size, 4), np.uint64)
        counter[:, 0], counter[:, 1] = at & np.uint64(0xFFFFFFFF), at >> np.uint64(32)
        counter[:, 2], counter[:, 3] = self.offset & 0xFFFFFFFF, self.offset >> 32
        return philox4x32(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32))


def pair64(block: np.ndarray, at: int) -> np.ndarray:
    """Words 2 at and 2 at + 1 of blocks, as one of 64 bits."""
    wide = block.astype(np.uint64)
    found: np.ndarray = wide[:, 2 * at + 1] << np.uint64(32) | wide[:, 2 * at]
    return found


def first(block: np.ndarray) -> np.ndarray:
    """A uniform of the first two words of blocks, in (0, 1)."""
    return open_interval(pair64(block, 0))


def second(block: np.ndarray) -> np.ndarray:
    """A uniform of the last two words."""
    return open_interval(pair64(block, 1))


def block_normals(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two normal variates of the first two words, independent of `second`."""
    wide = block.astype(np.uint64)
    radius = wide[:, 0] << np.uint64(32) | np.uint64(0x80000000)
    return normal_pairs(radius, wide[:, 1] << np.uint64(32), np.float64)
