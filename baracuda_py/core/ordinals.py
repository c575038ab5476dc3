"""On which CUDA device an array is, found without reading its memory where its package can tell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..interop import jax_arrays
from ..interop.packages import package_name
from .arrays import read


def _of_cupy(array: Any) -> int:
    return array.data.device_id  # type: ignore[no-any-return]


def _of_jax(array: Any) -> int:
    """The CUDA ordinal of a JAX array, without reading its memory, which would order a stream.

    Tracers and deleted arrays are refused later, with the operand's name.
    """
    if isinstance(array, sys.modules["jax"].core.Tracer) or array.is_deleted():
        return -1
    return -1 if next(iter(array.devices())).platform == "cpu" else jax_arrays.hardware_id(array)


def _of_torch(array: Any) -> int:
    """The CUDA ordinal of a tensor; raises inside torch.jit.trace, where a 0-d tensor looks as it does outside."""
    if sys.modules["torch"]._C._is_tracing():
        read(array)
    return int(array.get_device())


_ORDINALS: dict[type, Callable[[Any], int]] = {}


def ordinal(array: Any) -> int:
    """The CUDA ordinal of an array, -1 on the host."""
    getter = _ORDINALS.get(type(array))
    if getter is None:
        package = package_name(type(array))
        known: dict[str, Callable[[Any], int]] = {
            "cupy": _of_cupy,
            "numpy": lambda a: -1,
            "torch": _of_torch,
            "jax": _of_jax,
        }
        getter = _ORDINALS[type(array)] = known.get(package, lambda a: read(a).device)
    return getter(array)
