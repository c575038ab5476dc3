"""Ranks of a torch ProcessGroup, which carries what they exchange: gloo, or whatever else takes tensors of the host."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidProblemError
from .communicator import Call, Communicator
from .errors import DistributedError, RankLostError, TimedOutError
from .transport import Transport, snapshot


def group_communicator(group: Any, timeout: float) -> GroupCommunicator:
    """The communicator of a ProcessGroup that this process is of."""
    dist = sys.modules["torch"].distributed
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidProblemError(f"source must be a torch ProcessGroup, got {type(group).__name__}")
    return GroupCommunicator(_Nothing(group.rank(), group.size()), timeout, group)


class _Nothing(Transport):
    """The group itself sends; failures are kept here."""

    engine = "torch"

    def send(self, to: int, group: str, call: Any, data: np.ndarray | None) -> None:
        raise NotImplementedError

    def tell(self, to: int, group: str | None, error: DistributedError) -> None:
        """torch has no way to tell: the others find it when the group's own connections close, or by time."""

    def close(self, deadline: float) -> None:
        """The group is the caller's."""


class GroupCommunicator(Communicator):
    """Ranks compare their calls by an all_gather, then send and receive. A rank that fails alone is found by time."""

    def __init__(self, transport: Transport, timeout: float, torch_group: Any) -> None:
        super().__init__(transport, timeout)
        self.torch_group, self._torch = torch_group, sys.modules["torch"]
        self._dist = self._torch.distributed
        self._sending: list[tuple[Any, np.ndarray]] = []  # what is under way keeps its memory
        self._globals = self._dist.get_process_group_ranks(torch_group)

    def _part(self, ranks: list[int], group: str) -> Communicator:
        members = [self._globals[rank] for rank in ranks]
        limit = datetime.timedelta(seconds=self.timeout)
        made = self._dist.new_group(members, limit, backend="gloo", use_local_synchronization=True)
        return GroupCommunicator(_Nothing(made.rank(), made.size()), self.timeout, made)

    def exchange(
        self, call: Call, pieces: Sequence[np.ndarray | None] = (), detail: Any = None
    ) -> tuple[list[np.ndarray | None], list[Any]]:
        self.check()
        deadline = time.monotonic() + self.timeout
        held = [snapshot(piece) for piece in pieces] or [None] * self.size
        sizes = [None if one is None else len(one) for one in held]
        said = json.dumps({**call, "detail": [detail, sizes]}).encode()
        try:
            calls = [json.loads(bytes(one)) for one in self._all_said(said, call, deadline)]
            self._agree(calls)
            coming = [one["detail"][1][self.rank] for one in calls]
            got = [None if size is None else np.empty(size, np.uint8) for size in coming]
            self._moved(held, got, call, deadline)
        except DistributedError as error:
            if self._error is None:
                self._fail(error)
            raise
        return got, [one["detail"][0] for one in calls]

    def _all_said(self, said: bytes, call: Call, deadline: float) -> list[np.ndarray]:
        """What each rank says: first how long it is."""
        with self._within(call):
            own = self._tensor(np.frombuffer(said, np.uint8).copy())
            length = self._torch.tensor([len(said)])
            lengths = [self._torch.zeros_like(length) for _ in range(self.size)]
            self._wait(self._dist.all_gather(lengths, length, group=self.torch_group, async_op=True), deadline)
            most = max(int(one) for one in lengths)
            padded = self._torch.zeros(most, dtype=self._torch.uint8)
            padded[: len(said)] = own
            all_said = [self._torch.zeros_like(padded) for _ in range(self.size)]
            self._wait(self._dist.all_gather(all_said, padded, group=self.torch_group, async_op=True), deadline)
        return [one[: int(length)].numpy() for one, length in zip(all_said, lengths, strict=True)]

    def _moved(
        self, held: Sequence[np.ndarray | None], got: list[np.ndarray | None], call: Call, deadline: float
    ) -> None:
        work = []
        with self._within(call):
            for rank in range(self.size):
                out, into = held[rank], got[rank]
                if rank == self.rank:
                    got[rank] = out
                    continue
                if into is not None and into.size:
                    work.append(self._dist.irecv(self._tensor(into), self._globals[rank], group=self.torch_group))
                if out is not None and out.size:
                    work.append(self._dist.isend(self._tensor(out), self._globals[rank], group=self.torch_group))
            for one in work:
                self._wait(one, deadline)

    def _tensor(self, data: np.ndarray) -> Any:
        return self._torch.from_numpy(data)

    def _wait(self, work: Any, deadline: float) -> None:
        work.wait(datetime.timedelta(seconds=max(0.001, deadline - time.monotonic())))

    @contextlib.contextmanager
    def _within(self, call: Call) -> Iterator[None]:
        """torch's errors as ours: it tells them apart by their text alone."""
        try:
            yield
        except RuntimeError as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            late = any(word in text.lower() for word in ("timed out", "timeout"))
            gone = any(word in text.lower() for word in ("closed", "reset", "refused", "broken pipe"))
            kind = TimedOutError if late else RankLostError if gone else DistributedError
            raise kind(f"{call['collective']}: {text}") from error

    def sent(self, call: Call, to: int, data: np.ndarray) -> None:
        """One array to one rank, after what tells of it; does not wait."""
        self.check()
        held = snapshot(data)
        assert held is not None
        said = np.frombuffer(json.dumps({**call, "bytes": held.size}).encode(), np.uint8).copy()
        self._sending = [one for one in self._sending if not one[0].is_completed()]
        with self._within(call):
            for part in (np.array([said.size]), said, held):
                if part.size:
                    work = self._dist.isend(self._tensor(part), self._globals[to], group=self.torch_group)
                    self._sending.append((work, part))

    def received(self, call: Call, source: int) -> np.ndarray:
        self.check()
        deadline = time.monotonic() + self.timeout
        try:
            length = self._heard(np.empty(1, np.int64), source, call, deadline)
            said = self._heard(np.empty(int(length[0]), np.uint8), source, call, deadline)
            theirs = json.loads(bytes(said))
            size = theirs.pop("bytes")
            self.fitting(theirs, call, source)
            return self._heard(np.empty(size, np.uint8), source, call, deadline)
        except DistributedError as error:
            if self._error is None:
                self._fail(error)
            raise

    def _heard(self, into: np.ndarray, source: int, call: Call, deadline: float) -> np.ndarray:
        if into.size:
            with self._within(call):
                work = self._dist.irecv(self._tensor(into), self._globals[source], group=self.torch_group)
                self._wait(work, deadline)
        return into
