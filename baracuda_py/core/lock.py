"""One holder of a name among all processes: whoever compiles a kernel lets the others wait for it.

A lock saves work and guards nothing: entries appear whole by a rename, whoever writes them. So where a lock cannot
be had (a filesystem without them, a holder that was stopped) the work is simply done twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from baracuda_py._forking import in_child

try:
    import fcntl
except ImportError:  # not POSIX: every process compiles for itself
    fcntl = None  # type: ignore[assignment]

WAIT_SECONDS = 120.0  # longer than any unit compiles
_PAUSES = (0.005, 0.1)  # seconds between two looks: the first, and the longest
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

log = logging.getLogger("baracuda_py.jit")
_held: set[int] = set()  # descriptors


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the context lasts, or nothing where that cannot be. Its folder exists."""
    handle = _acquire(path)
    try:
        yield
    finally:
        if handle is not None:
            _release(path, handle)


def remove_stale(path: Path) -> None:
    """Delete a lock file that nobody holds."""
    with contextlib.suppress(OSError):
        handle = _try(path, os.O_RDWR)
        if handle is not None and handle >= 0:
            _release(path, handle)


def _acquire(path: Path) -> int | None:
    start, pause = time.monotonic(), _PAUSES[0]
    try:
        while (handle := _try(path, _OPEN)) is not None and handle < 0:
            if time.monotonic() - start > WAIT_SECONDS:
                log.warning("waited %.0f s for another process to compile %s; doing it here", WAIT_SECONDS, path.stem)
                return None
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])
    except OSError as error:
        log.debug("no lock %s (%s)", path, error)
        return None
    return handle


def _try(path: Path, flags: int) -> int | None:
    """A descriptor that holds the lock, -1 where another process does, None on a system without locks."""
    if fcntl is None:
        return None
    handle = os.open(path, flags, 0o600)
    try:
        os.fchmod(handle, 0o600)  # whatever the umask says
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before has deleted it: a lock on that file keeps nobody out.
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            _held.add(handle)
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        _held.discard(handle)
        os.close(handle)
        raise
    os.close(handle)
    return -1


def _release(path: Path, handle: int) -> None:
    """Deleted while held: those that wait see another file under the name, or none."""
    if handle not in _held:  # the parent's, in a child that was forked meanwhile
        return
    with contextlib.suppress(OSError):
        os.unlink(path)
    _held.discard(handle)
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough where a forked child has the descriptor, too
    os.close(handle)


def _let_go() -> None:
    """In a forked child: its parent's locks are not its own, and must not outlive the parent in it."""
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


in_child(_let_go)
