"""Arrays of any package as (pointer, shape, strides, element, device), and back.

Readers are chosen once per type. CuPy, NumPy and torch are read by their own attributes (0.1–0.6 µs);
JAX goes through DLPack, which also orders our stream after XLA's; anything else through the CUDA array
interface or DLPack. `Package` holds what the layers above need of an array library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core.element import ElementKind
from ..core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from ..core.tensor import TensorRef, dense_strides
from . import jax_arrays
from .torch_rules import refuse


class Reading(NamedTuple):
    """What a reader returns. Strides are in elements, device is -1 for host memory; `owner` keeps memory alive."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    device: int
    readonly: bool = False
    owner: Any = None


def _elements(strides: tuple[int, ...], itemsize: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    result = []
    for stride, extent in zip(strides, shape, strict=True):
        step, rest = divmod(stride, itemsize)
        if rest and extent > 1:
            raise UnsupportedError(f"a stride of {stride} bytes is not a multiple of the {itemsize}-byte element")
        result.append(step)
    return tuple(result)


def _read_ref(a: TensorRef) -> Reading:
    return Reading(a.ptr, a.shape, a.strides, a.element, a.device)  # type: ignore[arg-type]


def _read_cupy(a: Any) -> Reading:
    element = ElementKind.of(a.dtype)
    return Reading(a.data.ptr, a.shape, _elements(a.strides, a.itemsize, a.shape), element, a.data.device_id)


def _read_numpy(a: np.ndarray) -> Reading:
    element = ElementKind.of(a.dtype)
    strides = _elements(a.strides, a.itemsize, a.shape)
    return Reading(a.__array_interface__["data"][0], a.shape, strides, element, -1, not a.flags.writeable)


def _read_torch(a: Any) -> Reading:
    refuse(a)
    if a.layout is not sys.modules["torch"].strided:
        raise UnsupportedError(f"torch layout {a.layout} is not supported; call .to_dense()")
    return Reading(a.data_ptr(), tuple(a.shape), a.stride(), ElementKind.of(a.dtype), a.get_device())


def _read_jax(a: Any) -> Reading:
    if jax_arrays.place(a) == "cpu":
        return _read_numpy(np.asarray(a))._replace(readonly=True, owner=a)
    import cupy

    memory = jax_arrays.locate(a, cupy.cuda.get_current_stream().ptr)
    strides = dense_strides(a.shape) if memory.strides is None else memory.strides
    return Reading(memory.ptr, a.shape, strides, ElementKind.of(a.dtype), memory.device, True, memory.capsule)


def _from_dlpack(a: Any) -> Reading:
    import cupy

    try:
        held = cupy.from_dlpack(a)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidProblemError(
            f"{type(a).__name__} refused DLPack ({error}); give a detached, dense device array"
        ) from error
    return _read_cupy(held)._replace(owner=held)


def _read_cai(a: Any) -> Reading:
    facts = a.__cuda_array_interface__
    dtype = np.dtype(facts["typestr"])
    shape = tuple(facts["shape"])
    strides = facts.get("strides")
    steps = dense_strides(shape) if strides is None else _elements(tuple(strides), dtype.itemsize, shape)
    pointer, readonly = facts["data"]
    _order_after(facts.get("stream"))
    return Reading(pointer, shape, steps, ElementKind.of(dtype), _device_of(pointer), readonly, a)


def _order_after(stream: int | None) -> None:
    """The current stream waits for the producer's (CUDA array interface v3), by event and not by the host."""
    if stream is None:
        return
    import cupy

    current = cupy.cuda.get_current_stream()
    producer = 0 if stream == 1 else stream
    if producer != current.ptr:
        event = cupy.cuda.Event(disable_timing=True)
        event.record(cupy.cuda.Stream.from_external(_Stream(producer)))
        current.wait_event(event)


class _Stream:
    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def _device_of(pointer: int) -> int:
    from cupy.cuda import runtime

    return int(runtime.pointerGetAttributes(pointer).device) if pointer else int(runtime.getDevice())


_READERS: dict[type, Callable[[Any], Reading]] = {TensorRef: _read_ref, np.ndarray: _read_numpy}


def _reader(array: Any) -> Callable[[Any], Reading] | None:
    kind = type(array)
    root = package_name(kind)
    if issubclass(kind, np.ndarray):  # memmap and the like
        return _read_numpy
    if root == "cupy" and hasattr(kind, "data"):
        return _read_cupy
    if root == "torch" and hasattr(kind, "data_ptr"):
        return _read_torch
    if root == "jax" and jax_arrays.is_traced(kind):
        return jax_arrays.refuse_traced
    if root == "jax" and hasattr(kind, "devices"):
        return _read_jax
    if hasattr(array, "__cuda_array_interface__"):
        return _read_cai
    if hasattr(array, "__dlpack__"):
        return _from_dlpack
    return None


def package_name(kind: type) -> str:
    """The array package a type belongs to: cupy, torch, jax, numpy, or its module's root."""
    root = kind.__module__.partition(".")[0]
    return {"jaxlib": "jax", "_cupy": "cupy"}.get(root, root)


def read(array: Any, name: str = "array") -> Reading:
    """Read any array; the error names the operand."""
    kind = type(array)
    reader = _READERS.get(kind)
    if reader is None:
        reader = _reader(array)
        if reader is None:
            raise InvalidProblemError(
                f"{name} must be an array (CuPy, torch, JAX, NumPy, TensorRef …), got {kind.__name__}"
            )
        _READERS[kind] = reader
    try:
        return reader(array)
    except BaracudaError as error:
        raise type(error)(f"{name}: {error}") from None


def read_only(array: Any, name: str) -> InvalidProblemError:
    """The error for an array that must be written and cannot be."""
    if package_name(type(array)) == "jax":
        return InvalidProblemError(
            f"{name} would be written, and JAX arrays are immutable; give a CuPy or NumPy array (cupy.array(a) and "
            "numpy.array(a) copy one, jax.dlpack.from_dlpack hands it back)"
        )
    return InvalidProblemError(f"{name} is read-only and cannot be an output; give a writable array")


def to_numpy(array: Any) -> np.ndarray:
    """A host array as a NumPy array over the same memory (for the NumPy backend)."""
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, TensorRef):
        import ctypes

        view = read(array)
        element = view.element
        if 0 in view.shape:
            return np.empty(view.shape, element.carrier)
        low = (
            min(0, sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if s < 0)) * element.itemsize
        )
        high = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if s > 0) * element.itemsize
        raw = (ctypes.c_char * (high - low + element.itemsize)).from_address(view.ptr + low)
        flat = np.frombuffer(raw, element.carrier)
        steps = tuple(s * element.itemsize for s in view.strides)
        return np.ndarray(view.shape, element.carrier, flat, -low, steps)
    if package_name(type(array)) == "torch":
        torch = sys.modules["torch"]
        plain = array.detach()
        return (
            plain.view(torch.int16).numpy().view(ElementKind.BF16.dtype)
            if plain.dtype is torch.bfloat16
            else plain.numpy()
        )
    return np.asarray(array)
