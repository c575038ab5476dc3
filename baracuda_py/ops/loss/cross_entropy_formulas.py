"""cross_entropy against class indices and its gradient, in NumPy: the formulas are those of cross_entropy.py.

desc is a `CrossEntropyLossDescriptor`. A row is one of the logits, with their batch axes as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def target_terms(desc: Any, targets: Any, weight: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """Per row: whether it counts, its class (0 where it does not), and the weight of that class (0 likewise)."""
    t = targets.reshape(-1)
    valid = (t != desc.ignore_index) & (t >= 0) & (t < desc.num_classes)
    index = np.where(valid, t, 0)
    own = np.ones(t.shape, dtype) if weight is None else weight[index]
    return valid, index, np.where(valid, own, np.zeros_like(own))


def gradient(desc: Any, p: Any, terms: tuple[Any, Any, Any], weight: Any, scale: Any) -> Any:
    """dlogits of rows with probabilities p; `scale` is each row's upstream gradient over the mean's denominator."""
    valid, index, own = terms
    eps, rows = desc.label_smoothing, np.arange(len(index))
    hit = (1 - eps) * own * scale
    spread = hit
    if eps:
        total = p.dtype.type(desc.num_classes) if weight is None else weight.sum()
        spread = ((1 - eps) * own + eps / desc.num_classes * total) * scale
    g = p * spread[:, None]
    g[rows, index] -= hit
    if eps:
        g -= (eps / desc.num_classes * scale)[:, None] * (np.ones(1, p.dtype) if weight is None else weight)
    g[~valid] = 0
    return g.reshape(*desc.batch_shape, desc.num_classes)


def reference(desc: Any, *, logits: Any, targets: Any, weight: Any, wanted: set[str]) -> Mapping[str, Any]:
    """The loss and what else is wanted of it, in the dtype the logits come in."""
    rows = logits.reshape(-1, desc.num_classes)
    terms = valid, index, own = target_terms(desc, targets, weight, rows.dtype)
    eps = desc.label_smoothing
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = rows.max(axis=1, keepdims=True)
        z = rows - top
        e = np.exp(z)
        s = e.sum(axis=1, keepdims=True)
        log_s = np.log(s)
        loss = (1 - eps) * own * (log_s[:, 0] - z[np.arange(len(index)), index])
        if eps:
            z -= log_s
            loss -= eps / desc.num_classes * (z.sum(axis=1) if weight is None else (z * weight).sum(axis=1))
        loss[~valid] = 0
        total = own.sum()
        results = {
            "lse": (top + log_s).reshape(desc.batch_shape), "total_weight": total,
            "stats": np.concatenate([top, s], axis=1).reshape(*desc.batch_shape, 2),
        }  # fmt: skip
        if desc.reduction == "none":
            results["loss"] = loss.reshape(desc.batch_shape)
        else:
            results["loss"] = loss.sum() / total if desc.reduction == "mean" else loss.sum()
        if "dlogits" in wanted:
            scale = np.ones_like(own) / (total if desc.reduction == "mean" else 1)
            results["dlogits"] = gradient(desc, e / s, terms, weight, scale)
    return results
