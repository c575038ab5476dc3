"""ctc_loss in NumPy, and the sums over paths that its gradient takes besides.

desc is a `CtcLossDescriptor`. A path of a sequence goes through states: its labels, with blanks before, between and
behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def log_sum(*terms: Any) -> Any:
    """log Σ exp; of nothing but -inf it is that."""
    top = np.maximum.reduce(terms)
    safe = np.where(np.isneginf(top), np.zeros_like(top), top)
    return np.where(np.isneginf(top), top, safe + np.log(sum(np.exp(term - safe) for term in terms)))


def sequences(desc: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> list[tuple[int, Any, bool]]:
    """Of each sequence its steps, its labels, and whether they are no more than max_target_length."""
    found, place = [], 0
    for n in range(desc.batch):
        steps = int(np.clip(input_lengths[n], 0, desc.input_length))
        row = targets[n] if targets.ndim == 2 else targets[place:]
        length = max(int(target_lengths[n]), 0)
        place += length
        length = length if targets.ndim == 2 else min(length, len(row))
        found.append((steps, row[: min(length, desc.max_target_length)], length <= desc.max_target_length))
    return found


def states_of(desc: Any, labels: Any) -> tuple[Any, Any]:
    """The class of every state, and whether a path may skip the state before it."""
    classes = np.full(2 * len(labels) + 1, desc.blank)
    classes[1::2] = labels
    skips = np.zeros(len(classes), bool)
    skips[3::2] = classes[3::2] != classes[1:-2:2]
    return classes, skips


def state_log_probs(desc: Any, log_probs: Any, n: int, classes: Any) -> Any:
    """[steps, states]: a class that is none has the probability 0."""
    inside = (classes >= 0) & (classes < desc.classes)
    return np.where(inside, log_probs[:, n, np.where(inside, classes, 0)], log_probs.dtype.type(-np.inf))


def alpha_of(here: Any, skips: Any, steps: int) -> Any:
    """alpha [steps, states] of one sequence."""
    none = here.dtype.type(-np.inf)
    made = np.full((steps, here.shape[1]), none)
    for t in range(steps):
        if t == 0:
            made[0, :2] = here[0, :2]
            continue
        before = np.concatenate([[none, none], made[t - 1]])
        made[t] = here[t] + log_sum(before[2:], before[1:-1], np.where(skips, before[:-2], none))
    return made


def reference(
    desc: Any, *, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype log_probs come in."""
    dtype = log_probs.dtype
    alpha = np.full((desc.batch, desc.input_length, desc.states), -np.inf, dtype)
    nll, share = np.zeros(desc.batch, dtype), np.ones(desc.batch, dtype)
    with np.errstate(all="ignore"):
        for n, (steps, labels, fits) in enumerate(sequences(desc, targets, input_lengths, target_lengths)):
            classes, skips = states_of(desc, labels)
            alpha[n, :steps, : len(classes)] = alpha_of(state_log_probs(desc, log_probs, n, classes), skips, steps)
            share[n] = max(len(labels), 1)
            if steps:
                last = alpha[n, steps - 1, : len(classes)]
                nll[n] = -log_sum(last[-1], last[-2] if len(last) > 1 else dtype.type(-np.inf))
            else:
                nll[n] = np.inf if len(labels) else 0
            nll[n] = nll[n] if fits else np.nan
        losses = np.where(np.isposinf(nll), 0, nll).astype(dtype) if desc.zero_infinity else nll
        made = {"log_alpha": alpha, "nll": nll, "loss": losses}
        if desc.reduction == "mean":
            made["loss"] = (losses / share).sum() / dtype.type(desc.batch)
        elif desc.reduction == "sum":
            made["loss"] = losses.sum()
    return made
