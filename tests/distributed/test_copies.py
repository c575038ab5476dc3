"""Copies between ranks of one host, over memory of the host: pieces of every size, in any number of calls."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest

from baracuda_py import distributed as D
from baracuda_py.backends.nccl import Piece
from baracuda_py.distributed import copies, lanes
from baracuda_py.testing import emulated_device
from baracuda_py.testing.libraries.peers import HostMemory

DEVICE = emulated_device(9.0)


class HostMoves:
    """Streams as the calling thread: a wait is one for another thread's copy."""

    own, trial = 7, 8

    def __init__(self, limit: float = 10.0) -> None:
        self.limit, self.busy = limit, False

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def wait(self, word: int, stream: int) -> None:
        until, self.busy = time.monotonic() + self.limit, True
        while ctypes.c_uint32.from_address(word).value != 1:
            assert time.monotonic() < until, "a word that nobody writes"
            time.sleep(0)
        self.busy = False

    def clear(self, word: int, stream: int) -> None:
        ctypes.c_uint32.from_address(word).value = 0

    def put(self, word: int) -> None:
        ctypes.c_uint32.from_address(word).value = 1

    def idle(self, stream: int) -> bool:
        return not self.busy


def reached(comm: Any, meeting: Any, moves: Any = None, room: int = 4096) -> Any:
    made = copies.copying(comm, DEVICE, HostMemory(meeting.wait, comm.rank), moves or HostMoves(), room)
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_piece_comes(size: int) -> None:
    """Sizes of 0, of less and of more than all slots, other ones for each pair; arrays that are None."""
    meeting = threading.Barrier(size)
    lengths = [0, 1, 255, 256, 300, 5000]

    def work(comm: Any) -> None:
        found = reached(comm, meeting)
        assert isinstance(found, copies.CopyRanks), found
        for turn in range(4):

            def length(source: int, to: int, turn: int = turn) -> int:
                return lengths[(3 * source + 5 * to + turn) % len(lengths)]

            rng = np.random.default_rng
            out = [rng([comm.rank, r, turn]).integers(0, 256, length(comm.rank, r), np.uint8) for r in range(size)]
            into = [np.zeros(length(r, comm.rank), np.uint8) for r in range(size)]
            sides = [
                [None if rank == comm.rank else Piece(one.ctypes.data, one.nbytes) for rank, one in enumerate(held)]
                for held in (out, into)
            ]
            found.exchange(*sides, 0)
            for rank, one in enumerate(into):
                if rank != comm.rank:
                    want = rng([rank, comm.rank, turn]).integers(0, 256, length(rank, comm.rank), np.uint8)
                    assert one.tobytes() == want.tobytes()

    D.run_ranks(work, size, timeout=20)


def test_ranks_without_a_way_to_each_other_say_why() -> None:
    meeting = threading.Barrier(2)

    class Far(HostMemory):
        def unreachable(self, theirs: Any) -> str:
            return "is on another host (there)" if theirs[2] == "bus 1" else ""

    class Full(HostMemory):
        def make(self, nbytes: int) -> int:
            if self._rank == 1:
                raise MemoryError("no room")
            return super().make(nbytes)

    class Deaf(HostMoves):
        def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
            ctypes.memmove(to, source, 0)

        def wait(self, word: int, stream: int) -> None:
            """Nothing comes."""

    def work(comm: Any) -> list[Any]:
        far = copies.copying(comm, DEVICE, Far(meeting.wait, comm.rank), HostMoves())
        full = copies.copying(comm, DEVICE, Full(meeting.wait, comm.rank), HostMoves(), 4096)
        return [far, full, reached(comm, meeting, Deaf())]

    for far, full, deaf in D.run_ranks(work, 2):
        assert far == "rank 0: rank 1 is on another host (there)" and full == "rank 1: MemoryError: no room"
        assert "did not come" in deaf
    with D.communicator(rank=0, size=1) as comm:
        comm.size = 17
        assert "for up to 16 ranks" in copies.copying(comm, DEVICE, HostMemory(meeting.wait, 0))


def test_a_failure_ends_waits() -> None:
    meeting = threading.Barrier(2)

    def work(comm: Any) -> float:
        moves = HostMoves()
        found = reached(comm, meeting, moves)
        comm.watch(found.abort)
        D.barrier(comm)
        if comm.rank == 1:
            time.sleep(0.2)
            comm.abort()
            return 0.0
        began, data = time.monotonic(), np.zeros(4, np.uint8)
        found.exchange([None, None], [None, Piece(data.ctypes.data, 4)], 5)  # which rank 1 never sends
        return time.monotonic() - began

    took = D.run_ranks(work, 2)[0]
    assert 0.1 < took < 5


def test_layers_take_them_in_place_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane's moves go by copies where they are, but for graphs; products then have all multiprocessors."""
    with D.communicator(rank=0, size=1) as comm:
        lane = lanes.Lane(comm, np.zeros(3), None)
        assert lane.copies is None and lane.spared is None
        lane.prepare()  # the host needs none
        assert comm.lanes == {}
        lane.ordinal, lane.device, comm.lanes["copies"] = 0, DEVICE, "is on another host"
        assert lane.copies is None and lane.spared.sms == DEVICE.sms - lanes.SPARED
        comm.lanes["copies"] = one = object()
        assert lane.copies is one and lane.spared is None
        monkeypatch.setattr(lanes.Lane, "capturing", True)
        assert lane.copies is None and lane.spared is not None
