"""Peers' memory on the host: ranks are threads of this process, whose kernels are emulated one at a time.

No kernel waits for one that is not running: a call's phases are launches of their own, and between them the ranks meet.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..._forking import Mutex
from ..layouts import aligned_bytes

_ONE = Mutex()


class HostMemory:
    """What `distributed.peer_memory.CudaMemory` does for a GPU."""

    together = False

    def __init__(self, meet: Callable[[], object], rank: int) -> None:
        self._meet, self._rank, self.held = meet, rank, dict[int, Any]()

    def inside(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def identity(self) -> list[Any]:
        return ["host", 0, f"bus {self._rank}", 0]

    def unreachable(self, theirs: Sequence[Any]) -> str:
        return ""

    def make(self, nbytes: int) -> int:
        made = aligned_bytes(nbytes)
        made[:] = 0
        self.held[made.ctypes.data] = made
        return int(made.ctypes.data)

    def shown(self, ptr: int) -> list[Any]:
        return [*self.identity(), ptr, ""]

    def open(self, theirs: Sequence[Any]) -> int:
        return int(theirs[4])

    def close(self, ptr: int, theirs: Sequence[Any]) -> None:
        """Nothing was opened."""

    def free(self, ptr: int) -> None:
        del self.held[ptr]

    def words(self) -> int:
        return self.make(64)

    def free_words(self, ptr: int) -> None:
        self.free(ptr)

    def write(self, ptr: int, data: bytes) -> None:
        ctypes.memmove(ptr, data, len(data))

    def read(self, ptr: int, nbytes: int) -> bytes:
        return ctypes.string_at(ptr, nbytes)

    def settle(self) -> None:
        """Launches are over when they return."""

    def load(self, function: Any) -> None:
        """Nothing is brought anywhere."""

    def launched(self, phases: Sequence[int], launch: Callable[[int], None]) -> None:
        for phase in phases:
            with _ONE():
                launch(phase)
            self._meet()
