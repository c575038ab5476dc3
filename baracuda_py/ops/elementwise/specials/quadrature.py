"""Gauss and Legendre's rule, in long double: NumPy's own nodes and weights are off by hundreds of roundings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


@cache
def _rule(nodes: int) -> tuple[Any, Any]:
    """The nodes on [-1, 1] and their weights, by Newton's method from NumPy's."""
    x: Any = np.asarray(np.polynomial.legendre.leggauss(nodes)[0], np.longdouble)
    slope: Any = np.ones_like(x)
    for _ in range(3):
        below, here = np.ones_like(x), x
        for k in range(2, nodes + 1):
            below, here = here, ((2 * k - 1) * x * here - (k - 1) * below) / k
        slope = nodes * (x * here - below) / (x * x - 1)
        x = x - here / slope
    return x, 2 / ((1 - x * x) * slope * slope)


def integral(end: Any, integrand: Callable[[Any], Any], nodes: int = 96) -> Any:
    """∫ integrand(s) ds from 0 to `end`, called node by node."""
    half, total = end / 2, end * 0
    for point, weight in zip(*_rule(nodes), strict=True):
        total = total + half.dtype.type(weight) * integrand(half * (1 + half.dtype.type(point)))
    return half * total
