"""Generation with the model of examples/train_gpt.py --preset gpu: one captured decode step, against PyTorch's.

    python benchmarks/generate.py [--csv [FILE]] [--rounds 20] [--skip-compile] [--rows]

A token is drawn at the last place of a full cache. Ours is one CUDA graph; so is torch's, with a static cache, SDPA
over all of it, and what surrounds attention compiled. The floor is the time that the weights and the cache take at the
copy bandwidth measured in this run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import gpt_model
import numpy as np
from record import Results, add_options
from timing import copy_bandwidth, interleaved
from torch_gpt import Generator

import baracuda_py as bc

PRESET = gpt_model.PRESETS["gpu"]
BATCHES, CONTEXTS = (1, 8, 64), (1024, 2048, 4096, 8192)
TOKENS = 8  # a timed call draws so many: a single one at batch 1 is shorter than a launch
TOP_K = 40


def captured(model: gpt_model.Decoder, batch: int, context: int, by_row: bool = False) -> Callable[[], Any]:
    """Our decode step: the token drawn is the next one's input. by_row: cut-offs and seeds are arrays of the rows."""
    cache = model.cache(batch, context)
    for pair in cache:
        for part in pair:
            noise = cp.random.standard_normal(part.shape, dtype=np.float32)
            bc.cast(noise, PRESET.compute, out=part)
    token, position = cp.zeros(batch, np.int64), cp.full(batch, context - 1, np.int64)
    offset = cp.zeros(1, np.int64)
    rows: dict[str, Any] = {"temperature": 0.8, "top_k": TOP_K, "seed": 0}
    if by_row:
        rows = {"temperature": cp.full(batch, 0.8, np.float32), "top_k": cp.full(batch, TOP_K, np.int64),
                "seed": cp.arange(batch)}  # fmt: skip

    def step(token: Any, position: Any, offset: Any) -> None:
        logits = model.decode(token, position, cache)
        bc.sample(logits, **rows, offset=offset[0], out=token)
        bc.add(offset, model.one, out=offset)

    return bc.graph(step, token, position, offset)


def least_bytes(batch: int, context: int) -> int:
    """Weights (the embedding's rows aside) and every key and value once, in 16 bits."""
    p = PRESET
    weights = p.parameters() - p.vocab * p.d
    return 2 * (weights + p.layers * 2 * batch * p.kv_heads * context * p.head_dim)


def repeated(step: Callable[[], Any]) -> Callable[[], None]:
    """TOKENS steps as one call."""

    def call() -> None:
        for _ in range(TOKENS):
            step()

    return call


def measure(
    batch: int, context: int, bandwidth: float, compiled: bool, rounds: int, by_row: bool = False
) -> dict[str, Any]:
    """The row of one batch and context."""
    model = gpt_model.Decoder(PRESET, cp)
    steps: dict[str, Callable[[], Any]] = {"baracuda_py": captured(model, batch, context, by_row)}
    try:
        steps["torch"] = Generator(model, batch, context, compiled, TOP_K).step
    except Exception as error:  # the peer is left out, and said
        print(f"torch left out: {error}", file=sys.stderr)
    times = interleaved({name: [repeated(step)] for name, step in steps.items()}, rounds)
    own, peer = times["baracuda_py"], times.get("torch")
    floor = least_bytes(batch, context) / bandwidth * 1e6
    return {
        "batch": batch, "context": context, "us": f"{own.median / TOKENS:.2f}", "p20": f"{own.p20 / TOKENS:.2f}",
        "p80": f"{own.p80 / TOKENS:.2f}", "tokens_per_s": f"{batch * TOKENS / own.median * 1e6:.0f}",
        "floor_us": f"{floor:.2f}", "of_floor": f"{floor * TOKENS / own.median:.3f}",
        "torch_us": f"{peer.median / TOKENS:.2f}" if peer else "",
        "torch_tokens_per_s": f"{batch * TOKENS / peer.median * 1e6:.0f}" if peer else ""
    }  # fmt: skip


def plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Tokens per second over context, a panel a batch: ours, torch's, and the floor's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(BATCHES), figsize=(11, 3.4), layout="constrained")
    for axis, batch in zip(axes, BATCHES, strict=True):
        mine = [row for row in rows if row["batch"] == batch]
        at = [row["context"] for row in mine]
        axis.plot(at, [batch * 1e6 / float(row["floor_us"]) for row in mine], "--", color="tab:gray", label="bandwidth")
        axis.plot(at, [float(row["tokens_per_s"]) for row in mine], "o-", color="tab:green", label="baracuda_py")
        if all(row["torch_us"] for row in mine):
            axis.plot(at, [float(row["torch_tokens_per_s"]) for row in mine], "s-", color="tab:orange", label="torch")
        axis.set(xlabel="keys in the cache", title=f"batch {batch}", xticks=at, ylim=(0, None))
        axis.legend()
    axes[0].set_ylabel("tokens per second")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--skip-compile", action="store_true", help="torch without torch.compile")
    parser.add_argument("--rows", action="store_true", help="temperature, top-k and seed as an array of the rows")
    options = parser.parse_args()
    results = Results(options, "generate")
    began, bandwidth, rows = time.perf_counter(), copy_bandwidth(), []
    print(f"copy {bandwidth / 1e12:.2f} TB/s; {TOKENS} tokens a timed call")
    for batch in BATCHES:
        for context in CONTEXTS:
            row = measure(batch, context, bandwidth, not options.skip_compile, options.rounds, options.rows)
            rows.append(row)
            print(f"batch {batch:>3} context {context:>5}  {row['us']:>8} µs a token  {int(row['tokens_per_s']):>9,} "
                  f"tokens/s  {100 * float(row['of_floor']):5.1f} % of the floor's {row['floor_us']} µs  "
                  f"torch {row['torch_us']} µs", flush=True)  # fmt: skip
            cp.get_default_memory_pool().free_all_blocks()
    results.write(rows)
    if (image := results.beside(".png")) is not None:
        plot(image, rows)
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
