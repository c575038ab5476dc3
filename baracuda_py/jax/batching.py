"""vmap: a problem with one more axis where the descriptor can hold it (`core.batching`), else call after call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp

from ..core import batching
from ..core.errors import BaracudaError
from .problem import Buffer, Problem


def batched(
    problem: Problem, call: Callable[[Problem], Callable[..., Any]], size: int, flags: Sequence[bool],
    arrays: Sequence[Any],
) -> tuple[Any, ...]:  # fmt: skip
    """The outputs for every item along axis 0 of the arrays that `flags` mark, stacked along theirs."""
    wider = None if size == 0 else _wider(problem, size, flags)
    if wider is None:
        return _sequential(problem, call, size, flags, arrays)
    given = [
        _arranged(array, flag, one, new, size)
        for array, flag, (_, one), (_, new) in zip(arrays, flags, problem.inputs, wider.inputs, strict=True)
    ]
    made = call(wider)(*given)
    return tuple(jnp.reshape(array, (size, *one.shape)) for array, (_, one) in zip(made, problem.outputs, strict=True))


def _sequential(
    problem: Problem, call: Callable[[Problem], Callable[..., Any]], size: int, flags: Sequence[bool],
    arrays: Sequence[Any],
) -> tuple[Any, ...]:  # fmt: skip
    if size == 0:
        return tuple(jnp.zeros((0, *one.shape), one.dtype) for _, one in problem.outputs)
    mapped = tuple(array for array, flag in zip(arrays, flags, strict=True) if flag)

    def one(items: tuple[Any, ...]) -> tuple[Any, ...]:
        rest = iter(items)
        given = [next(rest) if flag else array for array, flag in zip(arrays, flags, strict=True)]
        return call(problem)(*given)  # type: ignore[no-any-return]

    return jax.lax.map(one, mapped)  # type: ignore[no-any-return]


def _arranged(array: Any, flag: bool, one: Buffer, new: Buffer, size: int) -> Any:
    """An input as the wider problem takes it: as it is, or repeated for every item."""
    if not flag:
        if new == one:
            return array
        array = jnp.broadcast_to(array, (size, *one.shape))
    if math.prod(new.shape) != math.prod(array.shape):  # a batch of its own that was broadcast
        lead = new.shape[0] // size
        rank = len(new.shape) - 1
        array = jnp.reshape(array, (size, *(1,) * (rank + 1 - len(one.shape)), *one.shape))
        array = jnp.broadcast_to(array, (size, lead, *new.shape[1:]))
    return jnp.reshape(array, new.shape)


def _wider(problem: Problem, size: int, flags: Sequence[bool]) -> Problem | None:
    """The problem of all items at once, or None where its declaration does not show that there is one."""
    names = [name for name, _ in problem.inputs]
    mapped = {name for name, flag in zip(names, flags, strict=True) if flag}
    if mapped & {name for name, _ in problem.traced} or any(spec.many for spec, _ in problem.operands):
        return None
    buffers = {spec.name: one for spec, (one,) in problem.operands}

    def wider(desc: Any, shapes: batching.Shapes) -> Problem:
        arrays = tuple((name, (buffers[name]._replace(shape=shapes[name]),)) for name, _ in problem.arrays)
        return dataclasses.replace(problem, desc=desc, arrays=arrays, workspace=0)

    def check(desc: Any, shapes: batching.Shapes) -> bool:
        try:
            wider(desc, shapes).check()
        except BaracudaError:
            return False
        return True

    held = [(spec, one.shape) for spec, (one,) in problem.operands]
    found = batching.batched(problem.plan, problem.desc, held, mapped, size, check)
    return None if found is None else wider(*found)
