"""`run_ranks`: a function on several ranks of this machine."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ..core.checked import shown, whole
from ..core.errors import InvalidProblemError
from .communicator import Communicator
from .errors import AbortedError, DistributedError, RankLostError
from .limits import seconds
from .transport import abort_world, thread_world
from .world import communicator


def run_ranks(
    function: Callable[..., Any], size: int, *args: Any, engine: str = "threads", timeout: float = 60.0
) -> list[Any]:
    """function(comm, *args) on each of `size` ranks; returns what each returned, by rank.

    engine: "threads", ranks are threads of this process, which share what args hold; "processes", ranks are processes
    that are started anew (function and args are pickled, so that the function must be one of a module). timeout:
    seconds that a call waits for other ranks. The first error of a rank is raised, and every other rank is aborted.
    """
    count, limit = whole("size", size, 1), seconds(timeout)
    if not isinstance(engine, str):
        raise InvalidProblemError(f"engine must be 'threads' or 'processes', got {shown(engine)}")
    if engine == "threads":
        return _in_threads(function, count, args, limit)
    if engine == "processes":
        return _in_processes(function, count, args, limit)
    raise InvalidProblemError(f"engine must be 'threads' or 'processes', got {shown(engine)}")


class Failure(NamedTuple):
    """What a rank raised, and when."""

    at: float
    rank: int
    error: BaseException


def first(failures: list[Failure]) -> BaseException:
    """The error that began it: what a rank raised itself goes before what it raised because of another."""

    def place(one: Failure) -> tuple[bool, bool, float, int]:
        return isinstance(one.error, AbortedError), isinstance(one.error, DistributedError), one.at, one.rank

    return min(failures, key=place).error


def _in_threads(function: Callable[..., Any], size: int, args: tuple[Any, ...], timeout: float) -> list[Any]:
    world, results, failures = thread_world(size), [None] * size, list[Failure]()

    def work(rank: int) -> None:
        try:
            with Communicator(world[rank], timeout) as comm:
                results[rank] = function(comm, *args)
        except BaseException as error:
            failures.append(Failure(time.monotonic(), rank, error))
            if not isinstance(error, DistributedError):
                abort_world(world, f"rank {rank} raised {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise first(failures)
    return results


def _in_processes(function: Callable[..., Any], size: int, args: tuple[Any, ...], timeout: float) -> list[Any]:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise InvalidProblemError(
            f"function must be one that a new process can import ({error}); define it in a module, or take threads"
        ) from None
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="baracuda_py_") as directory:
        ends, processes = [], []
        for rank in range(size):
            own, theirs = context.Pipe(duplex=False)
            given = (theirs, directory, rank, size, timeout, function, args)
            process = context.Process(target=_work, args=given, name=f"rank {rank}", daemon=True)
            process.start()
            theirs.close()
            ends.append(own)
            processes.append(process)
        try:
            return _collected(ends, processes, timeout)
        finally:
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.kill()
                    process.join()


def _collected(ends: list[Connection], processes: list[Any], timeout: float) -> list[Any]:
    """What the ranks return. After a first failure the others have the time that a call may wait, and a little more."""
    results, failures, left = [None] * len(ends), list[Failure](), dict(enumerate(ends))
    until: float | None = None
    while left:
        ready = wait(list(left.values()), None if until is None else max(0.0, until - time.monotonic()))
        if not ready:
            break
        for rank in [rank for rank, end in left.items() if end in ready]:
            try:
                done, value = pickle.loads(left.pop(rank).recv_bytes())
            except EOFError:
                processes[rank].join(5.0)
                done, value = False, RankLostError(f"rank {rank} ended with exit code {processes[rank].exitcode}")
            if done:
                results[rank] = value
            else:
                failures.append(Failure(time.monotonic(), rank, value))
                until = until or time.monotonic() + timeout + 5.0
    if failures:
        raise first(failures)
    return results


def _work(
    end: Connection, directory: str, rank: int, size: int, timeout: float, function: Callable[..., Any], args: Any
) -> None:
    """What a process of a rank does."""
    try:
        with communicator(directory, rank=rank, size=size, timeout=timeout) as comm:
            said = True, function(comm, *args)
        data = pickle.dumps(said)
    except BaseException as error:
        data = _sendable(error)
    end.send_bytes(data)


def _sendable(error: BaseException) -> bytes:
    """An error that arrives as itself, or as its text where it cannot."""
    try:
        data = pickle.dumps((False, error))
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((False, DistributedError(f"{type(error).__name__}: {error}")))
    return data
