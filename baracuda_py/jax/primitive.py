"""A problem as a function of JAX arrays: the custom call, with a rule for vmap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap

from ..core.memo import memo
from . import target
from .batching import batched
from .problem import Problem, key_of, workspace_bytes

Function = Callable[..., "tuple[Any, ...]"]


@memo()
def primitive(problem: Problem) -> Function:
    """The outputs of a problem for its inputs; not differentiable (see `gradients.function`)."""
    target.register()
    problem = dataclasses.replace(problem, workspace=target.workspace_of(problem))
    name, key = target.target(), key_of(problem).decode()
    made = [jax.ShapeDtypeStruct(one.shape, one.dtype) for _, one in problem.outputs]
    extra = [jax.ShapeDtypeStruct((workspace_bytes(problem),), np.uint8)] if problem.workspace else []
    call = jax.ffi.ffi_call(name, [*made, *extra], vmap_method="sequential", input_output_aliases=problem.aliases)

    def apply(*arrays: Any) -> tuple[Any, ...]:
        return _varying(call(*arrays, problem=key)[: len(made)], arrays)

    def rule(size: int, flags: list[bool], *arrays: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        return batched(problem, primitive, size, flags, arrays), (True,) * len(made)

    mapped = custom_vmap(apply)
    mapped.def_vmap(rule)
    return mapped  # type: ignore[no-any-return]


def manual_axes(array: Any) -> frozenset[str]:
    """The mesh axes of `shard_map` along which an array differs."""
    kind = jax.typeof(array)
    held: Any = getattr(kind, "mat", None) or getattr(kind, "vma", ())  # newer and older JAX
    return frozenset(getattr(held, "varying", held))


def _varying(results: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The results, said to differ along the mesh axes along which an input does."""
    axes = tuple(frozenset[str]().union(*map(manual_axes, arrays)))
    if not axes:
        return tuple(results)
    if hasattr(jax.lax, "pcast"):
        return tuple(jax.lax.pcast(one, axes, to="varying") for one in results)
    return tuple(jax.lax.pvary(one, axes) for one in results)
