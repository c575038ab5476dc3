"""A captured CUDA graph: see `core.execution.Replay`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.device import Device
from ...core.intake import stream_pointer
from ...jit.launch import runtime_for


class CudaGraph:
    """One launch of everything that a function launched when it was captured."""

    def __init__(self, function: Callable[[], Any], device: Device, warmup: int) -> None:
        self._ordinal = device.ordinal
        self._runtime = runtime_for(device)
        self._captured = self._runtime.capture(device, function, warmup)
        self.outputs = self._captured.results

    @property
    def memory(self) -> int:
        return self._captured.nbytes

    def replay(self, stream: Any) -> Any:
        runtime, given = self._runtime, None if stream is None else stream_pointer(stream)
        previous = runtime.current_device()
        elsewhere = previous != self._ordinal
        if elsewhere:
            runtime.use_device(self._ordinal)
        try:
            self._captured.launch(runtime.current_stream() if given is None else given)  # each device has its own
        finally:
            if elsewhere:
                runtime.use_device(previous)
        return self.outputs
