"""How frames get from rank to rank: what an engine of our own has to do, and the one of threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import AbortedError, DistributedError
from .mailbox import Frame, Mailbox


class Transport:
    """Frames between the ranks of a world. Sending never waits; what comes is in the mailbox.

    The bytes of a frame are nobody's to write any more (`snapshot`).
    """

    engine = ""
    mailbox: Mailbox

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.mailbox = rank, size, Mailbox()

    def send(self, to: int, group: str, call: Any, data: np.ndarray | None) -> None:
        raise NotImplementedError

    def tell(self, to: int, group: str | None, error: DistributedError) -> None:
        """Have a rank's communicator fail, or all that it has."""
        raise NotImplementedError

    def close(self, deadline: float) -> None:
        """No more is sent; others find this rank lost where they wait for it."""
        raise NotImplementedError


def snapshot(data: np.ndarray | None) -> np.ndarray | None:
    """The bytes of an array, copied."""
    return None if data is None else np.array(data, order="C").reshape(-1).view(np.uint8)


class ThreadTransport(Transport):
    """Ranks that are threads of this process: a frame is put into the other's mailbox."""

    engine = "threads"
    peers: list[ThreadTransport]

    def send(self, to: int, group: str, call: Any, data: np.ndarray | None) -> None:
        self.peers[to].mailbox.put(self.rank, Frame(group, call, data))

    def tell(self, to: int, group: str | None, error: DistributedError) -> None:
        self.peers[to].mailbox.fail(group, error)

    def close(self, deadline: float) -> None:
        for peer in self.peers:
            if peer is not self:
                peer.mailbox.lose(self.rank, f"rank {self.rank} has closed its communicator")


def thread_world(size: int) -> list[ThreadTransport]:
    """The transports of `size` ranks of this process."""
    world = [ThreadTransport(rank, size) for rank in range(size)]
    for one in world:
        one.peers = world
    return world


def abort_world(world: list[ThreadTransport], why: str) -> None:
    """Have every communicator of these ranks fail."""
    for one in world:
        one.mailbox.fail(None, AbortedError(why))
