"""Arrays made where another one is: its package and its device; without one CuPy's, or NumPy's where no GPU is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.device import resolve_device
from ...core.outputs import allocating, handed, maker
from ...calls.rehearsal import rehearsing
from ...core.ordinals import ordinal
from ...interop.packages import package_name
from ...core.arrays import read
from ...interop.jax_arrays import placed, staged, unstaged

Write = Callable[[Array], Any]


def new(shape: tuple[int, ...], element: ElementKind, like: Any, write: Write | None = None) -> Array:
    """An array that `write` fills; of JAX, which has no arrays to be written, from a buffer that is handed over.

    A JAX array that stands for one in a trace has no device: what is made is a constant of the trace.
    """
    if like is not None and package_name(type(like)) == "jax" and staged((like,)):
        host = np.empty(shape, element.carrier)
        if write is not None:
            with unstaged():  # NumPy's array is written, and is no operand of the program
                write(host)
        return sys.modules["jax"].numpy.asarray(host)
    if like is not None:
        read(like, "like")
    device = resolve_device().ordinal if like is None else ordinal(like)
    made = maker(like, shape, element, device)()
    if write is not None and not rehearsing():
        write(made)
    return made if like is None else handed(made, element, like)


def from_host(values: np.ndarray, like: Any, stream: Any = None) -> Array:
    """NumPy's array where another one is, in the order of a stream (default: the current one of its device).

    It is a copy, to a GPU through pinned memory or not as that package does it.
    """
    package = "" if like is None else package_name(type(like))
    if package == "jax":
        return placed(values, like)
    device = resolve_device().ordinal if like is None else ordinal(like)
    if package == "torch":
        with allocating(package, device, stream):
            return sys.modules["torch"].from_numpy(values).to(like.device)
    if device < 0:
        return values
    import cupy

    with allocating("cupy", device, stream):
        return cupy.asarray(values)


def kind_of(element: Any, default: ElementKind) -> ElementKind:
    """The element that is asked for."""
    return default if element is None else ElementKind.of(element)


def number_kind(*numbers: Any) -> ElementKind:
    """PyTorch's dtype of Python numbers: int64, float32, complex64, bool."""
    if all(isinstance(one, (bool, np.bool_)) for one in numbers):
        return ElementKind.BOOL
    if any(isinstance(one, (complex, np.complexfloating)) for one in numbers):
        return ElementKind.C64
    whole = all(isinstance(one, (int, np.integer)) for one in numbers)
    return ElementKind.I64 if whole else ElementKind.F32
