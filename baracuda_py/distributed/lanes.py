"""A second stream for exchanges beside the stream of a call, and the moves on it.

On the host there is one order only, in which everything is done at once. What a lane's exchanges read and write is
made on the call's stream and held until it has waited for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.cuda.intake import current_stream
from ..backends.nccl import Piece
from ..core.arrays import located, read
from ..core.device import CPU, Device
from ..core.intake import stream_pointer
from ..core.ordinals import ordinal
from ..core.outputs import allocating, maker
from ..interop.cupy_streams import external_stream
from ..interop.packages import package_name
from ..jit.launch import runtime_for
from .agreement import agree, agreed, new_in_graph
from .communicator import Communicator
from .copies import copying
from .launching import values

SPARED = 16
"""Multiprocessors that products leave to NCCL's kernels while it moves: a grid of all of them would wait for those."""


class Lane:
    """Where the exchanges of one call go. like: an operand, whose package and device all is made in."""

    def __init__(self, comm: Communicator, like: Any, stream: Any) -> None:
        self.comm, self.like, self.stream = comm, like, stream
        self.ordinal = ordinal(like)
        self.device: Device = CPU if self.ordinal < 0 else comm.link.device
        self.apart = self.ordinal >= 0 and not self.device.fake
        self._held: list[Any] = []
        if not self.apart:
            return
        import cupy

        self._event = cupy.cuda.Event
        runtime = runtime_for(self.device)
        self._main = current_stream([like], runtime, self.ordinal)() if stream is None else stream_pointer(stream)
        with cupy.cuda.Device(self.ordinal):
            if "side" not in comm.lanes:  # first in line where multiprocessors become free
                comm.lanes["side"] = cupy.cuda.Stream(non_blocking=True, priority=-5)
        self._side = comm.lanes["side"]

    def prepare(self) -> None:
        """Find what moves: copy engines where all ranks reach one another's memory, else NCCL. All ranks call it."""
        if self.apart and "copies" not in self.comm.lanes and not self.capturing:
            found = self.comm.lanes["copies"] = copying(self.comm, self.device)
            if not isinstance(found, str):
                self.comm.watch(found.abort)

    @property
    def copies(self) -> Any:
        """The ranks' copies to one another; None where NCCL moves, as in graphs, whose waits it brings along."""
        found = self.comm.lanes.get("copies")
        return None if found is None or isinstance(found, str) or self.capturing else found

    # --- order -------------------------------------------------------------------------------------------------------

    @property
    def capturing(self) -> bool:
        """Whether the call's stream is being captured."""
        return self.apart and runtime_for(self.device).capturing(self._main)

    def _recorded(self, stream: Any) -> Any:
        import cupy

        with cupy.cuda.Device(self.ordinal):
            event = self._event(disable_timing=True)
            event.record(stream)
        return event

    def follow(self) -> None:
        """Exchanges from here on come after what is in the call's stream."""
        if self.apart:
            self._side.wait_event(self._recorded(external_stream(self._main)))

    def mark(self) -> Any:
        """A point after the exchanges so far."""
        return self._recorded(self._side) if self.apart else None

    def wait(self, mark: Any) -> None:
        """The call's stream goes on after a point."""
        if mark is not None:
            external_stream(self._main).wait_event(mark)

    # --- memory ------------------------------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], kind: Any) -> Any:
        """An array of the operand's package, in the order of the call's stream."""
        with allocating(package_name(type(self.like)), self.ordinal, self.stream):
            return maker(self.like, shape, kind, self.ordinal)()

    def hold(self, array: Any) -> Any:
        """Keep an array's memory until the lane ends."""
        self._held.append(array)
        return array

    # --- moves -------------------------------------------------------------------------------------------------------

    def agree(self, name: str, **said: Any) -> None:
        """Every rank makes the same call; asked once for each, which no graph holds."""
        if self.capturing and not agreed(self.comm, name, **said):
            raise new_in_graph(name)
        agree(self.comm, name, **said)

    def exchange(self, name: str, sends: Sequence[Any], receives: Sequence[Any]) -> None:
        """sends[r] to rank r, what rank r sends into receives[r]: dense arrays, None for nothing, as at this rank."""
        if self.ordinal < 0:
            self._on_host(name, sends, receives)
            return
        self.comm.check()
        pieces = ([None if one is None else _piece(one) for one in side] for side in (sends, receives))
        (self.copies or self.comm.link).exchange(*pieces, self._side.ptr if self.apart else 0)

    def _on_host(self, name: str, sends: Sequence[Any], receives: Sequence[Any]) -> None:
        held = [None if one is None else values(one, read(one).element) for one in sends]
        came, _ = self.comm.exchange({"collective": name}, held)
        for data, into in zip(came, receives, strict=True):
            if into is not None and data is not None:
                at = values(into, read(into).element)
                at[...] = np.asarray(data).view(at.dtype).reshape(at.shape)

    # --- products beside them ----------------------------------------------------------------------------------------

    @property
    def spared(self) -> Device | None:
        """The device less some multiprocessors, for products beside NCCL's kernels; None where none run beside."""
        if self.ordinal < 0 or self.copies is not None:
            return None
        return replace(self.device, sms=max(2, self.device.sms - SPARED))


def _piece(array: Any) -> Piece:
    at = located(array)
    count = 1
    for extent in at.shape:
        count *= extent
    return Piece(at.ptr, count * at.element.itemsize)
