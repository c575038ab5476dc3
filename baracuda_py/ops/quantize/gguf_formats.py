"""The block formats of GGUF files, by GGML's definitions (ggml-common.h, ggml-quants.c): a block holds everything.

`d` and the like are float16 (float32 in Q8_K); every operation is in float32, in the order written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .format import Format
from .gguf_lattices import Lattice

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
Block = Any
"""uint8 [*, blocks, bytes]"""


def half_at(block: Block, at: int, dtype: Any = np.float16) -> Any:
    """The number at a byte of every block, as float32 [*, blocks, 1]."""
    nbytes = np.dtype(dtype).itemsize
    return np.ascontiguousarray(block[..., at : at + nbytes]).view(dtype).astype(np.float32)


def _whole(codes: Any) -> Any:
    return codes.astype(np.float32)


def _signed(codes: Any) -> Any:
    return np.ascontiguousarray(codes).view(np.int8).astype(np.float32)


def _halves(codes: Any) -> Any:
    """Lower halves of 16 bytes, then their upper ones."""
    return np.concatenate((codes & 15, codes >> 4), axis=-1)


def _fifth(bits: Any) -> Any:
    """Bit j of four bytes, as 16."""
    return np.unpackbits(np.ascontiguousarray(bits), axis=-1, bitorder="little") << 4


def _q4_0(b: Block) -> Any:
    return half_at(b, 0) * (_whole(_halves(b[..., 2:])) - np.float32(8))


def _q4_1(b: Block) -> Any:
    return half_at(b, 0) * _whole(_halves(b[..., 4:])) + half_at(b, 2)


def _q5_0(b: Block) -> Any:
    return half_at(b, 0) * (_whole(_halves(b[..., 6:]) | _fifth(b[..., 2:6])) - np.float32(16))


def _q5_1(b: Block) -> Any:
    return half_at(b, 0) * _whole(_halves(b[..., 8:]) | _fifth(b[..., 4:8])) + half_at(b, 2)


def _q8_0(b: Block) -> Any:
    return half_at(b, 0) * _signed(b[..., 2:])


def _q8_1(b: Block) -> Any:
    return half_at(b, 0) * _signed(b[..., 4:])


def _iq4_nl(b: Block) -> Any:
    return half_at(b, 0) * IQ4_VALUES[_halves(b[..., 2:])]


def _runs(codes: Any, shifts: tuple[int, ...], mask: int) -> Any:
    """Bits of every byte of groups of 32, [*, groups, 32] → [*, groups · shifts, 32]: all of a shift, then the next."""
    made = [codes >> np.uint8(shift) & np.uint8(mask) for shift in shifts]
    stacked = np.stack(made, axis=-2)
    return stacked.reshape(*codes.shape[:-2], codes.shape[-2] * len(shifts), 32)


def _by_runs(codes: Any, groups: int) -> Any:
    return codes.reshape(*codes.shape[:-1], groups, 32)


def _sixteens(scales: Any) -> Any:
    """Scales of 16 values each as [*, 8, 32]."""
    return np.repeat(scales, 16, axis=-1).reshape(*scales.shape[:-1], 8, 32)


def _q2_k(b: Block) -> Any:
    codes = _whole(_runs(_by_runs(b[..., 16:80], 2), (0, 2, 4, 6), 3))
    scale, least = half_at(b, 80) * _whole(b[..., :16] & 15), half_at(b, 82) * _whole(b[..., :16] >> 4)
    return _sixteens(scale) * codes - _sixteens(least)


def _q3_k(b: Block) -> Any:
    codes = _runs(_by_runs(b[..., 32:96], 2), (0, 2, 4, 6), 3)
    third = _runs(_by_runs(b[..., :32], 1), tuple(range(8)), 1)
    low = np.concatenate((b[..., 96:104] & 15, b[..., 96:104] >> 4), axis=-1)
    high = np.concatenate([b[..., 104:108] >> np.uint8(s) & 3 for s in (0, 2, 4, 6)], axis=-1)
    scale = half_at(b, 108) * (_whole(low | high << 4) - np.float32(32))
    return _sixteens(scale) * (_whole(codes | third << 2) - np.float32(4))


def _six_bits(b: Block) -> tuple[Any, Any]:
    """Scales and minima [*, 8, 1] of the runs of Q4_K and Q5_K."""
    s = b[..., 4:16]
    scale = np.concatenate((s[..., :4] & 63, (s[..., 8:] & 15) | s[..., :4] >> 6 << 4), axis=-1)
    least = np.concatenate((s[..., 4:8] & 63, s[..., 8:] >> 4 | s[..., 4:8] >> 6 << 4), axis=-1)
    return (half_at(b, 0) * _whole(scale))[..., None], (half_at(b, 2) * _whole(least))[..., None]


def _q4_k(b: Block) -> Any:
    scale, least = _six_bits(b)
    return scale * _whole(_runs(_by_runs(b[..., 16:], 4), (0, 4), 15)) - least


def _q5_k(b: Block) -> Any:
    scale, least = _six_bits(b)
    fifth = _runs(_by_runs(b[..., 16:48], 1), tuple(range(8)), 1)
    return scale * _whole(_runs(_by_runs(b[..., 48:], 4), (0, 4), 15) | fifth << 4) - least


def _q6_k(b: Block) -> Any:
    low = b[..., :128].reshape(*b.shape[:-1], 2, 1, 64)
    low = np.concatenate((low & 15, low >> 4), axis=-2).reshape(*b.shape[:-1], 8, 32)
    high = _runs(_by_runs(b[..., 128:192], 2), (0, 2, 4, 6), 3)
    scale = half_at(b, 208) * _signed(b[..., 192:208])
    return _sixteens(scale) * (_whole(low | high << 4) - np.float32(32))


def _q8_k(b: Block) -> Any:
    return half_at(b, 0, np.float32) * _signed(b[..., 4:260])


def _iq4_xs(b: Block) -> Any:
    low = np.stack((b[..., 4:8] & 15, b[..., 4:8] >> 4), axis=-1).reshape(*b.shape[:-1], 8)
    high = np.stack([b[..., 2:4] >> np.uint8(s) & 3 for s in (0, 2, 4, 6)], axis=-1).reshape(*b.shape[:-1], 8)
    scale = half_at(b, 0) * (_whole(low | high << 4) - np.float32(32))
    return scale[..., None] * IQ4_VALUES[_halves(b[..., 8:].reshape(*b.shape[:-1], 8, 16))]


E2M1_TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _mxfp4(b: Block) -> Any:
    """A byte is the exponent of half the scale; the codes lie as those of Q4_0."""
    code = b[..., :1].astype(np.uint32)
    half = np.where(code < 2, np.uint32(1 << 21) << code, (code - np.uint32(1)) << np.uint32(23)).view(np.float32)
    return half * E2M1_TWICE[_halves(b[..., 1:])]


def block_format(
    cpp: str, read: Callable[[Block], Any], nbytes: int, unit: int, block: int = 32, *, header: str | None = None,
    lattice: Lattice | None = None,
) -> Format:  # fmt: skip
    """A format whose bytes hold everything, `nbytes` for each `block` weights, which `read` gives of [..., nbytes]."""

    def values(codes: Any, k: int) -> Any:
        return read(codes.reshape(*codes.shape[:-1], k // block, nbytes)).reshape(*codes.shape[:-1], k)

    if header is None:
        header = "gguf_lattice" if lattice is not None else "gguf_simple" if block == 32 else "gguf_super"
    return Format(
        cpp, header, values, lambda k: k // block * nbytes, nbytes * 8 / block, multiple=block, group=block, unit=unit,
        lattice=lattice,
    )  # fmt: skip


Q4_0 = block_format("Q4_0", _q4_0, 18, 2)
Q4_1 = block_format("Q4_1", _q4_1, 20, 4)
Q5_0 = block_format("Q5_0", _q5_0, 22, 2)
Q5_1 = block_format("Q5_1", _q5_1, 24, 4)
Q8_0 = block_format("Q8_0", _q8_0, 34, 2)
Q8_1 = block_format("Q8_1", _q8_1, 36, 4)
IQ4_NL = block_format("IQ4_NL", _iq4_nl, 18, 2)
Q2_K = block_format("Q2_K", _q2_k, 84, 4, 256)
Q3_K = block_format("Q3_K", _q3_k, 110, 2, 256)
Q4_K = block_format("Q4_K", _q4_k, 144, 16, 256)
Q5_K = block_format("Q5_K", _q5_k, 176, 16, 256)
Q6_K = block_format("Q6_K", _q6_k, 210, 2, 256)
Q8_K = block_format("Q8_K", _q8_k, 292, 4, 256)
IQ4_XS = block_format("IQ4_XS", _iq4_xs, 136, 8, 256)
MXFP4 = block_format("GgufMxfp4", _mxfp4, 17, 1, header="gguf_ternary")
