"""Codes packed and unpacked, and the layouts of GPTQ and AWQ as those of `FormatKind`, and back.

These run once, when weights are loaded, and are composed of casts and copies; arrays of any package, the caller's kind
out. What they make goes to `block_dequantize` and to products by stored weights as it is.
"""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind, InvalidProblemError
from ...core.checked import whole
from ...calls.exported import exported
from ...core.views import shape_of
from ...core.arrays import read
from ..elementwise.array_views import bitcast_convert_type
from ..elementwise.binary_functions import add, subtract
from ..layout.bits import packbits, unpackbits
from ..layout.pad import pad
from ..layout.concat import concat
from ..layout.creation import full_like
from ..layout.views import contiguous, part, reshape, swapaxes

_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, of eight, whose code is the i-th 4 bits of a word of AWQ, from the lowest on."""


_PACKED, _GPTQ = (1, 2, 3, 4, 6, 8), (2, 3, 4, 8)  # bits of codes that `pack_codes` takes, and that GPTQ stores


def bits_of(bits: Any, known: tuple[int, ...]) -> int:
    """bits, one of the known."""
    found = whole("bits", bits, 1, 8)
    if found not in known:
        raise InvalidProblemError(f"bits must be {', '.join(map(str, known[:-1]))} or {known[-1]}, got {found}")
    return found


def _equal_groups(groups: int, k: int) -> int:
    """The least number of groups that a stored matrix may have, of a multiple of 8 each, and which is not below."""
    return next((n for n in range(groups, k // 8 + 1) if k % (8 * n) == 0), groups)


def shape_in(x: Any, name: str, *elements: ElementKind, rank: int | None = None) -> tuple[int, ...]:
    """The shape of an operand that holds one of the elements."""
    found = read(x, name)
    if found.element not in elements:
        raise InvalidProblemError(f"{name} must hold {' or '.join(map(str, elements))}, got {found.element}")
    shape = tuple(shape_of(x, name))
    if rank is not None and len(shape) != rank:
        raise InvalidProblemError(f"{name} must have {rank} axes, got shape {shape}")
    return shape


@exported
def pack_codes(codes: Array, bits: int) -> Any:
    """uint8 codes [*, k] below 2^bits as bytes [*, k · bits / 8]: a stream of bits, the lowest of a byte first.

    k · bits must be whole bytes. Of 4 bits two codes are a byte, the first in its lower half; so lie the codes of the
    formats of whole numbers. Higher bits are cut off.
    """
    bits, shape = bits_of(bits, _PACKED), shape_in(codes, "codes", ElementKind.U8)
    if not shape or shape[-1] * bits % 8:
        raise InvalidProblemError(f"codes must have whole bytes along the last axis at {bits} bits, got shape {shape}")
    if bits == 8 or 0 in shape:
        return contiguous(part(codes, len(shape) - 1, 0, shape[-1] * bits // 8))
    each = reshape(unpackbits(codes, axis=-1, bitorder="little"), (*shape, 8))
    kept = reshape(contiguous(part(each, len(shape), 0, bits)), (*shape[:-1], shape[-1] * bits))
    return packbits(kept, axis=-1, bitorder="little")


@exported
def unpack_codes(packed: Array, bits: int) -> Any:
    """The codes of `pack_codes`: uint8 bytes [*, n] as codes [*, n · 8 / bits], each below 2^bits."""
    bits, shape = bits_of(bits, _PACKED), shape_in(packed, "packed", ElementKind.U8)
    if not shape or shape[-1] * 8 % bits:
        raise InvalidProblemError(f"packed must have whole codes of {bits} bits along the last axis, got shape {shape}")
    count = shape[-1] * 8 // bits
    if bits == 8 or 0 in shape:
        return contiguous(packed) if bits == 8 else reshape(packed, (*shape[:-1], count))
    each = reshape(unpackbits(packed, axis=-1, bitorder="little"), (*shape[:-1], count, bits))
    whole_bytes = pad(each, [(0, 0)] * len(shape) + [(0, 8 - bits)])
    return reshape(packbits(whole_bytes, axis=-1, bitorder="little"), (*shape[:-1], count))


def bytes_of(words: Any) -> Any:
    """int32 [rows, n] as uint8 [rows, 4 n], the lowest byte of a word first."""
    shape = shape_of(words, "words")
    return reshape(bitcast_convert_type(contiguous(words), ElementKind.U8), (shape[0], 4 * shape[1]))


def words_of(codes: Any) -> Any:
    """uint8 [rows, 4 n] as int32 [rows, n]."""
    shape = shape_of(codes, "codes")
    return bitcast_convert_type(contiguous(reshape(codes, (shape[0], shape[1] // 4, 4))), ElementKind.I32)


def turned_over(x: Any) -> Any:
    """The transpose of a matrix, dense."""
    return contiguous(swapaxes(x, 0, 1))


@exported
def repack_gptq(
    qweight: Array, scales: Array, qzeros: Array | None = None, g_idx: Array | None = None, *, bits: int = 4,
    zero_offset: int = 1,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """(codes, scales, zeros, index) of kind uint{bits} of a layer as GPTQ stores it (AutoGPTQ; bits 2, 3, 4 or 8).

    qweight: int32 [k · bits / 32, n], a stream of bits along k. scales: [groups, n]. qzeros: int32 [groups, n · bits /
    32], zero points less `zero_offset` (1 in the first format, 0 in `gptq_v2`); None: the middle, 2^(bits - 1). g_idx:
    int32 [k], the group of each input where they were sorted by activation order (act-order), or where the last group
    is shorter; it is given on as index, and scales and zeros get groups that no input is in until groups divide k.
    """
    bits = bits_of(bits, _GPTQ)
    rows, n = shape_in(qweight, "qweight", ElementKind.I32, rank=2)
    groups, columns = shape_in(scales, "scales", ElementKind.F16, ElementKind.BF16, ElementKind.F32, rank=2)
    if columns != n:
        raise InvalidProblemError(f"scales must have {n} columns as qweight {(rows, n)} has, got {(groups, columns)}")
    if rows * 32 % bits:
        raise InvalidProblemError(f"qweight must have whole codes of {bits} bits, got {rows} words a column")
    k, index, spare = rows * 32 // bits, None, 0
    if k and not groups:
        raise InvalidProblemError(f"scales must have a group at least for k = {k}, got {(groups, columns)}")
    if g_idx is not None:
        if shape_in(g_idx, "g_idx", ElementKind.I32, rank=1) != (k,):
            raise InvalidProblemError(f"g_idx must have shape {(k,)}, got {shape_of(g_idx, 'g_idx')}")
        index, spare = g_idx, _equal_groups(groups, k) - groups
    elif groups and k % groups:
        raise InvalidProblemError(f"scales has {groups} groups, which do not divide k = {k}; give g_idx")
    if qzeros is None:
        zeros = full_like(scales, 1 << (bits - 1), ElementKind.U8)
    else:
        if shape_in(qzeros, "qzeros", ElementKind.I32, rank=2) != (groups, n * bits // 32):
            raise InvalidProblemError(
                f"qzeros must have shape {(groups, n * bits // 32)}, got {shape_of(qzeros, 'qzeros')}"
            )
        zeros = add(unpack_codes(bytes_of(qzeros), bits), whole("zero_offset", zero_offset, 0, 1))
    if spare:
        scales, zeros = (pad(x, [(0, spare), (0, 0)]) for x in (scales, zeros))
    return bytes_of(turned_over(qweight)), turned_over(scales), turned_over(zeros), index


@exported
def pack_gptq(
    codes: Array, scales: Array, zeros: Array, *, bits: int = 4, zero_offset: int = 1
) -> tuple[Any, Any, Any]:
    """(qweight, scales, qzeros) as GPTQ stores them, of a matrix of kind uint{bits}: the inverse of `repack_gptq`.

    codes: uint8 [n, k · bits / 8]; scales [n, groups]; zeros uint8 [n, groups], at least `zero_offset`.
    """
    bits = bits_of(bits, _GPTQ)
    n, nbytes = shape_in(codes, "codes", ElementKind.U8, rank=2)
    own = shape_in(zeros, "zeros", ElementKind.U8, rank=2)
    if nbytes % 4 or n * bits % 32:
        raise InvalidProblemError(f"codes must be whole words along k and n, got shape {(n, nbytes)} of {bits} bits")
    if own != tuple(shape_of(scales, "scales")) or own[0] != n:
        raise InvalidProblemError(f"zeros must have the shape of scales, [{n}, groups], got {own}")
    held = subtract(turned_over(zeros), whole("zero_offset", zero_offset, 0, 1))
    return turned_over(words_of(codes)), turned_over(scales), words_of(pack_codes(held, bits))


@exported
def repack_awq(qweight: Array, scales: Array, qzeros: Array) -> tuple[Any, Any, Any]:
    """(codes, scales, zeros) of kind uint4 of a layer as AWQ stores it.

    qweight: int32 [k, n / 8], eight columns a word, from the lowest bits on those of 0, 2, 4, 6, 1, 3, 5, 7. scales:
    [groups, n]; qzeros: int32 [groups, n / 8], as qweight.
    """
    k, words = shape_in(qweight, "qweight", ElementKind.I32, rank=2)
    groups, n = shape_in(scales, "scales", ElementKind.F16, ElementKind.BF16, ElementKind.F32, rank=2)
    if n != 8 * words:
        raise InvalidProblemError(f"scales must have {8 * words} columns as qweight {(k, words)}, got {(groups, n)}")
    if shape_in(qzeros, "qzeros", ElementKind.I32, rank=2) != (groups, words):
        raise InvalidProblemError(f"qzeros must have shape {(groups, words)}, got {shape_of(qzeros, 'qzeros')}")
    if k % 8 or (k and not groups) or (groups and k % groups):
        raise InvalidProblemError(f"k = {k} must be a multiple of 8 and of the groups of scales, got {groups}")
    places = tuple(_AWQ.index(column) for column in range(8))
    return (
        pack_codes(turned_over(_in_order(qweight, places)), 4),
        turned_over(scales),
        turned_over(_in_order(qzeros, places)),
    )


@exported
def pack_awq(codes: Array, scales: Array, zeros: Array) -> tuple[Any, Any, Any]:
    """(qweight, scales, qzeros) as AWQ stores them, of a matrix of kind uint4: the inverse of `repack_awq`."""
    n, _ = shape_in(codes, "codes", ElementKind.U8, rank=2)
    own = shape_in(zeros, "zeros", ElementKind.U8, rank=2)
    if n % 8:
        raise InvalidProblemError(f"n must be a multiple of 8, got codes of shape {shape_of(codes, 'codes')}")
    if own != tuple(shape_of(scales, "scales")) or own[0] != n:
        raise InvalidProblemError(f"zeros must have the shape of scales, [{n}, groups], got {own}")

    def words(x: Any) -> Any:
        turned = turned_over(x)
        return words_of(pack_codes(_by_eights(turned, _AWQ), 4))

    return words(unpack_codes(codes, 4)), turned_over(scales), words(zeros)


def _in_order(words: Any, places: tuple[int, ...]) -> Any:
    """The 4-bit codes of int32 words [rows, n] as uint8 [rows, 8 n], with those of a word in another order."""
    return _by_eights(unpack_codes(bytes_of(words), 4), places)


def _by_eights(codes: Any, places: tuple[int, ...]) -> Any:
    """Column i of every eight is the one at places[i]."""
    rows, columns = shape_of(codes, "codes")
    eights = reshape(codes, (rows, columns // 8, 8))
    taken = [reshape(part(eights, 2, at, at + 1), (rows, columns // 8, 1)) for at in places]
    return reshape(concat(taken, axis=-1), (rows, columns))
