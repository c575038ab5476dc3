"""A problem as a function of JAX arrays: the custom call, with a rule for vmap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
    made = [jax.ShapeDtypeStruct(one.shape, one.dtype) for _, one in problem.outputs]
    extra = [jax.ShapeDtypeStruct((workspace_bytes(problem),), np.uint8)] if problem.workspace else []
    call = jax.ffi.ffi_call(
        target.target(), [*made, *extra], vmap_method="sequential", input_output_aliases=problem.aliases
    )
    key = key_of(problem).decode()

    def apply(*arrays: Any) -> tuple[Any, ...]:
        return tuple(call(*arrays, problem=key)[: len(made)])

    def rule(size: int, flags: list[bool], *arrays: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        return batched(problem, primitive, size, flags, arrays), (True,) * len(made)

    mapped = custom_vmap(apply)
    mapped.def_vmap(rule)
    return mapped  # type: ignore[no-any-return]
