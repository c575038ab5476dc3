"""Formats of whole numbers with scales, and zero points where they are asymmetric, for groups of a row.

4-bit codes lie two a byte, the lower half first, so that the codes of eight neighbours of a row are a little-endian
word with the first code lowest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .format import SCALES, E, Format, halves

_HELD = SCALES[:3]
_ZEROS = (E.U8, E.F16, E.BF16, E.F32)


def _signed(codes: Any, bits: int) -> Any:
    """Two's complement of so many bits."""
    half = 1 << (bits - 1)
    return (codes.astype(np.int32) ^ half) - half


def _int8(codes: Any, k: int) -> Any:
    return _signed(codes, 8)


def _uint8(codes: Any, k: int) -> Any:
    return codes


def _int4(codes: Any, k: int) -> Any:
    return _signed(halves(codes), 4)


def _uint4(codes: Any, k: int) -> Any:
    return halves(codes)


def _whole(cpp: str, values: Any, bits: int, zeros: bool) -> Format:
    return Format(
        cpp, "integers", values, lambda k: k * bits // 8, bits, scales=_HELD, zeros=_ZEROS if zeros else (),
        unit=16 if bits == 4 else 8,
    )  # fmt: skip


INT8_FORMAT = _whole("Int8", _int8, 8, False)
UINT8_FORMAT = _whole("UInt8", _uint8, 8, True)
INT4_FORMAT = _whole("Int4", _int4, 4, False)
UINT4_FORMAT = _whole("UInt4", _uint4, 4, True)
