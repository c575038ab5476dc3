"""packbits and unpackbits: eight truth values in a byte (numpy.packbits), each a formula of one launch."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...core.checked import shown, whole
from ...core.outputs import beside
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.memo import memo
from ...core.views import permuted, shape_of, with_axis
from ...expressions.elementwise import Expression, elementwise
from ...core.arrays import read
from ..elementwise.cast import CastPlan, cast
from .creation import arange
from .pad import pad
from .view_copy import ViewCopyPlan
from .axes import place
from .views import part, raveled, reshape

U8, BOOL = ElementKind.U8, ElementKind.BOOL


@memo()
def _packing(big: bool) -> Expression:
    return elementwise(" + ".join(f"minimum(b{k}, 1) * {1 << (7 - k if big else k)}" for k in range(8)))


@memo()
def _unpacking() -> Expression:
    return elementwise("bitwise_and(right_shift(x, s), 1)")


def _big(bitorder: Any) -> bool:
    if bitorder not in ("big", "little"):
        raise InvalidProblemError(f'bitorder must be "big" or "little", got {shown(bitorder)}')
    return bool(bitorder == "big")


@entry(CastPlan)
def packbits(
    x: Array, axis: int | None = None, bitorder: str = "big", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Whether elements are not 0, eight along an axis in a byte, those beyond the end 0 (numpy.packbits).

    bitorder: "big", the first in the highest bit, or "little". Without `axis` x is one axis.
    """
    found, more = read(x, "x").element, {"stream": stream, "preference": preference}
    if not (found.is_integer or found is BOOL):
        raise UnsupportedError(f"x must be bool or of integers, got {found}; compare it with 0")
    x, axis = (raveled(x, stream), 0) if axis is None else (x, axis)
    if found is not U8:
        x = cast(x if found is BOOL else cast(x, BOOL, **more), U8, **more)
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    if left := -shape[at] % 8:
        x = pad(x, [(0, left if a == at else 0) for a in range(len(shape))], **more)
    bits = {f"b{k}": part(x, at, k, shape[at] + left, 8) for k in range(8)}
    return _packing(_big(bitorder))(**bits, out=out, **more)


@entry(ViewCopyPlan)
def unpackbits(
    x: Array, axis: int | None = None, count: int | None = None, bitorder: str = "big", *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The bits of bytes as uint8, eight for each along an axis (numpy.unpackbits).

    count: so many along the axis, below 0 fewer than there are, above them zeros. bitorder as of `packbits`.
    """
    found, more = read(x, "x").element, {"stream": stream, "preference": preference}
    if found is not U8:
        raise UnsupportedError(f"x must be uint8, got {found}")
    x, axis = (raveled(x, stream), 0) if axis is None else (x, axis)
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    steps = (7, -1, -1) if _big(bitorder) else (0, 8, 1)
    with beside(x, stream):
        shifts = arange(*steps, element=U8, like=x)
    order = [*range(at + 1), len(shape), *range(at + 1, len(shape))]
    bits = permuted(_unpacking()(x=with_axis(x, -1, "x"), s=shifts, **more), order, "bits")
    made = reshape(bits, (*shape[:at], 8 * shape[at], *shape[at + 1 :]))
    extent = 8 * shape[at]
    wanted = extent if count is None else whole("count", count, -extent)
    wanted = wanted + extent if wanted < 0 else wanted
    return pad(made, [(0, wanted - extent if a == at else 0) for a in range(len(shape))], out=out, **more)
