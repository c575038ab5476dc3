"""`benchmarks/recurrent_layers.py` on the NumPy backend at small sizes: its layers run, and are their peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NETWORKS = ("lstm", "gru")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    import recurrent_layers

    return recurrent_layers


def test_rows(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def once(calls: dict[str, Any], rounds: int) -> dict[str, Any]:
        made = {name: found[0]() for name, found in calls.items()}
        if "peer" in made:
            torch.testing.assert_close(made["ours"], made["peer"], rtol=1e-4, atol=1e-5)
        return {name: type("Timing", (), {"median": 2.0}) for name in calls}

    monkeypatch.setattr(script, "interleaved", once)
    passes: dict[str, list[str]] = {}
    for name, layer in script.layers(tokens=5, batch=1, width=32).items():
        rows = list(script.measure(name, layer, 1, script.Ceilings(1e6, 1e6), "cpu", torch.float32))
        assert 0 < float(rows[0]["floor_us"]) < float(rows[1]["floor_us"])
        passes[name] = [row["pass"] for row in rows]
        assert all(row["peer"] == "torch.nn" for row in rows) == name.startswith(NETWORKS)
    assert all(found == ["forward", "forward, backward"] for name, found in passes.items() if name.startswith(NETWORKS))
    assert all(found[2:] == ["step of 64"] for name, found in passes.items() if not name.startswith(NETWORKS))
    assert set(passes) == {
        "lstm_16",
        "gru_16",
        "lstm_8",
        "gru_8",
        "lstm_4",
        "gru_4",
        "mamba",
        "mamba2",
        "gated_delta_net",
    }


def test_a_layer_that_fails_is_said(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import torch

    def measured(name: str, layer: Any, rounds: int, ceilings: Any) -> Any:
        if name.startswith("gru"):
            raise RuntimeError("no such kernel")
        yield {"layer": name}

    monkeypatch.setattr(script, "measure", measured)
    monkeypatch.setattr(script, "copy_bandwidth", lambda: 1.0)
    monkeypatch.setattr(script, "matmul_rate", lambda: 1.0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr("sys.argv", ["recurrent_layers.py", "--only", "gru_1024;lstm_1024;mamba", "--commit", "x"])
    assert script.main() == 1
    said = capsys.readouterr().out
    assert "layer gru_1024  failed: RuntimeError: no such kernel" in said
    assert "layer lstm_1024" in said and "layer mamba" in said
