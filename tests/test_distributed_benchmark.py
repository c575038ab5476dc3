"""`benchmarks/distributed.py` on two ranks of the host: its problems run, and what it keeps and prints."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]))
    import distributed

    return distributed


def test_layers_over_two_processes(script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.csv"
    given = [
        "--device",
        "cpu",
        "--parts",
        "gemm",
        "--only",
        "all_reduce tiny o",
        "--csv",
        str(file),
        "--commit",
        "here",
    ]
    assert script.main(given) == 0
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    assert {row["variant"] for row in rows} >= {"overlap chosen", "overlap 1", "overlap 4", "torch nccl"}
    assert {row["problem"] for row in rows} == {"all_reduce tiny o 16"}
    assert all(float(row["us"]) > 0 and row["ranks"] == "2" and row["mode"] == "eager" for row in rows)
    last = capfd.readouterr().out.splitlines()[-1]
    assert last.startswith("all_reduce tiny o 16 × 2") and "torch nccl" in last
    assert all(os.environ[name] == value for name, value in script.OFF.items())


def test_the_table(script: Any) -> None:
    facts = {"part": "ring", "problem": "attention", "ranks": 4, "mode": "eager"}
    rows = [{**facts, "variant": name, "us": us} for name, us in (("ring", "50"), ("ring 2", "40"), ("one GPU", "80"))]
    (line,) = script.table(rows)[1:]
    assert line.split() == ["attention", "×", "4", "eager", "40.0", "ring", "2", "80.0", "one", "GPU", "0.50"]
    (line,) = script.table([{**facts, "part": "gemm", "variant": "torch nccl", "us": "3"}])[1:]
    assert line.endswith("nan")


def test_bad_requests(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for given, told in ((["--parts", "gemms"], "--parts are of"), (["--gpus", "0"], "--gpus must be")):
        with pytest.raises(SystemExit):
            script.main(given)
        assert told in capsys.readouterr().err
