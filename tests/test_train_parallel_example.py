"""`examples/train_parallel.py`: the model of one rank and of several have the same loss and weights, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import distributed

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import train_parallel

    (tmp_path / "text").mkdir()
    for i in range(10):
        (tmp_path / "text" / f"{i}.txt").write_bytes(bytes(range(32 + i, 122)))
    return train_parallel


@pytest.mark.parametrize(("mode", "ranks"), [("tensor", 2), ("tensor", 4), ("data", 2), ("zero", 4)])
def test_the_bits_of_one_rank(
    example: Any, tmp_path: Path, mode: str, ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--mode", mode, "--gpus", str(ranks), "--text", str(tmp_path / "text"), "--compare"]
    found = example.run(given)
    assert found["same"] and "the same bits" in capsys.readouterr().out
    assert len(found["losses"]) == 3 and found["losses"][-1] < found["losses"][0]
    assert found["tokens_per_second"] > 0


def test_the_peer_trains_the_same_model(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    import gpt_ddp
    from gpt_data import load
    from gpt_model import Decoder

    whole = Decoder(example.TINY, np, 1)
    tokens, targets = load(str(tmp_path / "text"), 16).batch(np.random.default_rng(0), 4, 16)
    loss = gpt_ddp.Trained(whole)(torch.from_numpy(tokens).long(), torch.from_numpy(targets).long())
    want, _ = whole.loss_and_gradients(tokens, targets)
    assert abs(float(loss.detach()) - float(want)) < 1e-4
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    found = example.run(["--gpus", "2", "--mode", "data", "--text", str(tmp_path / "text"), "--peer", "torch"])
    assert found["peer"] > 0 and "torch's DDP over 2 ranks" in capsys.readouterr().out


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_spread_matrices_have_the_gradients_of_whole_ones(example: Any, compute: str) -> None:
    from gpt_model import Decoder
    from gpt_parallel import SpreadDecoder, part

    preset = dataclasses.replace(example.TINY, compute=compute)
    whole = Decoder(preset, np, 1)
    for weight in whole.matrices.values():
        weight *= np.float32(4)
    whole.copies = None if compute == "float32" else {n: bc.cast(w, compute) for n, w in whole.matrices.items()}
    tokens, targets = (np.random.default_rng(s).integers(0, 256, (2, 16)).astype(np.int32) for s in (2, 3))
    loss, grads = whole.loss_and_gradients(tokens, targets)

    def work(comm: Any) -> Any:
        return SpreadDecoder(whole, comm).loss_and_gradients(tokens, targets)

    alone, pair = distributed.run_ranks(work, 1)[0], distributed.run_ranks(work, 2)
    bound = 1e-5 if compute == "float32" else 3e-2
    assert abs(float(loss) - float(alone[0])) < bound
    for rank, (other, found) in enumerate(pair):
        assert other == alone[0]
        comm = type("Comm", (), {"size": 2, "rank": rank})
        for name, grad in found.items():
            base = name.rstrip("0123456789")
            axis = None if name in whole.norms else 0 if base in ("embedding", "out", "down") else 1
            mine = alone[1][name] if axis is None else part(alone[1][name], comm, axis)
            assert np.array_equal(grad, mine), name
            if name in grads and base != "up":
                want = grads[name] if axis is None else part(grads[name], comm, axis)
                assert np.abs(grad - want).max() <= bound * np.abs(want).max(), name


def test_bad_requests(example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        example.main(["--gpus", "3"])
    assert "--gpus must divide 8" in capsys.readouterr().err
    assert example.main(["--gpus", "8", "--text", str(tmp_path / "text")]) == 1
    assert "cannot be shared out to 8 ranks" in capsys.readouterr().err
