"""hash_tensor: the bits of an array in one word, by which two arrays are told apart (torch.hash_tensor)."""

from __future__ import annotations

from typing import Any

from ...core import FLOATS, Array, ElementKind
from ...core.arrays import read
from ...core.checked import shown
from ...core.element import INTS
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ..elementwise.array_views import bitcast_convert_type
from ..elementwise.cast import cast
from .reduce import ReducePlan, reduce_xor  # type: ignore[attr-defined]  # made from a table

U64 = ElementKind.U64


@entry(ReducePlan)
def hash_tensor(
    x: Array, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False, mode: int = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The exclusive or, in uint64, of the bits of x's elements widened to 64 (torch.hash_tensor).

    x: floats, which are widened to float64, integers of either sign, or bool; of none it is 0. axis, keepdims: as of
    `reduce_xor`. mode: 0, the only one that PyTorch has. Two launches, which only floats narrower than 64 bits lend an
    array of x's shape. The order of the elements does not count, and a pair of equal ones leaves no trace.
    """
    if mode != 0:
        raise InvalidProblemError(f"mode must be 0, the exclusive or of the bits, got {shown(mode)}")
    found, options = read(x, "x").element, {"stream": stream, "preference": preference}
    if found in FLOATS:
        wide = x if found is ElementKind.F64 else cast(x, ElementKind.F64, **options)
        return reduce_xor(bitcast_convert_type(wide, U64), axis=axis, keepdims=keepdims, out=out, **options)
    if found is ElementKind.BOOL:  # whose exclusive or is 0 or 1 like its elements
        x, found = cast(x, ElementKind.U8, **options), ElementKind.U8
    if found not in INTS:
        raise UnsupportedError(f"x must be bool, of integers or of floats, got {found}; hash the views of its parts")
    if found is U64:
        return reduce_xor(x, axis=axis, keepdims=keepdims, out=out, **options)
    narrow = reduce_xor(x, axis=axis, keepdims=keepdims, **options)  # signs spread after the reduction as before it
    return cast(narrow, U64, out=out, **options)
