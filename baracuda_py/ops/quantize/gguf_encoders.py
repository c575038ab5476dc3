"""How numbers become GGML's blocks, by its reference quantisers (quantize_row_*_ref of ggml-quants.c), bit for bit.

Every operation is in float32, in the order written here, which is that of kernels/quantize/encoders/gguf.cuh. Where C
leaves a result undefined, a NaN counts as 0, before and after a quotient, and what lies beyond the codes saturates.
Kinds of super-blocks but q8_k are in `gguf_searches`; those whose codes name points of a lattice have no encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import gguf_searches as searches
from .format_kinds import FormatKind as K
from .gguf_formats import IQ4_VALUES
from .gguf_parts import F, away_from_zero, bytes_of, farthest, known, reciprocal
from .gguf_searches import LEAST_SIZE

_LARGEST = np.finfo(F).max


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class BlockEncoder:
    """cpp: the struct, header: its file. made(x): uint8 blocks [*, bytes] of float32 groups [*, group] without NaN."""

    cpp: str
    made: Callable[[Any], Any]
    header: str = "gguf"


def _codes(y: Any, top: int) -> Any:
    """Cut off to whole numbers."""
    return np.trunc(np.clip(y, F(0), F(top))).astype(np.uint8)


def _halves(codes: Any) -> Any:
    """Byte j has code j in its lower half and code j + 16 in its upper half."""
    low, high = codes[..., :16] & 15, codes[..., 16:] & 15
    return low | high << 4


def _fifths(codes: Any) -> Any:
    return np.packbits(codes >> 4 & 1, axis=-1, bitorder="little")


def _around_zero(bits: int) -> Callable[[Any], Any]:
    """d is the farthest number over -2^(bits - 1), so that this number has the code 0."""
    middle = 1 << (bits - 1)

    def made(x: Any) -> Any:
        d = (farthest(x) / F(-middle)).astype(F)
        codes = _codes(known(x * reciprocal(d)) + F(middle + 0.5), 2 * middle - 1)
        return np.concatenate([bytes_of(d), *([_fifths(codes)] if bits == 5 else []), _halves(codes)], axis=-1)

    return made


def _from_least(bits: int) -> Callable[[Any], Any]:
    """d is what lies between the least and the largest number over 2^bits - 1, m the least."""
    top = (1 << bits) - 1

    def made(x: Any) -> Any:
        least = np.take_along_axis(x, x.argmin(axis=-1, keepdims=True), axis=-1)  # of -0 and 0 the first
        least = np.where(least > _LARGEST, _LARGEST, least)
        most = np.take_along_axis(x, x.argmax(axis=-1, keepdims=True), axis=-1)
        most = np.where(most < -_LARGEST, -_LARGEST, most)
        d = ((most - least) / F(top)).astype(F)
        codes = _codes(known((x - least) * reciprocal(d)) + F(0.5), top)
        fifths = [_fifths(codes)] if bits == 5 else []
        return np.concatenate([bytes_of(d), bytes_of(least), *fifths, _halves(codes)], axis=-1)

    return made


def _bytes_of_codes(summed: bool) -> Callable[[Any], Any]:
    """d is the largest size over 127; with q8_1 the sum of the numbers, as they will be read, stands behind it."""

    def made(x: Any) -> Any:
        d = (np.abs(x).max(axis=-1, keepdims=True) / F(127)).astype(F)
        codes = away_from_zero(known(x * reciprocal(d))).astype(np.int8)
        sums = [bytes_of(codes.sum(axis=-1, keepdims=True, dtype=np.int32).astype(F) * d)] if summed else []
        return np.concatenate([bytes_of(d), *sums, codes.view(np.uint8)], axis=-1)

    return made


def _q8_k(x: Any) -> Any:
    """The farthest number has the code -127; behind the codes stand the sums of 16 of them."""
    far = farthest(x)
    scale = np.where(far == 0, F(0), F(-127) / far).astype(F)
    d = np.where(far == 0, F(0), F(1) / scale).astype(F)
    codes = np.clip(np.rint(known(x * scale)), -127, 127).astype(np.int8)
    sums = codes.reshape(*codes.shape[:-1], 16, 16).sum(axis=-1, dtype=np.int16)
    return np.concatenate(
        [bytes_of(d, np.float32), *(np.ascontiguousarray(a).view(np.uint8) for a in (codes, sums))], -1
    )


def _iq4_nl(x: Any) -> Any:
    """Codes of the table for the scale that makes the farthest number -127; d is then the least-squares scale.

    Numbers weigh as their squares; both sums are taken in the order of the numbers.
    """
    far = farthest(x)
    none = np.abs(far) < LEAST_SIZE
    y = known(x * reciprocal(far / F(-127)))
    at = np.searchsorted(IQ4_VALUES[1:], y, side="right")
    below, above = IQ4_VALUES[at], IQ4_VALUES[np.minimum(at + 1, 15)]
    codes = np.where(none, 0, np.where((at == 15) | (y - below < above - y), at, at + 1)).astype(np.uint8)
    q = IQ4_VALUES[codes]
    weighted = x * x * q
    by_x, by_q = weighted * x, weighted * q
    sum_x, sum_q = np.zeros_like(far), np.zeros_like(far)
    for j in range(x.shape[-1]):
        sum_x, sum_q = sum_x + by_x[..., j : j + 1], sum_q + by_q[..., j : j + 1]
    return np.concatenate([bytes_of(np.where(none, F(0), sum_x / sum_q)), _halves(codes)], axis=-1)


BLOCK_ENCODERS = {
    K.Q4_0: BlockEncoder("Q4_0Encoder", _around_zero(4)),
    K.Q4_1: BlockEncoder("Q4_1Encoder", _from_least(4)),
    K.Q5_0: BlockEncoder("Q5_0Encoder", _around_zero(5)),
    K.Q5_1: BlockEncoder("Q5_1Encoder", _from_least(5)),
    K.Q8_0: BlockEncoder("Q8_0Encoder", _bytes_of_codes(summed=False)),
    K.Q8_1: BlockEncoder("Q8_1Encoder", _bytes_of_codes(summed=True)),
    K.Q8_K: BlockEncoder("Q8_KEncoder", _q8_k),
    K.IQ4_NL: BlockEncoder("Iq4NlEncoder", _iq4_nl),
    K.Q2_K: BlockEncoder("Q2_KEncoder", searches.q2_k, "gguf_super"),
    K.Q3_K: BlockEncoder("Q3_KEncoder", searches.q3_k, "gguf_super"),
    K.Q4_K: BlockEncoder("Q4_KEncoder", searches.q4_k, "gguf_super"),
    K.Q5_K: BlockEncoder("Q5_KEncoder", searches.q5_k, "gguf_super"),
    K.Q6_K: BlockEncoder("Q6_KEncoder", searches.q6_k, "gguf_super"),
    K.IQ4_XS: BlockEncoder("Iq4XsEncoder", searches.iq4_xs, "gguf_super"),
    K.TQ1_0: BlockEncoder("Tq1Encoder", searches.tq1_0, "gguf_super"),
    K.TQ2_0: BlockEncoder("Tq2Encoder", searches.tq2_0, "gguf_super"),
}


def encode_blocks(desc: Any, x: Any) -> Any:
    """Rows of bytes of float32 x [*batch, n, k]."""
    grouped = known(x).reshape(*x.shape[:-1], desc.k // desc.group, desc.group)
    with np.errstate(all="ignore"):
        made = BLOCK_ENCODERS[desc.kind].made(grouped)
    return made.reshape(*x.shape[:-1], desc.kind.row.bytes(desc.k))
