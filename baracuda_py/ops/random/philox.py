"""Philox4x32-10 in NumPy (Salmon, Moraes, Dror, Shaw, SC 2011): the generator of every random op, and its convention.

key = (seed lo, seed hi); counter = (i lo, i hi, offset lo, offset hi); element e, the logical row-major index, is word
e % 4 of block i = e // 4; a uniform is (word >> 8) · 2⁻²⁴. `kernels/include/baracuda/philox.cuh` gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85  # the golden ratio, sqrt(3) - 1


def philox4x32(counter: Any, key: Any) -> np.ndarray:
    """Ten rounds: counter [..., 4] and key (two words) of 32-bit words → uint32 [..., 4]."""
    words = np.asarray(counter, np.uint64)
    c0, c1, c2, c3 = (words[..., i] for i in range(4))
    k0, k1 = (int(k) & 0xFFFFFFFF for k in key)
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _32) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)


def philox_bits(seed: Any, offset: Any, count: int, start: int = 0) -> np.ndarray:
    """The words of elements start … start + count - 1, uint32 [count]. Negative seeds and offsets count modulo 2⁶⁴."""
    seed, offset = int(seed) & 0xFFFFFFFFFFFFFFFF, int(offset) & 0xFFFFFFFFFFFFFFFF
    first, last = start // 4, -(-(start + count) // 4)
    blocks = np.arange(first, last, dtype=np.uint64)
    counter = np.empty((blocks.size, 4), np.uint64)
    counter[:, 0], counter[:, 1] = blocks & _LOW, blocks >> _32
    counter[:, 2], counter[:, 3] = offset & 0xFFFFFFFF, offset >> 32
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)
    bits: np.ndarray = words[start - 4 * first :][:count]
    return bits


def philox_uniform(seed: Any, offset: Any, count: int, start: int = 0) -> np.ndarray:
    """Uniforms in [0, 1) of elements start … start + count - 1: float32 [count], multiples of 2⁻²⁴."""
    words = philox_bits(seed, offset, count, start) >> np.uint32(8)
    uniform: np.ndarray = np.multiply(words, np.float32(2.0**-24), dtype=np.float32)
    return uniform
