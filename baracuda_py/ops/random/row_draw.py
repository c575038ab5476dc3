"""A draw from rows of nonnegative weights, in NumPy: the twin of `kernels/random/row_draw.cuh`."""

from __future__ import annotations

from typing import Any

import numpy as np


def fixed(weights: Any, bits: int) -> Any:
    """uint64 [..., cols]: weights relative to the largest of their row, in units of 2^-bits; NaN and negative: 0."""
    held = np.where(weights > 0, weights, 0).astype(np.float64)
    top = held.max(axis=-1, keepdims=True, initial=0)
    with np.errstate(all="ignore"):
        part = np.where(held == top, np.float64(top > 0), held / np.where(top > 0, top, 1))
    return np.rint(part * 2.0**bits).astype(np.uint64)


def upper(a: Any, b: Any) -> Any:
    """The upper 64 bits of the products of uint64."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> shift) + (other >> shift)


def draw(weights: Any, bits: int, word: int) -> int:
    """The index that a word draws from one row; -1 where all weights are 0."""
    sums = np.cumsum(fixed(weights, bits), dtype=np.uint64)
    if not sums.size or not sums[-1]:
        return -1
    return int(np.argmax(sums > upper(sums[-1:], np.asarray([word], np.uint64))[0]))


def scale_bits(cols: int) -> int:
    """Bits of a weight, so that the sum of a row fits 62."""
    return min(52, 62 - cols.bit_length())
