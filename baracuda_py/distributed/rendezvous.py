"""How ranks that are processes find each other: by a directory of this machine, or by the environment's master address.

Rank 0 listens where all know it. Every other rank connects, says who it is and where it listens itself; rank 0 answers
with the places of all, and each connects to those below it. Both ends prove by HMAC that they know the key.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from .errors import KINDS, DistributedError, MismatchError, RankLostError, TimedOutError

Place = tuple[str, int]
BROKEN = (EOFError, OSError, AuthenticationError)


class Listener:
    """A port of this rank. Whoever knocks is heard by a thread of its own, so that a stranger holds up nobody."""

    def __init__(self, place: Place, key: bytes) -> None:
        self.key, self.came = key, queue.SimpleQueue[tuple[dict[str, Any], Connection]]()
        self.socket = socket.create_server(place, backlog=128)
        self.port: int = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                found, _ = self.socket.accept()
                threading.Thread(target=self._hear, args=(found,), daemon=True).start()

    def _hear(self, found: socket.socket) -> None:
        with contextlib.suppress(*BROKEN, ValueError):
            connection = wrapped(found)
            deliver_challenge(connection, self.key)
            answer_challenge(connection, self.key)
            self.came.put((json.loads(connection.recv_bytes(1 << 16)), connection))

    def next(self, deadline: float) -> tuple[dict[str, Any], Connection] | None:
        """Who came next, and what it said of itself; None where nobody did in time."""
        with contextlib.suppress(queue.Empty):
            return self.came.get(timeout=max(0.0, deadline - time.monotonic()))
        return None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self.socket.close()


def wrapped(found: socket.socket) -> Connection:
    """A socket as messages of bytes, each sent when it is written."""
    found.settimeout(None)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(found.detach())


def knock(found: socket.socket, key: bytes, said: dict[str, Any], deadline: float) -> Connection:
    """A connection to a rank that listens, which has shown the key and heard who this is."""
    connection = wrapped(found)
    if not connection.poll(max(0.0, deadline - time.monotonic())):
        raise TimeoutError("it says nothing")
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    connection.send_bytes(json.dumps(said).encode())
    return connection


def reached(place: Place, deadline: float) -> socket.socket:
    """A connection that nobody has spoken on."""
    return socket.create_connection(place, timeout=max(0.05, deadline - time.monotonic()))


class Directory:
    """Rank 0 leaves port and key in a file of a directory, which only its user reads."""

    def __init__(self, path: Path) -> None:
        self.path, self.key = path / "rank0.json", secrets.token_bytes(32)

    def listen(self) -> Listener:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        made = Listener(("127.0.0.1", 0), self.key)
        own = self.path.with_name(f".rank0.{secrets.token_hex(8)}")
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"port": made.port, "key": self.key.hex()}, file)
        own.replace(self.path)
        return made

    def find(self) -> tuple[Place, bytes]:
        """Where rank 0 listens; OSError or ValueError where it does not yet."""
        said = json.loads(self.path.read_text())
        return ("127.0.0.1", said["port"]), bytes.fromhex(said["key"])

    def done(self) -> None:
        self.path.unlink(missing_ok=True)


class Master:
    """Rank 0 listens at an address and a port that all are told."""

    def __init__(self, place: Place, key: bytes) -> None:
        self.place, self.key = place, key

    def listen(self) -> Listener:
        return Listener(("", self.place[1]), self.key)

    def find(self) -> tuple[Place, bytes]:
        return self.place, self.key

    def done(self) -> None:
        """Nothing is left behind."""


def meet(at: Directory | Master, rank: int, size: int, timeout: float) -> dict[int, Connection]:
    """A connection to every other rank. Raises a `DistributedError` on all that came where some did not, or differ."""
    deadline = time.monotonic() + timeout
    if size == 1:
        return {}
    return _first(at, size, timeout, deadline) if rank == 0 else _other(at, rank, size, timeout, deadline)


def _first(at: Directory | Master, size: int, timeout: float, deadline: float) -> dict[int, Connection]:
    try:
        listener = at.listen()
    except OSError as error:
        raise DistributedError(f"rank 0 cannot listen at the rendezvous ({error})") from error
    found: dict[int, Connection] = {}
    places: dict[int, Place] = {}
    came: list[Connection] = []
    try:
        while len(found) < size - 1:
            next_one = listener.next(deadline)
            if next_one is None:
                missing = ", ".join(str(rank) for rank in range(1, size) if rank not in found)
                raise TimedOutError(f"rendezvous: rank 0 waited {timeout:g} s for rank {missing}")
            said, connection = next_one
            came.append(connection)
            rank = said["rank"]
            if said["size"] != size:
                raise MismatchError(f"rendezvous: rank {rank} says that there are {said['size']} ranks, rank 0 {size}")
            if rank in found or not 0 < rank < size:
                raise MismatchError(f"rendezvous: two processes say that they are rank {rank}")
            found[rank], places[rank] = connection, (said["host"], said["port"])
        _tell(came, {"places": places})
    except DistributedError as error:
        _tell(came, {"error": type(error).__name__, "message": str(error)})
        raise
    finally:
        listener.close()
        at.done()
    return found


def _tell(connections: list[Connection], said: dict[str, Any]) -> None:
    for connection in connections:
        with contextlib.suppress(*BROKEN):
            connection.send_bytes(json.dumps(said).encode())


def _other(at: Directory | Master, rank: int, size: int, timeout: float, deadline: float) -> dict[int, Connection]:
    found: dict[int, Connection] = {}
    first, listener = _retried(lambda: _first_reached(at, rank, size, deadline), "rank 0", rank, timeout, deadline)
    try:
        found[0] = first
        places = _told(first, rank, timeout, deadline)
        for below in range(1, rank):

            def attempt(place: Place = places[below]) -> Connection:
                return knock(reached(place, deadline), listener.key, {"rank": rank}, deadline)

            found[below] = _retried(attempt, f"rank {below}", rank, timeout, 0.0)
        while len(found) < size - 1:
            next_one = listener.next(deadline)
            if next_one is None:
                missing = [str(one) for one in range(rank + 1, size) if one not in found]
                raise TimedOutError(f"rendezvous: rank {rank} waited {timeout:g} s for rank {', '.join(missing)}")
            found[next_one[0]["rank"]] = next_one[1]
        return found
    except DistributedError:
        for connection in found.values():
            connection.close()  # so that those who wait for this rank hear of it
        raise
    finally:
        listener.close()


def _told(first: Connection, rank: int, timeout: float, deadline: float) -> dict[int, Place]:
    """Where the ranks listen, as rank 0 says; or what it says went wrong, for which it has the same time limit."""
    if not first.poll(max(0.0, deadline + 1 - time.monotonic())):
        raise TimedOutError(f"rendezvous: rank {rank} waited {timeout:g} s for rank 0 to name the others")
    try:
        said = json.loads(first.recv_bytes())
    except BROKEN:
        raise RankLostError("rendezvous: rank 0 ended") from None
    if "error" in said:
        raise KINDS[said["error"]](said["message"])
    return {int(other): (host, port) for other, (host, port) in said["places"].items()}


def _first_reached(at: Directory | Master, rank: int, size: int, deadline: float) -> tuple[Connection, Listener]:
    """Rank 0, told who this is and where this rank listens: at its address on the way to rank 0."""
    place, key = at.find()
    found = reached(place, deadline)
    host = found.getsockname()[0]
    listener = Listener((host, 0), key)
    try:
        said = {"rank": rank, "size": size, "host": host, "port": listener.port}
        return knock(found, key, said, deadline), listener
    except BaseException as error:
        listener.close()
        found.close()
        if isinstance(error, AuthenticationError) and isinstance(at, Directory):  # the file is of an earlier job
            raise ConnectionError("its file in the directory is an old one") from None
        raise


def _retried(attempt: Callable[[], Any], whom: str, rank: int, timeout: float, deadline: float) -> Any:
    """What an attempt gives, which is made until it gives something; with a deadline of 0, once."""
    while True:
        try:
            return attempt()
        except AuthenticationError:
            raise DistributedError(f"rendezvous: {whom} knows another key than rank {rank}") from None
        except (OSError, EOFError, ValueError, KeyError) as error:
            if not deadline:
                raise RankLostError(f"rendezvous: {whom} ended ({error})") from None
            if time.monotonic() > deadline:
                raise TimedOutError(f"rendezvous: rank {rank} waited {timeout:g} s for {whom} ({error})") from None
        time.sleep(0.02)
