"""How updates store values in NumPy: codes of 8 bits with a scale for each block, and floats rounded at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.element import HALVES, ElementKind, cast, decode
from ..core.memo import memo
from ..ops.random.philox import philox_bits
from .update_shape import BLOCK

_DECADES = 7
_FP8 = ElementKind.FP8E4M3
KINDS = ("signed", "unsigned", "linear", "unsigned_linear", "fp8")
"""What a code of 8 bits may be: of the dynamic map with a sign or without, of equal steps, of float8_e4m3fn."""


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


@memo()
def code_map(kind: str) -> np.ndarray:
    """The 256 values of codes, float32.

    "linear" (bitsandbytes' create_linear_map): -1, -126/127, … 0, 0, … 126/127, 1; "unsigned_linear": 0, 1/255, … 1;
    "fp8": those of float8_e4m3fn over 448, of which two are NaN. Others are those of `dynamic_map`.
    """
    if kind in ("signed", "unsigned"):
        return dynamic_map(kind)
    if kind == "fp8":
        values: np.ndarray = np.asarray(decode(np.arange(256, dtype=np.uint8), _FP8), np.float32) * np.float32(1 / 448)
    else:
        steps = np.arange(256) if kind == "unsigned_linear" else np.array([*range(-127, 1), *range(128)])
        values = steps.astype(np.float32) * np.float32(1 / steps[-1])
    values.flags.writeable = False
    return values


def decoded(kind: str, codes: Any, scales: Any) -> Any:
    """The values of codes, in the dtype of the scales."""
    flat = code_map(kind)[codes.reshape(-1)].astype(scales.dtype)
    with np.errstate(invalid="ignore"):
        return (flat * np.repeat(scales, BLOCK)[: flat.size]).reshape(codes.shape)


def encoded(kind: str, values: Any) -> tuple[Any, Any]:
    """(codes, scales): of each block of 256 elements the largest magnitude, and each element's nearest code.

    Of two as near it is the lower one, of a linear map that of the even step, of fp8 the even one.
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
    if kind not in ("signed", "unsigned"):
        return _plain(kind, shares).reshape(values.shape), scales
    table = dynamic_map(kind)
    middles = np.float32(0.5) * (table[:-1] + table[1:])
    codes = np.searchsorted(middles, shares, side="left")
    codes[np.isnan(shares)] = 127 if kind == "signed" else 0
    return codes.astype(np.uint8).reshape(values.shape), scales


def _plain(kind: str, shares: Any) -> Any:
    """Codes of shares of a block's largest magnitude, of maps that are no table; NaN is the code of 1, or fp8's NaN."""
    if kind == "fp8":
        codes = np.asarray(cast(shares * shares.dtype.type(448), _FP8, saturate=True)).view(np.uint8)
        return np.where(np.isnan(shares), np.uint8(0x7F), codes)
    signed = kind == "linear"
    within = np.fmax(np.fmin(shares, 1), -1 if signed else 0)
    steps = np.rint(within.astype(np.float64) * (127 if signed else 255)).astype(np.int64)
    return (steps + 127 + (within > 0) if signed else steps).astype(np.uint8)


def words_of_halves(seed: Any, offset: Any, count: int, start: int = 0) -> np.ndarray:
    """Words whose upper 16 bits are those of half a word each: of a word's the upper half first. uint32 [count]."""
    first = start // 2
    words = philox_bits(seed, offset, -(-(start + count) // 2) - first, first)
    pairs: np.ndarray = np.stack([words, words << np.uint32(16)], -1).reshape(-1)
    return pairs[start - 2 * first :][:count]


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
