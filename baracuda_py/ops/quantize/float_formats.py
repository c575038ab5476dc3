"""Formats of small floats: 8-bit ones with scales of any groups, and the microscaling formats, with those of blocks.

MXFP8, MXFP6 and MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 with a power of two, float8_e8m0fnu. NVFP4: blocks
of 16 with float8_e4m3fn, and a float32 scale for the whole matrix. Codes are a stream of bits, the lowest of a byte
first: two of 4 bits a byte, four of 6 bits in three bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .format import SCALES, E, Format, stream


def small_float(codes: Any, exponent: int, fraction: int) -> Any:
    """The numbers of a sign, `exponent` bits and `fraction` bits, without infinities."""
    sign, size = codes >> (exponent + fraction), codes & ((1 << (exponent + fraction)) - 1)
    power, part = size >> fraction, size & ((1 << fraction) - 1)
    normal = power > 0
    significand = part + np.where(normal, 1 << fraction, 0)
    bias = (1 << (exponent - 1)) - 1
    x = np.ldexp(significand.astype(np.float32), np.maximum(power.astype(np.int32), 1) - bias - fraction)
    return np.where(sign > 0, -x, x).astype(np.float32)


def _format(cpp: str, exponent: int, fraction: int, group: int, scales: tuple[Any, ...]) -> Format:
    bits = 1 + exponent + fraction

    def values(codes: Any, k: int) -> Any:
        code = stream(codes, bits, k)
        x = small_float(code, exponent, fraction)
        if (exponent, fraction) == (4, 3):  # float8_e4m3fn: no infinity, one NaN of each sign
            x = np.where((code & 127) == 127, np.float32(np.nan), x)
        if (exponent, fraction) == (5, 2):
            x = (code.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
        return x

    return Format(
        cpp, "floats", values, lambda k: k * bits // 8, bits + (8 / group if group else 0), multiple=group or 8,
        group=group, scales=scales, unit=8,
    )  # fmt: skip


FP8_E4M3 = _format("Fp8E4M3", 4, 3, 0, SCALES[:3])
FP8_E5M2 = _format("Fp8E5M2", 5, 2, 0, SCALES[:3])
MXFP8_E4M3 = _format("Fp8E4M3", 4, 3, 32, (E.E8M0,))
MXFP8_E5M2 = _format("Fp8E5M2", 5, 2, 32, (E.E8M0,))
MXFP6_E3M2 = _format("Fp6E3M2", 3, 2, 32, (E.E8M0,))
MXFP6_E2M3 = _format("Fp6E2M3", 2, 3, 32, (E.E8M0,))
MXFP4 = _format("Fp4E2M1", 2, 1, 32, (E.E8M0,))
NVFP4 = _format("Fp4E2M1", 2, 1, 16, (E.FP8E4M3,))
