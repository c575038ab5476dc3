"""A stand-in of NCCL on host memory: ranks are threads of this process, which meet by the unique id.

It has the signatures of nccl4py's bindings. Reductions run over ranks in a ring's order, 0 + 1 + 2 …, in the element,
as NCCL may; what is sent is copied when it is sent.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
from collections import defaultdict
from typing import Any

import numpy as np

from ...backends.nccl import OPS, TYPES

_DTYPES = {code: kind.dtype for kind, code in TYPES.items()}
_COMBINE = {OPS["sum"]: np.add, OPS["prod"]: np.multiply, OPS["max"]: np.maximum, OPS["min"]: np.minimum}
WAIT = 20.0


class HostNcclError(Exception):
    """As the bindings raise where a status is not 0."""

    def __init__(self, status: int) -> None:
        self.status = status


class _Result:
    """Names of statuses."""

    def __init__(self, status: int) -> None:
        self.name = {4: "InvalidArgument", 5: "InvalidUsage"}.get(status, "InternalError")


class HostComm:
    """A rank's handle."""

    def __init__(self, world: Any = None, rank: int = 0, size: int = 0) -> None:
        self.world, self.rank, self.size, self.gone = world, rank, size, False


class HostNccl:
    """What backends/nccl.py calls."""

    Comm, Result = HostComm, _Result

    def __init__(self) -> None:
        self._worlds: dict[bytes, dict[tuple[int, int], Any]] = defaultdict(lambda: defaultdict(queue.SimpleQueue))
        self._ids = itertools.count(1)
        self._grouped = threading.local()

    def get_unique_id(self) -> bytes:
        return next(self._ids).to_bytes(128, "little")

    def comm_init_rank_scalable(self, size: int, rank: int, count: int, identity: bytearray, config: int) -> HostComm:
        return HostComm(self._worlds[bytes(identity)], rank, size)

    def get_last_error(self, comm: HostComm) -> str:
        return "a stand-in"

    def comm_abort(self, comm: HostComm) -> None:
        comm.gone = True

    comm_destroy = comm_abort

    def read(self, ptr: int, nbytes: int, stream: int) -> Any:
        """A copy of memory, after what is in the stream."""
        return np.frombuffer(ctypes.string_at(ptr, nbytes), np.uint8)

    def write(self, ptr: int, data: Any, stream: int) -> None:
        """Memory written, after what is in the stream."""
        held = np.ascontiguousarray(data)
        ctypes.memmove(ptr, held.ctypes.data, held.nbytes)

    # --- grouped moves -----------------------------------------------------------------------------------------------

    def group_start(self) -> None:
        self._grouped.receives = []

    def group_end(self) -> None:
        receives, self._grouped.receives = self._grouped.receives, None
        for one in receives:
            self._receive(*one)

    def send(self, ptr: int, count: int, datatype: int, peer: int, comm: HostComm, stream: int) -> None:
        self._check(comm, peer)
        comm.world[comm.rank, peer].put(self.read(ptr, count * _DTYPES[datatype].itemsize, stream))

    def recv(self, ptr: int, count: int, datatype: int, peer: int, comm: HostComm, stream: int) -> None:
        self._check(comm, peer)
        self._grouped.receives.append((ptr, count * _DTYPES[datatype].itemsize, peer, comm, stream))

    def _receive(self, ptr: int, nbytes: int, peer: int, comm: HostComm, stream: int) -> None:
        came = comm.world[peer, comm.rank].get(timeout=WAIT)
        if len(came) != nbytes:
            raise HostNcclError(5)
        self.write(ptr, came, stream)

    def _check(self, comm: HostComm, peer: int) -> None:
        if comm.gone or not 0 <= peer < comm.size:
            raise HostNcclError(4)

    # --- collectives -------------------------------------------------------------------------------------------------

    def _all(self, data: Any, comm: HostComm) -> list[Any]:
        self._check(comm, 0)
        for peer in range(comm.size):
            comm.world[comm.rank, peer].put(data)
        return [comm.world[peer, comm.rank].get(timeout=WAIT) for peer in range(comm.size)]

    def all_gather(self, x: int, y: int, count: int, datatype: int, comm: HostComm, stream: int) -> None:
        nbytes = count * _DTYPES[datatype].itemsize
        self.write(y, np.concatenate(self._all(self.read(x, nbytes, stream), comm)), stream)

    def broadcast(self, x: int, y: int, count: int, datatype: int, root: int, comm: HostComm, stream: int) -> None:
        nbytes = count * _DTYPES[datatype].itemsize
        self.write(y, self._all(self.read(x, nbytes, stream), comm)[root], stream)

    def _reduced(self, x: int, count: int, datatype: int, op: int, comm: HostComm, stream: int) -> Any:
        dtype = _DTYPES[datatype]
        parts = [one.view(dtype) for one in self._all(self.read(x, count * dtype.itemsize, stream), comm)]
        made = parts[0]
        for part in parts[1:]:
            made = (_COMBINE[0 if op == OPS["mean"] else op](made, part)).astype(dtype)
        return (made / dtype.type(comm.size)).astype(dtype) if op == OPS["mean"] else made

    def all_reduce(self, x: int, y: int, count: int, datatype: int, op: int, comm: HostComm, stream: int) -> None:
        made = self._reduced(x, count, datatype, op, comm, stream)
        self.write(y, made, stream)

    def reduce_scatter(self, x: int, y: int, count: int, datatype: int, op: int, comm: HostComm, stream: int) -> None:
        made = self._reduced(x, count * comm.size, datatype, op, comm, stream)[
            comm.rank * count : (comm.rank + 1) * count
        ]
        self.write(y, made, stream)

    def reduce(
        self, x: int, y: int, count: int, datatype: int, op: int, root: int, comm: HostComm, stream: int
    ) -> None:  # fmt: skip
        made = self._reduced(x, count, datatype, op, comm, stream)
        if comm.rank == root:
            self.write(y, made, stream)
