"""A classifier of tones whose window is learned: gradients through stft, mel filters, logarithms and a linear layer.

    python examples/spectrogram.py            # tones of 0.1 s, some seconds on the NumPy backend
    python examples/spectrogram.py --gpu      # tones of 1 s in batches of 256 on a GPU, float32

Each sound is one of eight kinds of tone (a note, a chord, a rising or falling chirp, a trill, clicks, a beat, noise) at
a random pitch, phase and loudness under noise. The model is `mel_spectrogram` with a window of its own, the mean and
the deviation over time of its logarithms, and one linear layer; `bc` computes it on torch's tensors, and torch's
autograd goes back through it. The window begins as ones.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import baracuda_py as bc

KINDS = ("note", "chord", "rising", "falling", "trill", "clicks", "beat", "noise")


@dataclass(frozen=True)
class Preset:
    """Sizes of a run."""

    samples: int
    n_fft: int
    hop: int
    mels: int
    batch: int
    steps: int
    device: str
    rate: int = 8000
    lr: float = 0.03


SMALL = Preset(samples=800, n_fft=128, hop=64, mels=24, batch=32, steps=80, device="cpu")
GPU = Preset(samples=8000, n_fft=512, hop=128, mels=64, batch=256, steps=200, device="cuda")


def sounds(preset: Preset, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Sounds [count, samples] and their kinds [count]."""
    t = np.arange(preset.samples) / preset.rate
    kinds = rng.integers(0, len(KINDS), count)
    pitch = rng.uniform(300, 900, (count, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    turn = 2 * np.pi * pitch * t + phase
    sweep = 2 * np.pi * pitch * t**2 / t[-1]
    noise = rng.standard_normal((count, preset.samples))
    made = np.stack([
        np.sin(turn),
        (np.sin(turn) + np.sin(1.26 * turn) + np.sin(1.5 * turn)) / 2,
        np.sin(turn + sweep),
        np.sin(2.5 * turn - sweep),
        np.sin(turn + 8 * np.sin(2 * np.pi * 30 * t)),
        (np.sin(2 * np.pi * 40 * t + phase) > 0.98) * 3.0,
        np.sin(turn) * np.sin(2 * np.pi * 40 * t) * 1.4,
        noise,
    ])[kinds, np.arange(count)]  # fmt: skip
    made = (made + 0.1 * noise) * rng.uniform(0.3, 1, (count, 1))
    x, y = torch.tensor(made, dtype=torch.float32), torch.tensor(kinds)
    return x.to(preset.device), y.to(preset.device)


log_mel = bc.elementwise("log(m + 1e-3)")
spread = bc.elementwise("sqrt(v + 1e-5)")


def logits(preset: Preset, x: Any, window: Any, weight: Any, bias: Any) -> Any:
    """What the model says of each kind, [batch, kinds]."""
    m = bc.mel_spectrogram(x, preset.rate, preset.n_fft, preset.hop, window=window, n_mels=preset.mels, norm="slaney")
    logs = log_mel(m)
    means, variances = bc.mean(logs, axis=-1), bc.var(logs, axis=-1)
    return bc.linear(bc.concat([means, spread(variances)], axis=-1), weight, bias)


def train(preset: Preset, seed: int = 0) -> tuple[list[float], float, Any]:
    """Losses, the share of sounds that are recognised in the end, and the window."""
    rng = np.random.default_rng(seed)
    weight = 0.05 * torch.tensor(rng.standard_normal((len(KINDS), 2 * preset.mels)), dtype=torch.float32)
    start = {"window": torch.ones(preset.n_fft), "weight": weight, "bias": torch.zeros(len(KINDS))}
    held = {name: value.to(preset.device).requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.Adam(held.values(), lr=preset.lr)
    losses = []
    for _ in range(preset.steps):
        x, y = sounds(preset, rng, preset.batch)
        optimizer.zero_grad()
        loss = bc.cross_entropy(logits(preset, x, **held), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    x, y = sounds(preset, rng, 8 * preset.batch)
    with torch.no_grad():
        right = logits(preset, x, **held).argmax(-1) == y
    return losses, float(right.float().mean()), held["window"].detach()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--gpu", action="store_true", help="the larger preset, on a GPU")
    preset = GPU if parser.parse_args(arguments).gpu else SMALL
    losses, right, window = train(preset)
    print(f"loss {losses[0]:.2f} at first, {np.mean(losses[-5:]):.2f} in the end; {right:.0%} of new sounds recognised")
    edge, middle = float(window[:4].mean()), float(window[preset.n_fft // 2 - 2 : preset.n_fft // 2 + 2].mean())
    print(f"the window is {edge:.2f} at its edge, {middle:.2f} in its middle")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
