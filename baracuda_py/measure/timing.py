"""Timing on the device: CUDA events, inputs rotated beyond L2, a backlog so that launches never show; or on the host.

All candidates of a case run in each round, so that drift of temperature hits them alike, and in an order in which each
comes as often after each other one, as clocks and the L2 cache are what the one before leaves: behind a kernel that
takes little power the next one runs at higher clocks (H200, attention of 1024 tokens: 4 %).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BACKLOG_US = 150.0
_SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median and the 20th and 80th percentiles."""

    median: float
    p20: float
    p80: float


def spin(microseconds: float) -> None:
    """Keep the device busy so that the host can queue the timed work behind it."""
    global _kernel
    if _kernel is None:
        import cupy as cp

        _kernel = cp.RawKernel(_SPIN, "spin")
    _kernel((1,), (1,), (int(microseconds * 1.9e3),))


_kernel: Any = None


def interleaved(
    candidates: Mapping[str, Sequence[Callable[[], Any]]], rounds: int = 30, warmup: int = 3
) -> dict[str, Timing]:
    """Time candidates in turn; each is a sequence of calls on rotated inputs, one of them a round."""
    import cupy as cp

    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for calls in candidates.values():
        for i in range(warmup):
            calls[i % len(calls)]()
    cp.cuda.Device().synchronize()
    cases = list(candidates.items())
    for i in range(rounds):
        events = []
        spin(BACKLOG_US * len(candidates))
        for name, calls in (cases[n] for n in _order(len(cases), i)):
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            calls[i % len(calls)]()
            stop.record()
            events.append((name, start, stop))
        cp.cuda.Device().synchronize()
        for name, start, stop in events:
            samples[name].append(cp.cuda.get_elapsed_time(start, stop) * 1e3)
    return {name: _summary(values) for name, values in samples.items()}


def on_host(
    candidates: Mapping[str, Sequence[Callable[[], Any]]], rounds: int = 30, warmup: int = 1
) -> dict[str, Timing]:
    """The same by the host's clock, for calls that are done when they return."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    cases = list(candidates.items())
    for i in range(-warmup, rounds):
        for name, calls in (cases[n] for n in _order(len(cases), max(i, 0))):
            start = time.perf_counter_ns()
            calls[i % len(calls)]()
            if i >= 0:
                samples[name].append((time.perf_counter_ns() - start) / 1e3)
    return {name: _summary(values) for name, values in samples.items()}


def _order(count: int, i: int) -> list[int]:
    """Row i of a square in which each number follows each other one as often (Williams 1949)."""
    row = [((n + 1) // 2 * (-1) ** (n + 1) + i) % count for n in range(count)]
    return row[::-1] if count % 2 and i // count % 2 else row


def _summary(values: list[float]) -> Timing:
    if len(values) == 1:
        return Timing(values[0], values[0], values[0])
    cuts = statistics.quantiles(values, n=10)
    return Timing(statistics.median(values), cuts[1], cuts[7])


def copy_bandwidth(nbytes: int = 4 << 30) -> float:
    """Bytes per second read plus written by a large device-to-device copy."""
    import cupy as cp

    source = cp.random.randint(0, 1 << 30, nbytes // 8, dtype=cp.int64)
    target = cp.empty_like(source)
    time = interleaved(
        {"copy": [lambda: target.data.copy_from_device_async(source.data, nbytes, cp.cuda.get_current_stream())]}, 10
    )
    return 2 * nbytes / (time["copy"].median * 1e-6)
