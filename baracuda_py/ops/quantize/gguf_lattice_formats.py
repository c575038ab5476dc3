"""GGML's blocks of 256 numbers of 1 to 3 bits: points of a lattice (IQ1_S to IQ3_S), and ternary ones (TQ1_0, TQ2_0).

A point of 8 numbers, or two of 4, has eight signs, or in IQ1 a shift of 1/8 to either side. Every operation is in
float32, in the order written here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import gguf_lattices as lattices
from .gguf_formats import Block, block_format, half_at
from .gguf_lattices import Lattice

_F = np.float32
SEVEN = np.arange(128, dtype=np.uint8)
SIGNS = SEVEN | np.unpackbits(SEVEN[:, None], axis=1).sum(1, dtype=np.uint8) % 2 << 7
"""Eight signs of which an even number is negative, by the first seven (ggml-common.h: ksigns_iq2xs)."""


def _words(block: Block, at: int, count: int, dtype: Any) -> Any:
    nbytes = count * np.dtype(dtype).itemsize
    return np.ascontiguousarray(block[..., at : at + nbytes]).view(dtype)


def _bits(words: Any, shifts: Any, mask: int) -> Any:
    """[*, n] → [*, n · shifts]: of every word the bits from each shift on."""
    kind = words.dtype.type
    found = words[..., None] >> np.asarray(shifts, words.dtype) & kind(mask)
    return found.reshape(*words.shape[:-1], words.shape[-1] * len(shifts))


def _signs(eight: Any) -> Any:
    """Bit j of [*, n] bytes as the sign of number j: [*, n, 8]."""
    return _F(1) - _F(2) * np.unpackbits(eight[..., None], axis=-1, bitorder="little").astype(_F)


def _points(lattice: Lattice, scale: Any, index: Any, signs: Any) -> Any:
    """Scales [*, runs of numbers], codes of points [*, n], bytes of signs [*, 32]."""
    numbers = lattice.values[index].reshape(*index.shape[:-1], 32, 8)
    scales = np.repeat(scale, 32 // scale.shape[-1], axis=-1)[..., None]
    return scales * numbers * _signs(signs)


def _fine(d: Any, code: Any, unit: float) -> Any:
    return d * (_F(0.5) + code.astype(_F)) * _F(unit)


def _iq2_xxs(b: Block) -> Any:
    words = _words(b, 2, 16, "<u4").reshape(*b.shape[:-1], 8, 2)
    index = np.ascontiguousarray(words[..., 0]).view(np.uint8)
    signs = SIGNS[_bits(words[..., 1], (0, 7, 14, 21), 127)]
    return _points(lattices.IQ2_XXS, _fine(half_at(b, 0), words[..., 1] >> 28, 0.25), index, signs)


def _iq2_xs(b: Block) -> Any:
    words = _words(b, 2, 32, "<u2")
    scale = _fine(half_at(b, 0), _bits(b[..., 66:], (0, 4), 15), 0.25)
    return _points(lattices.IQ2_XS, scale, words & 511, SIGNS[words >> 9])


def _iq2_s(b: Block) -> Any:
    index = b[..., 2:34] | _bits(b[..., 66:74], (0, 2, 4, 6), 3).astype(np.uint16) << 8
    scale = _fine(half_at(b, 0), _bits(b[..., 74:], (0, 4), 15), 0.25)
    return _points(lattices.IQ2_S, scale, index, b[..., 34:66])


def _iq3_xxs(b: Block) -> Any:
    words = _words(b, 66, 8, "<u4")
    signs = SIGNS[_bits(words, (0, 7, 14, 21), 127)]
    return _points(lattices.IQ3_XXS, _fine(half_at(b, 0), words >> 28, 0.5), b[..., 2:66], signs)


def _iq3_s(b: Block) -> Any:
    index = b[..., 2:66] | _bits(b[..., 66:74], range(8), 1).astype(np.uint16) << 8
    scale = half_at(b, 0) * (_F(1) + _F(2) * _bits(b[..., 106:], (0, 4), 15).astype(_F))
    return _points(lattices.IQ3_S, scale, index, b[..., 74:106])


def _shifted(scale: Any, index: Any, negative: Any) -> Any:
    """Points of IQ1's lattice [*, 32], shifted by 1/8, down where `negative`; scales [*, runs of numbers]."""
    shift = np.where(np.repeat(negative, 32 // negative.shape[-1], axis=-1), _F(-0.125), _F(0.125))
    scales = np.repeat(scale, 32 // scale.shape[-1], axis=-1)
    return scales[..., None] * (lattices.IQ1.values[index] + shift[..., None])


def _odd(d: Any, code: Any) -> Any:
    return d * (_F(2) * code.astype(_F) + _F(1))


def _iq1_s(b: Block) -> Any:
    words = _words(b, 34, 8, "<u2")
    index = b[..., 2:34] | _bits(words, (0, 3, 6, 9), 7) << 8
    return _shifted(_odd(half_at(b, 0), words >> 12 & 7), index, words >> 15 != 0)


def _iq1_m(b: Block) -> Any:
    """d lies in the upper bits of the four words of scales."""
    words, upper = _words(b, 48, 4, "<u2"), _bits(b[..., 32:48], (0, 4), 15)
    parts = words >> 12 << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(parts, axis=-1, keepdims=True).view(np.float16).astype(_F)
    index = b[..., :32] | (upper & 7).astype(np.uint16) << 8
    return _shifted(_odd(d, _bits(words, (0, 3, 6, 9), 7)), index, upper >> 3 != 0)


def _tq1_0(b: Block) -> Any:
    """A byte holds five digits of base 3 (the last four bytes four) as a fraction of 256, the first digit highest."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)
    fives = [b[..., None, :32] * powers[:, None], b[..., None, 32:48] * powers[:, None]]
    parts = [*fives, b[..., None, 48:52] * powers[:4, None]]
    flat = [one.reshape(*b.shape[:-1], one.shape[-2] * one.shape[-1]) for one in parts]
    code = np.concatenate(flat, axis=-1)
    return half_at(b, 52) * ((code.astype(np.uint16) * 3 >> 8).astype(_F) - _F(1))


def _tq2_0(b: Block) -> Any:
    codes = b[..., :64].reshape(*b.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return half_at(b, 64) * (codes.reshape(*b.shape[:-1], 256).astype(_F) - _F(1))


TQ1_0 = block_format("TQ1_0", _tq1_0, 54, 2, 256, header="gguf_ternary")
TQ2_0 = block_format("TQ2_0", _tq2_0, 66, 2, 256, header="gguf_ternary")
IQ2_XXS = block_format("IQ2_XXS", _iq2_xxs, 66, 2, 256, lattice=lattices.IQ2_XXS)
IQ2_XS = block_format("IQ2_XS", _iq2_xs, 74, 2, 256, lattice=lattices.IQ2_XS)
IQ2_S = block_format("IQ2_S", _iq2_s, 82, 2, 256, lattice=lattices.IQ2_S)
IQ3_XXS = block_format("IQ3_XXS", _iq3_xxs, 98, 2, 256, lattice=lattices.IQ3_XXS)
IQ3_S = block_format("IQ3_S", _iq3_s, 110, 2, 256, lattice=lattices.IQ3_S)
IQ1_S = block_format("IQ1_S", _iq1_s, 50, 2, 256, lattice=lattices.IQ1)
IQ1_M = block_format("IQ1_M", _iq1_m, 56, 8, 256, lattice=lattices.IQ1)
