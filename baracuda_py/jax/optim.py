"""Gradient transformations in optax's form, `init` and `update`, by formulas: a launch for each array of a tree.

    tx = optim.adamw(1e-3)
    state = tx.init(params)
    updates, state = jax.jit(tx.update)(grads, state, params)
    params = optax.apply_updates(params, updates)      # or inside optax.chain(optax.clip_by_global_norm(1.0), tx)

The formulas are optax's, with its names of arguments and its defaults. A rate is a number, a 0-d array, or a schedule,
a function of the count of steps before this one. Moments are float32 (float64 of float64), also of 16-bit parameters.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import InvalidProblemError
from ..expressions.elementwise import elementwise
from ..ops.optimizer.global_norm import global_norm
from ..ops.optimizer.orthogonalize import QUINTIC, orthogonalize
from .more_optim import acprop as acprop
from .more_optim import adopt as adopt
from .more_optim import fromage as fromage
from .more_optim import madgrad as madgrad
from .more_optim import optimistic_adam_v2 as optimistic_adam_v2
from .more_optim import optimistic_gradient_descent as optimistic_gradient_descent
from .more_optim import simplified_ademamix as simplified_ademamix
from .transformation import AHEAD, FIRST, MOMENTS, GradientTransformation, State, adam_direction, made


def sgd(learning_rate: Any, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """optax.sgd: u = -lr g, or of a trace m = momentum · m + g, of Nesterov g + momentum · m."""
    if momentum is None:
        return made("u = -lr * g", (), learning_rate)
    direction = "g + beta * m_" if nesterov else "m_"
    return made(f"m_ = beta * m + g; u = -lr * ({direction})", ("m",), learning_rate, beta=momentum)


def adam(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0, *,
    nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """optax.adam (Kingma and Ba 2015), of Nesterov's momentum optax.nadam (Dozat 2016)."""
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root}
    return made(f"{MOMENTS}; u = -lr * ({adam_direction(nesterov)})", ("m", "v"), learning_rate, **numbers)


def adamw(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    weight_decay: Any = 1e-4, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """optax.adamw (Loshchilov and Hutter 2019), of Nesterov's momentum optax.nadamw."""
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root, "weight_decay": weight_decay}
    text = f"{MOMENTS}; u = -lr * ({adam_direction(nesterov)} + weight_decay * p)"
    return made(text, ("m", "v"), learning_rate, **numbers)


def nadam(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """optax.nadam (Dozat 2016)."""
    return adam(learning_rate, b1, b2, eps, eps_root, nesterov=True)


def nadamw(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    weight_decay: Any = 1e-4,
) -> GradientTransformation:  # fmt: skip
    """optax.nadamw."""
    return adamw(learning_rate, b1, b2, eps, eps_root, weight_decay, nesterov=True)


def amsgrad(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """optax.amsgrad (Reddi et al. 2018): the largest of second moments without their bias."""
    text = (
        f"{MOMENTS}; top_ = maximum(top, v_ / (1 - b2 ** t)); "
        "u = -lr * (m_ / (1 - b1 ** t) / (sqrt(top_ + eps_root) + eps))"
    )
    return made(text, ("m", "v", "top"), learning_rate, b1=b1, b2=b2, eps=eps, eps_root=eps_root)


def adamax(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> GradientTransformation:
    """optax.adamax (Kingma and Ba 2015)."""
    text = f"{FIRST}; top_ = maximum(b2 * top, abs(g) + eps); u = -lr * (m_ / (1 - b1 ** t) / top_)"
    return made(text, ("m", "top"), learning_rate, b1=b1, b2=b2, eps=eps)


def adamaxw(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: Any = 1e-4
) -> GradientTransformation:
    """optax.adamaxw."""
    text = f"{FIRST}; top_ = maximum(b2 * top, abs(g) + eps); u = -lr * (m_ / (1 - b1 ** t) / top_ + weight_decay * p)"
    return made(text, ("m", "top"), learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay)


def radam(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    threshold: float = 5.0,
) -> GradientTransformation:  # fmt: skip
    """optax.radam (Liu et al. 2020): Adam where its variance is known, momentum before."""
    most = 2.0 / (1.0 - b2) - 1.0
    text = (
        f"{MOMENTS}; m_hat = m_ / (1 - b1 ** t); rho = most - 2 * t * b2 ** t / (1 - b2 ** t); "
        "r = sqrt(maximum((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho), 0)); "
        "u = -lr * where(rho >= threshold, r * m_hat / (sqrt(v_ / (1 - b2 ** t) + eps_root) + eps), m_hat)"
    )
    numbers: dict[str, Any] = {
        "b1": b1,
        "b2": b2,
        "eps": eps,
        "eps_root": eps_root,
        "threshold": threshold,
        "most": most,
    }
    return made(text, ("m", "v"), learning_rate, **numbers)


def adabelief(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16
) -> GradientTransformation:
    """optax.adabelief (Zhuang et al. 2020): the second moment is that of g - m."""
    text = (
        f"{FIRST}; v_ = b2 * v + (1 - b2) * (g - m_) * (g - m_) + eps_root; "
        "u = -lr * (m_ / (1 - b1 ** t) / (sqrt(v_ / (1 - b2 ** t)) + eps))"
    )
    return made(text, ("m", "v"), learning_rate, b1=b1, b2=b2, eps=eps, eps_root=eps_root)


def yogi(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3) -> GradientTransformation:
    """optax.yogi (Zaheer et al. 2018)."""
    text = (
        f"{FIRST}; v_ = v - (1 - b2) * sign(v - g * g) * g * g; "
        "u = -lr * (m_ / (1 - b1 ** t) / (sqrt(v_ / (1 - b2 ** t)) + eps))"
    )
    return made(text, ("m", "v"), learning_rate, 1e-6, b1=b1, b2=b2, eps=eps)


def adan(
    learning_rate: Any, b1: float = 0.98, b2: float = 0.92, b3: float = 0.99, eps: float = 1e-8,
    eps_root: float = 1e-8, weight_decay: Any = 0.0,
) -> GradientTransformation:  # fmt: skip
    """optax.adan (Xie et al. 2022), whose change of the gradient counts by 1 - b2."""
    text = (
        "d = where(t <= 1, 0, g - last); m_ = b1 * m + (1 - b1) * g; c_ = b2 * c + (1 - b2) * d; "
        "w = g + (1 - b2) * d; v_ = b3 * v + (1 - b3) * w * w; last_ = g; "
        "u = -lr * ((m_ / (1 - b1 ** t) + (1 - b2) * c_ / (1 - b2 ** t)) / (sqrt(v_ / (1 - b3 ** t) + eps_root) + eps)"
        " + weight_decay * p)"
    )
    numbers: dict[str, Any] = {
        "b1": b1,
        "b2": b2,
        "b3": b3,
        "eps": eps,
        "eps_root": eps_root,
        "weight_decay": weight_decay,
    }
    return made(text, ("m", "c", "v", "last"), learning_rate, **numbers)


def ademamix(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, b3: Any = 0.9999, alpha: Any = 5.0, eps: float = 1e-8,
    eps_root: float = 0.0, weight_decay: Any = 0.0,
) -> GradientTransformation:  # fmt: skip
    """optax.contrib.ademamix (Pagliardini, Ablin and Grangier 2024); b3 and alpha may be schedules."""
    text = (
        f"{MOMENTS}; slow_ = b3 * slow + (1 - b3) * g; "
        "u = -lr * ((m_ / (1 - b1 ** t) + alpha * slow_) / (sqrt(v_ / (1 - b2 ** t) + eps_root) + eps)"
        " + weight_decay * p)"
    )
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "b3": b3, "alpha": alpha, "eps": eps, "eps_root": eps_root}
    return made(text, ("m", "v", "slow"), learning_rate, weight_decay=weight_decay, **numbers)


def adadelta(
    learning_rate: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: Any = 0.0
) -> GradientTransformation:
    """optax.adadelta (Zeiler 2012)."""
    text = (
        "w = g + weight_decay * p; v_ = rho * v + (1 - rho) * w * w; d = sqrt(delta + eps) / sqrt(v_ + eps) * w; "
        "delta_ = rho * delta + (1 - rho) * d * d; u = -lr * d"
    )
    return made(text, ("v", "delta"), learning_rate, rho=rho, eps=eps, weight_decay=weight_decay)


def rprop(
    learning_rate: float, eta_minus: float = 0.5, eta_plus: float = 1.2, min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> GradientTransformation:  # fmt: skip
    """optax.rprop (Riedmiller and Braun 1993); learning_rate is the first size of steps.

    As there, a step is that of the gradient before.
    """
    text = (
        "s = g * last; size_ = where(s == 0, size, clamp(size * where(s > 0, grow, shrink), low, high)); "
        "last_ = where(s < 0, 0, size_ * sign(g)); u = where(s < 0, 0, -last)"
    )
    numbers: dict[str, Any] = {"grow": eta_plus, "shrink": eta_minus, "low": min_step_size, "high": max_step_size}
    return made(text, ("size", "last"), 0.0, {"size": learning_rate}, **numbers)


def sign_sgd(learning_rate: Any) -> GradientTransformation:
    """optax.sign_sgd (Bernstein et al. 2018)."""
    return made("u = -lr * sign(g)", (), learning_rate)


def _trust(above: Any, below: Any, times: float = 1.0, eps: float = 0.0) -> Any:
    """times ‖above‖ / (‖below‖ + eps), 1 where either is 0."""
    a, b = global_norm([above]), global_norm([below])
    return jnp.where((a == 0) | (b == 0), 1.0, times * a / (b + eps))


def lamb(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, eps_root: float = 0.0,
    weight_decay: Any = 0.0,
) -> GradientTransformation:  # fmt: skip
    """optax.lamb (You et al. 2020): Adam's direction of each array, as long as the array."""
    numbers: dict[str, Any] = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root, "weight_decay": weight_decay}

    def after(u: Any, p: Any, lr: Any) -> Any:
        return u * (-lr * _trust(p, u)).astype(u.dtype)

    return made(
        f"{MOMENTS}; u = {adam_direction(False)} + weight_decay * p", ("m", "v"), learning_rate, after=after, **numbers
    )


def lars(
    learning_rate: Any, weight_decay: float = 0.0, trust_coefficient: float = 0.001, eps: float = 0.0,
    momentum: float = 0.9, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """optax.lars (You, Gitman and Ginsburg 2017): momentum of gradients as long as their arrays, all of them."""

    def before(g: Any, p: Any) -> dict[str, Any]:
        return {"trust": _trust(p, _DECAYED(g=g, p=p, decay=weight_decay), trust_coefficient, eps)}

    direction = "d + beta * m_" if nesterov else "m_"
    text = f"d = -lr * trust * (g + weight_decay * p); m_ = beta * m + d; u = {direction}"
    return made(text, ("m",), learning_rate, before=before, weight_decay=weight_decay, beta=momentum)


def muon(
    learning_rate: Any, ns_coeffs: Any = QUINTIC, ns_steps: int = 5, beta: float = 0.95, eps: float = 1e-8,
    weight_decay: Any = 0.0, *, nesterov: bool = True, adam_b1: float = 0.9, adam_b2: float = 0.999,
    adam_eps_root: float = 0.0, adam_weight_decay: Any = 0.0, adam_learning_rate: Any = None, element: Any = None,
) -> GradientTransformation:  # fmt: skip
    """optax.contrib.muon (Jordan et al. 2024): matrices by their momenta orthogonalised, other arrays by AdamW.

    ns_coeffs: three numbers, a triple for each step, or "polar_express". element: what the iterations compute in,
    "bfloat16" or None for that of the momentum. The step is as in optax longer by sqrt(max(1, columns / rows)).
    """

    def after(u: Any, p: Any, lr: Any) -> Any:
        found = orthogonalize(u, ns_steps, ns_coeffs, element=element, eps=eps).astype(u.dtype)
        longer = math.sqrt(max(1.0, u.shape[1] / max(u.shape[0], 1)))
        return -lr * (longer * found + weight_decay * p)

    ahead = AHEAD.replace("b1", "beta") if nesterov else "m_ / (1 - beta ** t)"
    matrices = made(
        f"m_ = beta * m + (1 - beta) * g; u = {ahead}", ("m",), learning_rate, after=after, beta=beta
    )  # fmt: skip
    rate = learning_rate if adam_learning_rate is None else adam_learning_rate
    rest = adamw(rate, adam_b1, adam_b2, eps, adam_eps_root, adam_weight_decay, nesterov=nesterov)
    return _parted(lambda p: jnp.ndim(p) == 2, matrices, rest)


def _parted(chosen: Any, first: GradientTransformation, second: GradientTransformation) -> GradientTransformation:
    """One transformation of the arrays that are chosen, another of the others; the state is that of both."""

    def split(tree: Any, like: list[Any]) -> tuple[list[Any], list[Any]]:
        leaves = jax.tree.leaves(tree)
        return (
            [x for x, p in zip(leaves, like, strict=True) if chosen(p)],
            [x for x, p in zip(leaves, like, strict=True) if not chosen(p)],
        )

    def init(params: Any) -> tuple[State, State]:
        ours, theirs = split(params, jax.tree.leaves(params))
        return first.init(ours), second.init(theirs)

    def update(grads: Any, state: tuple[State, State], params: Any = None, **extra: Any) -> Any:
        if params is None:
            raise InvalidProblemError("params must be given, as the step depends on them")
        leaves, tree = jax.tree.flatten(params)
        parts = zip((first, second), split(grads, leaves), state, split(params, leaves), strict=True)
        found = [one.update(g, held, p) for one, g, held, p in parts]
        made_of = [iter(updates) for updates, _ in found]
        updates = [next(made_of[0] if chosen(p) else made_of[1]) for p in leaves]
        return jax.tree.unflatten(tree, updates), (found[0][1], found[1][1])

    return GradientTransformation(init, update)


def ema(decay: float, debias: bool = True) -> GradientTransformation:
    """optax.ema: u is the mean of what comes, by default without the bias of its beginning."""
    return made(f"m_ = decay * m + (1 - decay) * g; u = {'m_ / (1 - decay ** t)' if debias else 'm_'}", ("m",), 0.0,
                decay=decay)  # fmt: skip


_DECAYED = elementwise("g + decay * p")


def lion(learning_rate: Any, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 1e-3) -> GradientTransformation:
    """optax.lion (Chen et al. 2023)."""
    text = "m_ = b2 * m + (1 - b2) * g; u = -lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)"
    return made(text, ("m",), learning_rate, b1=b1, b2=b2, weight_decay=weight_decay)


def adagrad(learning_rate: Any, initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """optax.adagrad (Duchi, Hazan and Singer 2011)."""
    text = "s_ = s + g * g; u = where(s_ > 0, -lr * g / sqrt(s_ + eps), 0)"
    return made(text, ("s",), learning_rate, initial_accumulator_value, eps=eps)


def rmsprop(
    learning_rate: Any, decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
    centered: bool = False, momentum: float | None = None, nesterov: bool = False, bias_correction: bool = False,
) -> GradientTransformation:  # fmt: skip
    """optax.rmsprop (Tieleman and Hinton 2012; centered: Graves 2013), by default with eps inside the root as there."""
    fair = " / (1 - decay ** t)" if bias_correction else ""
    spread = f"v_{fair}"
    text, names = "v_ = decay * v + (1 - decay) * g * g", ["v"]
    if centered:
        text, names = f"{text}; mean_ = decay * mean + (1 - decay) * g", ["v", "mean"]
        spread = f"{spread} - square(mean_{fair})"
    below = f"sqrt({spread} + eps)" if eps_in_sqrt else f"(sqrt({spread}) + eps)"
    text = f"{text}; d = -lr * g / {below}"
    numbers: dict[str, Any] = {"decay": decay, "eps": eps}
    if momentum is None:
        text = f"{text}; u = d"
    else:
        text = f"{text}; m_ = beta * m + d; u = {'d + beta * m_' if nesterov else 'm_'}"
        numbers["beta"] = momentum
        names.append("m")
    return made(text, tuple(names), learning_rate, {"v": initial_scale}, **numbers)
