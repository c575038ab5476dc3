"""How updates store values in NumPy: codes of 8 bits with a scale for each block, and floats rounded at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.element import HALVES, ElementKind
from ..core.memo import memo
from .update_shape import BLOCK

_DECADES = 7


@memo()
def dynamic_map(kind: str) -> np.ndarray:
    """The 256 values of codes, float32 and sorted (Dettmers et al. 2022, the dynamic map of bitsandbytes).

    kind "signed": in [-1, 1]; "unsigned": in [0, 1]. Decade i of seven, up to 10^(i - 6), has 2^i values of either
    sign, or 2^(i + 1) where there is no sign: the middles of equal parts. 0 and 1 are values besides.
    """
    positive: list[float] = []
    for i in range(_DECADES):
        parts = 2**i if kind == "signed" else 2 ** (i + 1)
        scale = 1.0 / 10.0 ** (_DECADES - 1 - i)
        positive += [scale * (0.1 + 0.9 * (part + 0.5) / parts) for part in range(parts)]
    negative = [-x for x in reversed(positive)] if kind == "signed" else []
    values = np.array([*negative, 0.0, *positive, 1.0], np.float32)
    values.flags.writeable = False
    return values


def decoded(kind: str, codes: Any, scales: Any) -> Any:
    """The values of codes, in the dtype of the scales."""
    flat = dynamic_map(kind)[codes.reshape(-1)].astype(scales.dtype)
    with np.errstate(invalid="ignore"):
        return (flat * np.repeat(scales, BLOCK)[: flat.size]).reshape(codes.shape)


def encoded(kind: str, values: Any) -> tuple[Any, Any]:
    """(codes, scales): of each block of 256 elements the largest magnitude, and each element's nearest code.

    Beside NaN or an infinity the scale is not finite, and what is decoded then is NaN.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    blocks = -(-flat.size // BLOCK)
    padded = np.zeros(blocks * BLOCK, flat.dtype)
    padded[: flat.size] = flat
    rows = padded.reshape(blocks, BLOCK)
    scales = np.max(np.abs(rows), axis=1) if blocks else np.zeros(0, flat.dtype)
    with np.errstate(all="ignore"):
        inverse = np.where(scales > 0, 1 / scales, 0)
        shares = (rows * inverse[:, None]).reshape(-1)[: flat.size]
    table = dynamic_map(kind)
    middles = np.float32(0.5) * (table[:-1] + table[1:])
    codes = np.searchsorted(middles, shares, side="left")
    codes[np.isnan(shares)] = 127 if kind == "signed" else 0
    return codes.astype(np.uint8).reshape(values.shape), scales


def rounded_at_random(values: Any, kind: ElementKind, words: Any) -> Any:
    """Values rounded to one of their two neighbours of a 16-bit float, the farther from 0 where the word says so.

    Other floats have nothing of it: they are rounded to the nearest where they are stored.
    """
    if kind not in HALVES:
        return values
    limits = kind.limits
    fraction = int(limits.digits)
    least = int(math.log2(float(limits.tiny)))
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        size = np.where(np.isfinite(wide), np.abs(wide), 0)
        e = np.where(size == 0, least, np.maximum(np.frexp(size)[1] - 1, least))
        steps = np.ldexp(size, fraction - e)
        below = np.floor(steps)
        up = words < ((steps - below) * 2.0**32).astype(np.uint64)
        found = np.ldexp(below + up, e - fraction)
        found = np.where(found > float(limits.max), np.inf, found)
        return np.copysign(np.where(np.isfinite(wide), found, np.abs(wide)), wide)
