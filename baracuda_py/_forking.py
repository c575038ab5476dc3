"""What a forked child may find half done by threads that it does not have: locks held, modules half imported.

A child waits for nothing that only a thread of its parent could end. Locks of this package are made by `Mutex`, which
a child finds free; a fork itself waits until no other thread is importing a module of this package, or is inside a
mutex that says so, because what they were making could not be completed in the child.
"""

from __future__ import annotations

import contextlib
import importlib
import logging  # noqa: F401  its hook takes its lock: see `_before`
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_PACKAGE = "baracuda_py"


class Mutex:
    """`with mutex():` one thread at a time, and again in the thread that is inside.

    whole: a fork waits while another thread is inside, since what it makes must not stay half made in the child. Only
    for what takes milliseconds and waits for nothing itself.
    """

    def __init__(self, whole: bool = False) -> None:
        self._lock = threading.RLock()  # noqa: TID251
        _mutexes.add(self)
        if whole:
            _whole.append(self)

    def __call__(self) -> Any:
        """The lock of this process: what left it releases the one that it took, in whatever process that is."""
        return self._lock

    def renew(self) -> None:
        """In a child: free, whoever held it in the parent."""
        self._lock = threading.RLock()  # noqa: TID251


_mutexes: weakref.WeakSet[Mutex] = weakref.WeakSet()
_whole: list[Mutex] = []
_taken: list[Any] = []  # locks that the thread that forks holds while it does


def in_child(act: Callable[[], object]) -> None:
    """Have `act` called in each forked child, where the system has fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def _imported_now() -> list[str]:
    """The modules of this package that other threads are importing: what Python itself locks them with tells."""
    locks: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})
    own = threading.get_ident()
    return [
        name
        for name, found in list(locks.items())
        if name.partition(".")[0] == _PACKAGE and getattr(found(), "owner", None) not in (None, own)
    ]


def _imports_end() -> None:
    """Wait until no other thread imports a module of this package; importing it, too, waits for its lock."""
    while names := _imported_now():
        for name in names:
            with contextlib.suppress(Exception):  # the thread whose import it is raises what it ends with
                importlib.import_module(name)


def _before() -> None:
    """What is registered last runs first: `logging` is imported above, so that its lock is not yet held here, which a
    thread may need that this one waits for."""
    _imports_end()
    for mutex in _whole:
        lock = mutex()
        lock.acquire()
        _taken.append(lock)


def _in_parent() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    """A lock that the forking thread holds further out is released by the block that took it, as in the parent."""
    _taken.clear()
    for mutex in list(_mutexes):
        mutex.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
