"""Further gradient transformations of `optim`, each of one formula: optimistic ones, and some of optax.contrib."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..ops.optimizer.global_norm import global_norm
from .transformation import FIRST, MOMENTS, GradientTransformation, adam_direction, made


def optimistic_gradient_descent(learning_rate: Any, alpha: Any = 1.0, beta: Any = 1.0) -> GradientTransformation:
    """optax.optimistic_gradient_descent (Mokhtari et al. 2020): u = -lr ((alpha + beta) g - beta · the g before)."""
    text = "u = -lr * ((alpha + beta) * g - beta * where(t <= 1, g, last)); last_ = g"
    return made(text, ("last",), learning_rate, alpha=alpha, beta=beta)


def optimistic_adam_v2(
    learning_rate: Any, *, alpha: float = 1.0, beta: float = 1.0, b1: float = 0.9, b2: float = 0.999,
    eps: float = 1e-8, eps_root: float = 0.0, nesterov: bool = True,
) -> GradientTransformation:  # fmt: skip
    """optax.optimistic_adam_v2 (Daskalakis et al. 2018): the same of Adam's directions."""
    text = (
        f"{MOMENTS}; last_ = {adam_direction(nesterov)}; "
        "u = -lr * ((alpha + beta) * last_ - beta * where(t <= 1, last_, last))"
    )
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root}
    return made(text, ("m", "v", "last"), learning_rate, alpha=alpha, beta=beta, **numbers)


def fromage(learning_rate: Any, min_norm: float = 1e-6) -> GradientTransformation:
    """optax.fromage (Bernstein et al. 2020): each array's gradient as long as the array, and shrunk together."""

    def before(g: Any, p: Any) -> dict[str, Any]:
        above, below = (jnp.maximum(global_norm([one]), min_norm) for one in (p, g))
        return {"trust": jnp.where((above == 0) | (below == 0), 1.0, above / below)}

    return made("c = 1 / sqrt(1 + lr * lr); u = (c - 1) * p - lr * c * trust * g", (), learning_rate, before=before)


def acprop(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16,
    weight_decay: float = 0.0,
) -> GradientTransformation:  # fmt: skip
    """optax.contrib.acprop (Zhuang et al. 2021): g over the root of the second moment of g - m before this step."""
    text = (
        f"{FIRST}; v_ = b2 * v + (1 - b2) * square(g - m) + eps_root; "
        "h = where(t <= 1, 1, v / (1 - b2 ** maximum(t - 1, 1))); u = -lr * (g / (sqrt(h) + eps) + weight_decay * p)"
    )
    return made(text, ("m", "v"), learning_rate, b1=b1, b2=b2, eps=eps, eps_root=eps_root, weight_decay=weight_decay)


def adopt(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.9999, eps: float = 1e-6, *, nesterov: bool = False,
    use_clipping: bool = True,
) -> GradientTransformation:  # fmt: skip
    """optax.contrib.adopt (Taniguchi et al. 2024), whose clip_value_fn is the fourth root of the count of steps."""
    ahead = "where(t <= 1, m_, b1 * m_ + (1 - b1) * d)" if nesterov else "m_"
    clipped = "clamp(w, -c, c)" if use_clipping else "w"
    text = (
        "v_ = where(t <= 1, g * g, b2 * v + (1 - b2) * g * g); w = g / maximum(sqrt(v), eps); "
        f"c = sqrt(sqrt((t - 1) * 1.0)); d = {clipped}; m_ = where(t <= 1, m, b1 * m + (1 - b1) * d); u = -lr * {ahead}"
    )
    return made(text, ("m", "v"), learning_rate, b1=b1, b2=b2, eps=eps)


def simplified_ademamix(
    learning_rate: Any, b1: float = 0.99, b2: float = 0.95, alpha: Any = 0.0, eps: float = 1e-8,
    eps_root: float = 0.0, weight_decay: float = 0.0,
) -> GradientTransformation:  # fmt: skip
    """optax.contrib.simplified_ademamix (Morwani et al. 2025); alpha may be a schedule."""
    text = (
        "m_ = b1 * m + g; v_ = b2 * v + (1 - b2) * g * g; "
        "u = -lr * ((m_ + alpha * g) / (sqrt(v_ / (1 - b2 ** t) + eps_root) + eps) + weight_decay * p)"
    )
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "alpha": alpha, "eps": eps, "eps_root": eps_root}
    return made(text, ("m", "v"), learning_rate, weight_decay=weight_decay, **numbers)


def madgrad(
    learning_rate: Any, momentum: float = 0.9, weight_decay: float = 0.0, eps: float = 1e-6
) -> GradientTransformation:
    """optax.contrib.madgrad (Defazio and Jelassi 2022): dual averaging from the first parameters, x."""
    text = (
        "w = g + weight_decay * p; c = (lr + eps) * sqrt(t * 1.0); v_ = v + c * w * w; s_ = s + c * w; "
        "x_ = where(t <= 1, p, x); u = (1 - momentum) * (x_ - s_ / (cbrt(v_) + eps) - p)"
    )
    return made(text, ("v", "s", "x"), learning_rate, momentum=momentum, weight_decay=weight_decay, eps=eps)
