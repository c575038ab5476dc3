"""`examples/train_moe.py` on the NumPy backend, and on a GPU: it learns, and no token sees its neighbours."""

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
    for package in ("torch", "tqdm", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import train_moe

    small = dataclasses.replace(train_moe.PRESETS["cpu"], blocks=1, context=20, d=32, ffn=32, batch=4, lr=2e-2)
    monkeypatch.setattr(train_moe, "PRESETS", {**train_moe.PRESETS, "cpu": small})
    return train_moe


def test_a_short_run_learns_and_no_bit_differs(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = example.run(["--device", "cpu", "--steps", "25", "--out", str(tmp_path)])
    assert np.mean(found["losses"][-3:]) < 0.8 * found["losses"][0] and np.isfinite(found["held_out"])
    assert found["differ"]["the same bits", 1] == found["differ"]["the same bits", 3] == 0
    assert 1 <= found["uneven"] < 4
    assert (tmp_path / "train_moe.png").stat().st_size and "0 of 80" in capsys.readouterr().out


def test_experts_that_see_the_batch_fail_the_run(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bc.moe
    monkeypatch.setattr(bc, "moe", lambda x, *given, **more: plain(x, *given, **more) * (1 + len(x) * 2.0**-40))
    with pytest.raises(SystemExit, match="depend on the tokens beside it"):
        example.run(["--device", "cpu", "--steps", "1", "--out", str(tmp_path)])


def test_the_bias_of_a_full_expert_goes_down(example: Any) -> None:
    import torch

    model = example.Experts(example.PRESETS["cpu"], "cpu", 0)
    (counts,) = model.balanced([torch.tensor([[0, 1], [0, 2], [0, 1]], dtype=torch.int32)])
    assert counts.tolist() == [3, 2, 1, 0, 0, 0, 0, 0]
    assert torch.sign(model.biases[0]).tolist() == [-1, -1, -1, 1, 1, 1, 1, 1]


def test_bad_requests_are_one_line(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--steps", "0"], run=example.run) == 2
    assert capsys.readouterr().err.startswith("error: --steps must be at least 1")


@pytest.mark.gpu
def test_the_gpu_preset_keeps_its_bits(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(
        example.PRESETS["gpu"], blocks=2, d=256, heads=4, experts=16, ffn=256, context=160, batch=8
    )
    monkeypatch.setattr(example, "PRESETS", {"gpu": small})
    found = example.run(["--device", "cuda:0", "--preset", "gpu", "--steps", "30", "--out", str(tmp_path)])
    assert np.mean(found["losses"][-3:]) < found["losses"][0]
    assert found["differ"]["the same bits", 1] == found["differ"]["the same bits", 3] == 0
