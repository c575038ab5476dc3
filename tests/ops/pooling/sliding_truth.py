"""Pools by another way than the reference: NumPy's own sliding windows over padded planes, in float64."""

from __future__ import annotations

from functools import partial

import numpy as np

pairs = partial(zip, strict=True)


def views(x, kernel, stride, padding, dilation, out, fill):
    """Windows of the last axes of x as (…, *out, *kernel): as_strided on a padded copy, long enough for ceil_mode."""
    axes = len(kernel)
    batch = x.shape[:-axes]
    more = [(p, (o - 1) * s + (k - 1) * d + 1) for p, o, s, k, d in pairs(padding, out, stride, kernel, dilation)]
    shape = tuple(max(p + n, reach) for (p, reach), n in pairs(more, x.shape[-axes:]))
    plane = np.full((*batch, *shape), fill, np.result_type(x.dtype, type(fill)) if x.dtype.kind == "f" else x.dtype)
    plane[(..., *(slice(p, p + n) for (p, _), n in pairs(more, x.shape[-axes:])))] = x
    steps = plane.strides[-axes:]
    return np.lib.stride_tricks.as_strided(
        plane, (*batch, *out, *kernel),
        (*plane.strides[:-axes], *(t * s for t, s in pairs(steps, stride)),
         *(t * d for t, d in pairs(steps, dilation))),
    )  # fmt: skip


def flat(windows, axes):
    """The last `axes` axes as one."""
    return windows.reshape(*windows.shape[:-axes], -1)


def max_pool(x, kernel, stride, padding, dilation, out):
    axes, real = len(kernel), x.dtype.kind == "f"
    lowest = -np.inf if real else np.iinfo(x.dtype).min
    return flat(views(x, kernel, stride, padding, dilation, out, lowest), axes).max(-1)


def avg_pool(x, kernel, stride, padding, dilation, out, include_pad, divisor=None):
    axes = len(kernel)
    x = x.astype(np.float64)
    total = flat(views(x, kernel, stride, padding, dilation, out, 0.0), axes).sum(-1)
    if divisor is not None:
        return total / divisor
    extents = x.shape[-axes:]
    inside = np.ones([n + 2 * p if include_pad else n for n, p in pairs(extents, padding)])
    around = (0,) * axes if include_pad else padding
    return total / flat(views(inside, kernel, stride, around, dilation, out, 0.0), axes).sum(-1)


def lp_pool(x, kernel, stride, padding, dilation, out, p):
    windows = flat(views(np.abs(x.astype(np.float64)), kernel, stride, padding, dilation, out, 0.0), len(kernel))
    return (windows**p).sum(-1) ** (1 / p)
