"""Memory of a GPU that other ranks of the same host read: made, shown to them, opened, given back."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..backends.library import current
from ..core.device import Device
from .communicator import Communicator

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NOTHING = contextlib.nullcontext()
WORDS = 64
"""Bytes of the host's memory that a device reads and writes."""


def host() -> str:
    """What tells this machine, since it was started, from others."""
    boot = _BOOT.read_text().strip() if _BOOT.is_file() else ""
    return f"{platform.node()} {boot}"


class CudaMemory:
    """One GPU's, by the CUDA runtime. Errors are CuPy's, which `tried` tells as text."""

    together = False
    """Whether ranks may share a GPU, as a test's do: their launches must then fit it at once."""

    def __init__(self, device: Device) -> None:
        from cuda.bindings import driver
        from cupy.cuda import runtime

        self._driver, self._runtime, self.device = driver, runtime, device

    def inside(self) -> AbstractContextManager[None]:
        """The device is the current one of this thread."""
        return _NOTHING if self._runtime.getDevice() == self.device.ordinal else current(self.device)

    def identity(self) -> list[Any]:
        """Machine, process, and GPU: what the other ranks are told."""
        return [host(), os.getpid(), self._runtime.deviceGetPCIBusId(self.device.ordinal), self.device.ordinal]

    def unreachable(self, theirs: Sequence[Any]) -> str:
        """Why another rank's memory cannot be read from here, or ""."""
        machine, process, bus, _ = theirs
        own = self.identity()
        if machine != own[0]:
            return f"is on another host ({machine.split()[0]})"
        if bus == own[2]:
            return "" if self.together else f"has the same GPU ({bus})"
        try:
            there = self._runtime.deviceGetByPCIBusId(bus)
        except Exception:
            return "" if process != own[1] else f"has a GPU that is not to be found ({bus})"  # opening it will tell
        if not self._runtime.deviceCanAccessPeer(self.device.ordinal, there):
            return f"has a GPU ({bus}) whose memory this one's cannot reach"
        return ""

    def make(self, nbytes: int) -> int:
        """Memory full of zeros."""
        ptr = int(self._runtime.malloc(nbytes))
        self._runtime.memset(ptr, 0, nbytes)
        self._runtime.deviceSynchronize()
        return ptr

    def shown(self, ptr: int) -> list[Any]:
        """What another rank opens it by."""
        handle = self._runtime.ipcGetMemHandle(ptr)
        return [*self.identity(), ptr, bytes(handle).hex()]

    def open(self, theirs: Sequence[Any]) -> int:
        """The address, here, of what another rank has shown."""
        _, process, _, ordinal, ptr, handle = theirs
        if process != os.getpid():
            return int(self._runtime.ipcOpenMemHandle(bytes.fromhex(handle)))
        if ordinal != self.device.ordinal:
            # Where access is enabled already, this one leaves no error behind for another package to find.
            self._runtime._deviceEnsurePeerAccess(ordinal)
        return int(ptr)

    def close(self, ptr: int, theirs: Sequence[Any]) -> None:
        """Read it no more."""
        if theirs[1] != os.getpid():
            self._runtime.ipcCloseMemHandle(ptr)

    def free(self, ptr: int) -> None:
        self._runtime.free(ptr)

    def words(self) -> int:
        """Memory of the host that the device reads, too; zeros."""
        runtime = self._runtime
        ptr = int(runtime.hostAlloc(WORDS, runtime.hostAllocMapped | runtime.hostAllocPortable))
        ctypes.memset(ptr, 0, WORDS)
        return ptr

    def free_words(self, ptr: int) -> None:
        self._runtime.freeHost(ptr)

    def write(self, ptr: int, data: bytes) -> None:
        """A few bytes, here or at a peer, at once."""
        held = ctypes.create_string_buffer(data, len(data))
        self._runtime.memcpy(ptr, ctypes.addressof(held), len(data), 4)  # cudaMemcpyDefault
        self._runtime.deviceSynchronize()

    def read(self, ptr: int, nbytes: int) -> bytes:
        held = ctypes.create_string_buffer(nbytes)
        self._runtime.memcpy(ctypes.addressof(held), ptr, nbytes, 4)
        return held.raw

    def settle(self) -> None:
        """Until the device has done what it was given."""
        self._runtime.deviceSynchronize()

    def load(self, function: int) -> None:
        """Have a kernel's code on the device, which the driver else brings at its first launch."""
        with contextlib.suppress(AttributeError, RuntimeError):  # of bindings or a driver that have no such call
            self._driver.cuFuncLoad(function)

    def launched(self, phases: Sequence[int], launch: Callable[[int], None]) -> None:
        """All phases of a kernel in one launch."""
        launch(sum(phases))


def told(comm: Communicator, collective: str, step: str, own: tuple[Any, str]) -> list[Any] | str:
    """What every rank has, or what the first of them lacks. Every rank calls it."""
    said = comm.gathered({"collective": collective, "step": step}, list(own))
    lacking = next((f"rank {rank}: {why}" for rank, (_, why) in enumerate(said) if why), "")
    return lacking or [value for value, _ in said]


def within_reach(comm: Communicator, collective: str, memory: Any) -> list[Any] | str:
    """Whether all ranks reach one another's memory, or why not, the same on every rank. Every rank calls it."""
    who = told(comm, collective, "who", tried(memory.identity))
    if isinstance(who, str):
        return who
    others = ((rank, theirs) for rank, theirs in enumerate(who) if rank != comm.rank)
    why = next((f"rank {rank} {said}" for rank, theirs in others if (said := memory.unreachable(theirs))), "")
    return told(comm, collective, "reach", (True, why))


def tried(attempt: Callable[[], Any]) -> tuple[Any, str]:
    """What an attempt gives, and "", or None and what it raised."""
    try:
        return attempt(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
