"""CUDA streams of others as CuPy's: each is known by its pointer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class _ExternalStream:
    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def external_stream(stream: int) -> Any:
    """A stream's pointer as CuPy's object."""
    import cupy

    return cupy.cuda.Stream.from_external(_ExternalStream(stream))


@contextlib.contextmanager
def on_stream(stream: int, device: int) -> Iterator[None]:
    """A context in which a device's current stream for CuPy is `stream` (its pool then orders memory on it).

    CuPy gives the stream that was before to the device that is current then, and JAX may have made another one so.
    """
    import cupy

    with cupy.cuda.Device(device), external_stream(stream):
        try:
            yield
        finally:
            cupy.cuda.runtime.setDevice(device)
