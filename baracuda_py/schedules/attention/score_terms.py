"""Parameters of the kernels that know attention's score terms (`kernels/attention/terms.cuh`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import ElementKind, Problem

_UNBOUNDED = 2**40  # as `unbounded` in attention.cuh
KINDS = {ElementKind.BOOL: 0, ElementKind.F16: 1, ElementKind.BF16: 2, ElementKind.F32: 3, ElementKind.F64: 4}

TERMS = {
    "mask": "ptr", "slopes": "ptr", "sinks": "ptr", "seed": "iscalar", "offset": "iscalar", "mask_pitch": "i64[4]",
    "slope_stride": "i64[2]", "softcap": "f64", "restored": "f64", "threshold": "u32", "mask_kind": "i32",
    "unit_log2": "f32", "inner": "f32", "near": "f32[3]", "far": "f32[5]",
}  # fmt: skip


LEVELS = {0: "", 1: "_terms", 2: "_masks"}  # suffixes of kernels' names, by `Terms` in terms.cuh


def level(p: Problem, sinks: bool = True) -> int:
    """What a kernel must know besides scale and window; the backward, whose lse holds them, needs no sinks."""
    if p.mask is not None or p.desc.dropout_p:
        return 2
    return int(p.slopes is not None or (sinks and p.sinks is not None) or p.desc.softcap > 0)


def refuse_terms(desc: Any) -> str | None:
    """Why kernels with terms, which count queries and keys in int, cannot take a problem."""
    if max(desc.query_len, desc.key_len) >= 2**30:
        return "biases, masks and dropout are for less than 2^30 queries and keys"
    return None


def dropout(p: float) -> tuple[int, float]:
    """The least 24-bit number for which a weight is kept, and what it is then multiplied by."""
    return math.ceil(p * 2**24), 1 / (1 - p) if p < 1 else 0.0


def window(desc: Any) -> dict[str, int]:
    """Keys a query sees before and after its own position."""
    left, right = desc.window_left, 0 if desc.is_causal else desc.window_right
    return {
        "left": _UNBOUNDED if left is None else min(left, _UNBOUNDED),
        "right": _UNBOUNDED if right is None else min(right, _UNBOUNDED),
    }


def bounded(desc: Any) -> bool:
    """Whether some query may see less than all keys."""
    return min(window(desc).values()) < _UNBOUNDED


def single(x: float) -> float:
    """The nearest float32, maybe infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


_NONE = (-math.inf,) * 5  # polynomials for no score


def soft_cap(scale: float, softcap: float) -> dict[str, Any]:
    """What float kernels take a score x = q k to a power of 2 with, and polynomials for y = x inner that is not large.

    unit_log2 tanh(y) = x (k0 + k1 x²) where |y| <= 0.3, `near`; and where y <= 0.7 with one term more, `far`; each
    followed by how large x may be. They are off by no more than 1.3e-4 and 1.5e-4 of it, a third of tanh.approx's
    bound. Far below -0.7 `far` is off, but downwards: where the row has a key that is e^13 times as heavy as one of
    -0.7, a base from the last number in `far` on, that is nothing. None where c is so large that they and tanh.approx,
    which makes the bases, differ by more powers of 2 than weights have left.
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
    """The constant parameters of a kernel with this scale: pitches in bytes, what `dropout` and `soft_cap` say.

    Scores that vanish stand for no unit that biases could be counted in: under a soft cap of 1 they are tanh(0).
    """
    desc = p.desc
    pitch, slopes = (0, 0, 0, 0), (0, 0)
    if p.mask is not None:
        view = p.mask.broadcast_to((desc.batch_size, desc.num_heads, desc.query_len, desc.key_len))
        pitch = tuple(stride * view.element.itemsize for stride in view.strides)
    if p.slopes is not None:
        slopes = p.slopes.broadcast_to((desc.batch_size, desc.num_heads)).strides
    threshold, restored = dropout(desc.dropout_p)
    softcap = desc.softcap or float(abs(desc.scale) < 2.0**-120)
    return {
        "mask_pitch": pitch, "slope_stride": slopes, "softcap": softcap, **soft_cap(scale, softcap),
        "restored": restored, "threshold": threshold, "mask_kind": 0 if p.mask is None else KINDS[p.mask.element],
    }  # fmt: skip
