"""JAX arrays: read by the header of their DLPack capsule, whatever the dtype, and made from buffers without a copy.

The capsule of a device array is asked for with a stream, which then waits for XLA's. NumPy and CuPy export neither
bfloat16 nor float8; such a buffer is exported as the unsigned integers it holds and its header told what they are.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .dlpack import Tensor, capsule_pointer

_CODES = {"BF16": 4, "BOOL": 6, "FP8E4M3": 10, "FP8E5M2": 12, "E8M0": 14}
"""DLDataTypeCode of what NumPy and CuPy do not export, by the name of its ElementKind, which is a floor above."""


def _header(capsule: Any) -> Tensor:
    return Tensor.from_address(capsule_pointer(capsule, b"dltensor"))


class Memory(NamedTuple):
    """Where an array lies. Strides are in elements, None where dense; the capsule keeps the memory."""

    ptr: int
    strides: tuple[int, ...] | None
    device: int
    capsule: Any


def locate(array: Any, stream: int | None) -> Memory:
    """The memory of a JAX array; `stream` (CUDA's pointer, None on the host) waits until the array is there."""
    capsule = array.__dlpack__() if stream is None else array.__dlpack__(stream=stream or 1)  # 1: the default stream
    header = _header(capsule)
    strides = tuple(header.strides[i] for i in range(header.ndim)) if header.strides else None
    return Memory((header.data or 0) + header.byte_offset, strides, header.device_id, capsule)


def hardware_id(array: Any) -> int:
    """The CUDA ordinal of a concrete array that is on a GPU."""
    return int(next(iter(array.devices())).local_hardware_id)


def is_traced(kind: type) -> bool:
    """Whether arrays of this type are stand-ins inside jit, grad or vmap."""
    return issubclass(kind, sys.modules["jax"].core.Tracer)


TRACED = -2
"""The device of a stand-in's `Reading`: its shape and element are known, and there is no memory."""


def staged(*groups: Iterable[Any]) -> bool:
    """Whether a call with these values becomes part of a program of JAX's: one of them is a stand-in, or one of a list,
    or `staging` is on."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if _staging.on:
        return True
    tracer = jax.core.Tracer
    values = (value for group in groups for value in group)
    return any(
        any(isinstance(one, tracer) for one in (value if isinstance(value, (list, tuple)) else (value,)))
        for value in values
    )


def wraps(values: Iterable[Any]) -> bool:
    """Whether any value, or one of a list, holds an array and gives it by `__jax_array__`, as parameters of Flax do."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    each = (one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(hasattr(type(one), "__jax_array__") and not isinstance(one, jax.Array) for one in each)


def unwrapped(value: Any) -> Any:
    """A value with the arrays in the place of what wraps them."""
    if isinstance(value, dict):
        return {name: unwrapped(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)([unwrapped(one) for one in value])
    return value.__jax_array__() if wraps((value,)) else value


def spread_in_a_program(array: Any) -> bool:
    """Whether an array is on several devices, and part of a program that is staged, which wants no memory of it."""
    return _staging.on and not array.is_deleted() and len(array.devices()) > 1


class _Staging(threading.local):
    on = False


_staging = _Staging()


@contextlib.contextmanager
def staging() -> Iterator[None]:
    """A context in which functions of this thread stage their calls whatever they are given."""
    before, _staging.on = _staging.on, True
    try:
        yield
    finally:
        _staging.on = before


@contextlib.contextmanager
def unstaged() -> Iterator[None]:
    """A context in which functions of this thread run at once what has no stand-in, within `staging` too."""
    before, _staging.on = _staging.on, False
    try:
        yield
    finally:
        _staging.on = before


def empty(shape: Sequence[int], kind: Any) -> Any:
    """A host buffer that XLA takes without a copy: on a boundary of 64 bytes."""
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(kind.carrier).reshape(tuple(shape))


class _Export:
    """A NumPy or CuPy buffer as a DLPack producer of its real element."""

    def __init__(self, buffer: Any, kind: Any) -> None:
        self.code = _CODES.get(kind.name)
        self.buffer = buffer if self.code is None else buffer.view(f"uint{kind.bits}")

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        capsule = self.buffer.__dlpack__() if stream is None else self.buffer.__dlpack__(stream=stream)
        if self.code is not None:
            _header(capsule).code = self.code
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(int(part) for part in self.buffer.__dlpack_device__())  # type: ignore[return-value]


def array(buffer: Any, kind: Any, like: Any) -> Any:
    """A JAX array over a buffer nobody else writes, on the device of `like`.

    As everywhere in JAX, 64-bit elements become 32-bit ones unless jax_enable_x64 is set. To be called with CuPy's
    current stream of the buffer's device the one that the buffer is written on.
    """
    jax = sys.modules["jax"]
    with _current_device_of(buffer):
        if 0 in buffer.shape:
            made = jax.numpy.zeros(buffer.shape, kind.dtype if kind.bits >= 8 else kind.carrier)
        else:
            made = jax.dlpack.from_dlpack(_Export(buffer, kind))
        return made if made.devices() == like.devices() else jax.device_put(made, next(iter(like.devices())))


def _current_device_of(buffer: Any) -> Any:
    """A context in which a buffer's GPU is current: CuPy exports an array as written on that one's current stream, and
    JAX may leave another one current."""
    if isinstance(buffer, np.ndarray):
        return contextlib.nullcontext()
    return sys.modules["cupy"].cuda.Device(buffer.data.device_id)


def beside(like: Any) -> Any:
    """A context in which JAX makes arrays on the device of `like`, which otherwise are on its first one.

    What is made so is not bound to it: JAX's own functions move it to the first one outside; see `placed`.
    """
    device = _only_device(like)
    return contextlib.nullcontext() if device is None else sys.modules["jax"].default_device(device)


def placed(values: np.ndarray, like: Any) -> Any:
    """NumPy's array as one of JAX's, bound to the device of `like`."""
    jax, device = sys.modules["jax"], _only_device(like)
    return jax.numpy.asarray(values) if device is None else jax.device_put(values, device)


def _only_device(like: Any) -> Any:
    """The device of an array; None of one spread over several, and of a stand-in, whose trace has constants instead.

    JAX gives a rule of a gradient constants of the trace as NumPy's, which are on no device.
    """
    if is_traced(type(like)) or not hasattr(like, "devices") or len(like.devices()) != 1:
        return None
    return next(iter(like.devices()))
