"""A CUDA runtime that records: fake devices prepare, bind and run, and every launch is kept instead of made.

    with recording() as record:
        plan = RMSNormPlan.select(desc, device=fake_device(9.0))
        plan.run(args)                       # CuPy arrays over host memory: see `pointer_view`
    record.launches[0].grid, record.launches[0].fields(params)

Nothing is compiled. Kernels that launch are those the compile unit names; the parameter struct is read back from the
pointer the driver would get.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..core.device import Device, forked
from ..core.params import Params
from ..core.tensor_map import NBYTES, TensorMap
from ..core.unit import Unit
from ..jit.capture import Captured, graph_memory
from ..jit.launch import Wanted, install_fake
from .layouts import aligned_bytes

STREAM = 0x5EED  # what the recorder says the current stream is
_SIZE = re.compile(r"static_assert\(sizeof\((\w+)\) == (\d+)")
_TAKES = re.compile(r"(\w+)\(const __grid_constant__ (\w+) p\)")  # kernel, its parameter struct
_FORMATS = {"i64": "q", "u64": "Q", "f64": "d", "i32": "i", "u32": "I", "f32": "f"}


_MAP = struct.Struct("<QI4B5Q4Q5H")  # as grid.hpp of the emulator reads it
_MAP_MARK = 0x7AB1E0A9


def encoded_map(tensor_map: TensorMap, pointer: int) -> bytes:
    """A tensor map at a pointer as 128 bytes of our own; what cannot be encoded raises, as the driver refuses it."""
    if (why := tensor_map.refusal(pointer)) is not None:
        raise AssertionError(f"{tensor_map} at {pointer:#x}: {why}")
    rank = len(tensor_map.shape)
    shape, box = (tuple(values) + (1,) * (5 - rank) for values in (tensor_map.shape, tensor_map.box))
    strides = tensor_map.strides + (0,) * (5 - rank)
    sizes = (rank, tensor_map.element.itemsize, tensor_map.swizzle, 0)
    made = _MAP.pack(pointer + tensor_map.offset, _MAP_MARK, *sizes, *shape, *strides, *box)
    return made.ljust(NBYTES, b"\0")


_POISONED = 1 << 16  # bytes of an allocation


@dataclass(frozen=True)
class Function:
    """A kernel the recorder "loaded"."""

    symbol: str
    unit: Unit
    device: Device
    smem: int
    size: int


@dataclass(frozen=True)
class Launched:
    """One launch: what the driver would have been given."""

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem: int
    stream: int
    image: bytes
    thread: int
    cluster: int = 1

    def fields(self, params: Params) -> dict[str, Any]:
        """The parameter struct, unpacked: a number per field, a flat tuple per array, the bytes of a map."""
        result: dict[str, Any] = {}
        for slot in params.slots.values():
            if slot.kind == "map":
                result[slot.name] = self.image[slot.offset : slot.offset + slot.nbytes]
                continue
            values = struct.unpack_from(f"<{slot.count}{_FORMATS.get(slot.kind, 'Q')}", self.image, slot.offset)
            result[slot.name] = values if slot.extents else values[0]
        return result


@dataclass
class Memory:
    """Host memory standing for device memory."""

    bytes: np.ndarray

    @property
    def ptr(self) -> int:
        """Its address."""
        return int(self.bytes.ctypes.data)


@dataclass
class Record:
    """What happened inside one `recording()`; `capturing` makes the runtime say that a graph is being captured."""

    launches: list[Launched] = field(default_factory=list)
    loads: list[Function] = field(default_factory=list)
    allocations: list[Memory] = field(default_factory=list)
    capturing: bool = False
    streams: list[int] = field(default_factory=list)  # of the allocations
    kept: list[tuple[int, Any]] = field(default_factory=list)  # (stream, what is in use there)


class Recorder:
    """The runtime that fake devices run on; see `baracuda_py.jit.launch.Runtime`."""

    def __init__(self) -> None:
        self.record = Record()
        self.device = 0
        self._local = threading.local()

    def load(self, device: Device, wanted: Sequence[Wanted]) -> list[Function]:
        """A handle for each kernel, which its unit must name."""
        return [self._load(device, *kernel) for kernel in wanted]

    def _load(self, device: Device, unit: Unit, symbol: str, smem: int) -> Function:
        if symbol not in unit.symbols:
            raise AssertionError(f"{symbol} is not among the kernels of {unit.name}: {', '.join(unit.symbols)}")
        sizes, takes = dict(_SIZE.findall(unit.text)), dict(_TAKES.findall(unit.text))
        function = Function(symbol, unit, device, smem, int(sizes[takes[symbol]]))
        self.record.loads.append(function)
        return function

    def launch(self, function: Function, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, smem: int, stream: int,
               params: int, extra: int, cluster: int = 1) -> tuple[int]:  # fmt: skip
        """Read the struct behind `params` and keep it; refused in a forked child, as by the driver."""
        if forked(fake=True):
            return (3,)
        address = ctypes.c_void_p.from_address(params).value
        image = ctypes.string_at(address, function.size)  # type: ignore[arg-type]
        self.record.launches.append(
            Launched(function, (gx, gy, gz), (bx, by, bz), smem, stream, image, threading.get_ident(), cluster)
        )
        return (0,)

    def clustered(self, cluster: int) -> Callable[..., tuple[int]]:
        """`launch` in clusters of so many blocks."""
        return partial(self.launch, cluster=cluster)

    def encode(self, tensor_map: TensorMap, pointer: int) -> bytes:
        """What the emulator reads in place of what the driver would make of a map."""
        return encoded_map(tensor_map, pointer)

    def library(self, prepare: Callable[[Device], Callable[..., None]], device: Device) -> Callable[..., None]:
        """A library needs a device: its steps do nothing here, so that the kernels beside them can be checked."""
        return lambda *call: None

    def current_stream(self) -> int:
        """A made-up stream, the same on every thread, or that of `on_stream`."""
        return getattr(self._local, "stream", STREAM)

    @contextlib.contextmanager
    def on_stream(self, stream: int) -> Iterator[None]:
        """Make a stream current in this thread."""
        previous = self.current_stream()
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = previous

    def keep(self, stream: int, owners: Any) -> None:
        """Kept with the record."""
        self.record.kept.append((stream, owners))

    def current_device(self) -> int:
        """The device last used."""
        return self.device

    def use_device(self, ordinal: int) -> None:
        """Make a device current."""
        self.device = ordinal

    def device_count(self) -> int:
        """Two, so that the check for the current device is on the way."""
        return 2

    def clear(self, pointer: int, nbytes: int, stream: int) -> None:
        """Nothing is written here."""

    def capturing(self, stream: int) -> bool:
        """What the record says."""
        return self.record.capturing

    def allocate(self, nbytes: int, stream: int, package: str) -> Memory:
        """Host memory whose beginning is poisoned, kept with the record; no more of it is ever touched."""
        memory = Memory(aligned_bytes(nbytes))
        memory.bytes[:_POISONED] = 0xFF
        self.record.allocations.append(memory)
        self.record.streams.append(stream)
        return memory

    def capture(self, device: Device, function: Callable[[], Any], warmup: int) -> Captured:
        """The function's launches under `capturing`; launching the result records them again."""
        with graph_memory():
            for _ in range(warmup):
                function()
            self.record.capturing, start = True, len(self.record.launches)
            try:
                results = function()
            finally:
                self.record.capturing = False
                made = self.record.launches[start:]
                del self.record.launches[start:]  # captured, not launched
        return Captured(results, lambda stream: self.record.launches.extend(made), 0, None)


_RECORDER = Recorder()  # one object: plans are cached, and keep the runtime they met first


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Fake devices run on the recorder while the context lasts."""
    outer, record = _RECORDER.record, Record()
    previous = install_fake(_RECORDER)
    _RECORDER.record = record
    try:
        yield record
    finally:
        _RECORDER.record = outer
        install_fake(previous)


def pointer_view(array: np.ndarray, device: int = 0) -> Any:
    """A real `cupy.ndarray` whose pointer is that of host memory: shape, strides and address are what code reads.

    No GPU is needed to make one; nothing may be computed with it.
    """
    import cupy

    address = array.__array_interface__["data"][0]
    low = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if s < 0 and n)
    high = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if s > 0 and n) + array.itemsize
    memory = cupy.cuda.UnownedMemory(address + low, high - low, array, device)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, -low), array.strides)
