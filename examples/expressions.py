"""Five ops from formulas, each beside the same in torch where torch is installed, with times on a GPU.

    python examples/expressions.py                             # float32, [4096, 8192] on a GPU, [64, 512] without one
    python examples/expressions.py --rows 1024 --columns 4096 --element bfloat16

1. an activation with its gradient: Snake (Ziyin et al. 2020), whose frequency is an array of its own for every column
2. a masked mean: one reading of both operands, no array in between
3. a running discounted return that starts anew where an episode ends: a recurrence
4. attention whose score is soft-capped and biased by the distance of query and key, and its gradient
5. AdamW with an update clipped by its own size (as in StableAdamW, Wortsman et al. 2023), in place, in one launch
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import baracuda_py as bc

snake = bc.elementwise("x + sin(alpha * x) ** 2 / alpha")
masked_mean = bc.reduce("nanmean(where(mask, x, nan))", axis=-1)
returns = bc.scan("where(done, 0, gamma) * h + x", "recurrence", axis=-1, reverse=True, gamma=0.99)
attention = bc.attention("softcap(s, cap) + bias[h, q - k]", cap=30.0)
adam = bc.elementwise(
    """
    m1 = lerp(m, g, 1 - beta1)
    v1 = lerp(v, g * g, 1 - beta2)
    _step = (m1 / (1 - beta1 ** t)) / (sqrt(v1 / (1 - beta2 ** t)) + eps)
    w1 = w * (1 - lr * decay) - lr * clamp(_step, -limit, limit)
    """,
    beta1=0.9, beta2=0.999, eps=1e-8, decay=0.1, limit=1.0,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A name, the formula, what it is here and in torch, which both return arrays; the bytes it must move, or work."""

    name: str
    text: str
    ours: Callable[[], Sequence[Any]]
    in_torch: Callable[[Any], Sequence[Any]]
    nbytes: int
    flops: int = 0


def cases(make: Callable[..., Any], rows: int, columns: int, element: str) -> list[Case]:
    """The five, on arrays that `make(shape, dtype)` makes."""
    full = (rows, columns)
    x, dy = make(full, element), make(full, element)
    alpha, mask, done = make((columns,), element, 0.5), make(full, "bool"), make(full, "bool", 0.02)
    w, g, m, v = (make(full, "float32") for _ in range(4))
    v = v * v
    size = rows * columns
    narrow = 2 if element in ("bfloat16", "float16") else 4 if element == "float32" else 8

    def snake_in_torch(torch: Any) -> list[Any]:
        a, b = x.detach().requires_grad_(), alpha.detach().requires_grad_()
        y = a + torch.sin(b * a) ** 2 / b
        return [y.detach(), *torch.autograd.grad(y, (a, b), dy)]

    def returns_in_torch(torch: Any) -> list[Any]:
        run, found = torch.zeros(rows, dtype=x.dtype, device=x.device), torch.empty_like(x)
        for i in reversed(range(columns)):
            run = found[:, i] = x[:, i] + torch.where(done[:, i], 0.0, 0.99) * run
        return [found]

    def adam_in_torch(torch: Any) -> list[Any]:
        m1, v1 = torch.lerp(m, g, 1 - 0.9), torch.lerp(v, g * g, 1 - 0.999)
        step = (m1 / (1 - 0.9**3)) / (torch.sqrt(v1 / (1 - 0.999**3)) + 1e-8)
        return [m1, v1, w * (1 - 1e-3 * 0.1) - 1e-3 * torch.clamp(step, -1, 1)]

    return [
        Case(
            "snake and its gradient", snake.text,
            lambda: [snake(x, alpha), *snake.vjp(dy, x, alpha)], snake_in_torch, 7 * size * narrow,
        ),
        Case(
            "masked mean", "nanmean(where(mask, x, nan))", lambda: [masked_mean(mask, x)],
            lambda torch: [torch.where(mask, x, float("nan")).nanmean(-1)], size * (narrow + 1),
        ),
        Case(
            "discounted return", "where(done, 0, gamma) * h + x", lambda: [returns(done, x)], returns_in_torch,
            size * (2 * narrow + 1),
        ),
        attention_case(make, max(1, min(16, rows // 256)), min(columns, 2048), element),
        Case(
            "clipped AdamW", adam.text,
            lambda: adam(m=m, g=g, v=v, w=w, t=3, lr=1e-3), adam_in_torch, 7 * size * 4,
        ),
    ]  # fmt: skip


def attention_case(make: Callable[..., Any], heads: int, length: int, element: str) -> Case:
    """Causal attention of as many queries as keys, with a bias for each head and distance; and its gradient."""
    q, k, v, dy = (make((1, heads, length, 64), element) for _ in range(4))
    bias = make((heads, 2 * length), "float32")

    def here() -> list[Any]:
        y, lse = attention(q, k, v, bias=bias, is_causal=True, return_lse=True)
        return [y, *attention.vjp(dy, q, k, v, y=y, lse=lse, bias=bias, is_causal=True)]

    def in_torch(torch: Any) -> list[Any]:
        a, b, c = (one.detach().requires_grad_() for one in (q, k, v))
        place = torch.arange(length, device=q.device)
        ahead = place[:, None] - place
        s = 30.0 * torch.tanh((a @ b.mT).float() * 0.125 / 30.0) + bias[:, ahead]
        y = torch.softmax(s.masked_fill(ahead < 0, -torch.inf), -1).to(c.dtype) @ c
        return [y.detach(), *torch.autograd.grad(y, (a, b, c), dy)]

    said, work = "softcap(s, cap) + bias[h, q - k], causal", 7 * heads * length * length * 64
    return Case("soft-capped attention", said, here, in_torch, 0, work)


def maker(seed: int = 0) -> tuple[Callable[..., Any], Any, bool]:
    """What makes arrays, torch where it is installed, and whether they are on a GPU: torch's, CuPy's, or NumPy's."""
    rng = np.random.default_rng(seed)

    def host(shape: tuple[int, ...], element: str, chance: float = 0.7) -> np.ndarray:
        if element == "bool":
            return rng.random(shape) < chance
        values = rng.standard_normal(shape) if chance == 0.7 else rng.uniform(chance, 2, shape)
        return values.astype(np.float32)

    if importlib.util.find_spec("torch") is not None:
        import torch

        place = "cuda" if torch.cuda.is_available() else "cpu"

        def of_torch(shape: tuple[int, ...], element: str, chance: float = 0.7) -> Any:
            return torch.from_numpy(host(shape, element, chance)).to(place, getattr(torch, element))

        return of_torch, torch, place == "cuda"
    try:
        import cupy

        on_gpu = cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:
        on_gpu = False
    xp: Any = __import__("cupy") if on_gpu else np

    def of_arrays(shape: tuple[int, ...], element: str, chance: float = 0.7) -> Any:
        return bc.cast(xp.asarray(host(shape, element, chance)), element)

    return of_arrays, None, on_gpu


def microseconds(torch: Any, run: Callable[[], Any], repeats: int = 20) -> float:
    """The median of several runs between two events."""
    import statistics

    if torch is not None:
        make, synchronize = (lambda: torch.cuda.Event(enable_timing=True)), torch.cuda.synchronize
        record = lambda event: event.record()  # noqa: E731
        between = lambda a, b: a.elapsed_time(b)  # noqa: E731
    else:
        import cupy

        make, synchronize = cupy.cuda.Event, cupy.cuda.runtime.deviceSynchronize
        record, between = (lambda event: event.record()), cupy.cuda.get_elapsed_time
    run()
    times = []
    for _ in range(repeats):
        first, last = make(), make()
        record(first)
        run()
        record(last)
        synchronize()
        times.append(1e3 * between(first, last))
    return statistics.median(times)


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference, relative to the size of what is compared."""
    a, b = (np.asarray(x.to("cpu", x.new_empty(0).double().dtype)) for x in (ours, theirs))
    scale = np.nanmax(np.abs(b), initial=1e-30)
    return float(np.nanmax(np.abs(a - b), initial=0) / scale)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the five, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="rows of the arrays")
    parser.add_argument("--columns", type=int, help="columns of the arrays")
    parser.add_argument("--element", default="float32", choices=("float32", "bfloat16", "float16"))
    given = parser.parse_args(arguments)
    make, torch, on_gpu = maker()
    rows = given.rows or (4096 if on_gpu else 64)
    columns = given.columns or (8192 if on_gpu else 512)
    print(f"[{rows}, {columns}] {given.element} on {'a GPU' if on_gpu else 'the NumPy backend'}")
    wrong = 0
    for case in cases(make, rows, columns, given.element):
        results = case.ours()
        line = f"{case.name:<24}"
        if torch is not None:
            worst = max(difference(a, b) for a, b in zip(results, case.in_torch(torch), strict=True))
            wrong += worst > (1e-4 if given.element == "float32" else 3e-2)
            line += f"  within {worst:.1e} of torch"
        if on_gpu:
            us = microseconds(torch, case.ours)
            rate = f"{case.flops / us / 1e6:5.1f} TFLOP/s" if case.flops else f"{case.nbytes / us / 1e6:5.2f} TB/s"
            line += f"  {us:8.1f} us  {rate}"
            if torch is not None and case.name != "discounted return":  # a loop over columns
                line += f"  {microseconds(torch, lambda c=case: c.in_torch(torch)) / us:5.2f}x torch eager"  # type: ignore[misc]
        print(line)
        for part in case.text.split("\n"):
            print(f"    {part}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
