"""Communicators: a rank's place among others, the exchange that every collective is made of, and its failures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.checked import shown
from ..core.errors import InvalidProblemError
from .errors import AbortedError, DistributedError, MismatchError, RankLostError, TimedOutError
from .transport import Transport, snapshot

Call = dict[str, Any]
"""What a rank says of its call: every rank must say the same of all but `detail`."""


class Communicator:
    """This rank among `size` ranks, which make the same calls in the same order.

    rank, size: this rank's number and how many there are. engine: what carries the exchange. timeout: seconds that a
    call waits for the other ranks. A failed communicator stays failed. It is a context manager, which closes it.
    One thread at a time may use it.
    """

    def __init__(
        self,
        transport: Transport,
        timeout: float,
        *,
        members: Sequence[int] | None = None,
        group: str = "0",
        parent: Communicator | None = None,
    ) -> None:
        self._transport, self._group = transport, group
        self._members = tuple(range(transport.size) if members is None else members)
        self._timeout, self._splits, self._closed = timeout, 0, False
        self._error: DistributedError | None = None
        self._link: Any = None
        self._linking: Callable[[Communicator], Any] | None = None
        self._peers: Any = "its engine knows no GPU"
        self._peering: Callable[[Communicator], Any] | None = None
        self.plans: dict[Any, Any] = {}  # of the functions, by descriptor and preference
        self.agreed: set[Any] = set()  # calls on a device that all ranks have made alike
        self.lanes: dict[str, Any] = {}  # a stream for exchanges beside that of a call, and what copies there
        self._pid, self._parent = os.getpid(), parent
        self.rank, self.size = self._members.index(transport.rank), len(self._members)

    @property
    def engine(self) -> str:
        """What carries arrays: threads, processes, torch; of a device nccl, or peers where it alone is there."""
        if self._link is not None:
            return "nccl"
        return self._transport.engine if isinstance(self._peers, str) else "peers"

    @property
    def device(self) -> int | None:
        """The CUDA device that this rank's arrays are on; None where they are of the host."""
        return None if self.place is None else self.place.ordinal

    @property
    def place(self) -> Any:
        """The same as a `Device`."""
        with_one = self._link if self._link is not None else self._peers
        return getattr(with_one, "device", None)

    @property
    def link(self) -> Any:
        """This rank of NCCL's communicator."""
        return self._link

    @property
    def peers(self) -> Any:
        """This rank's way into the memory of the other ranks' GPUs, or, as text, why it has none."""
        return self._peers

    @property
    def timeout(self) -> float:
        """Seconds that a call waits for the other ranks."""
        return self._timeout

    @property
    def closed(self) -> bool:
        """Whether this rank has left, or what this was split off."""
        return self._closed or (self._parent is not None and self._parent.closed)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "failed" if self._error else self.engine
        return f"<Communicator rank {self.rank} of {self.size}, {state}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """An error that leaves the block aborts the other ranks; else the communicator is closed."""
        if error is not None and not self._closed:
            self._abort(f"rank {self.rank} raised {kind.__name__}: {error}")
        self.close()

    def abort(self) -> None:
        """Have this communicator fail on every rank: who waits raises `AbortedError`."""
        self._abort(f"rank {self.rank} called abort")

    def _abort(self, why: str) -> None:
        if self._error is None:
            self._fail(AbortedError(why))

    def close(self) -> None:
        """Leave: others that wait for this rank from now on raise `RankLostError`. What was split off ends with it."""
        if not self._closed:
            self._closed = True
            if self._pid == os.getpid():
                for one in self._of_device():
                    self._transport.mailbox.watchers.remove(one.abort)
                    one.close()
            if self._group == "0" and self._pid == os.getpid():
                self._transport.close(time.monotonic() + min(self.timeout, 5.0))

    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """A communicator of the ranks that give the same color, in the order of `key` (of rank where equal or None).

        Every rank calls it; one that gives None is in none, and gets None. Raises `InvalidProblemError` for a color or
        key that is no integer.
        """
        for name, value in (("color", color), ("key", key)):
            if value is not None and type(value) is not int:
                raise InvalidProblemError(f"{name} must be an integer or None, got {shown(value)}")
        said = self.gathered({"collective": "split"}, [color, self.rank if key is None else key])
        self._splits += 1
        if color is None:
            return None
        ranks = sorted((place, rank) for rank, (other, place) in enumerate(said) if other == color)
        made = self._part([rank for _, rank in ranks], f"{self._group}/{self._splits}.{color}")
        if self._linking is not None:
            made.attach(self._linking)
        if self._peering is not None:
            made.reach(self._peering)
        return made

    def _part(self, ranks: list[int], group: str) -> Communicator:
        """A communicator of some of the ranks, in that order."""
        members = [self._members[rank] for rank in ranks]
        return Communicator(self._transport, self.timeout, members=members, group=group, parent=self)

    def attach(self, linking: Callable[[Communicator], Any]) -> None:
        """Have a device's library carry arrays of that device, here and in what is split off; `linking` makes it."""
        self._linking, self._link, self.plans = linking, linking(self), {}
        self._transport.mailbox.watchers.append(self._link.abort)

    def reach(self, peering: Callable[[Communicator], Any]) -> None:
        """Have kernels read the memory of other ranks' GPUs, here and in what is split off; `peering` finds how."""
        self._peering, self._peers, self.plans = peering, peering(self), {}
        if not isinstance(self._peers, str):
            self._transport.mailbox.watchers.append(self._peers.abort)

    def watch(self, abort: Callable[[], object]) -> None:
        """Have a function called where something fails, by the thread that hears of it."""
        self._transport.mailbox.watchers.append(abort)

    def _of_device(self) -> list[Any]:
        """What works on the device."""
        return [one for one in (self._peers, self._link) if one is not None and not isinstance(one, str)]

    # --- the exchange ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises what this communicator failed with."""
        if self._pid != os.getpid():
            raise DistributedError("the communicator was made in another process; a forked child makes its own")
        if self.closed:
            raise DistributedError("the communicator is closed")
        error = self._error or self._transport.mailbox.failure(self._group)
        if error is None and any(one.aborted for one in self._of_device()):
            error = RankLostError("a rank ended; what was under way on the device is aborted")
        if error is None and (late := getattr(self._peers, "late", None)) is not None:
            error = TimedOutError(f"a kernel of rank {self.rank} waited about {self.timeout:g} s for rank {late}")
            self._fail(error)
        if error is not None:
            raise type(error)(*error.args)

    def _fail(self, error: DistributedError) -> None:
        """This communicator failed: the others hear of it."""
        self._error = error
        self._transport.mailbox.fail(self._group, error)
        for member in self._members:
            if member != self._transport.rank:
                self._transport.tell(member, self._group, error)

    def _take(self, source: int, call: Call, deadline: float) -> Any:
        try:
            return self._transport.mailbox.take(self._members[source], self._group, deadline)
        except TimedOutError as error:
            if error.args != ("",):
                raise
            name = call["collective"]
            raise TimedOutError(
                f"{name}: rank {self.rank} waited {self.timeout:g} s for rank {source}, which makes no such call"
            ) from None
        except RankLostError as error:
            if not str(error).startswith("rank "):
                raise  # another rank has said it
            raise RankLostError(f"{call['collective']}: {error}") from None

    def exchange(
        self, call: Call, pieces: Sequence[np.ndarray | None] = (), detail: Any = None
    ) -> tuple[list[np.ndarray | None], list[Any]]:
        """Piece r goes to rank r; returns what each rank sent, as bytes, and its `detail`, both by rank.

        Every rank hears from every other, so that a call that differs raises `MismatchError` on all.
        """
        self.check()
        deadline = time.monotonic() + self.timeout
        said = {**call, "detail": detail}
        held = {id(piece): snapshot(piece) for piece in pieces}  # one piece may go to several
        try:
            for rank, member in enumerate(self._members):
                data = held[id(pieces[rank])] if pieces else None
                self._transport.send(member, self._group, said, data)
            frames = [self._take(rank, call, deadline) for rank in range(self.size)]
            self._agree([frame.call for frame in frames])
        except DistributedError as error:
            if self._error is None:
                self._fail(error)
            raise
        return [frame.data for frame in frames], [frame.call["detail"] for frame in frames]

    def gathered(self, call: Call, detail: Any) -> list[Any]:
        """What each rank says of itself."""
        return self.exchange(call, detail=detail)[1]

    def _agree(self, calls: list[Call]) -> None:
        for rank, call in enumerate(calls):
            if _common(call) != _common(calls[0]):
                raise MismatchError(f"rank {rank} {_differs(call, calls[0])}")

    def mismatch(self, message: str) -> MismatchError:
        """The error for details that do not fit, which every rank has seen; this communicator has failed."""
        error = MismatchError(message)
        if self._error is None:
            self._fail(error)
        return error

    def sent(self, call: Call, to: int, data: np.ndarray) -> None:
        """One array to one rank; does not wait."""
        self.check()
        self._transport.send(self._members[to], self._group, call, snapshot(data))

    def received(self, call: Call, source: int) -> np.ndarray:
        """The bytes that a rank sends, whose call must be the same but for its name."""
        self.check()
        try:
            frame = self._take(source, call, time.monotonic() + self.timeout)
            self.fitting(frame.call, call, source)
        except DistributedError as error:
            if self._error is None:
                self._fail(error)
            raise
        return frame.data  # type: ignore[no-any-return]

    def fitting(self, theirs: Call, own: Call, source: int) -> None:
        """Raises where what a rank sends is not what this one receives."""
        if _common(theirs) != _common(own):
            raise MismatchError(f"rank {source} {_differs(theirs, own, f'rank {self.rank}')}")


def _common(call: Call) -> Call:
    return {name: _plain(value) for name, value in call.items() if name != "detail"}


def _plain(value: Any) -> Any:
    """Tuples come back from JSON as lists."""
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _differs(call: Call, first: Call, whom: str = "rank 0") -> str:
    """In what a rank's call differs from another's, in words."""
    name, own = call["collective"], first["collective"]
    if name != own:
        return f"calls {name}, {whom} calls {own}"
    for field in {**first, **call}:
        if field != "detail" and _plain(call.get(field)) != _plain(first.get(field)):
            return f"calls {name} with {field} {_worded(call.get(field))}, {whom} with {_worded(first.get(field))}"
    return f"calls {name} as no other does"


def _worded(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, list) else str(value)
