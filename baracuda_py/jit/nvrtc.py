"""The dozen NVRTC functions we call, through ctypes: no stub library, no driver, and no GIL while compiling."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from baracuda_py.core.errors import CompileError
from baracuda_py.jit.toolkit import missing_nvrtc, nvrtc_library

_load_lock = threading.Lock()  # renewed in a forked child, where the thread that held it does not exist


def _renew_lock() -> None:
    global _load_lock
    _load_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


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

    @functools.cached_property
    def supported_archs(self) -> tuple[int, ...]:
        """Compute capabilities it can compile for, as 80, 90, 120."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        archs = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(archs), "nvrtcGetSupportedArchs")
        return tuple(archs)

    def compile(self, source: str, name: str, options: tuple[str, ...], output: str = "CUBIN") -> Output:
        """Compile to CUBIN, or to PTX where the caller wants to read it."""
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
    with _load_lock:
        return _load(path)


@functools.lru_cache(maxsize=4)
def _load(path: Path) -> Nvrtc:
    return Nvrtc(path)


def _preload_builtins(path: Path) -> None:
    """NVRTC opens its builtins by bare name; loading the ones beside it first makes sure it gets its own."""
    for builtins in sorted(path.resolve().parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))
