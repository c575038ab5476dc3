"""NCCL: a communicator of this rank on a device, and its calls on raw pointers, on the stream that each is given.

Called through nccl4py's bindings (docs/design/distributed.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baracuda_py.backends.library import Library, _search, current
from baracuda_py.core.device import Device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import BaracudaError

from ..jit.toolkit import cupy_major


class _Nccl(Library):
    """Its version's own major number is 2 for every CUDA; the wheel for CuPy's is an extra of its own."""

    def unavailable(self) -> str:
        major = cupy_major() or 13
        why = _search(self.name, self._bindings, self._package, major - 2)
        return why.replace(f"[cu{major}]", f"[cu{major},nccl{major}]")

    def status_name(self, error: Exception) -> str:
        """nccl…, as the manual has it."""
        return f"nccl{self.bindings.Result(error.status).name}"  # type: ignore[attr-defined]

    def failure(self, error: Exception, call: str) -> BaracudaError:
        """The typed error, with what NCCL says of the last failure of this process."""
        found = super().failure(error, call)
        text = str(self.bindings.get_last_error(self.bindings.Comm()) or "")
        found.args = (f"{found.args[0]}{f' ({text})' if text else ''}",)
        return found


NCCL = _Nccl("nccl", bindings="nccl.bindings.nccl", package="nccl4py", error="NCCLError", unsupported=())

BYTE = 1  # ncclUint8
TYPES = {
    ElementKind.I8: 0, ElementKind.U8: 1, ElementKind.I32: 2, ElementKind.U32: 3, ElementKind.I64: 4,
    ElementKind.U64: 5, ElementKind.F16: 6, ElementKind.F32: 7, ElementKind.F64: 8, ElementKind.BF16: 9,
}  # fmt: skip
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "mean": 4}


@dataclass(frozen=True)
class Piece:
    """Dense memory of the device."""

    ptr: int
    nbytes: int


def unique_id() -> bytes:
    """What rank 0 makes and all ranks of a new communicator are given."""
    with NCCL.calling("ncclGetUniqueId"):
        return bytes(NCCL.bindings.get_unique_id())


class NcclRanks:
    """This rank's handle among `size`, on a device. Calls return at once; their work is done in the stream's order."""

    def __init__(self, rank: int, size: int, identity: bytes, device: Device) -> None:
        self.rank, self.size, self.device, self.aborted = rank, size, device, False
        nccl = NCCL.bindings
        with current(device), NCCL.calling("ncclCommInitRank"):
            self.handle = nccl.comm_init_rank_scalable(size, rank, 1, bytearray(identity), 0)

    def exchange(self, sends: Sequence[Piece | None], receives: Sequence[Piece | None], stream: int) -> None:
        """Piece r goes to rank r, and what rank r sends comes into `receives[r]`: all at once."""
        nccl = NCCL.bindings
        with NCCL.calling("ncclSend, ncclRecv"):
            nccl.group_start()
            try:
                for rank in range(self.size):
                    out, into = sends[rank], receives[rank]
                    if out is not None and out.nbytes:
                        nccl.send(out.ptr, out.nbytes, BYTE, rank, self.handle, stream)
                    if into is not None and into.nbytes:
                        nccl.recv(into.ptr, into.nbytes, BYTE, rank, self.handle, stream)
            finally:
                nccl.group_end()

    def all_gather(self, x: Piece, y: Piece, stream: int) -> None:
        with NCCL.calling("ncclAllGather"):
            NCCL.bindings.all_gather(x.ptr, y.ptr, x.nbytes, BYTE, self.handle, stream)

    def broadcast(self, x: Piece, y: Piece, root: int, stream: int) -> None:
        with NCCL.calling("ncclBroadcast"):
            NCCL.bindings.broadcast(x.ptr, y.ptr, y.nbytes, BYTE, root, self.handle, stream)

    def all_reduce(self, x: Piece, y: Piece, element: ElementKind, op: str, stream: int) -> None:
        with NCCL.calling("ncclAllReduce"):
            count = x.nbytes // element.itemsize
            NCCL.bindings.all_reduce(x.ptr, y.ptr, count, TYPES[element], OPS[op], self.handle, stream)

    def reduce_scatter(self, x: Piece, y: Piece, element: ElementKind, op: str, stream: int) -> None:
        with NCCL.calling("ncclReduceScatter"):
            count = y.nbytes // element.itemsize
            NCCL.bindings.reduce_scatter(x.ptr, y.ptr, count, TYPES[element], OPS[op], self.handle, stream)

    def reduce(self, x: Piece, y: Piece | None, element: ElementKind, op: str, root: int, stream: int) -> None:
        with NCCL.calling("ncclReduce"):
            count = x.nbytes // element.itemsize
            into = x.ptr if y is None else y.ptr
            NCCL.bindings.reduce(x.ptr, into, count, TYPES[element], OPS[op], root, self.handle, stream)

    def abort(self) -> None:
        """End what is under way on the device; the handle is gone."""
        if not self.aborted:
            self.aborted = True
            with NCCL.calling("ncclCommAbort"):
                NCCL.bindings.comm_abort(self.handle)

    def close(self) -> None:
        """Give the handle back, after what is under way."""
        if not self.aborted:
            self.aborted = True
            with current(self.device), NCCL.calling("ncclCommDestroy"):
                NCCL.bindings.comm_destroy(self.handle)
