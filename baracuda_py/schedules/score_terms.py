"""Parameters of the kernels that know attention's score terms (`kernels/include/baracuda/terms.cuh`)."""

from __future__ import annotations

import math
from typing import Any

from ..core import ElementKind, Problem

_UNBOUNDED = 2**40  # as `unbounded` in attention.cuh
KINDS = {ElementKind.BOOL: 0, ElementKind.F16: 1, ElementKind.BF16: 2, ElementKind.F32: 3, ElementKind.F64: 4}

TERMS = {
    "mask": "ptr", "slopes": "ptr", "sinks": "ptr", "seed": "iscalar", "offset": "iscalar", "mask_pitch": "i64[4]",
    "slope_stride": "i64[2]", "softcap": "f64", "restored": "f64", "threshold": "u32", "mask_kind": "i32",
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


def terms(p: Problem) -> dict[str, Any]:
    """The constant parameters: pitches in bytes, what `dropout` says.

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
    return {
        "mask_pitch": pitch, "slope_stride": slopes, "softcap": desc.softcap or float(abs(desc.scale) < 2.0**-120),
        "restored": restored, "threshold": threshold, "mask_kind": 0 if p.mask is None else KINDS[p.mask.element],
    }  # fmt: skip
