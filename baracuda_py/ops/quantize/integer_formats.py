"""Formats of whole numbers with scales, and zero points where they are asymmetric, for groups of a row.

The codes of a row are a stream of bits, the lowest of a byte first: of 4 bits two lie in a byte, the first in its lower
half; 32 of 3 bits are three little-endian words. So lie the columns of GPTQ's `qweight`, seen as rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .format import SCALES, E, Format, stream

_HELD = SCALES[:3]
_ZEROS = (E.U8, E.F16, E.BF16, E.F32)


def _format(cpp: str, bits: int, signed: bool) -> Format:
    half = 1 << (bits - 1)

    def values(codes: Any, k: int) -> Any:
        whole = stream(codes, bits, k).astype(np.int32)
        return (whole ^ half) - half if signed else whole

    return Format(
        cpp, "integers", values, _bytes(bits), bits, multiple=32 if bits == 3 else 8, scales=_HELD,
        zeros=() if signed else _ZEROS, unit={8: 8, 4: 16, 3: 4, 2: 8}[bits],
    )  # fmt: skip


def _bytes(bits: int) -> Callable[[int], int]:
    return lambda k: k * bits // 8


INT8 = _format("Int8", 8, True)
UINT8 = _format("UInt8", 8, False)
INT4 = _format("Int4", 4, True)
UINT4 = _format("UInt4", 4, False)
UINT3 = _format("UInt3", 3, False)
UINT2 = _format("UInt2", 2, False)
