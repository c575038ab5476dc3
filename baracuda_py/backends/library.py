"""CUDA libraries behind the bindings of a kept package: found, of CuPy's CUDA major, one handle a thread and device.

A library is a `Library` in a file of its own, as `cublas.py`. What it does for an op is a `LibraryStep` of a row:
`prepare(device)` makes descriptors and chooses algorithms, and returns a call that is given pointers, scalars, the
plan's workspace and the stream. Statuses reach the caller as `UnsupportedError` or `LibraryError`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baracuda_py.core.device import Device
from baracuda_py.core.errors import BaracudaError, UnsupportedError
from baracuda_py.jit.launch import runtime_for
from baracuda_py.jit.toolkit import cupy_major

from .._forking import in_child
from ..core.memo import cached_property


@dataclass(frozen=True)
class Call:
    """What a row's library step prepares: `run(pointers, scalars, workspace, nbytes, stream)`.

    workspace: the bytes of the plan's workspace that it needs, as the library says, kernels' pieces before its own.
    """

    run: Callable[..., None]
    workspace: int

    def __call__(self, *given: Any) -> None:
        self.run(*given)


class LibraryError(BaracudaError):
    """A library call that failed at run time; `status` is the library's own name for what went wrong."""

    def __init__(self, call: str, status: str) -> None:
        super().__init__(f"{call} failed: {status}")
        self.call = call
        self.status = status


class Library:
    """A CUDA library and the Python package that calls it.

    name: as cuda-pathfinder knows the library ("cublasLt"). bindings: the module with its functions and enums, whose
    `create()` makes a handle. package: what has that module, for pip. error: the exception of the module that carries
    a failed call's `status`. unsupported: names of the statuses that say that the library cannot do what was asked.
    behind: how far the library's own major version (of its file's name) is behind that of CUDA.
    """

    def __init__(
        self, name: str, *, bindings: str, package: str, error: str, unsupported: tuple[str, ...], behind: int = 0
    ) -> None:
        self.name = name
        self._bindings, self._package, self._behind = bindings, package, behind
        self._error, self._unsupported = error, unsupported
        self.forget()
        in_child(self.forget)  # a child cannot use its parent's handles

    def forget(self) -> None:
        """Lend none of the handles that there are."""
        self._free: dict[int, deque[int]] = {}
        self._leases = _Leases()

    def unavailable(self) -> str:
        """Why the library cannot be used, with what to type; empty when it can. Asks no device, imports no bindings."""
        return _search(self.name, self._bindings, self._package, self._behind)

    @cached_property
    def bindings(self) -> Any:
        """The module; UnsupportedError with what to type when it or the library is missing."""
        why = self.unavailable()
        if why:
            raise UnsupportedError(why)
        return importlib.import_module(self._bindings)

    @cached_property
    def error(self) -> type[Exception]:
        """What a failed call raises, for `failure` to explain."""
        kind: type[Exception] = getattr(self.bindings, self._error)
        return kind

    def status_name(self, error: Exception) -> str:
        """The library's own name of the status that a failed call's exception carries."""
        return str(self.bindings.get_status_name(error.status))  # type: ignore[attr-defined]

    def failure(self, error: Exception, call: str) -> BaracudaError:
        """The typed error for what a call of the bindings raised."""
        status = self.status_name(error)
        if status in self._unsupported:
            return UnsupportedError(f"{call}: {status}")
        return LibraryError(call, status)

    @contextmanager
    def calling(self, call: str) -> Iterator[None]:
        """A failed call within raises a typed error; for preparation (a hot path catches `error` itself)."""
        try:
            yield
        except self.error as error:
            raise self.failure(error, call) from None

    def handle(self, device: Device) -> int:
        """This thread's handle for the device: two threads never share one, so none needs a lock."""
        lease = self._leases.by_ordinal.get(device.ordinal)
        if lease is None:
            lease = self._leases.by_ordinal[device.ordinal] = _Lease(self, device)
        return lease.handle

    def take(self, device: Device) -> tuple[int, deque[int]]:
        """A handle that no thread holds, and the list it goes back to; made with the device current."""
        free = self._free.setdefault(device.ordinal, deque())
        try:
            return free.pop(), free
        except IndexError:
            with current(device), self.calling(f"{self.name}Create"):
                return int(self.bindings.create()), free


class _Lease:
    """A handle lent to one thread, and to the next when that thread ends. None is destroyed: that may synchronise."""

    def __init__(self, library: Library, device: Device) -> None:
        self.handle, free = library.take(device)
        weakref.finalize(self, free.append, self.handle).atexit = False


class _Leases(threading.local):
    def __init__(self) -> None:
        self.by_ordinal: dict[int, _Lease] = {}


@contextmanager
def current(device: Device) -> Iterator[None]:
    """The device is the current one within."""
    runtime = runtime_for(device)
    previous = runtime.current_device()
    runtime.use_device(device.ordinal)
    try:
        yield
    finally:
        runtime.use_device(previous)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@functools.cache
def _search(name: str, bindings: str, package: str, behind: int) -> str:
    """Why the library or its bindings are missing; searched once a process, for a search costs 0.1 s.

    The library is loaded for all modules of the process to see, so that the bindings call this one.
    """
    major = cupy_major()
    install = f'install it with: pip install "baracuda_py[cu{major or 13}]"'
    if not _is_installed(bindings.partition(".")[0]):
        return f"{package}, through which {name} is called, was not found; {install}"
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"{name} was not found ({detail}); {install}"
    if not path:
        return f"{name} is loaded in this process, but nothing says from where; {install}"
    found = re.search(r"\.so\.(\d+)", Path(path).resolve().name)
    if major and found and int(found[1]) + behind != major:
        return f"CuPy is built for CUDA {major}, but {path} is of CUDA {int(found[1]) + behind}; {install}"
    return ""
