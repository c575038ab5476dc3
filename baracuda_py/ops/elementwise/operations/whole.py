"""Functions of integers: divisors, bits and shifts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.element import INTS
from .row import WITH_BOOL, Operation


def _size(x: Any) -> Any:
    """|x| in 64 bits without sign, that of the lowest integer too."""
    return np.where(x < 0, -x.astype(np.int64), x).astype(np.uint64) if x.dtype.kind == "i" else x.astype(np.uint64)


def _gcd(a: Any, b: Any) -> Any:
    """Not negative, except that of the lowest integer and itself or 0, which wraps."""
    return np.gcd(_size(a), _size(b)).astype(a.dtype)


def _lcm(a: Any, b: Any) -> Any:
    """|a b| / gcd, wrapped; 0 where either is 0."""
    divisor = np.gcd(_size(a), _size(b))
    return (_size(a) // np.maximum(divisor, np.uint64(1)) * _size(b)).astype(a.dtype)


def _in_64_bits(name: str) -> Any:
    """torch's function, where nothing overflows."""
    return lambda torch, a, b: getattr(torch, name)(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)


def _shift(shift: Any, beyond: Any) -> Any:
    def formula(a: Any, b: Any) -> Any:
        bits = 8 * a.dtype.itemsize
        outside = (b < 0) | (b >= bits)
        return np.where(outside, beyond(a), shift(a, np.where(outside, 0, b).astype(a.dtype)))

    return formula


def _mulhi(a: Any, b: Any) -> Any:
    """The upper half of the product, of which `*` has the lower; of 64 bits by Python's integers."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        return ((a.astype(np.int64) * b.astype(np.int64)) >> bits).astype(a.dtype)
    return np.asarray((a.astype(object) * b.astype(object)) >> bits).astype(a.dtype)


GCD = Operation("divisors/Gcd", _gcd, elements=INTS, torch=_in_64_bits("gcd"))
LCM = Operation("divisors/Lcm", _lcm, elements=INTS, torch=_in_64_bits("lcm"))
BITWISE_AND = Operation("bits/BitwiseAnd", np.bitwise_and, elements=WITH_BOOL, torch="bitwise_and")
BITWISE_OR = Operation("bits/BitwiseOr", np.bitwise_or, elements=WITH_BOOL, torch="bitwise_or")
BITWISE_XOR = Operation("bits/BitwiseXor", np.bitwise_xor, elements=WITH_BOOL, torch="bitwise_xor")
BITWISE_LEFT_SHIFT = Operation(
    "shifts/BitwiseLeftShift", _shift(np.left_shift, np.zeros_like), elements=INTS, torch="bitwise_left_shift",
    aliases=("left_shift", "shift_left"),
)  # fmt: skip
BITWISE_RIGHT_SHIFT = Operation(
    "shifts/BitwiseRightShift", _shift(np.right_shift, lambda a: np.where(a < 0, -1, 0).astype(a.dtype)),
    elements=INTS, torch="bitwise_right_shift", aliases=("right_shift",),
)  # fmt: skip


def _logical(a: Any, b: Any) -> Any:
    word = a.dtype.str.replace("i", "u")
    return (a.view(word) >> b.view(word)).view(a.dtype)


def _logical_in_torch(torch: Any, a: Any, b: Any) -> Any:
    """torch shifts the sign in: its copies are masked away."""
    bits = 8 * a.element_size()
    n = b.to(torch.int64).clamp(0, bits - 1)
    mask = torch.where(n == 0, -1, (1 << (bits - n)) - 1)
    shifted = torch.where(b.to(torch.int64).clamp(-1, bits) == n, (a.to(torch.int64) >> n) & mask, 0)
    return shifted.to(a.dtype)


SHIFT_RIGHT_LOGICAL = Operation(
    "shifts/ShiftRightLogical", _shift(_logical, np.zeros_like), elements=INTS, torch=_logical_in_torch
)
MULHI = Operation(
    "bits/Mulhi", _mulhi, elements=INTS,
    torch=lambda torch, a, b: (a.to(torch.int64) * b.to(torch.int64) >> 8 * a.element_size()).to(a.dtype),
)  # fmt: skip
