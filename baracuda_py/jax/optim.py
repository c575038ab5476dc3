"""Gradient transformations in optax's form, `init` and `update`, by formulas: a launch for each array of a tree.

    tx = optim.adamw(1e-3)
    state = tx.init(params)
    updates, state = jax.jit(tx.update)(grads, state, params)
    params = optax.apply_updates(params, updates)      # or inside optax.chain(optax.clip_by_global_norm(1.0), tx)

The formulas are optax's, with its names of arguments and its defaults. A rate is a number, a 0-d array, or a schedule,
a function of the count of steps before this one. Moments are float32 (float64 of float64), also of 16-bit parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.errors import InvalidProblemError
from ..expressions.elementwise import Expression, elementwise


class GradientTransformation(NamedTuple):
    """`init(params)` gives a state, `update(grads, state, params)` the updates to add to params, and a state."""

    init: Callable[[Any], Any]
    update: Callable[..., Any]


class State(NamedTuple):
    """The steps taken, and trees like that of the parameters, by the names that formulas have for them."""

    count: Any
    trees: Mapping[str, Any]


def _made(text: str, names: tuple[str, ...], rate: Any, begun: float = 0.0, **numbers: Any) -> GradientTransformation:
    """A transformation whose formula makes `u` and, of each state s of `names`, `s_`."""
    rule: Expression = elementwise(text)
    reads = set(rule.inputs)

    def init(params: Any) -> State:
        def state(p: Any) -> Any:
            return jnp.full(jnp.shape(p), begun, jnp.promote_types(jnp.result_type(p), jnp.float32))

        return State(jnp.zeros((), jnp.int32), {name: jax.tree.map(state, params) for name in names})

    def update(grads: Any, state: State, params: Any = None, **extra: Any) -> tuple[Any, State]:
        leaves, tree = jax.tree.flatten(grads)
        if params is None and "p" in reads:
            raise InvalidProblemError("params must be given, as weights decay")
        count = state.count + 1
        given = {**numbers, "lr": rate(state.count) if callable(rate) else rate, "t": count}
        given = {name: value for name, value in given.items() if name in reads}
        held = {name: tree.flatten_up_to(state.trees[name]) for name in names}
        weights = tree.flatten_up_to(params) if "p" in reads else leaves
        updates: list[Any] = []
        after: dict[str, list[Any]] = {name: [] for name in names}
        for i, g in enumerate(leaves):
            lists = {"g": g, "p": weights[i], **{name: one[i] for name, one in held.items()}}
            made = rule(**{name: x for name, x in lists.items() if name in reads}, **given)
            results = dict(zip(rule.outputs, made if isinstance(made, tuple) else (made,), strict=True))
            updates.append(results["u"].astype(g.dtype))
            for name in names:
                after[name].append(results[f"{name}_"])
        trees = {name: jax.tree.unflatten(tree, one) for name, one in after.items()}
        return jax.tree.unflatten(tree, updates), State(count, trees)

    return GradientTransformation(init, update)


_MOMENTS = "m_ = b1 * m + (1 - b1) * g; v_ = b2 * v + (1 - b2) * g * g"
_ADAM = "m_ / (1 - b1 ** t) / (sqrt(v_ / (1 - b2 ** t) + eps_root) + eps)"


def sgd(learning_rate: Any, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """optax.sgd: u = -lr g, or of a trace m = momentum · m + g, of Nesterov g + momentum · m."""
    if momentum is None:
        return _made("u = -lr * g", (), learning_rate)
    direction = "g + beta * m_" if nesterov else "m_"
    return _made(f"m_ = beta * m + g; u = -lr * ({direction})", ("m",), learning_rate, beta=momentum)


def adam(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """optax.adam (Kingma and Ba 2015)."""
    numbers = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root}
    return _made(f"{_MOMENTS}; u = -lr * ({_ADAM})", ("m", "v"), learning_rate, **numbers)


def adamw(
    learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    weight_decay: float = 1e-4,
) -> GradientTransformation:  # fmt: skip
    """optax.adamw (Loshchilov and Hutter 2019)."""
    numbers = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root, "weight_decay": weight_decay}
    return _made(f"{_MOMENTS}; u = -lr * ({_ADAM} + weight_decay * p)", ("m", "v"), learning_rate, **numbers)


def lion(learning_rate: Any, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 1e-3) -> GradientTransformation:
    """optax.lion (Chen et al. 2023)."""
    text = "m_ = b2 * m + (1 - b2) * g; u = -lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)"
    return _made(text, ("m",), learning_rate, b1=b1, b2=b2, weight_decay=weight_decay)


def adagrad(learning_rate: Any, initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """optax.adagrad (Duchi, Hazan and Singer 2011)."""
    text = "s_ = s + g * g; u = where(s_ > 0, -lr * g / sqrt(s_ + eps), 0)"
    return _made(text, ("s",), learning_rate, initial_accumulator_value, eps=eps)


def rmsprop(
    learning_rate: Any, decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0
) -> GradientTransformation:
    """optax.rmsprop (Tieleman and Hinton 2012), with eps inside the root as there."""
    text = "v_ = decay * v + (1 - decay) * g * g; u = -lr * g / sqrt(v_ + eps)"
    return _made(text, ("v",), learning_rate, initial_scale, decay=decay, eps=eps)
