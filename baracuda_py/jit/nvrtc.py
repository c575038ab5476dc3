"""The dozen NVRTC functions we call, through ctypes: no stub library, no driver, and no GIL while compiling."""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
from dataclasses import dataclass
from pathlib import Path

from baracuda_py._forking import Mutex, in_child
from baracuda_py.core.errors import CompileError
from baracuda_py.core.memo import cached_property
from baracuda_py.jit.toolkit import missing_nvrtc, nvrtc_library

_load_lock = Mutex()


class _Running:
    """The compiles under way. NVRTC must not be inside one when the process ends and takes the library's data down."""

    def __init__(self) -> None:
        self._begin()
        in_child(self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._count, self._over = 0, False

    def __enter__(self) -> None:
        with self._changed:
            if self._over:
                raise CompileError("the interpreter is exiting: nothing is compiled any more")
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let no other compile begin, and wait for those that daemon threads are in: a second or so."""
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: self._count == 0)


_running = _Running()
atexit.register(_running.end)


@dataclass(frozen=True)
class Output:
    """What one compile gave; `image` is empty where it failed, and then `error` says how."""

    image: bytes
    log: str
    error: str = ""


class Nvrtc:
    """A loaded NVRTC. Thread-safe, as the library is: programs share nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            _preload_builtins(path)
            self._lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise missing_nvrtc(str(error)) from None
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        self.version = (major.value, minor.value)

    @cached_property
    def supported_archs(self) -> tuple[int, ...]:
        """Compute capabilities it can compile for, as 80, 90, 120."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        archs = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(archs), "nvrtcGetSupportedArchs")
        return tuple(archs)

    def compile(self, source: str, name: str, options: tuple[str, ...], output: str = "CUBIN") -> Output:
        """Compile to CUBIN, or to PTX where the caller wants to read it."""
        with _running:
            return self._compile(source, name, options, output)

    def _compile(self, source: str, name: str, options: tuple[str, ...], output: str) -> Output:
        program = ctypes.c_void_p()
        code = self._lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        self._check(code, "nvrtcCreateProgram")
        try:
            argv = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = self._lib.nvrtcCompileProgram(program, len(options), argv)
            log = self._fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if code != 0:
                return Output(b"", log, self._message(code))
            return Output(self._fetch(program, output), log)
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
        return buffer.raw

    def _message(self, code: int) -> str:
        text: bytes = self._lib.nvrtcGetErrorString(code)
        return text.decode()

    def _check(self, code: int, call: str) -> None:
        if code != 0:
            raise CompileError(f"{call} failed: {self._message(code)} ({self.path})")


def load() -> Nvrtc:
    """The NVRTC of this process; the path is asked again each time, so BARACUDA_NVRTC may change."""
    path = nvrtc_library()
    with _load_lock():
        return _load(path)


@functools.lru_cache(maxsize=4)
def _load(path: Path) -> Nvrtc:
    return Nvrtc(path)


def _preload_builtins(path: Path) -> None:
    """NVRTC opens its builtins by bare name; loading the ones beside it first makes sure it gets its own."""
    for builtins in sorted(path.resolve().parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))
