"""The layouts of Marlin as those of `FormatKind`, and back: tiles in the order in which lanes of a warp read them.

A tile of 16 inputs by 64 outputs is four matrices of 16 x 16. Lane 4 c + q holds, of each of them, the outputs c and
c + 8 at the inputs 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, which a fragment of `mma.sync` has. So every layout here is an
array of more axes in another order, and each way is one copy (Frantar et al., MARLIN, 2024; vLLM's gptq_marlin).
"""

from __future__ import annotations

import math
from typing import Any

from ...core import Array, ElementKind, InvalidProblemError
from ...calls.exported import exported
from ...core.views import shape_of
from ..elementwise.cast import cast
from ..indexing.take import take
from ..layout.creation import full_like
from ..layout.views import contiguous, permute, reshape
from ..sort.sort import argsort
from .repack import bits_of, bytes_of, pack_codes, shape_in, turned_over, unpack_codes, words_of

_MARLIN = (4, 8)  # bits of codes
_FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32)

# Extents of the axes as Marlin stores them, and which of them, from the slowest on, [n, k] or [groups, n] are of.
_CODES = {
    4: ((8, 4, 4, 2, 2, 2), (1, 4, 6, 2, 0, 7, 3, 5)),  # c, q, matrix, odd input, upper output, upper input
    8: ((8, 4, 4, 2, 2, 2), (1, 4, 5, 2, 0, 7, 3, 6)),  # c, q, matrix, upper output, odd input, upper input
}
_ZEROS = {4: ((8, 2, 4), (0, 1, 4, 3, 2)), 8: ((8, 2, 2, 2), (0, 1, 3, 5, 4, 2))}
_SCALES = ((8, 8), (0, 1, 3, 2))  # outputs that are 8 apart beside each other
_SCALES_OF_COLUMNS = ((4, 4, 2), (0, 1, 3, 2, 4))  # pairs that are 8 apart beside each other


def from_tiles(x: Any, tile: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, int]) -> Any:
    """The rows of x, each of tiles, with the axes of tiles in their order, as a matrix."""
    rows, columns = shape_of(x, "x")
    return reshape(contiguous(permute(reshape(x, (rows, columns // math.prod(tile), *tile)), order)), shape)


def to_tiles(x: Any, tile: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, int]) -> Any:
    """The inverse of `from_tiles`: shape is that of the rows of tiles."""
    axes = (shape[0], shape[1] // math.prod(tile), *tile)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return reshape(contiguous(permute(reshape(x, tuple(axes[axis] for axis in order)), back)), shape)


def _scale_order(groups: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return _SCALES_OF_COLUMNS if groups == 1 else _SCALES


def _whole_tiles(k: int, n: int, groups: int) -> None:
    if k % 16 or n % 64:
        raise InvalidProblemError(f"Marlin's tiles have 16 inputs and 64 outputs, got k = {k} and n = {n}; pad them")
    if k and (not groups or k % groups):
        raise InvalidProblemError(f"scales must have groups that divide k = {k}, got {groups}")


def _of_inputs(x: Any, name: str, k: int) -> Any:
    if shape_in(x, name, ElementKind.I32, ElementKind.I64, rank=1) != (k,):
        raise InvalidProblemError(f"{name} must have shape {(k,)}, got {shape_of(x, name)}")
    return x


@exported
def repack_marlin(
    qweight: Array, scales: Array, qzeros: Array | None = None, g_idx: Array | None = None,
    sort_indices: Array | None = None, *, bits: int = 4,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """(codes, scales, zeros, index) of kind uint{bits} of a layer as Marlin stores it (bits 4 or 8).

    qweight: int32 [k / 16, n · bits / 2], tiles as vLLM's gptq_marlin_repack and awq_marlin_repack, GPTQModel and IST's
    `marlin` checkpoints have them. scales: [groups, n], as marlin_permute_scales leaves them. qzeros: int32 [groups,
    n · bits / 32], of AWQ; None: the middle, 2^(bits - 1). Act-order: g_idx, int32 [k], is the group of each stored
    input, and sort_indices, int32 [k], which input of x it is (vLLM's g_idx_sort_indices; None: x is sorted already);
    codes come back in the order of x, with index for every product. k must be a multiple of 16, n of 64.
    """
    bits = bits_of(bits, _MARLIN)
    rows, words = shape_in(qweight, "qweight", ElementKind.I32, rank=2)
    groups, n = shape_in(scales, "scales", *_FLOATS, rank=2)
    k = 16 * rows
    if 2 * words != n * bits:
        raise InvalidProblemError(f"scales must have {2 * words // bits} columns as qweight of {bits} bits, got {n}")
    _whole_tiles(k, n, groups)
    codes = from_tiles(unpack_codes(bytes_of(qweight), bits), *_CODES[bits], (n, k))
    index = None if g_idx is None else _of_inputs(g_idx, "g_idx", k)
    if sort_indices is not None:
        if index is None:
            raise InvalidProblemError("sort_indices needs g_idx, the group of each stored input")
        place = argsort(_of_inputs(sort_indices, "sort_indices", k))
        codes, index = take(codes, place, axis=1), take(index, place)
    scales = from_tiles(scales, *_scale_order(groups), (groups, n))
    if qzeros is None:
        zeros = full_like(scales, 1 << (bits - 1), ElementKind.U8)
    else:
        if shape_in(qzeros, "qzeros", ElementKind.I32, rank=2) != (groups, n * bits // 32):
            raise InvalidProblemError(
                f"qzeros must have shape {(groups, n * bits // 32)}, got {shape_of(qzeros, 'qzeros')}"
            )
        zeros = from_tiles(unpack_codes(bytes_of(qzeros), bits), *_ZEROS[bits], (groups, n))
    return pack_codes(codes, bits), turned_over(scales), turned_over(zeros), index


@exported
def pack_marlin(
    codes: Array, scales: Array, zeros: Array | None = None, index: Array | None = None, *, bits: int = 4
) -> tuple[Any, Any, Any, Any, Any]:
    """(qweight, scales, qzeros, g_idx, sort_indices) as Marlin stores them: the inverse of `repack_marlin`.

    codes: uint8 [n, k · bits / 8], of kind uint{bits}; scales [n, groups]; zeros uint8 [n, groups], or None where they
    are the middle, which Marlin does not store. index: int32 [k], the group of each input (act-order): inputs are then
    stored by groups, equal ones in their order, g_idx has the groups so sorted and sort_indices which input each is.
    What is None comes back as None. With `repack_gptq` and `repack_awq` it makes GPTQ's and AWQ's words Marlin's.
    """
    bits = bits_of(bits, _MARLIN)
    n, nbytes = shape_in(codes, "codes", ElementKind.U8, rank=2)
    own = shape_in(scales, "scales", *_FLOATS, rank=2)
    k, groups = nbytes * 8 // bits, own[1]
    if own[0] != n:
        raise InvalidProblemError(f"scales must have {n} rows as codes {(n, nbytes)}, got {own}")
    if zeros is not None and shape_in(zeros, "zeros", ElementKind.U8, rank=2) != own:
        raise InvalidProblemError(f"zeros must have the shape of scales, {own}, got {shape_of(zeros, 'zeros')}")
    _whole_tiles(k, n, groups)
    plain, g_idx, sort_indices = unpack_codes(codes, bits), None, None
    if index is not None:
        sort_indices = cast(argsort(_of_inputs(index, "index", k)), ElementKind.I32)
        plain, g_idx = take(plain, sort_indices, axis=1), take(index, sort_indices)
    tiles = to_tiles(plain, *_CODES[bits], (k // 16, 16 * n))
    stored = to_tiles(turned_over(scales), *_scale_order(groups), (groups, n))
    qzeros = None
    if zeros is not None:
        dealt = to_tiles(turned_over(zeros), *_ZEROS[bits], (groups, n))
        qzeros = words_of(pack_codes(dealt, bits))
    return words_of(pack_codes(tiles, bits)), stored, qzeros, g_idx, sort_indices
