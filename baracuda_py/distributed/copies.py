"""Pieces from rank to rank by the copy engines of the GPUs of one host, which take no multiprocessor from products.

Every rank shows the others a region (`peer_memory`): a few slots for what each of them sends, and a word a slot that
says that it is full, or, for a slot of a peer, that it is free again. A copy goes to the peer's slot, then a copy of a
word that says so; who receives waits in its stream for the word, clears it, copies the slot to where it belongs, and
tells the sender. All words and copies are the same in every call, so that calls follow each other in any number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..backends.nccl import Piece
from ..core.device import Device
from ..core.errors import BaracudaError
from .communicator import Communicator
from .peer_memory import CudaMemory, told, tried, within_reach

SLOTS = 2
ROOM = 64 << 20
"""Bytes of a region's slots: copies of a slot take longer than what is said of them."""

RANKS = 16
_COLLECTIVE = "copies"
_FULL, _FREE, _ONE, _TRIED = 0, 1, 4096, 4352
HEADER = 8192
"""Bytes before the slots: words for every rank, then one that is 1, then one a rank for a first trial."""

ENDING = 5.0
"""Seconds that a failure waits for what is in the stream."""


class CudaMoves:
    """Copies, and words that a stream waits for and writes, by the driver."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self._driver = driver
        made = [driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING) for _ in range(2)]
        for answer in made:
            _done(answer, "cuStreamCreate")
        self.own, self.trial = (int(answer[1]) for answer in made)
        """A stream that waits for nothing, and one for the first trial."""

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        _done(self._driver.cuMemcpyAsync(to, source, nbytes, stream), "cuMemcpyAsync")

    def wait(self, word: int, stream: int) -> None:
        """The stream goes on when the word is 1."""
        _done(self._driver.cuStreamWaitValue32(stream, word, 1, 0), "cuStreamWaitValue32")

    def clear(self, word: int, stream: int) -> None:
        _done(self._driver.cuStreamWriteValue32(stream, word, 0, 0), "cuStreamWriteValue32")

    def put(self, word: int) -> None:
        """A word is 1 soon, whatever other streams wait for."""
        _done(self._driver.cuStreamWriteValue32(self.own, word, 1, 0), "cuStreamWriteValue32")

    def idle(self, stream: int) -> bool:
        """Whether the stream has done all."""
        return int(self._driver.cuStreamQuery(stream)[0]) != 600  # CUDA_ERROR_NOT_READY


def _done(answer: tuple[Any, ...], call: str) -> None:
    if answer[0]:
        raise BaracudaError(f"{call} failed: {getattr(answer[0], 'name', answer[0])}")


def copying(comm: Communicator, device: Device, memory: Any = None, moves: Any = None, room: int = ROOM) -> Any:
    """The ranks' copies to one another, or why there are none, the same on every rank. Every rank calls it."""
    kind = CudaMemory(device) if memory is None else memory
    if comm.size > RANKS:
        return f"is for up to {RANKS} ranks, there are {comm.size}"
    slot = room // (comm.size * SLOTS) // 256 * 256
    with kind.inside():
        found = within_reach(comm, _COLLECTIVE, kind)
        if isinstance(found, str):
            return found
        region, why = tried(lambda: _made(kind, comm.size, slot))
        shown, why = (None, why) if why else tried(lambda: kind.shown(region))
        places = told(comm, _COLLECTIVE, "show", (shown, why))
        opened: list[tuple[Any, str]] = []
        if not isinstance(places, str):
            opened = [
                (region, "") if rank == comm.rank else tried(lambda theirs=theirs: kind.open(theirs))  # type: ignore[misc]
                for rank, theirs in enumerate(places)
            ]
        why = next((f"rank {rank}'s memory does not open: {said}" for rank, (_, said) in enumerate(opened) if said), "")
        done = told(comm, _COLLECTIVE, "open", (True, why))
        if isinstance(places, str) or isinstance(done, str):
            return str(places if isinstance(places, str) else done)
        made, why = tried(lambda: CopyRanks(comm, kind, moves or CudaMoves(), [int(ptr) for ptr, _ in opened], slot))
        done = told(comm, _COLLECTIVE, "streams", (True, why))
        if isinstance(done, str):
            return done
        _, why = tried(made.prove)
        done = told(comm, _COLLECTIVE, "proof", (True, why))
        if isinstance(done, str):
            made.abort()  # what waits in the trial's stream
            return done
        return made


def _made(memory: Any, ranks: int, slot: int) -> int:
    """A region whose peers' slots are free."""
    ptr = int(memory.make(HEADER + ranks * SLOTS * slot))
    one = (1).to_bytes(4, "little")
    memory.write(ptr + _ONE, one)
    for at in range(ranks * SLOTS):
        memory.write(ptr + _word(at // SLOTS, at % SLOTS, _FREE), one)
    return ptr


def _word(rank: int, slot: int, which: int) -> int:
    """Where a rank's word stands in a region: FULL of what it sends, FREE of what goes to it."""
    return 16 * (rank * SLOTS + slot) + 4 * which


class CopyRanks:
    """This rank's way to the others' slots. Regions stay until the process ends: a peer may yet write there."""

    def __init__(self, comm: Communicator, memory: Any, moves: Any, regions: list[int], slot: int) -> None:
        self.rank, self.size, self.memory, self.moves = comm.rank, comm.size, memory, moves
        self.regions, self.slot, self.aborted = regions, slot, False
        self._stream = 0

    def exchange(self, sends: Sequence[Piece | None], receives: Sequence[Piece | None], stream: int) -> None:
        """Piece r goes to rank r, and what rank r sends comes into `receives[r]`, in the stream's order."""
        self._stream = stream
        most = max((one.nbytes for one in (*sends, *receives) if one is not None), default=0)
        with self.memory.inside():
            for part in range(-(-most // self.slot)):
                for step in range(1, self.size):
                    self._send(part, (self.rank + step) % self.size, sends, stream)
                for step in range(1, self.size):
                    self._receive(part, (self.rank - step) % self.size, receives, stream)

    def _cut(self, part: int, one: Piece | None) -> tuple[int, int]:
        """Where a part of a piece begins, and its bytes."""
        if one is None:
            return 0, 0
        start = part * self.slot
        return one.ptr + start, max(0, min(self.slot, one.nbytes - start))

    def _place(self, of: int, rank: int, slot: int) -> int:
        """A rank's slot in a region."""
        return self.regions[of] + HEADER + (rank * SLOTS + slot) * self.slot

    def _send(self, part: int, to: int, sends: Sequence[Piece | None], stream: int) -> None:
        source, nbytes = self._cut(part, sends[to])
        if not nbytes:
            return
        moves, own, slot = self.moves, self.regions[self.rank], part % SLOTS
        free = own + _word(to, slot, _FREE)
        moves.wait(free, stream)
        moves.clear(free, stream)
        moves.copy(self._place(to, self.rank, slot), source, nbytes, stream)
        moves.copy(self.regions[to] + _word(self.rank, slot, _FULL), own + _ONE, 4, stream)

    def _receive(self, part: int, source: int, receives: Sequence[Piece | None], stream: int) -> None:
        into, nbytes = self._cut(part, receives[source])
        if not nbytes:
            return
        moves, own, slot = self.moves, self.regions[self.rank], part % SLOTS
        full = own + _word(source, slot, _FULL)
        moves.wait(full, stream)
        moves.clear(full, stream)
        moves.copy(into, self._place(self.rank, source, slot), nbytes, stream)
        moves.copy(self.regions[source] + _word(self.rank, slot, _FREE), own + _ONE, 4, stream)

    def prove(self) -> None:
        """A word from every rank to every other comes, within seconds; raises where it does not."""
        own, stream = self.regions[self.rank], self.moves.trial
        others = [rank != self.rank for rank in range(self.size)]
        sends = [Piece(own + _ONE, 4) if other else None for other in others]
        receives = [Piece(own + _TRIED + 4 * rank, 4) if other else None for rank, other in enumerate(others)]
        self.exchange(sends, receives, stream)
        until = time.monotonic() + ENDING
        while not self.moves.idle(stream):
            if time.monotonic() > until:
                raise BaracudaError("copies to the other ranks did not end")
            time.sleep(1e-3)
        self._stream = 0
        came = self.memory.read(own + _TRIED, 4 * self.size)
        if any(other and came[4 * rank] != 1 for rank, other in enumerate(others)):
            raise BaracudaError("copies from other ranks did not come")

    def abort(self) -> None:
        """End waits that are under way in the stream: every word is written until it has nothing left to wait for."""
        if self.aborted:
            return
        self.aborted, until = True, time.monotonic() + ENDING
        with self.memory.inside():
            while time.monotonic() < until and self._stream and not self.moves.idle(self._stream):
                for at in range(self.size * SLOTS):
                    for which in (_FULL, _FREE):
                        self.moves.put(self.regions[self.rank] + _word(at // SLOTS, at % SLOTS, which))
                time.sleep(1e-3)
