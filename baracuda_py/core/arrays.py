"""Arrays of any package as (pointer, shape, strides, element, device), and back.

Readers are chosen once per type. CuPy, NumPy and torch are read by their own attributes (0.1–0.6 µs);
JAX goes through DLPack, which also orders our stream after XLA's; anything else through the CUDA array
interface or DLPack. Nothing a foreign object says is taken unchecked, and whatever it raises becomes a typed error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..interop import jax_arrays
from ..interop.cupy_streams import external_stream
from ..interop.packages import package_name
from ..interop.torch_rules import intercepts, transformed
from .checked import MAX_AXES, failure, shown, whole, wholes
from .element import ElementKind
from .errors import BaracudaError, InvalidProblemError, UnsupportedError
from .exchange import Exchange, exchange_of, on_host
from .host_memory import memory_of
from .tensor import TensorRef, addressable, dense_strides
from .unreadable import jax_place, refuse, refuse_wrapper


class Reading(NamedTuple):
    """What a reader returns. Strides are in elements, device is -1 for host memory; `owner` keeps memory alive.

    traced: it stands for a torch tensor in a trace or transformation and has no memory: `ptr` is 0, and sizes may be
    symbols of the trace.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    device: int
    readonly: bool = False
    owner: Any = None
    traced: bool = False


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


def _native(dtype: np.dtype) -> np.dtype:
    if not dtype.isnative:
        raise UnsupportedError(
            f"no element kind for {dtype!r}: its bytes are swapped; convert it by .astype(dtype.newbyteorder('='))"
        )
    return dtype


def _read_numpy(a: np.ndarray) -> Reading:
    element = ElementKind.of(_native(a.dtype))
    strides = _elements(a.strides, a.itemsize, a.shape)
    return Reading(a.__array_interface__["data"][0], a.shape, strides, element, -1, not a.flags.writeable)


def _read_subclass(a: np.ndarray) -> Reading:
    return _read_numpy(np.asarray(a))


def _refuse_masked(a: np.ndarray) -> Reading:
    raise UnsupportedError("the mask of a masked array would be ignored; give a.filled(value), or a.data to drop it")


def _read_torch(a: Any) -> Reading:
    """A torch tensor, whoever records what is done with it: `located` refuses where that matters."""
    torch = sys.modules["torch"]
    if torch._C._is_tracing():
        raise UnsupportedError("torch.jit.trace records no op of this package; use torch.compile or torch.export")
    if a.is_nested:
        raise UnsupportedError("a nested torch tensor has no one shape; give its parts, or .to_padded_tensor(value)")
    if a.device.type not in ("cpu", "cuda", "meta"):
        raise UnsupportedError(f"a torch tensor on device {a.device} has no memory to read; move it to cpu or cuda")
    if a.layout is not torch.strided:
        raise UnsupportedError(f"torch layout {a.layout} is not supported; call .to_dense()")
    if a.is_meta or intercepts(type(a)) or transformed(a):
        return Reading(0, tuple(a.shape), tuple(a.stride()), ElementKind.of(a.dtype), a.get_device(), traced=True)
    return Reading(a.data_ptr(), tuple(a.shape), a.stride(), ElementKind.of(a.dtype), a.get_device())


def _read_jax(a: Any) -> Reading:
    if jax_arrays.spread_in_a_program(a):
        return _read_traced(a)
    if jax_place(a) == "cpu":
        return _read_numpy(np.asarray(a))._replace(readonly=True, owner=a)
    import cupy

    with cupy.cuda.Device(jax_arrays.hardware_id(a)):  # each has a current stream of its own
        memory = jax_arrays.locate(a, cupy.cuda.get_current_stream().ptr)
    strides = dense_strides(a.shape) if memory.strides is None else memory.strides
    return Reading(memory.ptr, a.shape, strides, ElementKind.of(a.dtype), memory.device, True, memory.capsule)


def _read_traced(a: Any) -> Reading:
    """What is known of a stand-in inside jit, grad or vmap; whoever wants its memory refuses its device."""
    shape = tuple(a.shape)
    if not all(type(extent) is int for extent in shape):
        raise UnsupportedError(f"its shape {shape} is symbolic; every extent must be known when it is traced")
    return Reading(0, shape, dense_strides(shape), ElementKind.of(a.dtype), jax_arrays.TRACED, True, a)


_DLPACK_HOST, _DLPACK_CUDA = (1, 3), (2, 13)  # DLDeviceType: CPU, pinned; CUDA, managed


def _from_dlpack(a: Any) -> Reading:
    place = int(a.__dlpack_device__()[0])
    if place in _DLPACK_HOST:
        read, package = _read_numpy, np
    elif place in _DLPACK_CUDA:
        read, package = _read_cupy, _cupy()
    else:
        raise UnsupportedError(f"its memory is on a device of DLPack type {place}; copy it to the host or to CUDA")
    try:
        held = package.from_dlpack(a)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidProblemError(
            f"{type(a).__name__} refused DLPack ({error}); give a detached, dense device array"
        ) from error
    return read(held)._replace(owner=held)


_EXCHANGES: dict[type, Exchange | None] = {}  # of types of no package known here


def _exchange(kind: type) -> Exchange | None:
    if kind not in _EXCHANGES:
        _EXCHANGES[kind] = exchange_of(kind)
    return _EXCHANGES[kind]


def _read_exchange(a: Any) -> Reading:
    found = _EXCHANGES[type(a)].export(a)  # type: ignore[union-attr]
    strides = dense_strides(found.shape) if found.strides is None else found.strides
    place, ordinal = found.device
    if place in _DLPACK_HOST:
        held = on_host(found, strides)
        return Reading(found.ptr, found.shape, strides, found.element, -1, found.readonly, held)
    if place not in _DLPACK_CUDA:
        raise UnsupportedError(f"its memory is on a device of DLPack type {place}; copy it to the host or to CUDA")
    _order_after(found.stream, ordinal)
    return Reading(found.ptr, found.shape, strides, found.element, ordinal, found.readonly, found.owner)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise InvalidProblemError(f"reading a CUDA array through a protocol needs CuPy ({error})") from None
    return cupy


def _read_cai(a: Any) -> Reading:
    facts = a.__cuda_array_interface__
    if not isinstance(facts, Mapping):
        raise InvalidProblemError(f"__cuda_array_interface__ must be a dict, got {shown(facts)}")
    if missing := [key for key in ("shape", "typestr", "data", "version") if key not in facts]:
        raise InvalidProblemError(f"__cuda_array_interface__ lacks {', '.join(missing)}")
    if facts.get("mask") is not None:
        raise UnsupportedError("the mask of its __cuda_array_interface__ would be ignored; fill the masked elements")
    typestr = facts["typestr"]
    if not isinstance(typestr, str):
        raise InvalidProblemError(f"typestr must be a string such as '<f4', got {shown(typestr)}")
    dtype = _native(np.dtype(typestr))
    element = ElementKind.of(dtype)
    shape, strides = wholes("shape", facts["shape"]), facts.get("strides")
    if strides is not None and len(strides := wholes("strides", strides, -_FAR, _FAR)) != len(shape):
        raise InvalidProblemError(f"{len(shape)} extents but {len(strides)} strides")
    steps = dense_strides(shape) if strides is None else _elements(strides, dtype.itemsize, shape)
    data = facts["data"]
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], (bool, np.bool_)):
        raise InvalidProblemError(f"data must be a tuple (pointer, read-only), got {shown(data)}")
    pointer = whole("the pointer", data[0] or 0, 0, 2**64 - 1)
    device = _device_of(pointer)
    _order_after(facts.get("stream"), device)
    return Reading(pointer, shape, steps, element, device, bool(data[1]), a)


_FAR = 2**63 - 1


def _order_after(stream: int | None, device: int) -> None:
    """The device's current stream waits for the producer's (CUDA array interface v3), by event and not by the host.

    A stream that is being captured cannot wait for one that is not: what a graph reads is there before its replay.
    """
    if stream is None:
        return
    producer = 0 if stream == 1 else whole("the stream", stream, 0, 2**64 - 1)
    cupy = _cupy()
    with cupy.cuda.Device(device):  # that an event is recorded on, and whose default stream 0 is
        current, capturing = cupy.cuda.get_current_stream(), cupy.cuda.runtime.streamIsCapturing
        # Stream 0 never is captured, and may not be asked while another stream is.
        inside, captured = (bool(at and capturing(at)) for at in (producer, current.ptr))
        if producer != current.ptr and inside >= captured:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(external_stream(producer))
            current.wait_event(event)


def _device_of(pointer: int) -> int:
    runtime = _cupy().cuda.runtime
    return int(runtime.pointerGetAttributes(pointer).device) if pointer else int(runtime.getDevice())


_Reader = Callable[[Any], Reading]
_READERS: dict[type, _Reader] = {TensorRef: _read_ref, np.ndarray: _read_numpy}


def _package_reader(kind: type) -> _Reader | None:
    """The reader for every instance of a package's own type."""
    root = package_name(kind)
    if issubclass(kind, np.ndarray):  # memmap, matrix and the like
        return _refuse_masked if issubclass(kind, np.ma.MaskedArray) else _read_subclass
    if issubclass(kind, TensorRef):
        return _read_ref
    if root == "cupy" and hasattr(kind, "data"):
        return _read_cupy
    if root == "torch" and hasattr(kind, "data_ptr"):
        stands = kind.__module__.startswith(_STAND_INS)
        return _read_torch if stands or not intercepts(kind) else refuse_wrapper
    if root == "jax" and jax_arrays.is_traced(kind):
        return _read_traced
    if root == "jax" and hasattr(kind, "devices"):
        return _read_jax
    return None


def _registered(kind: type) -> _Reader | None:
    reader = _package_reader(kind)
    if reader is not None:
        _READERS[kind] = reader
    return reader


# torch's own stand-ins for tensors, in a trace and under functionalization, which have a shape and nothing more.
_STAND_INS = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")


def located(array: Any, name: str = "array") -> Reading:
    """Read an array whose memory is wanted: raises where memory is not all there is to it, as autograd's record."""
    got = read(array, name)
    if package_name(type(array)) != "torch":
        return got
    try:
        if got.traced and intercepts(type(array)):
            refuse_wrapper(array)
        refuse(array)
    except BaracudaError as error:
        error.args = (f"{name}: {error}",)
        raise
    return got


def read(array: Any, name: str = "array") -> Reading:
    """Read any array; the error names the operand."""
    kind = type(array)
    try:
        reader = _READERS.get(kind) or _registered(kind)
        if reader is None:  # by protocol, which one instance may have and the next may not
            if _exchange(kind) is not None:
                reader = _read_exchange
            elif hasattr(array, "__cuda_array_interface__"):
                reader = _read_cai
            elif hasattr(array, "__dlpack__"):
                reader = _from_dlpack
        if reader is not None:
            return _within_limits(reader(array))
    except BaracudaError as error:
        error.args = (f"{name}: {error}",)
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidProblemError(f"{name}: a {kind.__name__} cannot be read ({failure(error)})") from error
    raise InvalidProblemError(f"{name} must be an array (CuPy, torch, JAX, NumPy, TensorRef …), got {kind.__name__}")


def _within_limits(got: Reading) -> Reading:
    if len(got.shape) > MAX_AXES:
        raise InvalidProblemError(f"{len(got.shape)} axes, at most {MAX_AXES} are taken")
    if not got.traced:
        addressable(got.ptr, got.shape, got.strides, got.element.itemsize)
    return got


def settled(array: Any, name: str) -> Any:
    """An array of the host that is only read through a protocol, as a NumPy array: a producer is asked once."""
    if array is None or type(array) in _READERS or _registered(type(array)) is not None:
        return array
    owner = read(array, name).owner
    return owner if isinstance(owner, np.ndarray) else array


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
        return array if type(array) is np.ndarray else np.asarray(array)
    if isinstance(array, TensorRef):
        return _ref_to_numpy(array)
    if package_name(type(array)) == "torch":
        return memory_of(array.detach())
    return np.asarray(array)


def _ref_to_numpy(ref: TensorRef) -> np.ndarray:
    import ctypes

    view = _read_ref(ref)
    element = view.element
    dtype = element.dtype if element.bits >= 8 else element.carrier
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    low, high = addressable(view.ptr, view.shape, view.strides, element.itemsize)
    raw = memoryview((ctypes.c_char * (high - low)).from_address(view.ptr + low))
    strides = tuple(s * element.itemsize for s in view.strides)
    made: np.ndarray = np.ndarray(view.shape, dtype, np.frombuffer(raw, dtype), -low, strides)
    return made
