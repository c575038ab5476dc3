"""What makes gradient transformations, in optax's form, of formulas."""

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


FIRST = "m_ = b1 * m + (1 - b1) * g"
MOMENTS = f"{FIRST}; v_ = b2 * v + (1 - b2) * g * g"
AHEAD = "b1 * m_ / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1 ** t)"


def adam_direction(nesterov: bool) -> str:
    """Adam's direction of moments m_ and v_."""
    above = f"({AHEAD})" if nesterov else "m_ / (1 - b1 ** t)"
    return f"{above} / (sqrt(v_ / (1 - b2 ** t) + eps_root) + eps)"


def made(
    text: str, names: tuple[str, ...], rate: Any, begun: float | Mapping[str, float] = 0.0, *,
    before: Callable[..., Mapping[str, Any]] | None = None, after: Callable[..., Any] | None = None, **numbers: Any,
) -> GradientTransformation:  # fmt: skip
    """A transformation whose formula makes `u` and, of each state s of `names`, `s_`.

    before(g=, p=): more operands, such as a norm. after(u=, p=, lr=): what an array's update is in place of u. Either
    needs params. A number of the formula may be a schedule.
    """
    rule: Expression = elementwise(text)
    reads, steps = set(rule.inputs), before is not None or after is not None

    def init(params: Any) -> State:
        def state(p: Any, value: float) -> Any:
            return jnp.full(jnp.shape(p), value, jnp.promote_types(jnp.result_type(p), jnp.float32))

        values = {name: begun.get(name, 0.0) if isinstance(begun, Mapping) else begun for name in names}
        trees = {name: jax.tree.map(lambda p, v=value: state(p, v), params) for name, value in values.items()}
        return State(jnp.zeros((), jnp.int32), trees)

    def update(grads: Any, state: State, params: Any = None, **extra: Any) -> tuple[Any, State]:
        leaves, tree = jax.tree.flatten(grads)
        if params is None and ("p" in reads or steps):
            raise InvalidProblemError("params must be given, as the step depends on them")
        count = state.count + 1
        scheduled = {n: x(state.count) if callable(x) else x for n, x in {**numbers, "lr": rate}.items()}
        given = {name: value for name, value in {**scheduled, "t": count}.items() if name in reads}
        held = {name: tree.flatten_up_to(state.trees[name]) for name in names}
        weights = tree.flatten_up_to(params) if "p" in reads or steps else leaves
        updates: list[Any] = []
        stepped: dict[str, list[Any]] = {name: [] for name in names}
        for i, g in enumerate(leaves):
            lists = {"g": g, "p": weights[i], **{name: one[i] for name, one in held.items()}}
            more = before(g=g, p=weights[i]) if before is not None else {}
            found = rule(**{name: x for name, x in lists.items() if name in reads}, **given, **more)
            results = dict(zip(rule.outputs, found if isinstance(found, tuple) else (found,), strict=True))
            u = results["u"]
            u = after(u=u, p=weights[i], lr=scheduled["lr"]) if after is not None else u
            updates.append(u.astype(g.dtype))
            for name in names:
                stepped[name].append(results[f"{name}_"])
        trees = {name: jax.tree.unflatten(tree, one) for name, one in stepped.items()}
        return jax.tree.unflatten(tree, updates), State(count, trees)

    return GradientTransformation(init, update)


__all__ = ["AHEAD", "FIRST", "MOMENTS", "GradientTransformation", "State", "adam_direction", "made"]
