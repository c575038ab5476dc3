"""The losses of rows and their derivatives, in NumPy, in the dtype of the operands.

f(desc, x, other, negative, labels, target, weight) → the loss of each row, and what it counts in a mean;
g(…) → the derivatives by x, other and negative, None for an operand that has none. Operands are [rows, features],
target is [rows]; what a loss has not is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .loss_formulas import sigmoid, softplus, weighed

_TINY = 1e-12  # what PyTorch adds to squared lengths


def _class(desc: Any, target: Any) -> tuple[Any, Any]:
    """Whether a row names a class that counts, and the class (0 where it does not)."""
    valid = (target != desc.ignore_index) & (target >= 0) & (target < desc.features)
    return valid, np.where(valid, target, 0)


def _own_weight(x: Any, valid: Any, index: Any, weight: Any) -> Any:
    own = np.ones(len(index), x.dtype) if weight is None else weight[index]
    return np.where(valid, own, np.zeros_like(own))


def nll(desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    valid, index = _class(desc, target)
    own = _own_weight(x, valid, index, weight)
    return np.where(valid, -own * x[np.arange(len(index)), index], np.zeros_like(own)), own


def nll_slopes(desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any) -> Any:
    """The derivatives of `nll` by each operand."""
    valid, index = _class(desc, target)
    made = np.zeros_like(x)
    made[np.arange(len(index)), index] = -_own_weight(x, valid, index, weight)
    return made, None, None


def _raised(desc: Any, x: Any, target: Any, weight: Any) -> tuple[Any, Any, Any]:
    """margin - x[t] + x[c], where it counts, and each row's factor."""
    valid, index = _class(desc, target)
    rows = np.arange(len(index))
    z = desc.margin - x[rows, index][:, None] + x
    counts = np.broadcast_to(valid[:, None], x.shape).copy()
    counts[rows, index] = False
    return z, counts, _own_weight(x, valid, index, weight) / desc.features


def multi_margin(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    z, counts, own = _raised(desc, x, target, weight)
    z = np.where(counts, np.maximum(z, 0), 0)
    return own * (z if desc.p == 1 else z * z).sum(1), np.ones_like(own)


def multi_margin_slopes(desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any) -> Any:
    """The derivatives of `multi_margin` by each operand."""
    z, counts, own = _raised(desc, x, target, weight)
    made = np.where(counts & (z > 0), 1 if desc.p == 1 else 2 * z, 0).astype(x.dtype)
    _, index = _class(desc, target)
    made[np.arange(len(index)), index] = -made.sum(1)
    return own[:, None] * made, None, None


def _labels(desc: Any, labels: Any) -> list[Any]:
    """The labels of each row: those before the first that is no class."""
    found = []
    for row in labels:
        ends = np.flatnonzero((row < 0) | (row >= desc.features))
        found.append(row[: ends[0]] if len(ends) else row)
    return found


def multilabel_margin(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    losses = np.zeros(len(x), x.dtype)
    for i, held in enumerate(_labels(desc, labels)):
        rest = np.setdiff1d(np.arange(desc.features), held)
        losses[i] = np.maximum(1 - x[i, held][:, None] + x[i, rest][None], 0).sum() / desc.features
    return losses, np.ones_like(losses)


def multilabel_margin_slopes(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> Any:
    """The derivatives of `multilabel_margin` by each operand."""
    made = np.zeros_like(x)
    for i, held in enumerate(_labels(desc, labels)):
        rest = np.setdiff1d(np.arange(desc.features), held)
        above = (1 - x[i, held][:, None] + x[i, rest][None] > 0).astype(x.dtype)
        np.subtract.at(made[i], held, above.sum(1))
        made[i, rest] += above.sum(0)
    return made / desc.features, None, None


def multilabel_soft_margin(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    terms = weighed(other, softplus(-x)) + weighed(1 - other, softplus(x))
    losses = (terms if weight is None else terms * weight).sum(1) / desc.features
    return losses, np.ones_like(losses)


def multilabel_soft_margin_slopes(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> Any:
    """The derivatives of `multilabel_soft_margin` by each operand."""
    share = (np.ones(desc.features, x.dtype) if weight is None else weight) / desc.features
    return share * ((1 - other) * sigmoid(x) - other * sigmoid(-x)), -share * x, None


def _cosine(x: Any, other: Any) -> tuple[Any, Any, Any]:
    first, second = (x * x).sum(1) + _TINY, (other * other).sum(1) + _TINY
    return (x * other).sum(1) / (np.sqrt(first) * np.sqrt(second)), first, second


def cosine_embedding(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    cosine = _cosine(x, other)[0]
    losses = np.where(target == 1, 1 - cosine, np.where(target == -1, np.maximum(cosine - desc.margin, 0), 0))
    return losses, np.ones_like(losses)


def cosine_embedding_slopes(desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any) -> Any:
    """The derivatives of `cosine_embedding` by each operand."""
    cosine, first, second = _cosine(x, other)
    sign = np.where(target == 1, -1, np.where((target == -1) & (cosine - desc.margin >= 0), 1, 0)).astype(x.dtype)
    scale, cosine = (sign / (np.sqrt(first) * np.sqrt(second)))[:, None], (sign * cosine)[:, None]
    return scale * other - cosine / first[:, None] * x, scale * x - cosine / second[:, None] * other, None


def _norm(desc: Any, d: Any) -> Any:
    size, p = np.abs(d), desc.p
    if p == np.inf:
        return size.max(1)
    if p == 0:
        return (size != 0).sum(1).astype(d.dtype)
    return size.sum(1) if p == 1 else np.sqrt((size * size).sum(1)) if p == 2 else (size**p).sum(1) ** (1 / p)


def _norm_slope(desc: Any, d: Any, norm: Any) -> Any:
    p, size, norm = desc.p, np.abs(d), norm[:, None]
    if p == np.inf:
        most = size == norm
        return np.sign(d) * most / most.sum(1, keepdims=True)
    if p == 1:
        return np.sign(d)
    if p == 0:
        return np.zeros_like(d)
    safe = np.where(norm == 0, 1, norm)
    slope = d / safe if p == 2 else np.sign(d) * np.where(size == 0, 0, (size / safe) ** (p - 1))
    return np.where(norm == 0, 0, slope)


def _triplet(desc: Any, x: Any, other: Any, negative: Any) -> tuple[Any, Any, Any]:
    """Differences, their norms, and the loss before its negative part is cut off."""
    d = (x - other + desc.eps, x - negative + desc.eps, other - negative + desc.eps)
    norms = [_norm(desc, one) for one in d]
    far = np.minimum(norms[1], norms[2]) if desc.swap else norms[1]
    return d, norms, desc.margin + norms[0] - far


def triplet_margin(
    desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any
) -> tuple[Any, Any]:
    """The loss of each row, and its weight in a mean."""
    raised = _triplet(desc, x, other, negative)[2]
    return np.maximum(raised, 0), np.ones_like(raised)


def triplet_margin_slopes(desc: Any, x: Any, other: Any, negative: Any, labels: Any, target: Any, weight: Any) -> Any:
    """The derivatives of `triplet_margin` by each operand."""
    d, norms, raised = _triplet(desc, x, other, negative)
    on = (raised >= 0).astype(x.dtype)
    part = np.ones_like(on)
    if desc.swap:
        part = np.where(norms[1] < norms[2], 1, np.where(norms[1] == norms[2], 0.5, 0)).astype(x.dtype)
    near, far, swapped = (  # 0 where the loss is cut off, or has no part of a distance, whatever that is
        np.where(share[:, None] == 0, 0, share[:, None] * _norm_slope(desc, one, norm))
        for share, one, norm in zip((on, -on * part, -on * (1 - part)), d, norms, strict=True)
    )
    return near + far, swapped - near, -(far + swapped)
