"""repack_marlin24: 2:4 sparse weights of 4 or 8 bits, as Marlin's sparse kernels read them, made dense."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind, InvalidProblemError
from ...calls.exported import exported
from ...core.views import shape_of
from ...expressions.elementwise import Expression, elementwise
from ..elementwise.array_views import bitcast_convert_type
from ..layout.views import contiguous, reshape
from ..quantize.repack import bits_of, bytes_of, pack_codes, shape_in, turned_over, unpack_codes
from ..quantize.repack_marlin import from_tiles
from .sparse24 import sparse24_decompress

E = ElementKind

# As in `repack_marlin`, of the kept half of the inputs; a tile's four matrices are outputs beside each other.
_CODES = {
    4: ((4, 2, 4, 4, 2, 2, 2), (1, 2, 3, 7, 5, 0, 8, 4, 6)),
    8: ((4, 2, 4, 4, 2, 2, 2), (1, 2, 3, 6, 5, 0, 8, 4, 7)),
}
_SCALES = ((8, 4, 2), (0, 1, 2, 4, 3))
_METADATA = ((2, 8, 2, 2, 2), (1, 3, 6, 2, 4, 0, 5))  # of 64 outputs, by pairs of words of 16 inputs (CUTLASS)


@cache
def _less(middle: int) -> Expression:
    return elementwise(f"int8(int32(c) - {middle})")


@exported
def repack_marlin24(qweight: Array, meta: Array, scales: Array, *, bits: int = 4) -> tuple[Any, Any]:
    """(codes, scales) of kind int{bits} of a 2:4 sparse layer as Marlin stores it (gptq_marlin_24; bits 4 or 8).

    qweight: int32 [k / 32, n · bits / 2], tiles of the kept weights; meta: int16 [k / 32, 2 n], which two of every four
    inputs they are, in CUTLASS' order; scales: [groups, n]. Weights are symmetric, and those that were pruned come back
    as 0, so that every product takes them; `sparse24_compress` of what `block_dequantize` makes of them has both halves
    for `sparse24_matmul`. k must be a multiple of 32, n of 64. Frantar et al., MARLIN, 2024.
    """
    bits = bits_of(bits, (4, 8))
    rows, words = shape_in(qweight, "qweight", E.I32, rank=2)
    groups, n = shape_in(scales, "scales", E.F16, E.BF16, E.F32, rank=2)
    k = 32 * rows
    if 2 * words != n * bits or n % 64:
        raise InvalidProblemError(
            f"qweight must have shape {(rows, n * bits // 2)} of {bits} bits as scales {(groups, n)}, n by 64, "
            f"got {(rows, words)}"
        )
    if shape_in(meta, "meta", E.I16, rank=2) != (rows, 2 * n):
        raise InvalidProblemError(f"meta must have shape {(rows, 2 * n)}, got {shape_of(meta, 'meta')}")
    if k and (not groups or k % groups):
        raise InvalidProblemError(f"scales must have groups that divide k = {k}, got {groups}")
    kept = from_tiles(unpack_codes(bytes_of(qweight), bits), *_CODES[bits], (n, k // 2))
    places = contiguous(reshape(bitcast_convert_type(from_tiles(meta, *_METADATA, (n, k // 16)), E.U8), (n, k // 8)))
    dense = sparse24_decompress(_less(1 << (bits - 1))(c=kept), places)
    codes = pack_codes(bitcast_convert_type(dense, E.U8), bits)
    return codes, turned_over(scales if groups == 1 else from_tiles(scales, *_SCALES, (groups, n)))
