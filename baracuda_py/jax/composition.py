"""A function of several calls as one of JAX's with a gradient of its own: see `calls.composed`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ..calls.interpreters import Composed
from ..core.errors import UnsupportedError
from ..interop.jax_arrays import staging
from .gradients import conjugate, cotangent


def compose(call: Composed) -> Any:
    """The result, whose gradients for the call's operands are what its `backward` makes.

    All values are kept for it, whatever it `reads`: XLA drops those that nothing uses.
    """
    function, given, operands = call.function, call.given, call.operands
    names = [n for n, value in given.items() if isinstance(value, (jax.Array, np.ndarray))]
    facts = {n: value for n, value in given.items() if n not in names}

    def made(*arrays: Any) -> Any:
        with staging():
            return function(**dict(zip(names, arrays, strict=True)), **facts)

    def forward(*primals: Any) -> tuple[Any, Any]:
        for name, primal in zip(names, primals, strict=True):
            if primal.perturbed and name not in operands and jnp.issubdtype(primal.value.dtype, jnp.inexact):
                raise UnsupportedError(
                    f"{function.__name__} has no gradient for {name}; where it is a constant, give it through "
                    "jax.lax.stop_gradient"
                )
        values = [primal.value for primal in primals]
        y = made(*values)
        return y, (values, y if call.result else None)

    def pull(residuals: Any, dy: Any) -> tuple[Any, ...]:
        values, y = residuals
        each = dy if isinstance(dy, tuple) else (dy,)
        slopes = tuple(None if isinstance(one, SymbolicZero) else conjugate(one) for one in each)
        if all(one is None for one in slopes):
            return (None,) * len(names)
        more = {n: value for n, value in facts.items() if n not in ("out", "stream")}
        more |= {"y": y} if call.result else {}
        with staging():
            slope = slopes if isinstance(dy, tuple) else slopes[0]
            grads = call.backward(slope, **dict(zip(names, values, strict=True)), **more)
        found = dict(zip(operands, grads if isinstance(grads, tuple) else (grads,), strict=True))
        return tuple(cotangent(found[n], x) if n in found else None for n, x in zip(names, values, strict=True))

    recorded = jax.custom_vjp(made)
    recorded.defvjp(forward, pull, symbolic_zeros=True)
    return jax.jit(recorded, inline=True)(*(jnp.asarray(given[name]) for name in names))
