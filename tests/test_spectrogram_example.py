"""`examples/spectrogram.py` on the NumPy backend: the loss falls, and gradients reach the window."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import spectrogram

    return spectrogram


def test_a_short_run_learns(example: Any) -> None:
    preset = dataclasses.replace(example.SMALL, steps=25, batch=16)
    losses, right, window = example.train(preset)
    assert np.mean(losses[-3:]) < 0.7 * losses[0] and right > 0.4
    assert float((window - 1).abs().max()) > 0.05


def test_gradients_are_those_of_differences(example: Any) -> None:
    import torch

    preset = example.Preset(samples=64, n_fft=16, hop=8, mels=4, batch=2, steps=1, device="cpu")
    x, _ = example.sounds(preset, np.random.default_rng(0), 2)
    held = [
        torch.rand(16, dtype=torch.float64),
        torch.rand(8, 8, dtype=torch.float64),
        torch.rand(8, dtype=torch.float64),
    ]
    held = [one.requires_grad_() for one in held]
    assert torch.autograd.gradcheck(lambda *w: example.logits(preset, x.double(), *w), held, fast_mode=True)


@pytest.mark.gpu
def test_the_gpu_preset_learns(example: Any) -> None:
    losses, right, _ = example.train(dataclasses.replace(example.GPU, steps=40))
    assert np.mean(losses[-3:]) < 0.7 * losses[0] and right > 0.5
