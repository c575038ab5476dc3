"""vmap: a problem with one more axis where the descriptor can hold it, else one call after the other.

An op is independent along a leading axis where prepending an extent to a shape field of its descriptor (shifting the
fields that name axes) prepends it to every operand that is mapped, and to every output, and to nothing else; or where
multiplying `batch_size` does so. Extents are checked with one that occurs nowhere else, so that no equality is chance.
A random stream is numbered by element: ops that draw from one are called one after the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
from jax import numpy as jnp

from ..core.args import Operand, scalars_of
from ..core.errors import BaracudaError
from .problem import Buffer, Problem

_PROBE = 1009  # a prime that no extent of the problem is


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
    if problem.plan.coupled(problem.desc):
        return None
    random = any(spec.name == "seed" for spec in scalars_of(problem.plan.args))
    if random and getattr(problem.desc, "dropout_p", 1.0) != 0.0:
        return None
    for change in _changes(problem):
        if _fits(problem, change, _PROBE, mapped) is not None:
            return _fits(problem, change, size, mapped)
    return None


Change = Callable[[Any, int], Any]  # a descriptor and a number of items → the descriptor of all of them


def _changes(problem: Problem) -> Iterator[tuple[Change, bool]]:
    """Ways to widen the descriptor, and whether each multiplies an extent instead of prepending one."""
    fields = {f.name for f in dataclasses.fields(problem.desc)}
    stars = [[dim[1:] if dim[0] == "*" else "" for dim in spec.dims] for spec, _ in problem.operands]
    inner = {name for dims in stars for name in dims[1:]}  # an extent before one of these lies between others
    known = [name for name in dict.fromkeys((*(dims[0] for dims in stars if dims), "shape")) if name in fields - inner]
    for count in range(1, len(known) + 1):
        for chosen in itertools.combinations(known, count):
            yield partial(_prepended, names=chosen), False
    if "batch_size" in fields:
        yield (lambda desc, size: dataclasses.replace(desc, batch_size=size * desc.batch_size)), True


def _prepended(desc: Any, size: int, names: tuple[str, ...]) -> Any:
    """The descriptor with an extent before those of some shapes; axes that count from the front move by one."""
    facts: dict[str, Any] = {name: (size, *getattr(desc, name)) for name in names}
    for field in dataclasses.fields(desc):
        if field.name.startswith(("axis", "axes")):
            facts[field.name] = _shifted(getattr(desc, field.name))
    return dataclasses.replace(desc, **facts)


def _shifted(axes: Any) -> Any:
    if isinstance(axes, tuple):
        return tuple(_shifted(axis) for axis in axes)
    return axes + 1 if isinstance(axes, int) and axes >= 0 else axes


def _fits(problem: Problem, change: tuple[Change, bool], size: int, mapped: set[str]) -> Problem | None:
    """The wider problem, if every operand gets the axis that must, and no other changes."""
    make, folds = change
    try:
        desc = make(problem.desc, size)
    except BaracudaError:
        return None
    buffers: dict[str, Buffer] = {}
    like = {spec.like for spec, _ in problem.operands if spec.like}
    for spec, (one,) in sorted(problem.operands, key=lambda held: held[0].like is not None):
        if spec.like:
            new = buffers[spec.like].shape
        else:
            found = _shape(spec, one, problem.desc, desc, size, folds, spec.name in mapped, spec.name in like)
            if found is None:
                return None
            new = found
        if spec.writes and math.prod(new) != size * math.prod(one.shape):
            return None
        buffers[spec.name] = one._replace(shape=new)
    arrays = tuple((name, (buffers[name],)) for name, _ in problem.arrays)
    wider = dataclasses.replace(problem, desc=desc, arrays=arrays, workspace=0)
    try:
        wider.check()
    except BaracudaError:
        return None
    return wider


def _shape(
    spec: Operand, one: Buffer, before: Any, after: Any, size: int, folds: bool, mapped: bool, like: bool
) -> tuple[int, ...] | None:
    """An operand's shape in the wider problem; None where the declaration does not give it the axis it must have."""
    old, new = spec.shape(before), spec.shape(after)
    wide = (size * old[0], *old[1:]) if folds and old else (size, *old)
    if new not in (old, wide) or (new == old and (mapped or spec.writes)):
        return None
    if new == old:
        return one.shape
    if not spec.broadcast:
        return new
    if not mapped and not like and (len(one.shape) < len(old) or not folds or one.shape[0] == 1):
        return one.shape  # broadcast to every item as to one
    rest = (*(1,) * (len(old) - len(one.shape)), *one.shape)
    if not folds:
        return (size, *rest)
    return None if like and rest[:1] != old[:1] else (size * old[0], *rest[1:])
