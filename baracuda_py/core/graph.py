"""`graph`: a function of plans and functional calls captured once, replayed as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..interop.packages import package_name
from .checked import shown
from .device import Device, resolve_device
from .errors import InvalidProblemError, UnsupportedError
from .execution import graph_for
from .one_device import arrays_within, is_array
from .ordinals import ordinal


class Graph:
    """A captured call, made by `graph`. `g()` and `g.replay()` run it again and return `g.outputs`.

    `outputs` is what the function returned: arrays that belong to the graph and that every replay rewrites.
    """

    def __init__(self, function: Callable[[], Any], device: Device, warmup: int) -> None:
        self.device = device
        self._function = function  # holds the arrays whose addresses were captured
        self._held = graph_for(device.kind)(function, device, warmup)

    @property
    def outputs(self) -> Any:
        """What the function returned, rewritten by every replay."""
        return self._held.outputs

    def replay(self, stream: Any = None) -> Any:
        """One launch of everything captured, on `stream` (default: CuPy's current one of the device); asynchronous."""
        return self._held.replay(stream)

    __call__ = replay

    @property
    def memory(self) -> int:
        """Bytes of the graph's own memory pool; 0 on the CPU."""
        return self._held.memory

    def __repr__(self) -> str:
        return f"<Graph on {self.device}>"


def graph(function: Callable[..., Any], *args: Any, warmup: int = 1, device: Any = None) -> Graph:
    """Capture `function(*args)` as a CUDA graph: one launch a replay, whatever the number of kernels.

    The function is first run `warmup` times (at least once) for real: that prepares every layout, compiles, and fills
    the graph's own memory pool. Then it is called once more and captured, which launches nothing. All of it happens on
    a stream of the graph's own, ordered after the current stream, which then waits for it. So a function that
    updates state has taken `warmup` steps when `graph` returns, and each replay takes one more.

        loss = bc.graph(step, tokens, targets)      # one step is taken, one is captured
        tokens[...] = next_tokens                   # inputs are written in place, on the stream of the replay
        loss()                                      # the same step on the new values
        loss.outputs                                # what `step` returned: rewritten by every replay

    Rules for the function:

    - Arrays are CuPy arrays of one device (or NumPy arrays, below). What it reads at a replay is what lies at the
      captured addresses: change inputs in place. The graph keeps `function` and `args`; other arrays that it reaches,
      attributes of objects say, must not be replaced.
    - Numbers are captured as they are. A scalar that varies (lr, step, seed, offset) is a 0-d device array.
    - It may allocate, and functional calls may need workspace: the memory belongs to the graph for its lifetime and is
      given to nobody else. What it returns stays valid, and is overwritten by the next replay.
    - It neither waits for the device nor reads a value back, and copies nothing from host memory.
    - Its work is on the current stream; a fork to another stream must join again.
    - Shapes, strides and branches are those of the captured call. It does the same work in each call.

    device: default that of the first array in `args` (lists, tuples and dicts are searched), else what
    `Plan.select` would take. On the CPU a replay calls the function again and writes its results into the first ones,
    so one program serves both.

    Errors: CaptureError where the function did what a graph cannot hold (waited, read back, lost a stream);
    NotPreparedError where the captured call meets a layout that the warm-up did not; both leave the streams usable.
    """
    if not callable(function):
        raise InvalidProblemError(f"function must be callable, got {type(function).__name__}")
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 1:
        raise InvalidProblemError(f"warmup must be an integer of at least 1, got {shown(warmup)}")
    return Graph(lambda: function(*args), _device(args, device), warmup)


def _device(args: Any, asked: Any) -> Device:
    """The device of the arrays, all on one; or the one asked for."""
    places = set()
    for array in arrays_within(args, is_array):
        if package_name(type(array)) not in ("cupy", "numpy", "baracuda_py"):
            raise UnsupportedError(
                f"graph takes CuPy arrays (or NumPy arrays on the CPU), got {type(array).__module__} "
                f"{type(array).__name__}: its package allocates from a pool of its own"
            )
        places.add(ordinal(array))
    if len(places) > 1:
        raise InvalidProblemError(f"arrays of a graph must be on one device, got ordinals {sorted(places)} (-1: host)")
    if asked is not None or not places:
        return resolve_device(asked)
    found = places.pop()
    return resolve_device("cpu" if found < 0 else found)
