"""Batch-invariant decoding: a prompt's logits, bit for bit the same alone and in batches of 2 to 64.

    python examples/batch_invariant.py                # preset cpu on the NumPy backend: half a minute on 2 cores
    python examples/batch_invariant.py --preset gpu   # on a CUDA device

The model of train_gpt.py, with random weights, continues a prompt greedily: alone, and beside other prompts. With
`PlanPreference(batch_invariant=True)` its matrix products take rows whose order of sums depends on the weights' shape
alone; everything else here has that promise anyway. Then each logit must have the bits it has alone: the run fails
where one has not. Beside it stands how many logits differ with the products that are taken unasked (cuBLAS on a GPU,
BLAS on the CPU), and what the promise costs in tokens a second.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_model import PRESETS, Decoder
from train_gpt import Parser, choose_device, describe, main

import baracuda_py as bc

BATCHES = (1, 2, 4, 8, 16, 32, 64)
PROMPT = 8  # bytes
ASKED = {"invariant": bc.PlanPreference(batch_invariant=True), "unasked": None}


def decoded(model: Decoder, prompts: Any, steps: int) -> tuple[np.ndarray, float]:
    """Logits [steps, vocab] of the first prompt, and tokens a second of the whole batch, prompts included.

    prompts: int64 [batch, PROMPT]. Each step's tokens are the most likely ones.
    """
    xp, batch = model.xp, len(prompts)
    cache, positions = model.cache(batch, PROMPT + steps), xp.zeros(batch, np.int64)
    tokens, kept = prompts[:, 0].copy(), xp.empty((PROMPT + steps - 1, model.preset.vocab), np.float32)
    model.decode(tokens, positions, model.cache(batch, PROMPT + steps))  # compiles what the loop needs
    start = time.perf_counter()
    for at in range(PROMPT + steps - 1):
        logits = model.decode(tokens, positions, cache)
        kept[at] = bc.cast(logits[0], "float32")
        tokens = prompts[:, at + 1].copy() if at + 1 < PROMPT else bc.argmax(logits, axis=-1)
        positions = bc.add(positions, model.one)
    found = kept[PROMPT - 1 :]
    host = found.get() if hasattr(found, "get") else found
    return host, batch * (PROMPT + steps - 1) / (time.perf_counter() - start)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    return Parser(__doc__, steps="24", trains=False).checked(argv, steps=1, seed=0)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Decode and report; the share of logits that differ, and the rates, by batch."""
    asked = options(argv)
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    model, steps = Decoder(preset, xp, asked.seed), asked.steps or 24
    prompts = xp.asarray(np.random.default_rng(asked.seed).integers(0, preset.vocab, (BATCHES[-1], PROMPT)))
    print(f"{preset.parameters():,} parameters, {preset.compute}, {steps} tokens of one prompt, on {describe(device)}")
    print(f"{'batch':>5} {'invariant':>22} {'unasked':>29}   cost")
    alone: dict[str, np.ndarray] = {}
    report: dict[str, Any] = {"differ": {name: [] for name in ASKED}, "rate": {name: [] for name in ASKED}}
    for batch in BATCHES:
        for name, preference in ASKED.items():
            model.products = preference
            logits, rate = decoded(model, prompts[:batch], steps)
            first = alone.setdefault(name, logits)
            report["differ"][name].append(float(np.mean(logits.view(np.int32) != first.view(np.int32))))
            report["rate"][name].append(rate)
        (promised, rate), (other, usual) = ((report["differ"][n][-1], report["rate"][n][-1]) for n in ASKED)
        said = "every bit equal" if not promised else f"{promised:.1%} differ"
        print(f"{batch:>5} {said:>15} {rate:>8,.0f}/s {other:>10.1%} differ {usual:>8,.0f}/s {1 - rate / usual:>6.1%}")
    if any(report["differ"]["invariant"]):
        raise SystemExit("logits changed with the batch where batch_invariant=True was asked for")
    return report


if __name__ == "__main__":
    raise SystemExit(main(run=run))
