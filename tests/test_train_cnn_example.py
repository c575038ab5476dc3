"""`examples/train_cnn.py` on the NumPy backend: gradients, a short run whose bits repeat, and bad requests."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import train_cnn

    return train_cnn


def test_a_short_run_learns_and_repeats_its_bits(example: Any, tmp_path: Path, capsys: Any) -> None:
    found = example.run(["--device", "cpu", "--steps", "12", "--out", str(tmp_path)])
    assert found["same"]
    assert np.mean(found["losses"][-3:]) < 0.9 * found["losses"][0]
    assert found["torch"] is None or abs(found["torch"] - found["accuracy"]) < 0.1
    assert (tmp_path / "train_cnn.png").stat().st_size > 1000
    assert "the same bits in every weight" in capsys.readouterr().out


def test_gradients_are_those_of_differences(example: Any) -> None:
    preset = dataclasses.replace(example.PRESETS["cpu"], pixels=8, width=2, batch=3)
    network = example.Network(preset, np, 0)
    network.weights = {name: value.astype(np.float64) for name, value in network.weights.items()}
    network.running = {name: [one.astype(np.float64) for one in pair] for name, pair in network.running.items()}
    rng = np.random.default_rng(1)
    x, y = example.images(preset, rng, 3)
    x = x.astype(np.float64)

    def loss() -> float:
        return float(bc.cross_entropy(network.logits(x)[0], y))

    logits, back = network.logits(x)
    back(bc.cross_entropy(logits, y, return_dlogits=True)[1])
    for name, held in network.weights.items():
        way = rng.standard_normal(held.shape)
        ends = []
        for step in (1e-6, -1e-6):
            network.weights[name] = held + step * way
            ends.append(loss())
        network.weights[name] = held
        slope = float((network.gradients[name] * way).sum())
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-8), name


def test_images_are_channels_last_and_of_every_shape(example: Any) -> None:
    x, y = example.images(example.PRESETS["cpu"], np.random.default_rng(0), 200)
    assert np.moveaxis(x, 1, -1).flags.c_contiguous
    assert x.dtype == np.float32
    assert set(y.tolist()) == set(range(len(example.SHAPES)))


def test_bad_requests_are_one_line(example: Any, capsys: Any) -> None:
    assert example.main(["--steps", "0"]) == 2
    assert "--steps must be at least 1" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_gpu_preset_learns_and_repeats_its_bits(example: Any, tmp_path: Path) -> None:
    found = example.run(["--preset", "gpu", "--steps", "40", "--out", str(tmp_path)])
    assert found["same"]
    assert np.mean(found["losses"][-3:]) < 0.8 * found["losses"][0]
