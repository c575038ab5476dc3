"""Functions of the bits of an integer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import ElementKind
from ....core.element import INTS
from .row import Function


def _bits(x: Any) -> Any:
    """The bits of x, one a row of a new first axis, the lowest first."""
    word = np.asarray(x).view(f"u{x.dtype.itemsize}").astype(np.uint64)
    return np.stack([(word >> np.uint64(k)) & np.uint64(1) for k in range(8 * x.dtype.itemsize)]).astype(bool)


def _popcount(x: Any) -> Any:
    return _bits(x).sum(0)


def _clz(x: Any) -> Any:
    bits = _bits(x)[::-1]
    return np.where(bits.any(0), bits.argmax(0), len(bits))


def _ctz(x: Any) -> Any:
    bits = _bits(x)
    return np.where(bits.any(0), bits.argmax(0), len(bits))


def _in_torch(bits: Any) -> Any:
    """A function of the bits as a torch function of x, which has none; `bits(torch, each)`, the lowest first."""

    def function(torch: Any, x: Any) -> Any:
        each = [(x.to(torch.int64) >> k) & 1 for k in range(8 * x.element_size())]
        return bits(torch, each).to(x.dtype)

    return function


def _zeros_first(torch: Any, each: Any) -> Any:
    """How many come before the first that is 1."""
    still, count = torch.ones_like(each[0]), torch.zeros_like(each[0])
    for bit in each:
        still = still * (1 - bit)
        count = count + still
    return count


BITWISE_NOT = Function(
    "bits/BitwiseNot", np.invert, elements=(*INTS, ElementKind.BOOL), torch="bitwise_not",
    aliases=("invert", "bitwise_invert"),
)  # fmt: skip
POPCOUNT = Function(
    "bits/Popcount", _popcount, elements=INTS, torch=_in_torch(lambda torch, each: sum(each)),
    aliases=("population_count", "bitwise_count"),
)  # fmt: skip
CLZ = Function("bits/Clz", _clz, elements=INTS, torch=_in_torch(lambda torch, each: _zeros_first(torch, each[::-1])))
CTZ = Function("bits/Ctz", _ctz, elements=INTS, torch=_in_torch(_zeros_first))
