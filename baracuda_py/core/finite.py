"""BARACUDA_CHECK=1: outputs are poisoned before a call, and what a call makes of finite operands is looked at.

Floats are looked at as the unsigned integers that hold them, which NumPy and CuPy do alike for every element: NaN and
infinities have all exponent bits set. The poison is all bits set, a NaN that no operation gives of itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from .element import ElementKind
from .errors import NonFiniteWarning

_EXPONENT = {
    ElementKind.F16: 0x7C00, ElementKind.BF16: 0x7F80, ElementKind.F32: 0x7F800000, ElementKind.F64: 0x7FF0000000000000,
    ElementKind.FP8E4M3: 0x7F, ElementKind.FP8E5M2: 0x7C,
}  # fmt: skip


def word(element: ElementKind) -> str | None:
    """The dtype of unsigned integers that a float's bits are looked at as; None for what is no float of whole bytes."""
    part = element.part if element.is_complex else element
    return f"uint{part.bits}" if part in _EXPONENT else None


def poison(bits: Any) -> None:
    """Fill an output, seen as unsigned integers, with the NaN that stands for an element not written."""
    bits[...] = bits.dtype.type(~bits.dtype.type(0))


def finite(bits: Any, element: ElementKind) -> bool:
    """Whether an operand, seen as unsigned integers, holds no NaN and no infinity."""
    return int(_special(bits, element).sum()) == 0


def _special(bits: Any, element: ElementKind) -> Any:
    mask = bits.dtype.type(_EXPONENT[element.part if element.is_complex else element])
    return (bits & mask) == mask


def report(op: str, name: str, bits: Any, element: ElementKind, inputs_finite: bool) -> None:
    """Warn of elements of an output that were never written, and of those not finite where every operand was."""
    untouched = bits == bits.dtype.type(~bits.dtype.type(0))
    left = int(untouched.sum())
    found = int(_special(bits, element).sum()) - left if inputs_finite else 0
    said = [f"{left} of {bits.size} elements were not written"] if left else []
    said += [f"{found} of {bits.size} elements are NaN or infinite, and every operand is finite"] if found else []
    if said:
        which = untouched if left else _special(bits, element)
        first = int(which.reshape(-1).argmax())
        place, shape = [], bits.shape
        for extent in reversed(shape):
            first, at = divmod(first, extent)
            place.append(at)
        warnings.warn(
            f"{op}: {name}: {'; '.join(said)}; the first at {tuple(reversed(place))}", NonFiniteWarning, stacklevel=4
        )


def all_finite(operands: Iterable[tuple[Any, ElementKind]]) -> bool:
    """Whether every float among the operands, each seen as unsigned integers, is finite."""
    return all(finite(bits, element) for bits, element in operands)
