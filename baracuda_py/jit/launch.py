"""Loading and launching: what touches the driver.

`Cuda` is the real thing: cubins through `cupy.cuda.Module`, launches through the public driver binding with one packed
parameter struct. A fake device gets whatever `install_fake` put here (the recorder
of `testing.recording`), so the packed bytes and geometry are testable without a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from baracuda_py._forking import in_child

from ..core.device import Device, forked, forked_error, mark_used, refuse_forked
from ..core.errors import BaracudaError, NotPreparedError
from ..core.params import Params
from ..core.tensor_map import TensorMap
from ..core.unit import Cubin, Unit
from ..interop.cupy_streams import external_stream, on_stream
from ..interop.torch_rules import memory as torch_memory
from .capture import Captured, record
from .compiler import compile_all
from .tma import clustered, encoder, map_filler

_MAX_DYNAMIC_SMEM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


class Wanted(NamedTuple):
    """A kernel to load: its unit, its name there, and its dynamic shared memory in bytes."""

    unit: Unit
    symbol: str
    smem: int


class Runtime(Protocol):
    """What the runner needs of a CUDA runtime."""

    def load(self, device: Device, wanted: Sequence[Wanted]) -> list[Any]: ...
    def launch(self, function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, smem: int, stream: int,
               params: int, extra: int) -> Any: ...  # fmt: skip
    def clustered(self, cluster: int) -> Callable[..., Any]: ...
    def encode(self, tensor_map: TensorMap, pointer: int) -> bytes: ...
    def current_stream(self) -> int: ...
    def current_device(self) -> int: ...
    def use_device(self, ordinal: int) -> None: ...
    def device_count(self) -> int: ...
    def library(self, prepare: Callable[[Device], Callable[..., None]], device: Device) -> Callable[..., None]: ...
    def clear(self, pointer: int, nbytes: int, stream: int) -> None: ...
    def capturing(self, stream: int) -> bool: ...
    def allocate(self, nbytes: int, stream: int, package: str) -> Any: ...
    def on_stream(self, stream: int) -> Any: ...
    def keep(self, stream: int, owners: Any) -> None: ...
    def capture(self, device: Device, function: Callable[[], Any], warmup: int) -> Captured: ...


class Cuda:
    """The driver and CuPy."""

    def __init__(self) -> None:
        import cupy
        from cuda.bindings import driver
        from cupy.cuda import runtime

        self._cupy = cupy
        self._runtime = runtime
        self._modules: dict[tuple[int, bytes], Any] = {}  # by device and image; a handle must not outlive its module
        self._handles: set[int] = set()
        self._in_use: deque[tuple[Any, Any]] = deque()  # (event, what is in use until it), oldest first
        self._driver = driver
        self.launch = driver.cuLaunchKernel
        self.clustered = partial(clustered, driver)
        self.encode = encoder(driver)
        self.current_stream = _current_stream_getter(cupy)
        self.current_device = runtime.getDevice
        self.use_device = runtime.setDevice
        self.device_count = runtime.getDeviceCount

    def load(self, device: Device, wanted: Sequence[Wanted]) -> list[int]:
        """The driver's function handles: compiled or found, on the device, allowed their dynamic shared memory."""
        cubins = compile_all([kernel.unit for kernel in wanted], device.target)
        return [self._load(device, cubin, kernel) for cubin, kernel in zip(cubins, wanted, strict=True)]

    def _load(self, device: Device, cubin: Cubin, kernel: Wanted) -> int:
        """The image goes to the driver as bytes, those that the cache verified: a file could change in between."""
        cuda, place = self._cupy.cuda, (device.ordinal, hashlib.sha256(cubin.image).digest())
        with cuda.Device(device.ordinal):
            module = self._modules.get(place)
            if module is None:
                module = cuda.Module()
                module.load(cubin.image)
                module = self._modules.setdefault(place, module)
            handle = int(module.get_function(kernel.symbol).ptr)
            static = cubin.kernels[kernel.symbol].static_smem
            if (
                kernel.smem + static > 48 * 1024
            ):  # then all a block may have: another layout may need more on the same handle
                cuda.driver.funcSetAttribute(handle, _MAX_DYNAMIC_SMEM, device.smem - static)
            self._handles.add(handle)
            return handle

    def library(self, prepare: Callable[[Device], Callable[..., None]], device: Device) -> Callable[..., None]:
        """A library step's call, made ready on the device."""
        return prepare(device)

    def clear(self, pointer: int, nbytes: int, stream: int) -> None:
        """Zeros in memory, ordered on a stream."""
        self._runtime.memsetAsync(pointer, 0, nbytes, stream)

    def capturing(self, stream: int) -> bool:
        return bool(stream and self._runtime.streamIsCapturing(stream))  # the default stream cannot be captured

    def allocate(self, nbytes: int, stream: int, package: str) -> Any:
        """Memory of torch's allocator for torch, else of CuPy's, ordered on `stream`; `.ptr` is its address."""
        if package == "torch":
            return torch_memory(nbytes, stream, self.current_device())
        with self.on_stream(stream):
            return self._cupy.cuda.alloc(nbytes)

    def on_stream(self, stream: int) -> Any:
        """A context in which CuPy's current stream is `stream`: its pool, and what packages hand over, follow it."""
        return contextlib.nullcontext() if stream == self.current_stream() else on_stream(stream, self.current_device())

    def keep(self, stream: int, owners: Any) -> None:
        """Hold `owners` until the work now on `stream` is done; what is done is let go at the next call.

        Under capture nothing may be asked of an event: whoever replays the graph holds what it reads.
        """
        if self.capturing(stream):
            return
        with self._relaxed():
            while self._in_use:
                oldest = self._in_use.popleft()
                if not oldest[0].done:
                    self._in_use.appendleft(oldest)
                    break
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(external_stream(stream))
        self._in_use.append((event, owners))

    @contextlib.contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Asking an event would void a capture that another stream has under way, unless this thread is relaxed."""
        exchange, mode = self._driver.cuThreadExchangeStreamCaptureMode, self._driver.CUstreamCaptureMode
        previous = exchange(mode.CU_STREAM_CAPTURE_MODE_RELAXED)[1]
        try:
            yield
        finally:
            exchange(previous)

    def capture(self, device: Device, function: Callable[[], Any], warmup: int) -> Captured:
        """`function`, warmed up and captured as a graph."""
        return record(self._cupy, device.ordinal, function, warmup, self._handles)


def _current_stream_getter(cupy: Any) -> Callable[[], int]:
    try:
        from cupy_backends.cuda.stream import get_current_stream_ptr  # 0.1 µs against 0.5 for the public object
    except ImportError:
        return lambda: int(cupy.cuda.get_current_stream().ptr)
    return get_current_stream_ptr  # type: ignore[no-any-return]


_fake: Runtime | None = None


def install_fake(runtime: Runtime | None) -> Runtime | None:
    """Make fake devices run on `runtime` (None: they do not run); returns what was there."""
    global _fake
    previous, _fake = _fake, runtime
    return previous


@cache
def _cuda() -> Cuda:
    try:
        return Cuda()
    except ImportError as error:
        raise BaracudaError(
            f'running on a GPU needs CuPy and cuda-bindings ({error}): pip install "baracuda_py[cu12]" or [cu13]'
        ) from error


_given: list[Runtime] = []  # every runtime that a plan may hold


def runtime_for(device: Device) -> Runtime:
    """The runtime of a device; a fake one without a recorder cannot load."""
    refuse_forked(device.fake)
    if device.fake and _fake is None:
        raise NotPreparedError(f"{device.name} is not a real device: it chooses and compiles, but cannot load or run")
    runtime: Runtime = _fake if device.fake and _fake is not None else _cuda()
    if runtime not in _given:
        _given.append(runtime)
        mark_used(device.fake)
    return runtime


def _refuse(*_: Any) -> Any:
    raise forked_error()


def _forget_parent() -> None:
    """In a forked child every runtime of the parent refuses: nothing on the hot path has to ask."""
    for runtime in _given:
        for name in (name for name in vars(Runtime) if not name.startswith("_")):
            setattr(runtime, name, _refuse)


in_child(_forget_parent)


_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<Q")
_MASK = 2**64 - 1  # two's complement, so that a seed may be unsigned


class _Buffer:
    """One parameter struct and the pointer array cuLaunchKernel takes."""

    __slots__ = ("address", "keep", "memory")

    def __init__(self, image: bytes) -> None:
        raw = ctypes.create_string_buffer(len(image) + 64)  # structs with tensor maps need 64-byte alignment
        start = -ctypes.addressof(raw) % 64
        self.memory = (ctypes.c_char * len(image)).from_buffer(raw, start)
        ctypes.memmove(self.memory, image, len(image))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self.memory))
        self.address = ctypes.addressof(pointers)
        self.keep = (raw, pointers)


def _refused(runtime: Runtime, status: Any, launch: Callable[..., Any], *given: Any) -> None:
    """A launch that failed, once more if its thread had no context, else as an error.

    A thread that has called nothing of the CUDA runtime has none: torch's threads of gradients, which take memory that
    is allocated already, or a user's thread that only calls what was bound. To set the device there gives it one.
    """
    if forked(False) or forked(True):
        raise forked_error()
    if int(status) == _INVALID_CONTEXT:
        runtime.use_device(runtime.current_device())
        status = launch(*given)[0]
    if status:
        raise BaracudaError(f"kernel launch failed: {getattr(status, 'name', status)}")


def _counted(launch: Callable[..., Any], at: int, times: int) -> Callable[..., Any]:
    """So many launches, each with its number in the parameters, `at` bytes from their beginning; up to a failure."""

    def all_of_them(*given: Any) -> Any:
        image: int = ctypes.c_void_p.from_address(given[-2]).value  # type: ignore[assignment]
        number = ctypes.c_int64.from_address(image + at)
        for turn in range(times):
            number.value = turn
            status = launch(*given)
            if status[0]:
                break
        return status

    return all_of_them


class Launch:
    """One prepared kernel launch. Calling it with (flat, values, stream) packs pointers and scalars and launches.

    `flat` is the tuple of all pointers of a call; `picks` says which of them, plus how many bytes, each pointer
    slot of the struct takes; `scalars` are (position in `values`, byte offset, whether an integer); `maps` are (byte
    offset, position in `flat`, tensor map). Parameter buffers come from a free list: a shared one would race between
    threads. With `times` it is so many launches, for each of which the parameter `turn` is written anew: the driver
    copies parameters when it is called.
    """

    def __init__(
        self, runtime: Runtime, function: Any, grid: tuple[int, int, int], block: int, smem: int, params: Params,
        image: bytes | bytearray, picks: Sequence[tuple[int, int]], scalars: Sequence[tuple[int, int, bool]],
        maps: Sequence[tuple[int, int, TensorMap]] = (), cluster: int = 1, times: int = 1,
    ) -> None:  # fmt: skip
        packed = bytes(image)
        fill = _filler(params, picks, scalars)
        if maps:
            fill = map_filler(fill, runtime.encode, maps)
        free: deque[_Buffer] = deque()
        take, give = free.pop, free.append
        gx, gy, gz = grid
        launch = runtime.launch if cluster == 1 else runtime.clustered(cluster)
        if times > 1:
            launch = _counted(launch, params.slots["turn"].offset, times)

        def again(status: Any, stream: int, address: int) -> None:
            _refused(runtime, status, launch, function, gx, gy, gz, block, 1, 1, smem, stream, address, 0)

        def call(flat: tuple[int, ...], values: tuple[Any, ...], stream: int) -> None:
            try:
                buffer = take()
            except IndexError:
                buffer = _Buffer(packed)
            fill(buffer.memory, flat, values)
            status = launch(function, gx, gy, gz, block, 1, 1, smem, stream, buffer.address, 0)[0]
            if status:
                again(status, stream, buffer.address)
            give(buffer)

        def fixed(flat: tuple[int, ...], values: tuple[Any, ...]) -> Callable[[int], None]:
            buffer = _Buffer(packed)
            fill(buffer.memory, flat, values)
            address = buffer.address

            def fire(stream: int, _keep: _Buffer = buffer) -> None:
                status = launch(function, gx, gy, gz, block, 1, 1, smem, stream, address, 0)[0]
                if status:
                    again(status, stream, address)

            return fire

        self.call = call
        self.fixed = fixed if times == 1 else lambda flat, values: partial(call, flat, values)


class LibraryLaunch:
    """A library call as a step: pointers and scalars by declaration order, then workspace and stream.

    bound: the workspace by the geometry, and `workspace` by what the library said when `run` was prepared.
    """

    def __init__(self, run: Callable[..., None], starts: dict[str, int], bound: int) -> None:
        workspace = starts["@workspace"]
        nbytes = self.workspace = getattr(run, "workspace", bound)

        def call(flat: tuple[int, ...], values: tuple[Any, ...], stream: int) -> None:
            arrays = workspace - len(values)
            run(flat[:arrays], tuple(zip(flat[arrays:workspace], values, strict=True)), flat[workspace], nbytes, stream)

        self.call = call

    def fixed(self, flat: tuple[int, ...], values: tuple[Any, ...]) -> Callable[[int], None]:
        """The call with everything but the stream given."""
        return partial(self.call, flat, values)


Fill = Callable[[Any, tuple[int, ...], tuple[Any, ...]], None]


def _filler(params: Params, picks: Sequence[tuple[int, int]], scalars: Sequence[tuple[int, int, bool]]) -> Fill:
    """The straight-line packer for a launch's pointers and scalars."""
    pack, at = params.pointer_struct.pack_into, params.pointers_at
    order = [index for index, _ in picks]
    if any(shift for _, shift in picks):

        def fill(memory: Any, flat: tuple[int, ...], values: tuple[Any, ...]) -> None:
            pack(memory, at, *[flat[i] + s if flat[i] else 0 for i, s in picks])

    elif len(order) > 1:
        select = itemgetter(*order)

        def fill(memory: Any, flat: tuple[int, ...], values: tuple[Any, ...]) -> None:
            pack(memory, at, *select(flat))

    else:

        def fill(memory: Any, flat: tuple[int, ...], values: tuple[Any, ...]) -> None:
            pack(memory, at, *[flat[i] for i in order])

    if not scalars:
        return fill
    integer, double = _LONG.pack_into, _DOUBLE.pack_into

    def fill_all(memory: Any, flat: tuple[int, ...], values: tuple[Any, ...]) -> None:
        fill(memory, flat, values)
        for position, offset, whole in scalars:
            if whole:
                integer(memory, offset, values[position] & _MASK)
            else:
                double(memory, offset, values[position])

    return fill_all
