"""The training step of examples/train_gpt.py --preset gpu against the same model in PyTorch, in one run.

    python benchmarks/train_step.py [--csv [FILE]] [--rounds 20] [--skip-compile] [--full]

Our step is one CUDA graph; torch's is eager, torch.compile, and the compiled step captured as one CUDA graph. They
take turns, so that clocks and temperature hit them alike. Then our step is taken apart, call by call, against the
ceilings measured in this run. --full trains ours and the fastest of torch's for the preset's steps, on the same
batches, to their held-out losses.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import cupy as cp
import gpt_model
import numpy as np
import torch
from gpt_data import load
from gpt_train import Inputs, drive, graph_step, held_out_loss, train
from record import Results, add_options, write
from step_kernels import measure, table
from timing import Timing, copy_bandwidth, matmul_rate
from torch_gpt import Trainer

PRESET = gpt_model.PRESETS["gpu"]
TOKENS = PRESET.batch * PRESET.context
INNER = 3  # steps of a candidate in a row: the host runs ahead within them, as in training


def take_turns(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Timing]:
    """Microseconds of a call, host included: each candidate's calls start on an idle device, one after another."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            cp.cuda.Device().synchronize()
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            for _ in range(INNER):
                call()
            stop.record()
            stop.synchronize()
            samples[name].append(cp.cuda.get_elapsed_time(start, stop) * 1e3 / INNER)
    cuts = {name: statistics.quantiles(values, n=10) for name, values in samples.items()}
    return {name: Timing(statistics.median(samples[name]), c[1], c[7]) for name, c in cuts.items()}


def torch_views(inputs: Inputs, loss: Any) -> list[Any]:
    """The inputs' memory as torch sees it: step, rate, tokens, targets, loss."""
    step, rate, tokens, targets, out = (
        torch.from_dlpack(a) for a in (inputs.step, inputs.rate, inputs.tokens, inputs.targets, loss)
    )
    return [step, rate, tokens, targets, out]


class Wide:
    """A torch trainer on the shared inputs, whose tokens it widens to what torch's losses take."""

    def __init__(self, mode: str, seed: int, inputs: Inputs, loss: Any) -> None:
        step, rate, self.tokens, self.targets, out = torch_views(inputs, loss)
        self.wide = [t.long() for t in (self.tokens, self.targets)]
        self.trainer = Trainer(gpt_model.Decoder(PRESET, cp, seed), mode, step, rate, *self.wide, out)

    def __call__(self) -> None:
        """One step."""
        for wide, given in zip(self.wide, (self.tokens, self.targets), strict=True):
            wide.copy_(given)
        self.trainer.step()


def peak(make: Callable[[], Any]) -> tuple[Any, float]:
    """What `make` returns, and the most torch held meanwhile, in GB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    made = make()
    torch.cuda.synchronize()
    return made, (torch.cuda.max_memory_allocated() - before) / 1e9


def compare(modes: list[str], rounds: int) -> tuple[list[dict[str, Any]], float]:
    """Rows of the step's table, and our microseconds."""
    corpus = load(None, PRESET.context)
    inputs, loss = Inputs(PRESET, cp), cp.zeros((), np.float32)
    tokens, targets = corpus.batch(np.random.default_rng(0), PRESET.batch, PRESET.context)
    for array, value in ((inputs.step, 1), (inputs.rate, 1e-4), (inputs.tokens, tokens), (inputs.targets, targets)):
        array[...] = cp.asarray(value)
    candidates: dict[str, Callable[[], Any]] = {}
    memory: dict[str, float] = {}
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    model = gpt_model.Decoder(PRESET, cp)
    graph = graph_step(model)(inputs, loss)
    candidates["baracuda_py"] = graph
    memory["baracuda_py"] = (pool.total_bytes() + graph.memory) / 1e9
    for mode in modes:
        began = time.perf_counter()
        try:
            wide, memory[mode] = peak(lambda mode=mode: _warm(Wide(mode, 0, inputs, loss)))
        except Exception as error:  # a peer that does not run is left out, and said
            print(f"torch {mode} left out: {error}", file=sys.stderr)
            continue
        candidates[mode] = wide
        print(f"torch {mode}: ready in {time.perf_counter() - began:.0f} s", flush=True)
    first = {name: _loss(call, loss) for name, call in candidates.items()}
    print("losses of the batch after a few steps:", {name: round(value, 3) for name, value in first.items()})
    times = take_turns(candidates, rounds)
    rows = [
        {
            "candidate": name if name == "baracuda_py" else f"torch {name}",
            "ms": f"{t.median / 1e3:.3f}", "p20": f"{t.p20 / 1e3:.3f}", "p80": f"{t.p80 / 1e3:.3f}",
            "tokens_per_s": f"{TOKENS / t.median * 1e6:.0f}", "peak_gb": f"{memory[name]:.2f}",
            "held_out": "", "seconds": "",
        }
        for name, t in times.items()
    ]  # fmt: skip
    return rows, times["baracuda_py"].median


def _warm(call: Callable[[], None]) -> Callable[[], None]:
    for _ in range(3):
        call()
    return call


def _loss(call: Callable[[], Any], loss: Any) -> float:
    call()
    return float(loss)


def taken_apart(step_us: float) -> list[dict[str, Any]]:
    """Our step by call."""
    model = gpt_model.Decoder(PRESET, cp)
    rng = np.random.default_rng(0)
    tokens, targets = (cp.asarray(rng.integers(0, 256, (PRESET.batch, PRESET.context)).astype(np.int32)) for _ in "xy")

    def step() -> None:
        _, grads = model.loss_and_gradients(tokens, targets)
        model.update(grads, 1, 1e-3)

    return table(measure(gpt_model, step), copy_bandwidth(), matmul_rate(), step_us)


def full(rows: list[dict[str, Any]], seed: int) -> dict[str, list[float]]:
    """Train ours and the fastest of torch's on the same batches; fills the rows in and returns the losses."""
    corpus = load(None, PRESET.context)
    curves: dict[str, list[float]] = {}
    own, *peers = rows
    for row in (own, min(peers, key=lambda row: float(row["ms"]))):
        name = row["candidate"]
        began = time.perf_counter()
        if name == "baracuda_py":
            model = gpt_model.Decoder(PRESET, cp, seed)
            curves[name], _ = train(model, corpus, seed)
            held_out = held_out_loss(model, corpus)
        else:
            made: list[Wide] = []

            def start(inputs: Inputs, loss: Any, mode: str = name[6:], made: list[Wide] = made) -> Callable[[], None]:
                made.append(Wide(mode, seed, inputs, loss))
                made[0]()
                return made[0]

            curves[name], _ = drive(PRESET, corpus, cp, seed, start)
            held_out = made[0].trainer.held_out(corpus.evaluation(PRESET.batch, PRESET.context, PRESET.eval_batches))
        row["held_out"], row["seconds"] = f"{held_out:.4f}", f"{time.perf_counter() - began:.1f}"
        print(f"{name}: held-out {held_out:.4f} nats/byte after {PRESET.steps} steps, {row['seconds']} s", flush=True)
    return curves


def plot(path: Path, rows: list[dict[str, Any]], curves: dict[str, list[float]]) -> None:
    """Tokens per second, and the loss curves where there are any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2 if curves else 1, figsize=(10 if curves else 6, 3.6), layout="constrained")
    bars, *lines = np.atleast_1d(axes)
    names = [row["candidate"] for row in rows]
    bars.barh(
        names, [float(row["tokens_per_s"]) / 1e6 for row in rows], color=["tab:green", *["tab:gray"] * 9][: len(rows)]
    )
    bars.invert_yaxis()
    bars.set(xlabel="million tokens per second", title="23.9 M parameters, 32 x 1024 tokens a step, bf16")
    for axis in lines:
        for name, losses in curves.items():
            smooth = np.convolve(losses, np.full(20, 1 / 20), "valid")
            axis.plot(np.arange(len(smooth)) + 20, smooth, linewidth=1, label=name)
        axis.set(xlabel="step", ylabel="nats per byte, mean of 20 steps", ylim=(0.4, 2.5))
        axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--full", action="store_true", help="train two of them, too")
    options = parser.parse_args()
    results = Results(options, "train_step")
    began = time.perf_counter()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    rows, own = compare(["eager"] if options.skip_compile else ["eager", "compile", "compile + graph"], options.rounds)
    for row in rows:
        print(f"{row['candidate']:<24} {row['ms']:>8} ms (p20 {row['p20']}, p80 {row['p80']})  "
              f"{int(row['tokens_per_s']):>10,} tokens/s  {row['peak_gb']:>6} GB", flush=True)  # fmt: skip
    kernels = taken_apart(own)
    for row in kernels:
        print(f"{row['op']:<24} {row['shape']:<36} {row['calls']:>3} {row['kernels']:>4} {row['us']:>9} µs  "
              f"floor {row['floor_us']:>8} ({row['bound']}) {row['of_floor']}", flush=True)  # fmt: skip
    write(results.beside("_kernels.csv"), kernels, commit=results.commit)
    results.write(rows)
    curves = full(rows, options.seed) if options.full else {}
    results.write(rows)
    if (image := results.beside(".png")) is not None:
        plot(image, rows, curves)
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
