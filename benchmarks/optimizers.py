"""Steps of optimizers over a model's tensors: time, bytes a second, beside a copy and torch's fused and foreach forms.

python benchmarks/optimizers.py [--layers 12]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import baracuda_py as bc
from baracuda_py.torch import optim

BACKLOG = 20_000_000
"""Cycles that the device waits before a step: some ten milliseconds, more than a host needs for one."""


def shapes(layers: int) -> list[tuple[int, ...]]:
    """GPT-2's tensors: 124M parameters with 12 layers."""
    width = 768
    layer = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,), (width,), (width,),
             (width, 4 * width), (4 * width,), (4 * width, width), (width,)]  # fmt: skip
    return [(50257, width), (1024, width), *layer * layers, (width,), (width,)]


def measured(run: Callable[[], Any], repeats: int = 30) -> tuple[float, float, float]:
    """Median microseconds: of the device behind a backlog, of the host, and of a call from an idle device to its end.

    The backlog hides what the host does before its launches, as a backward pass does.
    """
    for _ in range(5):
        run()
    device, host, both = [], [], []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        host.append((time.perf_counter() - began) * 1e6)
        torch.cuda.synchronize()
        both.append((time.perf_counter() - began) * 1e6)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(BACKLOG)
        start.record()
        run()
        stop.record()
        torch.cuda.synchronize()
        device.append(start.elapsed_time(stop) * 1e3)
    return statistics.median(device), statistics.median(host), statistics.median(both)


def lists(sizes: list[tuple[int, ...]], dtype: Any, positive: bool = False) -> list[Any]:
    """Random tensors."""
    made = [torch.randn(s, device="cuda", dtype=torch.float32) for s in sizes]
    return [(x.abs() if positive else x).to(dtype) for x in made]


def rule_cases(sizes: list[tuple[int, ...]]) -> list[tuple[str, Callable[[], Any], float]]:
    """(label, a step, bytes an element) of rules as they are."""
    f32, bf16 = torch.float32, torch.bfloat16
    codes = [[torch.zeros(s, device="cuda", dtype=torch.uint8) for s in sizes] for _ in range(2)]
    scales = [[torch.zeros(-(-c.numel() // 256), device="cuda") for c in codes[0]] for _ in range(2)]
    p, g, m, v = lists(sizes, f32), lists(sizes, f32), lists(sizes, f32), lists(sizes, f32, True)
    ph, gh = lists(sizes, bf16), lists(sizes, bf16)
    adamw, lion, sgd = bc.optimizer("adamw"), bc.optimizer("lion"), bc.optimizer("sgd", momentum=True)
    at_random = bc.optimizer("adamw", stochastic="p")
    eight = {"m": "signed", "v": "unsigned"}
    adam8 = bc.optimizer("adamw", states8bit=eight)
    adam8_random = bc.optimizer("adamw", states8bit=eight, stochastic="p")
    ema = bc.optimizer("ema")
    held = {"m_scale": scales[0], "v_scale": scales[1]}
    return [
        ("adamw f32", lambda: adamw(p, g, m, v, t=3), 28),
        ("adamw bf16, f32 moments", lambda: adamw(ph, gh, m, v, t=3), 22),
        ("adamw bf16 at random, f32 moments", lambda: at_random(ph, gh, m, v, t=3, seed=1), 22),
        ("adamw f32, 8-bit moments", lambda: adam8(p, g, *codes, t=3, **held), 16),
        ("adamw bf16 at random, 8-bit moments", lambda: adam8_random(ph, gh, *codes, t=3, seed=1, **held), 10),
        ("lion f32", lambda: lion(p, g, m), 20),
        ("sgd momentum f32", lambda: sgd(p, g, m, t=3), 20),
        ("ema f32", lambda: ema(p, v), 12),
        ("adam_step f32", lambda: bc.adam_step(p, g, m, v, step=3), 28),
    ]


def torch_cases(sizes: list[tuple[int, ...]]) -> list[tuple[str, Callable[[], Any], float]]:
    """(label, a step, bytes an element) of optimizers, ours and torch's."""
    made = []
    for name, given, nbytes in (("AdamW", {}, 28), ("SGD", {"momentum": 0.9}, 20), ("RMSprop", {}, 20)):
        forms: list[tuple[str, Any, dict[str, Any]]] = [
            ("ours", optim, {}),
            ("foreach", torch.optim, {"foreach": True}),
        ]
        forms += [("fused", torch.optim, {"fused": True})] if name != "RMSprop" else []
        for form, place, more in forms:
            params = [torch.nn.Parameter(x) for x in lists(sizes, torch.float32)]
            for x in params:
                x.grad = torch.randn_like(x)
            step = getattr(place, name)(params, lr=1e-3, **given, **more)
            made.append((f"torch.optim.{name} {form}", step.step, nbytes))
    params = [torch.nn.Parameter(x) for x in lists(sizes, torch.float32)]
    for x in params:
        x.grad = torch.randn_like(x)
    made.append(("AdamW8bit ours", optim.AdamW8bit(params, lr=1e-3).step, 16))
    matrices = [(768, 768)] * 24 + [(768, 3072)] * 24
    for form, place in (("ours", optim), ("torch", torch.optim)):
        params = [torch.nn.Parameter(x) for x in lists(matrices, torch.float32)]
        for x in params:
            x.grad = torch.randn_like(x)
        made.append((f"Muon {form}, 48 matrices", place.Muon(params, lr=1e-3).step, 0))
    return made


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    sizes = shapes(parser.parse_args().layers)
    count = sum(torch.Size(s).numel() for s in sizes)
    source = torch.empty(count, device="cuda")
    target = torch.empty_like(source)
    ceiling = 8 * count / measured(lambda: target.copy_(source))[0] / 1e6
    print(f"{torch.cuda.get_device_name()}: {count / 1e6:.0f}M parameters, copy {ceiling:.2f} TB/s")
    print(f"{'':38} {'device':>9}{'host':>9}{'idle to end':>13}  us")
    for label, step, nbytes in (*rule_cases(sizes), *torch_cases(sizes)):
        device, host, both = measured(step)
        speed = nbytes * count / device / 1e6
        line = f"{label:38} {device:9.1f}{host:9.1f}{both:13.1f}"
        print(line + (f"  {speed:.2f} TB/s  {speed / ceiling:4.0%}" if nbytes else ""))


if __name__ == "__main__":
    main()
