"""Host cost of a call, in microseconds, next to the launches of others, interleaved in one run.

    python benchmarks/host.py [--csv [FILE]]

Every row launches a kernel of next to no work on the same small tensors; rows are timed in turn, many rounds,
and the median round is printed. `prepacked launch` is the floor: the public driver binding with ready parameters.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import checkout  # noqa: F401
import cupy as cp
from record import Results, add_options

import baracuda_py as bc

ROUNDS, CALLS = 30, 400


def rows() -> dict[str, Callable[[], Any]]:
    """Name → a call."""
    from cuda.bindings import driver

    x = cp.random.standard_normal((4, 256), dtype=cp.float32)
    weight, y = cp.ones(256, cp.float32), cp.empty_like(x)
    plan = bc.RMSNormPlan.select(bc.RMSNormDescriptor(batch_shape=4, normalized_shape=256, element="float32"))
    args = bc.RMSNormArgs(x=x, weight=weight, y=y)
    plan.run(args)
    bound = plan.bind(args)
    kernel = cp.RawKernel('extern "C" __global__ void nothing(const float* a, float* b, long long n) {}', "nothing")
    kernel((1,), (32,), (x, y, 1))
    function, buffer = prepacked(kernel, x, y)
    stream = cp.cuda.get_current_stream().ptr
    found: dict[str, Callable[[], Any]] = {
        "prepacked launch": lambda: driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, buffer, 0),
        "bind (3 operands)": bound,
        "run (3 operands)": three_operands(x, y),
        "run rms_norm": lambda: plan.run(args),
        "functional rms_norm, out=": lambda: bc.rms_norm(x, weight, out=y),
        "functional rms_norm": lambda: bc.rms_norm(x, weight),
        "cupy.RawKernel (3 args)": lambda: kernel((1,), (32,), (x, y, 1)),
        "cupy.add": lambda: cp.add(x, x, out=y),
    }
    found["functional add"] = lambda: bc.add(x, x)
    found["run (5 operands)"] = five_operands()
    found.update(torch_rows())
    return found


def three_operands(x: Any, y: Any) -> Callable[[], Any]:
    """y = a + b."""
    plan = bc.BinaryPlan.select(bc.BinaryDescriptor(shape=x.shape, kind="add", element="float32"))
    args = bc.BinaryArgs(a=x, b=x, y=y)
    plan.run(args)
    return lambda: plan.run(args)


def five_operands() -> Callable[[], Any]:
    """Attention: q, k, v, y [1, 2, 2, 32] and lse."""
    q, k, v = (cp.random.standard_normal((1, 2, 2, 32), dtype=cp.float32) for _ in range(3))
    y, lse = cp.empty_like(q), cp.empty((1, 2, 2), cp.float32)
    desc = bc.FlashSdpaDescriptor(batch_size=1, num_heads=2, query_len=2, key_len=2, d_k=32, d_v=32, element="float32")
    plan = bc.FlashSdpaPlan.select(desc)
    args = bc.FlashSdpaArgs(q=q, k=k, v=v, y=y, lse=lse)
    plan.run(args)
    return lambda: plan.run(args)


def prepacked(kernel: Any, x: Any, y: Any) -> tuple[int, int]:
    """A driver function and the address of its packed arguments."""
    import ctypes

    values = (ctypes.c_uint64 * 3)(x.data.ptr, y.data.ptr, 1)
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(values) + 8 * i for i in range(3)))
    prepacked.keep = (values, pointers)  # type: ignore[attr-defined]
    return int(kernel.kernel.ptr), ctypes.addressof(pointers)


def torch_rows() -> dict[str, Callable[[], Any]]:
    """torch eager and Triton, where torch is installed."""
    try:
        import torch
    except ImportError:
        return {}
    x = torch.randn(4, 256, device="cuda")
    weight, y = torch.ones(256, device="cuda"), torch.empty_like(x)
    plan = bc.RMSNormPlan.select(bc.RMSNormDescriptor(batch_shape=4, normalized_shape=256, element="float32"))
    args = bc.RMSNormArgs(x=x, weight=weight, y=y)
    plan.run(args)
    found: dict[str, Callable[[], Any]] = {
        "run (3 torch operands)": lambda: plan.run(args),
        "functional rms_norm on torch": lambda: bc.rms_norm(x, weight),
        "torch.add": lambda: torch.add(x, x),
        "torch.nn.functional.rms_norm": lambda: torch.nn.functional.rms_norm(x, (256,), weight),
        "torch.nn.functional.layer_norm": lambda: torch.nn.functional.layer_norm(x, (256,), weight),
    }
    found["functional add on torch"] = lambda: bc.add(x, x)
    found.update(recorded_rows(torch))
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return found

    @triton.jit
    def nothing(a, b, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(b + tl.arange(0, BLOCK), tl.load(a + tl.arange(0, BLOCK)))

    found["Triton (3 args)"] = lambda: nothing[(1,)](x, y, 1, BLOCK=32)
    return found


def recorded_rows(torch: Any) -> dict[str, Callable[[], Any]]:
    """Calls that autograd records, and their backward passes, beside torch's own; attention in both layouts."""
    functions = torch.nn.functional
    x = torch.randn(4, 256, device="cuda", requires_grad=True)
    weight = torch.ones(256, device="cuda", requires_grad=True)
    q = torch.randn(1, 2, 2, 64, device="cuda", dtype=torch.float16)
    leaf = q.clone().requires_grad_()
    calls: dict[str, tuple[Callable[[], Any], Any]] = {
        "silu": (lambda: bc.silu(x), x),
        "torch silu": (lambda: functions.silu(x), x),
        "rms_norm": (lambda: bc.rms_norm(x, weight), (x, weight)),
        "torch rms_norm": (lambda: functions.rms_norm(x, (256,), weight), (x, weight)),
        "flash_sdpa bhsd": (lambda: bc.flash_sdpa(leaf, leaf, leaf), leaf),
        "flash_sdpa bshd": (lambda: bc.flash_sdpa(leaf, leaf, leaf, layout="bshd"), leaf),
        "torch sdpa": (lambda: functions.scaled_dot_product_attention(leaf, leaf, leaf), leaf),
    }
    found: dict[str, Callable[[], Any]] = {
        "flash_sdpa bhsd": lambda: bc.flash_sdpa(q, q, q),
        "flash_sdpa bshd": lambda: bc.flash_sdpa(q, q, q, layout="bshd"),
        "torch sdpa": lambda: functions.scaled_dot_product_attention(q, q, q),
    }
    for name, (call, leaves) in calls.items():
        y = call()
        found[f"{name}, recorded"] = call
        found[f"{name}, backward"] = partial(torch.autograd.grad, y, leaves, torch.ones_like(y), retain_graph=True)
    return found


def measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds a call over interleaved rounds; the queue is drained outside the clock."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(20):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            cp.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
    cp.cuda.Device().synchronize()
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    options = parser.parse_args()
    table = measure(rows())
    floor = table["prepacked launch"]
    for name, value in table.items():
        print(f"{name:<34} {value:7.2f} µs   {value - floor:+6.2f} over the prepacked launch")
    found = [{"call": n, "us": f"{v:.2f}", "over_prepacked_us": f"{v - floor:.2f}"} for n, v in table.items()]
    Results(options, "host", ("call",)).write(found)


if __name__ == "__main__":
    main()
