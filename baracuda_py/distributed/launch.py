"""`run_ranks`: a function on several ranks of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..core.checked import shown, whole
from ..core.errors import InvalidProblemError
from .communicator import Communicator
from .errors import AbortedError, DistributedError
from .transport import abort_world, thread_world


def run_ranks(
    function: Callable[..., Any], size: int, *args: Any, engine: str = "threads", timeout: float = 60.0
) -> list[Any]:
    """function(comm, *args) on each of `size` ranks; returns what each returned, by rank.

    engine: "threads", ranks are threads of this process, which share what args hold; "processes", ranks are processes
    that are started anew (function and args are pickled, so that the function must be one of a module). timeout:
    seconds that a call waits for other ranks. The first error of a rank is raised, and every other rank is aborted.
    """
    count, limit = whole("size", size, 1), seconds(timeout)
    if engine == "threads":
        return _in_threads(function, count, args, limit)
    raise InvalidProblemError(f"engine must be 'threads' or 'processes', got {shown(engine)}")


def seconds(timeout: Any) -> float:
    """A time limit, checked."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise InvalidProblemError(f"timeout must be seconds above 0, got {shown(timeout)}")
    return float(timeout)


def _in_threads(function: Callable[..., Any], size: int, args: tuple[Any, ...], timeout: float) -> list[Any]:
    world, results, errors = thread_world(size), [None] * size, list[tuple[float, int, BaseException]]()

    def work(rank: int) -> None:
        try:
            with Communicator(world[rank], timeout) as comm:
                results[rank] = function(comm, *args)
        except BaseException as error:
            errors.append((time.monotonic(), rank, error))
            if not isinstance(error, DistributedError):
                abort_world(world, f"rank {rank} raised {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise first(errors)
    return results


def first(errors: list[tuple[float, int, BaseException]]) -> BaseException:
    """The error that began it: what a rank raised itself goes before what it raised because of another."""
    return min(
        errors, key=lambda one: (isinstance(one[2], AbortedError), isinstance(one[2], DistributedError), *one[:2])
    )[2]
