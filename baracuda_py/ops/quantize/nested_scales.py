"""Double quantisation (QLoRA, arXiv:2305.14314; bitsandbytes): scales of blocks as codes of 8 bits, and back.

These run once for a matrix and are composed of maps, reductions and a search; arrays of any package, the caller's kind
out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array, ElementKind, InvalidProblemError
from ...core.checked import whole
from ...calls.exported import exported
from ...core.views import shape_of
from ..elementwise.binary_functions import add, div, maximum, multiply, subtract
from ..elementwise.cast import cast
from ..elementwise.unary import abs as size_of  # type: ignore[attr-defined]
from ..indexing.take import take
from ..layout.pad import pad
from ..layout.views import contiguous, part, reshape
from ..reduce.reduce import amax, mean  # type: ignore[attr-defined]
from ..sort.searchsorted import searchsorted
from .repack import shape_in

E = ElementKind


@exported
def dynamic_map() -> Any:
    """The 256 numbers that bitsandbytes' 8-bit codes name, ascending: float32 [256] on the host, from -0.993 to 1.

    Of each sign seven decades, 10⁻⁶ to 1, the i-th in 2ⁱ equal parts of [0.1, 1], of which the middles are taken
    (Dettmers, arXiv:1511.04561); 0 and 1 besides (bitsandbytes' create_dynamic_map).
    """
    first, last = np.float32(0.1), np.float32(1)
    numbers = [np.float32(0), last]
    for i in range(7):
        # torch.linspace's arithmetic: a step of float32, from the nearer end, rounded once.
        at, step = np.arange(2**i + 1), np.float64((last - first) / np.float32(2**i))
        ends = np.where(at <= (2**i - 1) // 2, first + step * at, last - step * at[::-1]).astype(np.float32)
        middles = np.float32(10.0 ** (i - 6)) * ((ends[:-1] + ends[1:]) / np.float32(2))
        numbers += [*middles, *-middles]
    return np.sort(np.array(numbers, np.float32))


def _check(code: Array, blocksize: int) -> int:
    """The block size, beside a table that is one."""
    if shape_in(code, "code", E.F32, rank=1) != (256,):
        raise InvalidProblemError(f"code must have shape (256,), got {shape_of(code, 'code')}")
    return whole("blocksize", blocksize, 1)


@exported
def nest_scales(scales: Array, code: Array, *, blocksize: int = 256) -> tuple[Any, Any, Any]:
    """(absmax, absmax2, offset) of float32 scales of any shape: the parts that `nested_scales` makes scales of again.

    code: float32 [256], ascending, on the device of the scales: `dynamic_map()` for bitsandbytes. offset: a 0-d array,
    the mean of the scales. absmax2: float32, the largest |scale - offset| of each `blocksize` neighbours of the scales
    in order; absmax: uint8 [scales], the code nearest to (scale - offset) / absmax2, the lower of equals.
    """
    size, count = _check(code, blocksize), int(np.prod(shape_in(scales, "scales", E.F32), dtype=object))
    if not count:
        raise InvalidProblemError(f"scales must have an item at least, got shape {shape_of(scales, 'scales')}")
    flat, blocks = reshape(contiguous(scales), (count,)), -(-count // size)
    offset = mean(flat)
    centred = subtract(flat, offset)
    rows = reshape(pad(centred, [(0, blocks * size - count)]), (blocks, size))
    absmax2 = amax(size_of(rows), axis=1)
    over = div(rows, reshape(maximum(absmax2, 2.0**-126), (blocks, 1)))  # where all are the mean 0, not 0 / 0
    middles = multiply(add(part(code, 0, 0, 255), part(code, 0, 1, 256)), 0.5)
    found = searchsorted(middles, part(reshape(over, (blocks * size,)), 0, 0, count), index_element=E.I32)
    return cast(found, E.U8), absmax2, offset


@exported
def nested_scales(absmax: Array, code: Array, absmax2: Array, offset: Any = 0.0, *, blocksize: int = 256) -> Any:
    """float32 scales of bitsandbytes' double quantisation: code[absmax] · absmax2[i // blocksize] + offset.

    absmax: uint8 [blocks], numbers of the table `code` [256]; absmax2: float32 [blocks / blocksize, rounded up].
    """
    count = shape_in(absmax, "absmax", E.U8, rank=1)[0]
    size = _check(code, blocksize)
    blocks = -(-count // size)
    if shape_in(absmax2, "absmax2", E.F32, rank=1) != (blocks,):
        raise InvalidProblemError(f"absmax2 must have shape {(blocks,)}, got {shape_of(absmax2, 'absmax2')}")
    named = take(code, cast(absmax, E.I32), axis=0)
    filled = reshape(pad(named, [(0, blocks * size - count)]), (blocks, size))
    made = add(multiply(filled, reshape(absmax2, (blocks, 1))), offset)
    return part(reshape(made, (blocks * size,)), 0, 0, count)
