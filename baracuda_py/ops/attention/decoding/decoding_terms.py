"""Terms of decoding's scores: the reference of one sequence, and the parameters of kernels with slopes and sinks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import Problem
from ....core.element import unrounded

TERM_FIELDS = {"slopes": "ptr", "sinks": "ptr", "slope_stride": "i64[2]"}


def term_values(p: Problem) -> dict[str, Any]:
    """The parameters of slopes; sinks are a pointer."""
    shape = (p.desc.batch_size, p.desc.num_heads)
    return {"slope_stride": (0, 0) if p.slopes is None else p.slopes.broadcast_to(shape).strides}


def usual_slopes(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Such that no key's weight is below the range of float32."""
    return rng.uniform(-0.02, 0.15, shape)


def attend(
    desc: Any, q: Any, k: Any, v: Any, store: Any = unrounded, mask: Any = None, slopes: Any = None, sinks: Any = None
) -> tuple[Any, Any, Any]:
    """y [heads, d_v], lse [heads] and weights [heads, keys] of q [heads, d_k] over k, v [kv_heads, keys, d].

    mask [heads, keys], slopes [heads] and sinks [heads] as in flash_decoding; the query stands at the last key.
    """
    shape, groups = (desc.num_heads, desc.d_v), (desc.num_kv_heads, desc.group)
    if not desc.num_heads:
        return np.zeros(shape, q.dtype), np.zeros(0, q.dtype), np.zeros((0, k.shape[1]), q.dtype)
    scaled = (q * q.dtype.type(desc.scale)).reshape(*groups, desc.d_k)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        s = (scaled @ k.swapaxes(-1, -2)).reshape(desc.num_heads, k.shape[1])
        if desc.softcap:
            s = s.dtype.type(desc.softcap) * np.tanh(s / s.dtype.type(desc.softcap))
        if slopes is not None:
            s -= slopes[:, None] * np.arange(k.shape[1])[::-1].astype(s.dtype)
        hidden = np.zeros(s.shape, bool)
        if mask is not None:
            hidden = ~mask if mask.dtype == np.bool_ else mask == -np.inf
            s = np.where(hidden, -np.inf, s if mask.dtype == np.bool_ else s + mask).astype(s.dtype)
        sink = np.full(desc.num_heads, -np.inf, s.dtype) if sinks is None else sinks
        top = np.maximum(s.max(axis=-1, initial=-np.inf), sink)
        top[top == -np.inf] = 0
        p = np.exp(s - top[:, None])
        total = p.sum(axis=-1) + np.exp(sink - top)
        over = np.where(total == 0, 1, total)
        kept = store(p)
        y = (kept.reshape(*groups, -1) @ v).reshape(shape)
        if hidden.any() and not np.isfinite(v).all():  # a hidden key adds nothing, whatever its value
            for h in range(desc.num_heads):
                y[h] = kept[h, ~hidden[h]] @ v[h // desc.group, ~hidden[h]]
        y = np.where(total[:, None] == 0, 0, y / over[:, None])  # where no key has a weight, whatever the values
        return y, top + np.log(total), p / over[:, None]
