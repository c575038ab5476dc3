"""Training steps of an unmodified transformers Llama: as it is, compiled, by Liger-Kernel and patched, in one run.

    python benchmarks/transformers_train.py [--csv [FILE]] [--rounds 6] [--layers 8] [--batch 4] [--context 4096]
        [--only "NAME;NAME"]

bf16, random weights, random tokens, torch's fused AdamW for all of them. Patches replace functions of the modelling
file, too, so each candidate runs in processes of its own, which take turns. Memory is the most that torch held in a
step, weights, gradients and moments included. The loss of the fourth step is the same where the numbers agree.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import torch
import transformers_models as models

INNER = 3
NUMBERS = {"rounds": 6, "layers": 8, "batch": 4, "context": 4096}
CANDIDATES: dict[str, tuple[models.Apply, bool]] = {
    "transformers": (models.nothing, False),
    "torch.compile": (models.nothing, True),
    "Liger-Kernel": (models.liger, False),
    "baracuda_py": (models.ours, False),
    "baracuda_py, compiled": (models.ours, True),
}


class Step:
    """A model with its optimizer, and a training step of it."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        apply, compiled = CANDIDATES[name]
        self.model = models.llama(options.layers).train()
        apply(self.model)
        self.called = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        generator = torch.Generator("cuda").manual_seed(1)
        shape = (options.batch, options.context)
        self.tokens = torch.randint(models.VOCABULARY, shape, device="cuda", generator=generator)

    def __call__(self) -> torch.Tensor:
        """The loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.called(input_ids=self.tokens, labels=self.tokens, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        return loss.detach()  # type: ignore[no-any-return]


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step, the first step's seconds, the peak in GiB, and the first losses of a candidate."""
    gc.collect()
    torch.cuda.empty_cache()
    step = Step(name, options)
    torch.cuda.synchronize()
    began = time.perf_counter()
    losses = [step()]
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    losses += [step() for _ in range(INNER)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(options.rounds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(INNER):
            step()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / INNER)
    found = {"ms": times, "first": first, "gib": torch.cuda.max_memory_allocated() / 2**30}
    return found | {"losses": [float(loss) for loss in losses]}


def rows(found: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row a candidate."""
    made, tokens = [], options.batch * options.context
    for name, runs in found.items():
        ms = statistics.median([ms for run in runs for ms in run["ms"]])
        made.append(
            {
                "candidate": name, "layers": options.layers, "batch": options.batch, "context": options.context,
                "ms": f"{ms:.2f}", "tokens_per_s": f"{tokens / ms * 1e3:.0f}",
                "peak_gib": f"{max(run['gib'] for run in runs):.1f}",
                "first_step_s": f"{runs[0]['first']:.1f}", "again_first_step_s": f"{runs[-1]['first']:.1f}",
                "loss_of_step_4": f"{runs[0]['losses'][-1]:.4f}",
            }
        )  # fmt: skip
    return made


def plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Tokens per second of each candidate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 2.4), layout="constrained")
    names = [row["candidate"] for row in rows]
    colors = ["tab:green" if name.startswith("baracuda_py") else "tab:gray" for name in names]
    bars = axes.barh(names, [int(row["tokens_per_s"]) / 1e3 for row in rows], color=colors)
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="thousand tokens per second, training")
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


KEY = ("candidate", "layers", "batch", "context")

if __name__ == "__main__":
    made = models.compare(__file__, __doc__, CANDIDATES, NUMBERS, measured, rows, "transformers_train", KEY)
    if made is not None and (image := made[0].beside(".png")) is not None:
        plot(image, made[1])
