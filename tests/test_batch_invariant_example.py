"""`examples/batch_invariant.py` on the NumPy backend, and on a GPU."""

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
    """The module, with a small model and few batches."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import batch_invariant

    small = {n: dataclasses.replace(p, layers=1, d=64, heads=4, ffn=96) for n, p in batch_invariant.PRESETS.items()}
    monkeypatch.setattr(batch_invariant, "PRESETS", small)
    monkeypatch.setattr(batch_invariant, "BATCHES", (1, 3, 8))
    return batch_invariant


def test_no_bit_changes_with_the_batch(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report = example.run(["--steps", "3", "--device", "cpu"])
    assert report["differ"]["invariant"] == [0.0, 0.0, 0.0] and len(report["rate"]["unasked"]) == 3
    assert capsys.readouterr().out.count("every bit equal") == 3


def test_a_change_fails_the_run(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that looks at its batch."""
    plain = bc.matmul

    def sized(a: Any, b: Any, **more: Any) -> Any:
        return plain(a, b, **more) * np.float32(1 + len(a) * 2.0**-20)

    monkeypatch.setattr(bc, "matmul", sized)
    with pytest.raises(SystemExit, match="changed with the batch"):
        example.run(["--steps", "2", "--device", "cpu"])


def test_bad_options_are_one_line(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--steps", "0"], run=example.run) == 2
    assert "--steps" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_on_a_gpu(example: Any, preset: str) -> None:
    report = example.run(["--steps", "4", "--preset", preset])
    assert not any(report["differ"]["invariant"])
