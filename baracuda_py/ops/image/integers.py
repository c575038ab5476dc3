"""Images of integers: made in floats that hold each of them, rounded once, halves to even, within the element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import ElementKind
from ...core.arrays import read
from ..elementwise.cast import cast
from .sampling import formula

_LIMITS = {
    ElementKind.U8: (0, 2**8 - 1), ElementKind.I8: (-(2**7), 2**7 - 1), ElementKind.U16: (0, 2**16 - 1),
    ElementKind.I16: (-(2**15), 2**15 - 1), ElementKind.I32: (-(2**31), 2**31 - 1),
}  # fmt: skip


def of_integers(x: Any) -> bool:
    """Whether x has pixels of integers that floats hold: 8 and 16 bits in float32, int32 in float64."""
    return read(x, "x").element in _LIMITS


def in_floats(function: Callable[[Any], Any], x: Any, out: Any, options: dict[str, Any]) -> Any:
    """What a function makes of x in floats, rounded to x's element."""
    kind = read(x, "x").element
    low, high = _LIMITS[kind]
    y = function(cast(x, "float64" if kind is ElementKind.I32 else "float32", **options))
    return formula(f"{kind}(clamp(round(y), {low}, {high}))")(y=y, out=out, **options)
