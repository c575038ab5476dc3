"""`examples/train_ssm.py` on the NumPy backend, and on a GPU: it learns, and decodes in the trainer's bits."""

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
    import train_ssm

    small = dataclasses.replace(train_ssm.PRESETS["cpu"], context=20, d=32, ffn=48, batch=4, lr=2e-2)
    monkeypatch.setattr(train_ssm, "PRESETS", {**train_ssm.PRESETS, "cpu": small})
    return train_ssm


def test_a_short_run_learns_and_no_bit_differs(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = example.run(["--device", "cpu", "--steps", "25", "--texts", "3", "--out", str(tmp_path)])
    assert np.mean(found["losses"][-3:]) < 0.8 * found["losses"][0] and np.isfinite(found["held_out"])
    assert found["differ"]["the same bits"] == (0, 0.0)
    assert (tmp_path / "train_ssm.png").stat().st_size and "0 of 48" in capsys.readouterr().out


def test_a_state_that_is_another_fails_the_run(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bc.linear_attention_decode

    def other(q: Any, k: Any, v: Any, state: Any, **more: Any) -> Any:
        state *= 1 + 2.0**-50
        return plain(q, k, v, state, **more)

    monkeypatch.setattr(bc, "linear_attention_decode", other)
    with pytest.raises(SystemExit, match="same bits were asked for"):
        example.run(["--device", "cpu", "--steps", "1", "--texts", "2", "--out", str(tmp_path)])


def test_bad_requests_are_one_line(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--texts", "0"], run=example.run) == 2
    assert capsys.readouterr().err.startswith("error: --texts must be at least 1")


@pytest.mark.gpu
def test_the_gpu_preset_decodes_in_the_trainers_bits(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(example.PRESETS["gpu"], blocks="da", d=256, heads=2, ffn=512, context=160, batch=8)
    monkeypatch.setattr(example, "PRESETS", {"gpu": small})
    found = example.run(
        ["--device", "cuda:0", "--preset", "gpu", "--steps", "30", "--texts", "5", "--out", str(tmp_path)]
    )
    assert np.mean(found["losses"][-3:]) < found["losses"][0]
    assert found["differ"]["the same bits"] == (0, 0.0)
