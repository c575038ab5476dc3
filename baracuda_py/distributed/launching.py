"""What the rows of collectives do with arrays: on the host at once, on a device in a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.cuda.intake import current_stream
from ..core.arrays import located, to_numpy
from ..core.config import get
from ..core.element import ElementKind, decode
from ..core.errors import CaptureError
from ..core.intake import stream_pointer
from ..core.outputs import allocating, maker
from ..core.tensor import TensorRef
from ..interop.packages import package_name
from ..jit.launch import runtime_for
from .agreement import new_in_graph
from .communicator import Communicator
from .descriptors import AllToAllVDescriptor, SendReceiveDescriptor
from .device import Job, NativeJob, PeerJob, PeerTwoShotJob
from .host import RUN, fitting
from .refs import Room, flat

Ref = TensorRef | None

JOBS: dict[str, type[PeerJob]] = {"peers_one_shot": PeerJob, "peers_two_shot": PeerTwoShotJob}


def on_host(desc: Any, comm: Communicator, x: Any, y: Any) -> None:
    """The exchange and the sums, by NumPy."""
    x, y = (None if one is None else values(one, desc.element) for one in (x, y))
    RUN[type(desc)](comm, desc, x, y)


def values(array: Any, element: ElementKind) -> np.ndarray:
    """An array of the host as NumPy's, in the element's own dtype where it has whole bytes."""
    held = to_numpy(array)
    return held if held.dtype == element.dtype or element.bits < 8 else decode(held, element)


def job(desc: Any, comm: Communicator, row: Any, x: Ref, y: Ref, room: Room, carrier: Any, stream: int) -> Job:
    """A call's moves and launches; without a carrier it only counts."""
    kind: type[Job] = JOBS.get(row.name, Job) if row.fixed else NativeJob
    return kind(desc, comm.rank, x, y, room, carrier, stream)  # type: ignore[arg-type]


def counted(desc: Any, comm: Communicator, row: Any, x: Ref, y: Ref) -> int:
    """The workspace that a call on a device takes, in bytes."""
    room = Room(0, -1)
    getattr(job(desc, comm, row, x, y, room, None, 0), desc.collective)()
    return room.used


def _streams(comm: Communicator, given: list[Any], stream: Any) -> Callable[[], int]:
    """What tells a call's stream: the one given, else the current one of the operands' package."""
    if stream is None:
        return current_stream(given, runtime_for(comm.place), comm.place.ordinal)
    fixed = stream_pointer(stream)
    return lambda: fixed


def on_device(
    desc: Any, comm: Communicator, row: Any, args: Any, refs: list[Ref], needed: int, workspace: Any, stream: Any
) -> None:
    """Launch a call on the stream, or the current one of the operands' package."""
    given = [one for one in (args.x, args.y) if one is not None]
    carrier, ordinal = comm.peers if row.peers else comm.link, comm.place.ordinal
    at = _streams(comm, given, stream)()
    capturing = runtime_for(comm.place).capturing(at)
    if desc not in comm.agreed and not capturing:
        _prepare(desc, row, refs, carrier)
    _agree(desc, comm, capturing)
    if workspace is None and needed:
        with allocating(package_name(type(given[0])), ordinal, stream):
            workspace = maker(given[0], (needed,), ElementKind.U8, ordinal)()
    room = Room(located(workspace, "workspace").ptr if needed else 0, ordinal)
    getattr(job(desc, comm, row, refs[0], refs[1], room, carrier, at), desc.collective)()


def bound(
    desc: Any, comm: Communicator, row: Any, args: Any, refs: list[Ref], needed: int, workspace: Any, stream: Any
) -> Any:
    """`on_device` once, without its launches, and what makes them."""
    given = [one for one in (args.x, args.y) if one is not None]
    carrier, ordinal = comm.peers if row.peers else comm.link, comm.place.ordinal
    current = _streams(comm, given, stream)
    capturing = runtime_for(comm.place).capturing(current())
    if not capturing:
        _prepare(desc, row, refs, carrier)
    _agree(desc, comm, capturing)
    x, y = refs
    if row.peers and not needed and x is not None and y is not None:
        call = carrier.fixed(JOBS[row.name].kernel, flat(x), flat(y), desc.op)

        def fire(_keep: Any = given) -> None:
            if not carrier.quiet:
                comm.check()
            call(current())

        return fire
    if workspace is None and needed:
        with allocating(package_name(type(given[0])), ordinal, stream):
            workspace = maker(given[0], (needed,), ElementKind.U8, ordinal)()
    at = located(workspace, "workspace").ptr if needed else 0

    def again(_keep: Any = (given, workspace)) -> None:
        comm.check()
        getattr(job(desc, comm, row, x, y, Room(at, ordinal), carrier, current()), desc.collective)()

    return again


def _prepare(desc: Any, row: Any, refs: list[Ref], carrier: Any) -> None:
    """Load the kernels of a row of peers, which must be there before any rank waits in one."""
    x, y = refs
    if row.peers and x is not None and y is not None:
        carrier.prepare(JOBS[row.name].kernel, desc.element, desc.op, x.ptr | y.ptr)


def _agree(desc: Any, comm: Communicator, capturing: bool) -> None:
    """The ranks compare their calls where one is new, or always by BARACUDA_CHECK=1: the host waits for that alone.

    Counts of rows are compared at every call, as they differ from one to the next.
    """
    comm.check()
    if desc in comm.agreed and not get("BARACUDA_CHECK"):
        return
    call = desc.call()
    if isinstance(desc, AllToAllVDescriptor):
        if capturing:
            raise CaptureError(
                "all_to_all_v compares its counts on the host at every call, which a graph does not repeat; capture "
                "all_to_all, whose pieces are alike"
            )
        fitting(comm, comm.gathered(call, [desc.send_counts, desc.receive_counts]))
        return
    between = (desc.to, desc.source) if isinstance(desc, SendReceiveDescriptor) else ()
    if capturing:
        raise new_in_graph(desc.collective)
    if not between:
        comm.exchange(call)
    else:
        if desc.to is not None:
            comm.sent(call, desc.to, np.empty(0))
        if desc.source is not None:
            comm.received(call, desc.source)
    comm.agreed.add(desc)
