"""How numbers become codes of the low-bit formats: a group's scale, and the code of a number over it.

Every operation is in float32, in the order written here, which is that of kernels/quantize/encode.cuh. A group's least
and largest number count 0 in and NaN out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import ElementKind
from ...core.element import cast as cast_values
from .codebook_formats import FP4_VALUES, NF4_VALUES
from .float_formats import small_float
from .format import E
from .format_kinds import FormatKind as K

_F = np.float32
Made = tuple[Any, Any, Any]
"""uint8 codes [*, groups, group], float32 scales and zero points [*, groups, 1]"""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Encoder:
    """cpp: the struct, header: its file. made(x, least, most, held, scale): codes, scales and zeros of float32 groups.

    held(x): a scale as its element holds it. scale: of the whole matrix. bits: of a code; upper_first: whether of two
    in a byte the first is in the upper half.
    """

    cpp: str
    header: str
    made: Callable[..., Made]
    bits: int
    upper_first: bool = False


def _held(element: ElementKind) -> Callable[[Any], Any]:
    return lambda x: cast_values(x, element, True).astype(_F)


def _over(x: Any, by: Any) -> Any:
    """x / by, 0 where by is; a 0 has the sign of a quotient."""
    return np.where(by == 0, np.copysign(_F(0), x) * np.copysign(_F(1), by), x / by).astype(_F)


def _size(least: Any, most: Any) -> Any:
    """The largest size of a group; +0 of zeros."""
    return np.maximum(-least, most) + _F(0)


def _whole(y: Any) -> Any:
    """To the nearest whole number, ties to even; NaN is 0."""
    return np.where(np.isnan(y), _F(0), np.rint(y)).astype(_F)


def _symmetric(bits: int) -> Callable[..., Made]:
    top = _F((1 << (bits - 1)) - 1)

    def made(x: Any, least: Any, most: Any, held: Any, scale: Any) -> Made:
        stored = held(_size(least, most) / top)
        codes = np.clip(_whole(_over(x, stored)), -top - 1, top).astype(np.int8).view(np.uint8)
        return codes & np.uint8((1 << bits) - 1), stored, np.zeros_like(stored)

    return made


def _asymmetric(bits: int) -> Callable[..., Made]:
    top = _F((1 << bits) - 1)

    def made(x: Any, least: Any, most: Any, held: Any, scale: Any) -> Made:
        stored = held((most - least) / top)
        zero = np.clip(_whole(_over(-least, stored)), 0, top)
        return np.clip(_whole(_over(x, stored)) + zero, 0, top).astype(np.uint8), stored, zero

    return made


def _table(values: Any) -> Callable[..., Made]:
    order = np.argsort(values, kind="stable")  # of -0.0 and 0.0 the code 0 stands for both
    names = order.astype(np.uint8)
    names[values[order] == 0] = np.flatnonzero(values == 0)[0]
    middles = ((values[order][:-1] + values[order][1:]) * _F(0.5)).astype(_F)

    def made(x: Any, least: Any, most: Any, held: Any, scale: Any) -> Made:
        stored = held(_size(least, most))
        y = _over(x, stored)
        at = np.searchsorted(middles, np.where(np.isnan(y), _F(0), y), side="left")
        return names[at], stored, np.zeros_like(stored)

    return made


def _floats(exponent: int, fraction: int, of: ElementKind) -> Callable[..., Made]:
    bits = 1 + exponent + fraction
    top = {(4, 3): 0x7E, (5, 2): 0x7B}.get((exponent, fraction), (1 << (bits - 1)) - 1)
    sizes = small_float(np.arange(top + 1, dtype=np.uint8), exponent, fraction)
    largest, none = sizes[-1], 0x7F if bits == 8 else top

    def scales(most: Any, held: Any, scale: Any) -> tuple[Any, Any]:
        if of is E.FP8E4M3:
            stored = cast_values((most / largest).astype(_F) / _F(scale), of, True).astype(_F)
            return stored, stored * _F(scale)
        if of is E.E8M0:
            power = np.frexp(most)[1] - np.frexp(largest)[1]
            stored = np.ldexp(_F(1), np.where(most == 0, -127, np.maximum(power, -127))).astype(_F)
            stored = np.where(np.isfinite(most), stored, _F(np.nan))
            return stored, stored
        stored = held(most / largest)
        return stored, stored

    def made(x: Any, least: Any, most: Any, held: Any, scale: Any) -> Made:
        stored, by = scales(_size(least, most), held, scale)
        y = _over(x, by)
        size = np.abs(np.where(np.isnan(y), _F(0), y)).astype(np.float64)
        at = np.clip(np.searchsorted(sizes, size, side="right") - 1, 0, top - 1)
        below, above = sizes[at].astype(np.float64), sizes[at + 1].astype(np.float64)
        nearer = (size - below > above - size) | ((size - below == above - size) & (at % 2 == 1))
        code = np.where(size >= above, top, at + nearer).astype(np.uint8)
        code = np.where(np.isnan(y), none, code | np.where(np.signbit(y), 1 << (bits - 1), 0)).astype(np.uint8)
        return code, stored, np.zeros_like(stored)

    return made


ENCODERS = {
    K.INT8: Encoder("Int8Encoder", "numbers", _symmetric(8), 8),
    K.INT4: Encoder("Int4Encoder", "numbers", _symmetric(4), 4),
    K.UINT8: Encoder("UInt8Encoder", "numbers", _asymmetric(8), 8),
    K.UINT4: Encoder("UInt4Encoder", "numbers", _asymmetric(4), 4),
    K.UINT3: Encoder("UInt3Encoder", "numbers", _asymmetric(3), 3),
    K.UINT2: Encoder("UInt2Encoder", "numbers", _asymmetric(2), 2),
    K.NF4: Encoder("Nf4Encoder", "tables", _table(NF4_VALUES), 4, upper_first=True),
    K.FP4: Encoder("Fp4Encoder", "tables", _table(FP4_VALUES), 4, upper_first=True),
    K.FP8_E4M3: Encoder("Fp8E4M3Encoder", "numbers", _floats(4, 3, E.F32), 8),
    K.FP8_E5M2: Encoder("Fp8E5M2Encoder", "numbers", _floats(5, 2, E.F32), 8),
    K.MXFP8_E4M3: Encoder("MxFp8E4M3Encoder", "numbers", _floats(4, 3, E.E8M0), 8),
    K.MXFP8_E5M2: Encoder("MxFp8E5M2Encoder", "numbers", _floats(5, 2, E.E8M0), 8),
    K.MXFP6_E3M2: Encoder("MxFp6E3M2Encoder", "numbers", _floats(3, 2, E.E8M0), 6),
    K.MXFP6_E2M3: Encoder("MxFp6E2M3Encoder", "numbers", _floats(2, 3, E.E8M0), 6),
    K.MXFP4: Encoder("MxFp4Encoder", "numbers", _floats(2, 1, E.E8M0), 4),
    K.NVFP4: Encoder("NvFp4Encoder", "numbers", _floats(2, 1, E.FP8E4M3), 4),
}


def packed(codes: Any, encoder: Encoder) -> Any:
    """Rows of codes [*, k] as rows of bytes: a stream of bits, the lowest first."""
    if encoder.upper_first:
        codes = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 2, 2)[..., ::-1].reshape(codes.shape)
    bits = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., : encoder.bits]
    return np.packbits(bits.reshape(*codes.shape[:-1], codes.shape[-1] * encoder.bits), axis=-1, bitorder="little")


def encode(desc: Any, x: Any, scale: float) -> Made:
    """Rows of bytes, and float32 scales and zero points [*batch, n, groups] of float32 x [*batch, n, k]."""
    encoder = ENCODERS[desc.kind]
    grouped = x.reshape(*x.shape[:-1], desc.k // desc.group, desc.group)
    with np.errstate(all="ignore"):
        least = np.fmin.reduce(grouped, axis=-1, keepdims=True, initial=_F(0))
        most = np.fmax.reduce(grouped, axis=-1, keepdims=True, initial=_F(0))
        codes, scales, zeros = encoder.made(grouped, least, most, _held(desc.scale_element), _F(scale))
    return packed(codes.reshape(x.shape), encoder), scales[..., 0], zeros[..., 0]
