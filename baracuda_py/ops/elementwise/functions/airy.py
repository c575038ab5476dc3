"""Airy's function Ai."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import pi
from .cylinder import integral_of_k
from .row import Function, beyond_zeros, slope_in_double

# Ai and Ai' at the whole numbers from -10 to 2.
_NODES = (
    ("0.04024123848644319068943031", "0.9962650441327900559045725"),
    ("-0.02213372154734140367416924", "-0.9756639809263315947126597"),
    ("-0.05270505035638620262208268", "0.9355609381983065510255225"),
    ("0.1842808352505056372799415", "-0.7710081684101265477312517"),
    ("-0.3291451736298231052314486", "0.3459354872813428949297794"),
    ("0.3507610090241143197880163", "0.3271928185544431367948787"),
    ("-0.07026553294928951509908431", "-0.7906285753685813802964544"),
    ("-0.3788142936776580743472439", "0.3145837692165988136507873"),
    ("0.2274074282016855759919244", "0.6182590207416910414062643"),
    ("0.5355608832923521187995166", "-0.01016056711664520939504547"),
    ("0.3550280538878172392600632", "-0.2588194037928067984051836"),
    ("0.1352924163128814155241474", "-0.1591474412967932127875003"),
    ("0.03492413042327437913532208", "-0.05309038443365363170399919"),
)
_FIRST, _LAST = -10, 2
_LIMIT = -1e10  # below it numbers of double lie more than a wave apart


def _near(x: Any) -> tuple[Any, Any]:
    """Ai and Ai' from -10.5 to 2.5, by Taylor's series about the nearest whole number: Ai'' is x Ai."""
    node = np.rint(np.clip(x, _FIRST, _LAST))
    h, place = x - node, np.asarray(node - _FIRST, np.int64)
    known = (np.asarray([x.dtype.type(one[k]) for one in _NODES], x.dtype)[place] for k in range(2))
    value, slope = np.zeros_like(x), np.zeros_like(x)
    before, (here, above), power = np.zeros_like(x), known, np.ones_like(x)
    for k in range(36):  # here and above are the coefficients of h^k and h^(k + 1)
        value, slope = value + here * power, slope + (k + 1) * above * power
        before, here, above = here, above, (node * here + before) / ((k + 1) * (k + 2))
        power = power * h
    return value, slope


def _zeta(size: Any) -> tuple[Any, Any]:
    """2/3 size^(3/2) as the sum of two numbers."""
    root = np.sqrt(size)
    p, low = _product(size, root)
    square, rest = _product(root, root)
    low = low + size * ((size - square) - rest) / (2 * root)
    q = p / 1.5
    whole, part = _product(q, q.dtype.type(1.5))
    return q, ((p - whole) - part + low) / 1.5


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """a b as the sum of two numbers, by splitting both in halves of their digits (Veltkamp, Dekker)."""
    factor = a.dtype.type(2) ** ((np.finfo(a.dtype).nmant + 2) // 2) + 1

    def halves(x: Any) -> tuple[Any, Any]:
        high = factor * x - (factor * x - x)
        return high, x - high

    (u, v), (s, t), whole = halves(a), halves(b), a * b
    return whole, ((u * s - whole) + u * t + v * s) + v * t


def _terms(count: int) -> list[tuple[float, float]]:
    """The coefficients of the asymptotic series of Ai and of Ai' in powers of 1 / zeta."""
    found, u = [(1.0, 1.0)], 1.0
    for k in range(1, count):
        u *= (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1))
        found.append((u, -u * (6 * k + 1) / (6 * k - 1)))
    return found


def _below(x: Any, slope: bool) -> Any:
    """Ai or Ai' below -10, by a cosine and a sine."""
    high, low = _zeta(-x)
    p, q, power = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for k, both in enumerate(_terms(40)):
        term = (-1) ** (k // 2) * x.dtype.type(both[slope]) * power
        p, q = (p, q + term) if k % 2 else (p + term, q)
        power = power / high
    sine = np.sin(high) * np.cos(low) + np.cos(high) * np.sin(low)
    cosine = np.cos(high) * np.cos(low) - np.sin(high) * np.sin(low)
    c, s = (cosine + sine) / np.sqrt(2 * pi(x)), (sine - cosine) / np.sqrt(2 * pi(x))  # of zeta - pi / 4, over sqrt(pi)
    root = np.sqrt(np.sqrt(-x))
    return root * (s * p - c * q) if slope else (c * p + s * q) / root


def _beyond(x: Any, slope: bool) -> Any:
    """Ai or Ai' beyond 2, by the Bessel functions K of orders 1/3 and 2/3."""
    high, low = _zeta(x)
    third = 2 if slope else 1
    k = integral_of_k(high, lambda r: np.cosh(third * np.log1p(r + np.sqrt(r * (r + 2))) / 3))
    h = np.exp(-high / 2)
    scale = -x / (pi(x) * np.sqrt(x.dtype.type(3))) if slope else np.sqrt(x / 3) / pi(x)
    return scale * k * h * (h - h * low)


def _airy(x: Any, slope: bool) -> Any:
    """Ai or Ai', a limit of 0 beyond the numbers, and NaN below the limit."""
    given, x = x, np.where(np.isnan(x), x.dtype.type(0), x)  # series are looked up by numbers
    near = _near(np.clip(x, _FIRST - 0.5, _LAST + 0.5))[slope]
    below, beyond = _below(np.clip(x, _LIMIT, _FIRST), slope), _beyond(np.clip(x, 2, 120), slope)
    found = np.where(x < _FIRST, below, np.where(x <= _LAST, near, np.where(x < 120, beyond, 0)))
    return np.where(
        np.isnan(given) | ((x < _LIMIT) & (np.isfinite(x) | slope)), np.nan, np.where(x == -np.inf, 0, found)
    )


def _in_torch(torch: Any, x: Any) -> Any:
    """The power series: torch's own has no gradient."""
    first, second = torch.ones_like(x), x
    value = 0.355028053887817239260 * first - 0.258819403792806798405 * second
    for k in range(1, 60):
        first, second = first * x**3 / ((3 * k - 1) * (3 * k)), second * x**3 / ((3 * k) * (3 * k + 1))
        value = value + 0.355028053887817239260 * first - 0.258819403792806798405 * second
    return value


AIRY_AI = Function(
    "AiryAi", lambda x: _airy(x, False), lambda dy, x: dy * _airy(x, True), bound=beyond_zeros,
    slope=slope_in_double(None), kernel="unary_bessel", torch=_in_torch,
    points=(-2.338107410459767, -1.0187929716474710, -4.08794944413097, -5.0, 104.0, -1e10),
)  # fmt: skip
