"""The custom call: one handler for all ops, a Python function that XLA calls through ctypes on its own threads.

ctypes takes the interpreter's lock before the function and gives it back after. Nothing raised here reaches C: it
becomes an error of XLA's, which JAX raises as JaxRuntimeError with the message of ours. On the CPU a plan of the NumPy
backend writes XLA's buffers; on a CUDA device kernels are launched on XLA's stream and nothing waits.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ..core import config
from ..core.errors import BaracudaError, UnsupportedError
from ..core.memo import memo
from ..core.sku import BackendKind
from . import c_api
from .problem import Call, Problem, problem_of, workspace_bytes

_CODES = c_api.DATA_TYPES
_TARGETS = ("baracuda_py", "baracuda_py_uncaptured")


def target(problem: Problem) -> str:
    """The custom call's name: the second where no command buffer can hold the call.

    With BARACUDA_CHECK=1 kernels are waited for; a library may make a thread's handle at its first call there.
    """
    libraries = any(row.backend is not BackendKind.BESPOKE for row in problem.plan.variants)
    return _TARGETS[libraries or bool(config.get("BARACUDA_CHECK"))]


_calls: dict[tuple[bytes, int], Call] = {}


def _call(key: bytes, ordinal: int) -> Call:
    """A problem's call on a device (-1: the host), made when it is first asked for."""
    found = _calls.get((key, ordinal))
    if found is None:
        made = Call(problem_of(key), "cpu" if ordinal < 0 else ordinal)
        found = _calls.setdefault((key, ordinal), made)
    return found


def _on_host(frame: c_api.Frame) -> None:
    call = _ready(frame, -1)
    with _subnormals():
        call(frame.inputs, frame.outputs, None)


def _ready(frame: c_api.Frame, ordinal: int) -> Call:
    """The call that a frame is of; where it first runs, with buffers that are what was declared."""
    call = _call(frame.key, ordinal)
    if not call.seen:
        extra = [(_CODES["uint8"], (workspace_bytes(call.problem),))] if call.problem.workspace else []
        inputs, outputs = (
            [(_CODES[one.dtype.name], one.shape) for _, one in buffers]
            for buffers in (call.problem.inputs, call.problem.outputs)
        )
        c_api.expect(frame.address, inputs, [*outputs, *extra])
        call.seen = True
    return call


_DEFAULT_ENVIRONMENT = ctypes.c_void_p(-1)  # FE_DFL_ENV of glibc, on x86-64 and aarch64


@contextlib.contextmanager
def _subnormals() -> Iterator[None]:
    """XLA's threads on the CPU flush subnormal numbers to zero, which the references must not."""
    library = _floating_point()
    if library is None:
        yield
        return
    before = ctypes.create_string_buffer(64)  # fenv_t has at most 32 bytes
    library.fegetenv(before)
    library.fesetenv(_DEFAULT_ENVIRONMENT)
    try:
        yield
    finally:
        library.fesetenv(before)


@cache
def _floating_point() -> Any:
    try:
        library = ctypes.PyDLL("libm.so.6")
        return library if library.fegetenv and library.fesetenv else None
    except (OSError, AttributeError):
        return None


def _on_cuda(frame: c_api.Frame) -> None:
    ordinal = c_api.ordinal(frame)
    if ordinal is None:
        ordinal = _device_of(frame)
    call = _ready(frame, ordinal)
    with _current(ordinal):
        call(frame.inputs, frame.outputs, c_api.stream(frame))


def _device_of(frame: c_api.Frame) -> int:
    from cupy.cuda import runtime

    pointers = [pointer for pointer in (*frame.inputs, *frame.outputs) if pointer]
    return int(runtime.pointerGetAttributes(pointers[0]).device) if pointers else int(runtime.getDevice())


@contextlib.contextmanager
def _current(ordinal: int) -> Iterator[None]:
    """A device current, with its context, which a thread of XLA's need not have; then the one that was before."""
    runtime = _runtime()
    before = runtime.getDevice()
    runtime.setDevice(ordinal)
    try:
        yield
    finally:
        if before != ordinal:
            runtime.setDevice(before)


@cache
def _runtime() -> Any:
    from cupy.cuda import runtime

    return runtime


def _made_ready(frame: c_api.Frame) -> None:
    """When an executable is made: its kernels are compiled and loaded, so that no capture meets an unknown layout."""
    for ordinal in cuda_ordinals():
        call = _call(frame.key, ordinal)
        with _current(ordinal):
            call.plan.prepare(call.sample())


@memo()
def cuda_ordinals() -> tuple[int, ...]:
    """The CUDA devices that JAX uses in this process; none where it runs on the CPU."""
    import jax

    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError:  # JAX's word for a backend that is not there
        return ()
    return tuple(int(device.local_hardware_id) for device in devices)


def workspace_of(problem: Problem) -> int:
    """The most bytes of workspace that the problem takes on the CUDA devices at hand."""
    sizes = [0]
    for ordinal in cuda_ordinals():
        try:
            sizes.append(Call(problem, ordinal).workspace_size())
        except UnsupportedError:
            continue  # of a device that it is not compiled for, perhaps; said when it is
    return max(sizes)


def _handler(run: Callable[[c_api.Frame], None], traits: int) -> Any:
    """The C function of a stage."""

    def handle(address: int) -> int:
        try:
            if not c_api.answer_query(address, traits, _minor[-1]):
                run(c_api.read_frame(address))
        except BaseException as error:
            if not c_api.api_of(address):  # of a query, which has no way to say so
                return 0
            code = c_api.INVALID_ARGUMENT if isinstance(error, BaracudaError) else c_api.INTERNAL
            return c_api.error(c_api.api_of(address), f"baracuda_py: {type(error).__name__}: {error}", code)
        return 0

    return c_api.HANDLER(handle)


_minor = [0]  # of the version of XLA's interface
_kept: list[Any] = []  # C functions live as long as the process: XLA keeps their addresses


def _capsule(function: Any) -> Any:
    import jax.ffi

    _kept.append(function)
    return jax.ffi.pycapsule(ctypes.cast(function, ctypes.c_void_p).value)


@cache
def register() -> None:
    """Make the custom call known to XLA; raises UnsupportedError where its interface is not the one known here."""
    import jax

    try:
        from jax.ffi import include_dir, register_ffi_target
    except ImportError:
        raise UnsupportedError(f"baracuda_py.jax needs jax >= 0.5, which has jax.ffi; got {jax.__version__}") from None
    _minor.append(c_api.version(include_dir())[1])
    for name, traits in zip(_TARGETS, (c_api.COMMAND_BUFFER_COMPATIBLE, 0), strict=True):
        register_ffi_target(name, _capsule(_handler(_on_host, 0)), platform="cpu")
        stages = {"instantiate": _handler(_made_ready, 0), "execute": _handler(_on_cuda, traits)}
        register_ffi_target(name, {stage: _capsule(f) for stage, f in stages.items()}, platform="CUDA")
