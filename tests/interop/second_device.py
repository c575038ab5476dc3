"""Two CUDA devices on a machine without one: CuPy arrays over host memory, made on the device that is current.

Launches go to the recorder. CuPy's own kernels need a driver: whoever calls one here is told so by CuPy.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends.cuda.direct import Direct
from baracuda_py.core import memo, one_device, outputs
from baracuda_py.core import plan as plan_module
from baracuda_py.core.device import CPU, Device, fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import pointer_view
from baracuda_py.testing.layouts import aligned_bytes
from baracuda_py.testing.recording import _RECORDER, STREAM, Record, recording

DEVICES = tuple(fake_device(9.0, ordinal=n) for n in (0, 1))


class Devices:
    """The current device, the streams, and what was allocated where."""

    devices = DEVICES

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []  # (device, stream) of what was allocated
        self.called: list[tuple[int, int]] = []  # of calls of libraries
        self.streams = {n: STREAM + n for n in (0, 1)}  # the current one of each device
        self.record: Record

    @property
    def current(self) -> int:
        return _RECORDER.device

    def use(self, ordinal: int) -> None:
        _RECORDER.device = ordinal

    def stream(self) -> int:
        return self.streams[self.current]

    @contextlib.contextmanager
    def on_stream(self, stream: int, ordinal: int) -> Iterator[None]:
        """`jit.launch.on_stream`."""
        device, before = self.current, self.streams[ordinal]
        self.use(ordinal)
        self.streams[ordinal] = stream
        try:
            yield
        finally:
            self.streams[ordinal] = before
            self.use(device)

    def places(self) -> set[tuple[int, int]]:
        """(device, stream) of all that was launched and made."""
        return {*self.made, *self.called, *((one.function.device.ordinal, one.stream) for one in self.record.launches)}

    def forget(self) -> None:
        """Drop what was recorded."""
        for one in (self.made, self.called, self.record.launches):
            one.clear()

    def new(self, values: Any) -> Any:
        """What CuPy's own functions make: on the current device and stream."""
        self.made.append((self.current, self.stream()))
        return self.array(np.asarray(values), self.current)

    def allocate(self, nbytes: int) -> Any:
        """CuPy's allocator: zeros on the current device."""
        import cupy

        memory = aligned_bytes(max(nbytes, 1))
        memory[:] = 0
        self.made.append((self.current, self.stream()))
        return cupy.cuda.MemoryPointer(
            cupy.cuda.UnownedMemory(memory.ctypes.data, max(nbytes, 1), memory, self.current), 0
        )

    def array(self, values: Any, ordinal: int, apart: int = 1) -> Any:
        """The values of host arrays on a device, dense or some elements apart along each axis."""
        return moved(values, lambda array: _on(array, ordinal, apart))


class _Context:
    """`cupy.cuda.Device` as far as it is a context."""

    devices: Devices

    def __init__(self, device: Any = None) -> None:
        self.id = self.devices.current if device is None else int(device)

    def __enter__(self) -> _Context:
        self._before = self.devices.current
        self.devices.use(self.id)
        return self

    def __exit__(self, *_: Any) -> None:
        self.devices.use(self._before)


@contextlib.contextmanager
def two_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    """cuda:0 and cuda:1 are there, on the recorder, each with a current stream of its own: `stream_of`."""
    import cupy

    devices, before = Devices(), _RECORDER.device
    select, launch = Plan.__dict__["select"].__func__, _RECORDER.launch

    def chosen(cls: type[Plan], desc: Any, preference: Any = None, *, device: Any = None) -> Plan:
        return select(cls, desc, preference, device=_device(devices, device))

    def library(prepare: Any, device: Device) -> Any:
        def call(arrays: Any, numbers: Any, workspace: int, nbytes: int, stream: int) -> None:
            assert device.ordinal == devices.current, "a library is called while another device is current"
            devices.called.append((device.ordinal, stream))

        return call

    def launched(function: Any, *given: Any, **more: Any) -> tuple[int]:
        assert function.device.ordinal == devices.current, "a kernel is launched while another device is current"
        return launch(function, *given, **more)

    monkeypatch.setattr(Plan, "select", classmethod(chosen))
    for module in ("calls.call", "core.graph", "ops.layout.made"):
        found = importlib.import_module(f"baracuda_py.{module}")
        monkeypatch.setattr(found, "resolve_device", lambda asked=None: _device(devices, asked))
    monkeypatch.setattr(cupy.cuda, "Device", type("Device", (_Context,), {"devices": devices}))
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: devices.current)
    monkeypatch.setattr(cupy.cuda.runtime, "setDevice", devices.use)
    monkeypatch.setattr(Direct, "serves", staticmethod(lambda plan, lead: False))
    monkeypatch.setattr(cupy, "arange", lambda *given, **facts: devices.new(np.arange(*given, **facts)))
    monkeypatch.setattr(cupy, "asarray", devices.new)
    monkeypatch.setattr(outputs, "on_stream", devices.on_stream)
    monkeypatch.setattr(one_device, "several", lambda: True)
    monkeypatch.setattr(_RECORDER, "current_stream", devices.stream, raising=False)
    monkeypatch.setattr(_RECORDER, "on_stream", lambda at: devices.on_stream(at, devices.current), raising=False)
    monkeypatch.setattr(_RECORDER, "launch", launched, raising=False)
    monkeypatch.setattr(_RECORDER, "library", library, raising=False)
    forget()
    try:
        with recording() as devices.record, cupy.cuda.using_allocator(devices.allocate):
            yield devices
    finally:
        devices.use(before)
        forget()


def _on(values: np.ndarray, ordinal: int, apart: int) -> Any:
    held = values.view(ElementKind.of(values.dtype).carrier)
    shape = tuple(apart * n for n in held.shape)
    nbytes = int(np.prod(shape)) * held.itemsize
    made = aligned_bytes(max(nbytes, 1))[:nbytes].view(held.dtype).reshape(shape)
    made = made[tuple(slice(None, None, apart) for _ in shape)] if shape else made
    made[...] = held
    return pointer_view(made, ordinal)


def moved(values: Any, move: Callable[[np.ndarray], Any]) -> Any:
    """NumPy arrays within lists and dicts, moved; what is no array as it is."""
    if isinstance(values, (list, tuple)):
        return type(values)(moved(one, move) for one in values)
    if isinstance(values, dict):
        return {key: moved(one, move) for key, one in values.items()}
    return move(values) if isinstance(values, np.ndarray) else values


def spread(values: Any) -> Iterator[Any]:
    """Arrays of any package within lists and dicts."""
    if isinstance(values, (list, tuple, dict)):
        for one in values.values() if isinstance(values, dict) else values:
            yield from spread(one)
    elif hasattr(values, "shape") and hasattr(values, "dtype") and not isinstance(values, np.generic):
        yield values


def forget() -> None:
    """What is prepared holds the runtime's functions that stood here before."""
    plan_module._select.cache_clear()  # type: ignore[attr-defined]
    for one in list(memo._known.values()):
        one.clear()


def _device(devices: Devices, asked: Any) -> Device:
    if isinstance(asked, Device):
        return asked
    return CPU if asked == "cpu" else DEVICES[devices.current if asked is None else int(str(asked)[-1])]
