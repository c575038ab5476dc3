"""A training step taken apart: what each call costs on the device, and the least it could.

Calls are told apart by a marker kernel between them; durations are those of CUPTI, gaps between kernels left out.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cupy as cp
from timing import spin

PLACES = {"matmul": ("a", "b"), "flash_sdpa": ("q", "k", "v"), "flash_sdpa_backward": ("q", "k", "v")}


@dataclass
class Call:
    """One functional call: its name, a label of its shapes, and its least work."""

    op: str
    shape: str
    bytes: int
    flops: int
    us: float = 0.0
    kernels: int = 0


@dataclass
class Recorder:
    """Stands for `baracuda_py` in a module: notes each functional call and launches a marker after it."""

    real: Any
    calls: list[Call] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.real, name)
        if not isinstance(function, types.FunctionType) or not hasattr(function, "plan"):
            return function

        def call(*args: Any, **keywords: Any) -> Any:
            made = function(*args, **keywords)
            spin(0)
            self.calls.append(_describe(name, args, keywords, made))
            return made

        return call


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [a for item in value for a in _arrays(item)]
    if isinstance(value, dict):
        return _arrays(list(value.values()))
    return [value] if isinstance(value, cp.ndarray) else []


def _describe(name: str, args: Any, keywords: Any, made: Any) -> Call:
    inputs = _arrays(args) + _arrays([v for k, v in keywords.items() if k != "out"])
    outputs = _arrays(made)
    nbytes = sum(a.size * a.itemsize for a in inputs + outputs)
    flops, shape = 0, " ".join(str(list(a.shape)) for a in inputs[:2])
    if name in ("matmul", "gemm"):
        (m, k), n = args[0].shape, args[1].shape[1] * (1 if keywords.get("up") is None else 2)
        flops, shape = 2 * m * n * k, f"{m} x {n} x {k}{' f32' if outputs[0].itemsize == 4 else ''}"
    elif name.startswith("flash_sdpa"):
        q, k = args[0], args[1]
        batch, heads, length, width = q.shape
        pairs = batch * heads * length * (k.shape[2] + 1) // 2  # causal
        flops, shape = pairs * width * (4 if name == "flash_sdpa" else 10), f"causal {list(q.shape)}"
    elif name == "adam_step":  # parameters and moments are read and written, copies written
        sizes = [sum(a.nbytes for a in part) if part else 0 for part in (*args, *(None,) * (5 - len(args)))]
        nbytes, shape = 2 * (sizes[0] + sizes[2] + sizes[3]) + sizes[1] + sizes[4], f"{len(args[0])} tensors"
    elif name == "global_norm":
        shape = f"{len(args[0])} tensors"
    return Call(name, shape, nbytes, flops)


def measure(module: Any, step: Callable[[], Any]) -> list[Call]:
    """The calls of one step of `module`, each with its device time."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    real, recorder = module.bc, Recorder(module.bc)
    torch.zeros(1, device="cuda")
    module.bc = recorder
    try:
        step()
        recorder.calls.clear()
        cp.cuda.Device().synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            step()
            cp.cuda.Device().synchronize()
    finally:
        module.bc = real
    events = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    calls = iter(recorder.calls)
    call = next(calls)
    for event in events:
        if event.name == "spin":
            call = next(calls, Call("", "", 0, 0))
            continue
        call.us += event.device_time
        call.kernels += 1
    if next(calls, None) is not None:
        raise RuntimeError("the trace lost a marker: kernels cannot be told apart")
    return recorder.calls


def table(calls: list[Call], bandwidth: float, rate: float, total_us: float) -> list[dict[str, Any]]:
    """Rows by (op, shape), the costliest first, then what lies between kernels: microseconds of one step.

    floor: the larger of bytes / `bandwidth` and flops / `rate`, the ceilings measured in the same run.
    """
    groups: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in calls:
        groups[call.op, call.shape].append(call)
    rows = []
    for (op, shape), members in groups.items():
        us = sum(c.us for c in members)
        moved, computed = (
            1e6 * sum(w) / r for w, r in (((c.bytes for c in members), bandwidth), ((c.flops for c in members), rate))
        )
        floor = max(moved, computed)
        rows.append({
            "op": op, "shape": shape, "calls": len(members), "kernels": sum(c.kernels for c in members),
            "us": f"{us:.1f}", "floor_us": f"{floor:.1f}", "bound": "flops" if computed > moved else "bytes",
            "of_floor": f"{floor / us:.3f}" if us else "",
        })  # fmt: skip
    rows.sort(key=lambda row: -float(row["us"]))
    gaps = total_us - sum(c.us for c in calls)
    kernels = sum(c.kernels for c in calls)
    rows.append({"op": "between kernels", "shape": "", "calls": 1, "kernels": kernels, "us": f"{gaps:.1f}",
                 "floor_us": "0.0", "bound": "", "of_floor": ""})  # fmt: skip
    return rows
