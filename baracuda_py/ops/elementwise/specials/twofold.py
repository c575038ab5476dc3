"""Numbers as the unrounded sum of two, for series whose terms cancel; in the dtype of the numbers (Dekker 1971)."""

from __future__ import annotations

from typing import Any

import numpy as np

Twofold = tuple[Any, Any]


def sum_of(a: Any, b: Any) -> Twofold:
    """a + b (Knuth 1969)."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


def _renewed(hi: Any, lo: Any) -> Twofold:
    s = hi + lo
    return s, lo - (s - hi)


def plus(a: Twofold, b: Twofold) -> Twofold:
    """a + b."""
    s, rest = sum_of(a[0], b[0])
    return _renewed(s, rest + (a[1] + b[1]))


def product(a: Any, b: Any) -> Twofold:
    """a b of two numbers, by halves of their digits."""
    by = a.dtype.type(2) ** ((np.finfo(a.dtype).nmant + 2) // 2) + 1
    highs = [by * x - (by * x - x) for x in (a, b)]
    lows = [x - high for x, high in zip((a, b), highs, strict=True)]
    p = a * b
    mixed = (highs[0] * highs[1] - p) + highs[0] * lows[1] + lows[0] * highs[1]
    return p, mixed + lows[0] * lows[1]


def times(a: Twofold, b: Twofold) -> Twofold:
    """a b."""
    p, rest = product(a[0], b[0])
    return _renewed(p, rest + (a[0] * b[1] + a[1] * b[0]))


def over(a: Twofold, b: Twofold) -> Twofold:
    """a / b."""
    q = a[0] / b[0]
    p, rest = product(q, b[0])
    return _renewed(q, ((a[0] - p) - rest + (a[1] - q * b[1])) / b[0])
