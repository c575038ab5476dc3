"""Ranks that are processes: a socket for each pair, whose ends have shown each other that they know the key.

Frames are bytes, of which nothing is unpickled: lengths, the call in JSON, the data. A thread for each peer reads into
the mailbox, another writes what is queued, so that no rank waits for a peer that does not read.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .errors import KINDS, DistributedError
from .mailbox import Frame
from .transport import Transport

BROKEN = (EOFError, OSError)


class Link:
    """This rank's end of its socket to a peer."""

    def __init__(self, transport: ProcessTransport, peer: int, connection: Connection) -> None:
        self.transport, self.peer, self.connection = transport, peer, connection
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, name=f"from rank {peer}", daemon=True)
        self.writer = threading.Thread(target=self._write, name=f"to rank {peer}", daemon=True)

    def start(self) -> None:
        self.reader.start()
        self.writer.start()

    def _read(self) -> None:
        """Until the peer sends no more: an end closed before would take back what it was sent."""
        mailbox, peer = self.transport.mailbox, self.peer
        try:
            while True:
                said = json.loads(self.connection.recv_bytes())
                if "closed" in said:
                    mailbox.lose(peer, f"rank {peer} has closed its communicator")
                    continue
                if "error" in said:
                    mailbox.fail(said["group"], KINDS[said["error"]](said["message"]))
                    continue
                data = np.frombuffer(self.connection.recv_bytes(), np.uint8) if said["data"] else None
                mailbox.put(peer, Frame(said["group"], said["call"], data))
        except BROKEN as error:
            why = "" if isinstance(error, EOFError) else f" ({error})"
            mailbox.lose(peer, f"rank {peer} ended, or its connection broke{why}", broken=True)
        except (ValueError, KeyError, TypeError) as error:  # not of this protocol
            mailbox.fail(None, DistributedError(f"rank {peer} sent what is no frame ({error})"))
        finally:
            self.queue.put(None)
            self.writer.join()
            self.connection.close()

    def _write(self) -> None:
        """Until there is nothing more, or nobody to take it, which the reader says."""
        with contextlib.suppress(*BROKEN):
            while (item := self.queue.get()) is not None:
                said, data = item
                self.connection.send_bytes(json.dumps(said).encode())
                if data is not None:
                    self.connection.send_bytes(memoryview(data))
            with socket.socket(fileno=os.dup(self.connection.fileno())) as end:
                end.shutdown(socket.SHUT_WR)


class ProcessTransport(Transport):
    """Ranks that are processes of this machine or of several."""

    engine = "processes"

    def __init__(self, rank: int, size: int, connections: dict[int, Connection]) -> None:
        super().__init__(rank, size)
        self.links = {peer: Link(self, peer, connection) for peer, connection in connections.items()}
        for link in self.links.values():
            link.start()

    def send(self, to: int, group: str, call: Any, data: np.ndarray | None) -> None:
        if to == self.rank:
            self.mailbox.put(to, Frame(group, call, data))
        else:
            self.links[to].queue.put(({"group": group, "call": call, "data": data is not None}, data))

    def tell(self, to: int, group: str | None, error: DistributedError) -> None:
        self.links[to].queue.put(({"group": group, "error": type(error).__name__, "message": str(error)}, None))

    def close(self, deadline: float) -> None:
        """What is queued is sent, if the peers take it in time."""
        for link in self.links.values():
            link.queue.put(({"closed": True}, None))
            link.queue.put(None)
        for link in self.links.values():
            link.writer.join(max(0.0, deadline - time.monotonic()))
