"""A problem as a function of JAX arrays: the custom call, with a rule for vmap."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap

from ..core.memo import memo
from . import target
from .batching import batched
from .problem import Buffer, Problem, key_of, workspace_bytes

Function = Callable[..., "tuple[Any, ...]"]


@memo()
def primitive(problem: Problem) -> Function:
    """The outputs of a problem for its inputs; not differentiable (see `gradients.function`)."""
    target.register()
    problem = dataclasses.replace(problem, workspace=target.workspace_of(problem))
    key = key_of(problem).decode()
    inputs, outputs = ([one for _, one in buffers] for buffers in (problem.inputs, problem.outputs))
    extra = [jax.ShapeDtypeStruct((workspace_bytes(problem),), np.uint8)] if problem.workspace else []

    def apply(*arrays: Any) -> tuple[Any, ...]:
        allowed = [jax.dtypes.canonicalize_dtype(one.dtype) for one in outputs]
        with _with_64_bits([*inputs, *outputs]):
            given = [_as(array, one.dtype) for array, one in zip(arrays, inputs, strict=True)]
            made = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in outputs]
            call = jax.ffi.ffi_call(
                target.target(problem), [*made, *extra], vmap_method="sequential", input_output_aliases=problem.aliases
            )
            results = call(*given, problem=key)[: len(made)]
            results = [_as(array, dtype) for array, dtype in zip(results, allowed, strict=True)]
        return _varying([_as_operands(one, arrays) for one in results], arrays)

    def rule(size: int, flags: list[bool], *arrays: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        return batched(problem, primitive, size, flags, arrays), (True,) * len(outputs)

    mapped = custom_vmap(apply)
    mapped.def_vmap(rule)
    return mapped  # type: ignore[no-any-return]


def _with_64_bits(buffers: Sequence[Buffer]) -> Any:
    """Where an operand has 64 bits and JAX allows 32: a context that allows them."""
    if all(jax.dtypes.canonicalize_dtype(one.dtype) == one.dtype for one in buffers):
        return contextlib.nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def _as(array: Any, dtype: Any) -> Any:
    return array if array.dtype == dtype else jax.lax.convert_element_type(array, dtype)


def manual_axes(array: Any) -> frozenset[str]:
    """The mesh axes of `shard_map` along which an array differs."""
    kind = jax.typeof(array) if hasattr(jax, "typeof") else jax.core.get_aval(array)
    held: Any = getattr(kind, "mat", None) or getattr(kind, "vma", ())  # newer and older JAX
    return frozenset(getattr(held, "varying", held))


def laid_out(value: Any, like: Any) -> Any:
    """An array of the shape of `like`, spread over a mesh with explicit axes as that is: part of its type in JAX."""
    if not hasattr(jax, "typeof"):  # nor are there explicit axes
        return value
    own, wanted = (getattr(jax.typeof(one), "sharding", None) for one in (value, like))
    if wanted is None or own == wanted or wanted.mesh.empty:  # an array that is on no mesh
        return value
    return jax.sharding.reshard(value, wanted)


def _as_operands(result: Any, arrays: Sequence[Any]) -> Any:
    """A result, spread over a mesh with explicit axes as the first operand of its shape is, as JAX's own ops do it."""
    like = next((one for one in arrays if one.shape == result.shape), None)
    return result if like is None else laid_out(result, like)


def _varying(results: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The results, said to differ along the mesh axes along which an input does."""
    axes = tuple(frozenset[str]().union(*map(manual_axes, arrays)))
    if not axes:
        return tuple(results)
    if hasattr(jax.lax, "pcast"):
        return tuple(jax.lax.pcast(one, axes, to="varying") for one in results)
    return tuple(jax.lax.pvary(one, axes) for one in results)
