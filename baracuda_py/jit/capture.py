"""Recording a function's launches as one CUDA graph: a stream and a memory pool of the graph's own.

A block of a shared pool would be handed to someone else while the graph still writes it. Here every array the function
makes comes from a pool that lives as long as the graph and serves nothing else, so the function may allocate.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Any

from ..core.errors import BaracudaError, CaptureError

_local = threading.local()
_PROGRAMMATIC = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
_EDGE_DATA = 12030  # the driver's CUDA from which graphs have edges with data
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


def record(cupy: Any, ordinal: int, function: Callable[[], Any], warmup: int, ours: Container[int]) -> Captured:
    """Run `function` `warmup` times on a new stream, ordered after the current one, and capture it once more.

    `ours` holds the driver's handles of this package's kernels.
    """
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
        executable = Executable(graph.graph, ours)
    launch, handle = cupy.cuda.runtime.graphLaunch, executable.handle

    def fire(at: int) -> None:
        launch(handle, at)

    return Captured(results, fire, pool.total_bytes(), (executable, graph, pool, stream))


class Executable:
    """A captured graph made ready to launch, in which kernels of `ours` start while the kernel before them ends.

    They wait themselves for its results (`follow_previous` in types.cuh), so starting them takes no time between the
    two: the gaps between the 317 kernels of a training step were 636 µs of 15 ms on an H200, and are 307.
    """

    def __init__(self, graph: int, ours: Container[int]) -> None:
        from cuda.bindings import driver

        self._destroy = driver.cuGraphExecDestroy
        (device,), (version,) = _checked(driver.cuCtxGetDevice()), _checked(driver.cuDriverGetVersion())
        major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        if version >= _EDGE_DATA and _checked(driver.cuDeviceGetAttribute(major, device))[0] >= 9:
            overlap(driver, driver.CUgraph(graph), ours)
        self._executable = _checked(driver.cuGraphInstantiate(graph, 0))[0]
        self.handle = int(self._executable)

    def __del__(self) -> None:
        if hasattr(self, "_executable"):
            self._destroy(self._executable)


def overlap(driver: Any, graph: Any, ours: Container[int]) -> None:
    """Make a lone edge from a kernel to one of `ours` programmatic: ready when the former's blocks have all started."""
    suffix = "_v2" if hasattr(driver, "cuGraphGetEdges_v2") else ""  # the name before CUDA 13
    edges = getattr(driver, f"cuGraphGetEdges{suffix}")
    count = _checked(edges(graph, 0))[-1]
    sources, targets, _, _ = _checked(edges(graph, count))
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    edges_to = Counter(int(target) for target in targets)
    chosen = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if edges_to[int(target)] == 1
        and all(_checked(driver.cuGraphNodeGetType(node))[0] == kernel for node in (source, target))
        and int(_checked(driver.cuGraphKernelNodeGetParams(target))[0].func) in ours
    ]
    if not chosen:
        return
    plain, programmatic = driver.CUgraphEdgeData(), driver.CUgraphEdgeData()
    programmatic.type, programmatic.from_port = _PROGRAMMATIC, _PROGRAMMATIC
    both = [list(side) for side in zip(*chosen, strict=True)]
    for name, data in (("Remove", plain), ("Add", programmatic)):
        call = getattr(driver, f"cuGraph{name}Dependencies{suffix}")
        _checked(call(graph, *both, [data] * len(chosen), len(chosen)))


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """A driver call's results; BaracudaError where it failed."""
    status, *results = answer
    if status:
        raise BaracudaError(f"the CUDA driver refused a step of graph capture: {getattr(status, 'name', status)}")
    return tuple(results)


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
