"""Recording a function's launches as one CUDA graph: a stream and a memory pool of the graph's own.

A block of a shared pool would be handed to someone else while the graph still writes it. Here every array the function
makes comes from a pool that lives as long as the graph and serves nothing else, so the function may allocate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..core.errors import CaptureError

_local = threading.local()
_FIRST, _LAST = 900, 908  # cudaErrorStreamCaptureUnsupported … cudaErrorStreamCaptureWrongThread


def for_graph() -> bool:
    """Whether this thread is running a function for `bc.graph`: memory it takes belongs to the graph."""
    return getattr(_local, "on", False)


@contextlib.contextmanager
def graph_memory() -> Iterator[None]:
    """Mark this thread as running a function for a graph; one at a time."""
    if for_graph():
        raise CaptureError("a function that is being captured cannot make a graph of its own")
    _local.on = True
    try:
        yield
    finally:
        _local.on = False


class Captured:
    """What a capture leaves: the results' arrays, `launch(stream pointer)`, and the bytes of its own pool."""

    __slots__ = ("keep", "launch", "nbytes", "results")

    def __init__(self, results: Any, launch: Callable[[int], None], nbytes: int, keep: Any) -> None:
        self.results = results
        self.launch = launch
        self.nbytes = nbytes
        self.keep = keep


def record(cupy: Any, ordinal: int, function: Callable[[], Any], warmup: int) -> Captured:
    """Run `function` `warmup` times on a new stream, ordered after the current one, and capture it once more."""
    with cupy.cuda.Device(ordinal), graph_memory():
        caller = cupy.cuda.get_current_stream()
        stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
        stream.wait_event(caller.record())
        try:
            with cupy.cuda.using_allocator(pool.malloc), stream:
                for _ in range(warmup):
                    function()
                results, graph = captured(stream, function)
        finally:
            caller.wait_event(stream.record())
    launch, executable = cupy.cuda.runtime.graphLaunch, graph.graphExec

    def fire(at: int) -> None:
        launch(executable, at)

    return Captured(results, fire, pool.total_bytes(), (graph, pool, stream))


def captured(stream: Any, function: Callable[[], Any]) -> tuple[Any, Any]:
    """(results, graph) of a call under capture. Whatever goes wrong, the stream has left capture afterwards."""
    stream.begin_capture()  # relaxed mode: the pool may ask the driver for a block that the warm-up did not leave
    try:
        results = function()
    except BaseException as error:
        with contextlib.suppress(Exception):  # the capture may be void already; the first error is the one to tell
            stream.end_capture()
        if _of_capture(error):
            raise CaptureError(
                "the captured function did what a graph cannot hold: it waited for the device, or read a value back "
                f"(int(), float(), .get(), BARACUDA_CHECK=1): {error}"
            ) from error
        raise
    try:
        return results, stream.end_capture()
    except Exception as error:
        if _of_capture(error):
            raise CaptureError(
                "the capture is void: the function waited for the device, or left work on another stream that never "
                f"joined the captured one: {error}"
            ) from error
        raise


def _of_capture(error: BaseException) -> bool:
    """CUDA's capture errors, and CuPy's own refusal to copy to the host."""
    refused = isinstance(error, RuntimeError) and "stream is capturing" in str(error)
    return refused or _FIRST <= getattr(error, "status", 0) <= _LAST
