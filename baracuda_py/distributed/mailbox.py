"""What has come for a rank: frames by sender, in the order that they were sent, and failures."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import DistributedError, RankLostError, TimedOutError


class Frame(NamedTuple):
    """One message: which communicator it is of, the sender's call in words of JSON, and the bytes that it carries."""

    group: str
    call: Any
    data: Any = None


class Mailbox:
    """Frames for one rank, taken by (sender, communicator). What came before a failure is still delivered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: dict[tuple[int, str], deque[Frame]] = {}
        self._failed: dict[str, DistributedError] = {}
        self._lost: dict[int, str] = {}
        self._over: DistributedError | None = None
        self.watchers: list[Callable[[], object]] = []
        """Called where something fails, by the thread that hears of it."""

    def put(self, source: int, frame: Frame) -> None:
        with self._changed:
            self._frames.setdefault((source, frame.group), deque()).append(frame)
            self._changed.notify_all()

    def fail(self, group: str | None, error: DistributedError) -> None:
        """A communicator has failed, or all of this rank's; the first failure is the one that is told."""
        with self._changed:
            if group is None:
                self._over = self._over or error
            else:
                self._failed.setdefault(group, error)
            self._changed.notify_all()
        self._told()

    def lose(self, source: int, why: str, broken: bool = False) -> None:
        """Nothing more comes from a rank; broken: which did not say so."""
        with self._changed:
            broken = broken and source not in self._lost
            self._lost.setdefault(source, why)
            self._changed.notify_all()
        if broken:
            self._told()

    def _told(self) -> None:
        for watch in list(self.watchers):
            watch()

    def failure(self, group: str) -> DistributedError | None:
        """What a communicator failed with, or one that it was split off."""
        while group:
            if error := self._failed.get(group):
                return error
            group = group.rpartition("/")[0]
        return self._over

    def take(self, source: int, group: str, deadline: float) -> Frame:
        """The next frame of a sender; raises what failed where none can come, `TimedOutError` where none came."""
        with self._changed:
            while True:
                frames = self._frames.get((source, group))
                if frames:
                    return frames.popleft()
                if error := self.failure(group):
                    raise type(error)(*error.args)
                if source in self._lost:
                    raise RankLostError(self._lost[source])
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimedOutError("")
                self._changed.wait(left)
