"""What a call hands over besides arrays: scalars, streams, and everything as one flat tuple of pointers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..interop.arrays import read
from .args import Args, Operand, arrays_of, scalars_of
from .checked import failure, shown, whole
from .device import Device
from .dispatch import SCALAR_TAGS, check_pointer, host_number
from .element import ElementKind
from .errors import DeviceMismatchError, InvalidProblemError, MisalignedOperandError, WorkspaceTooSmallError
from .tensor import TensorRef, View


def scalar_value(value: Any, spec: Operand, ordinal: int) -> tuple[int, Any]:
    """A scalar operand as (device pointer or 0, value); with a pointer the value is its type tag."""
    plain = host_number(value, spec)
    if plain is not None:
        return 0, plain
    view = read(value, spec.name)
    if view.device != ordinal:
        raise DeviceMismatchError(f"{spec.name} is on cuda:{view.device}, the plan is on cuda:{ordinal}; copy it there")
    tag = SCALAR_TAGS[view.element]
    return view.ptr, tag if spec.integer else float(tag)


def flatten(cls: type[Args], refs: Args, workspace: int, ordinal: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """All pointers of a call in `Launch` order, and the scalars' values."""
    flat: list[int] = []
    for spec in arrays_of(cls):
        value = getattr(refs, spec.name)
        flat.extend([0] if value is None else [v.ptr for v in value] if isinstance(value, list) else [value.ptr])
    pairs = [scalar_value(getattr(refs, spec.name), spec, ordinal) for spec in scalars_of(cls)]
    return (*flat, *(p for p, _ in pairs), workspace, 0, 0), tuple(v for _, v in pairs)


def checked_workspace(given: Any, needed: int, device: Device) -> TensorRef:
    """The caller's workspace as bytes: dense, writable, on the device, 256-byte aligned, large enough."""
    view = read(given, "workspace")
    if view.device != device.ordinal:
        place = "host memory" if view.device < 0 else f"cuda:{view.device}"
        raise DeviceMismatchError(f"workspace is in {place}, the plan is on {device}; allocate it there")
    memory = View(view.ptr, view.shape, view.strides, view.element)
    if view.readonly or not memory.dense:
        wrong = "is read-only" if view.readonly else f"has gaps (shape {view.shape} strides {view.strides})"
        raise InvalidProblemError(f"workspace {wrong}; give a dense writable array")
    if memory.nbytes < needed:
        raise WorkspaceTooSmallError(needed, memory.nbytes)
    check_pointer("workspace", view)
    if view.ptr % 256:
        raise MisalignedOperandError(f"workspace must be 256-byte aligned, got address {view.ptr:#x}")
    return TensorRef.of_checked(view.ptr, (memory.nbytes,), (1,), ElementKind.U8, view.device)


def stream_pointer(stream: Any) -> int:
    """A stream of any package, or an integer, as a pointer."""
    if isinstance(stream, int):
        return whole("stream", stream, 0, 2**64 - 1)
    try:
        for name in ("ptr", "cuda_stream"):
            if hasattr(stream, name):
                return int(getattr(stream, name))
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1])
    except Exception as error:
        raise InvalidProblemError(f"stream: a {type(stream).__name__} cannot be read ({failure(error)})") from error
    raise InvalidProblemError(
        f"stream must be a CuPy or torch stream, an object with __cuda_stream__, or an int, got {shown(stream)}"
    )


def raw_stream_getter() -> Callable[[int], int]:
    """torch's current stream of a device as a pointer; the public object costs 5 µs a call."""
    import torch

    getter = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return getter or (lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream))
