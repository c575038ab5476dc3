"""What the encoders of GGML's blocks have in common; every operation is in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

F = np.float32


def known(x: Any) -> Any:
    """NaN as 0."""
    return np.where(np.isnan(x), F(0), x).astype(F)


def farthest(x: Any) -> Any:
    """The first number of the largest size, +0 where all are 0."""
    at = np.abs(x).argmax(axis=-1, keepdims=True)
    found = np.take_along_axis(x, at, axis=-1)
    return np.where(found == 0, F(0), found)


def reciprocal(d: Any) -> Any:
    """1 / d, 0 of 0."""
    return np.where(d == 0, F(0), F(1) / d).astype(F)


def bytes_of(x: Any, dtype: Any = np.float16) -> Any:
    """The bytes of numbers in a dtype."""
    return np.ascontiguousarray(known(x).astype(dtype)).view(np.uint8)


def away_from_zero(y: Any, top: int = 127) -> Any:
    """To the nearest whole number, ties away from 0, within `top` of it."""
    cut = np.trunc(y)
    return np.clip(cut + np.where(np.abs(y - cut) >= F(0.5), np.copysign(F(1), y), F(0)), -top, top)
