"""The terms of the pointwise losses and their derivatives, in NumPy: f(desc, x, t, v) in the dtype of the operands.

x is the input, t the target, v the third operand of those losses that have one. Errors of the floating-point unit are
the caller's to silence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_LOWEST = -100  # of a logarithm of a probability, as in PyTorch
_NARROW = 1e-12  # the least x (1 - x) that a gradient is divided by, as in PyTorch


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), accurate in both tails."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), accurate in both tails."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def weighed(p: Any, x: Any) -> Any:
    """p x, where nothing of an infinity is 0."""
    return np.where(p == 0, np.where(np.isnan(x), x, 0), p * x)


def mse(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return (x - t) * (x - t)


def mse_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `mse` by x."""
    return 2 * (x - t)


def l1(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return np.abs(x - t)


def l1_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `l1` by x."""
    return np.sign(x - t)


def smooth_l1(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    size = np.abs(x - t)
    if d.beta == 0:
        return size
    return np.where(size < d.beta, 0.5 * size * (size / d.beta), size - 0.5 * d.beta)


def smooth_l1_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `smooth_l1` by x."""
    return np.sign(x - t) if d.beta == 0 else np.clip((x - t) / d.beta, -1, 1)


def huber(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    size = np.abs(x - t)
    return np.where(size <= d.delta, 0.5 * size * size, d.delta * (size - 0.5 * d.delta))


def huber_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `huber` by x."""
    return np.clip(x - t, -d.delta, d.delta)


def bce(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return (t - 1) * np.maximum(np.log1p(-x), _LOWEST) - t * np.maximum(np.log(x), _LOWEST)


def bce_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `bce` by x."""
    return (x - t) / np.maximum((1 - x) * x, _NARROW)


def bce_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `bce` by the target."""
    return np.maximum(np.log1p(-x), _LOWEST) - np.maximum(np.log(x), _LOWEST)


def bce_logits(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return weighed(v * t, softplus(-x)) + weighed(1 - t, softplus(x))


def bce_logits_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `bce_logits` by x."""
    return (1 - t) * sigmoid(x) - v * t * sigmoid(-x)


def bce_logits_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `bce_logits` by the target."""
    return v * softplus(-x) - softplus(x)


def kl(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    p = np.exp(t) if d.log_target else t
    found = p * ((t if d.log_target else np.log(t)) - x)
    return np.where(p == 0, np.where(np.isnan(x), x, 0), found)


def kl_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `kl` by x."""
    return -np.exp(t) if d.log_target else -t


def kl_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `kl` by the target."""
    if d.log_target:
        p = np.exp(t)
        return np.where(p == 0, np.where(np.isnan(x), x, 0), p * (t - x + 1))
    return np.log(t) + 1 - x


def poisson(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    found = np.exp(x) - t * x if d.log_input else x - t * np.log(x + d.eps)
    return found + np.where(t > 1, t * np.log(t) - t + (0.5 * np.log(t) + HALF_LOG_TAU), 0) if d.full else found


def poisson_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `poisson` by x."""
    return np.exp(x) - t if d.log_input else 1 - t / (x + d.eps)


def poisson_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `poisson` by the target."""
    found = -x if d.log_input else -np.log(x + d.eps)
    return found + np.where(t > 1, np.log(t) + 0.5 / t, 0) if d.full else found


def gaussian(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    v = np.maximum(v, d.eps)
    found = 0.5 * (np.log(v) + (x - t) * ((x - t) / v))
    return found + HALF_LOG_TAU if d.full else found


def gaussian_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `gaussian` by x."""
    return (x - t) / np.maximum(v, d.eps)


def gaussian_v(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `gaussian` by the third operand."""
    v = np.maximum(v, d.eps)
    return 0.5 * (1 / v - ((x - t) / v) * ((x - t) / v))


def hinge(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return np.where(t != -1, x, 0) + np.where(t != 1, np.maximum(d.margin - x, 0), 0)


def hinge_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `hinge` by x."""
    return np.where(t != -1, x.dtype.type(1), 0) - np.where((t != 1) & (d.margin - x >= 0), x.dtype.type(1), 0)


def soft_margin(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return softplus(-t * x)


def soft_margin_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `soft_margin` by x."""
    return -t * sigmoid(-t * x)


def ranking(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    return np.maximum(d.margin - t * (x - v), 0)


def _ranked(d: Any, x: Any, t: Any, v: Any, slope: Any) -> Any:
    return np.where(d.margin - t * (x - v) >= 0, slope, 0)


def ranking_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `ranking` by x."""
    return _ranked(d, x, t, v, -t)


def ranking_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `ranking` by the target."""
    return _ranked(d, x, t, v, v - x)


def ranking_v(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `ranking` by the third operand."""
    return _ranked(d, x, t, v, t)


def _focal(d: Any, x: Any, t: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """p, 1 - p, the cross entropy, the distance of p from t to the power of gamma, its derivative, and alpha's part."""
    p, q = sigmoid(x), sigmoid(-x)
    apart = p * (1 - t) + q * t
    entropy = weighed(t, softplus(-x)) + weighed(1 - t, softplus(x))
    power = np.ones_like(apart) if d.gamma == 0 else np.power(apart, d.gamma)
    slope = np.zeros_like(apart) if d.gamma == 0 else d.gamma * np.power(apart, d.gamma - 1)
    part = d.alpha * t + (1 - d.alpha) * (1 - t) if d.alpha >= 0 else np.ones_like(apart)
    return p, q, entropy, power, slope, part


def focal(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The loss of each element, before its weight."""
    _, _, entropy, power, _, part = _focal(d, x, t)
    return part * weighed(power, entropy)


def focal_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `focal` by x."""
    p, q, entropy, power, slope, part = _focal(d, x, t)
    return part * (((1 - t) * p - t * q) * power + entropy * slope * (1 - 2 * t) * (p * q))


def focal_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `focal` by the target."""
    p, q, entropy, power, slope, part = _focal(d, x, t)
    found = part * (-x * power + entropy * slope * (q - p))
    return found + (2 * d.alpha - 1) * entropy * power if d.alpha >= 0 else found


def _mixture(d: Any, x: Any, t: Any) -> Any:
    """log(beta exp(t) + (1 - beta) exp(x))."""
    top = np.maximum(x, t)
    found = top + np.log(d.beta * np.exp(t - top) + (1 - d.beta) * np.exp(x - top))
    return np.where(np.isinf(top), top, found)


def jsd(d: Any, x: Any, t: Any, v: Any) -> Any:
    """Of the input's distribution q = exp(x) and the target's p = exp(t)."""
    q, p = np.exp(x), np.exp(t)
    if d.beta == 0:
        return np.where(p == 0, 0, p * (t - x))
    if d.beta == 1:
        return np.where(q == 0, 0, q * (x - t))
    m = _mixture(d, x, t)
    return d.beta * np.where(p == 0, 0, p * (t - m)) + (1 - d.beta) * np.where(q == 0, 0, q * (x - m))


def jsd_x(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `jsd` by x."""
    q = np.exp(x)
    if d.beta == 0:
        return -np.exp(t)
    if d.beta == 1:
        return np.where(q == 0, 0, q * (x - t + 1))
    return (1 - d.beta) * np.where(q == 0, 0, q * (x - _mixture(d, x, t)))


def jsd_t(d: Any, x: Any, t: Any, v: Any) -> Any:
    """The derivative of `jsd` by the target."""
    p = np.exp(t)
    if d.beta == 0:
        return np.where(p == 0, 0, p * (t - x + 1))
    if d.beta == 1:
        return -np.exp(x)
    return d.beta * np.where(p == 0, 0, p * (t - _mixture(d, x, t)))


def minus(f: Any) -> Any:
    """-f: the target's derivative of a loss of x - t."""
    return lambda d, x, t, v: -f(d, x, t, v)
