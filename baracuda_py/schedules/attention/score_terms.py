"""Parameters of the kernels with score terms (`kernels/attention/terms.cuh`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import ElementKind, Problem
from ...core.params import Field

UNBOUNDED = 2**40  # a side of a window without a bound
TILE_KEYS = 64  # of a tile of scores without tensor cores
WINDOW: dict[str, Field] = {"unbounded_side": UNBOUNDED, "tile_keys": TILE_KEYS}
"""The constants of kernels that read `left` and `right` (kernels/attention/attention.cuh)."""

KINDS = {ElementKind.BOOL: 0, ElementKind.F16: 1, ElementKind.BF16: 2, ElementKind.F32: 3, ElementKind.F64: 4}

TERMS = {
    "mask": "ptr", "slopes": "ptr", "sinks": "ptr", "seed": "iscalar", "offset": "iscalar", "mask_pitch": "i64[4]",
    "slope_stride": "i64[2]", "softcap": "f64", "restored": "f64", "threshold": "u32", "mask_kind": "i32",
    "unit_log2": "f32", "inner": "f32", "near": "f32[3]", "far": "f32[5]",
}  # fmt: skip

RESTS = {"rests": "workspace", "resummed": "i32", "spares": "i32"}
"""Further ones of the backward's: what rows' lse lack, whether it was found (lse_rests.py), and `spares`."""

LEAST_UNIT = 2.0**-120  # of scores: below it a scale is counted as a soft cap

LEVELS = {0: "", 1: "_terms", 2: "_masks"}  # suffixes of kernel names, by LEVEL of `Terms` in terms.cuh


def level(p: Problem, sinks: bool = True) -> int:
    """The LEVEL of terms that a problem needs; the backward needs no sinks, as its lse holds them."""
    if any(p.views.get(name) is not None for name in ("mask", "mask_bits")) or drop_probability(p.desc):
        return 2
    return int(p.slopes is not None or (sinks and p.sinks is not None) or p.desc.softcap > 0)


def drop_probability(desc: Any) -> float:
    """dropout_p of a problem; 0 where its descriptor has none."""
    return float(getattr(desc, "dropout_p", 0.0))


def spares(p: Problem) -> int:
    """Whether the backward makes no ds of a key that has all of its row: it has one where lse has a gradient."""
    return int(p.dlse is None)


def refuse_terms(queries: int, keys: int) -> str | None:
    """Why kernels with terms cannot take so many queries and keys: they count them in 32 bits."""
    if max(queries, keys) >= 2**30:
        return "biases, masks and dropout are for less than 2^30 queries and keys"
    return None


def dropout(p: float) -> tuple[int, float]:
    """The least 24-bit number with which a weight is kept, and the factor of kept weights."""
    return math.ceil(p * 2**24), 1 / (1 - p) if p < 1 else 0.0


def window(desc: Any) -> dict[str, int]:
    """How many keys a query sees before and after its own position."""
    left, right = desc.window_left, 0 if desc.is_causal else desc.window_right
    return {
        "left": UNBOUNDED if left is None else min(left, UNBOUNDED),
        "right": UNBOUNDED if right is None else min(right, UNBOUNDED),
    }


def bounded(desc: Any) -> bool:
    """Whether some query may see less than all keys."""
    return min(window(desc).values()) < UNBOUNDED


def single(x: float) -> float:
    """The nearest float32, possibly infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


_NONE = (-math.inf,) * 5  # polynomials that serve no score


def soft_cap(scale: float, softcap: float) -> dict[str, Any]:
    """How float kernels take a score x = q k to an exponent of 2, and polynomials for y = x inner that is not large.

    unit_log2 tanh(y) is about x (k0 + k1 x²) where |y| <= 0.3 (`near`), and with one term more where y <= 0.7 (`far`);
    each is followed by the largest x it serves. Their errors are below 1.3e-4 and 1.5e-4 of it, a third of
    tanh.approx's bound. Far below -0.7 `far` is wrong, but too low, which does not matter in a row with a key e^13
    times as heavy as one of -0.7: one whose base is at least the last number in `far`. No polynomials where c is so
    large that they and tanh.approx, which makes the bases, differ by more powers of 2 than weights have room for.
    """
    unit = softcap or scale
    c, inner = unit * math.log2(math.e), scale / unit
    exact = {"unit_log2": single(c), "inner": single(inner)}
    if not (1e-6 < abs(inner) < 1e6 and abs(c) < 1e4):
        return exact | {"near": _NONE[:3], "far": _NONE}
    k, square, most = inner * c, inner * inner, 1 / abs(inner)
    near = (0.9998702 * k, -0.32171333 * k * square)
    far = (0.99985204 * k, -0.32778989 * k * square, 0.10110489 * k * square * square)
    return exact | {"near": (*near, 0.3 * most), "far": (*far, 0.7 * most, 18.8 - 0.604 * c)}


def terms(p: Problem, scale: float) -> dict[str, Any]:
    """The constant parameters of a kernel with this scale: pitches in bytes, and those of `dropout` and `soft_cap`.

    A scale that vanishes is no unit that biases could be counted in: then scores are tanh(0), under a soft cap of 1.
    """
    desc, mask = p.desc, p.views.get("mask")
    pitch, slopes = (0, 0, 0, 0), (0, 0)
    if mask is not None:
        view = mask.broadcast_to((desc.batch_size, desc.num_heads, desc.query_len, desc.key_len))
        pitch = tuple(stride * view.element.itemsize for stride in view.strides)
    if p.slopes is not None:
        slopes = p.slopes.broadcast_to((desc.batch_size, desc.num_heads)).strides
    threshold, restored = dropout(drop_probability(desc))
    softcap = desc.softcap or float(abs(desc.scale) < LEAST_UNIT)
    return {
        "mask_pitch": pitch, "slope_stride": slopes, "softcap": softcap, **soft_cap(scale, softcap),
        "restored": restored, "threshold": threshold, "mask_kind": 0 if mask is None else KINDS[mask.element],
    }  # fmt: skip
