"""`tools/replay_calls.py`: every public name has a call that is recorded, and what changed between trees is told."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from tests.interop.hand_exported import EXPORTED
from tests.interop.sample_calls import NOT_CALLED, functions, sample_calls
from tests.scripts import tool

ROOT = Path(__file__).resolve().parents[1]
replay = tool("replay_calls")


def test_every_public_name_is_called_a_class_or_left_out_for_a_reason() -> None:
    for name in sorted(EXPORTS.keys() - set(functions())):
        assert name in NOT_CALLED or isinstance(getattr(bc, name), type), name
    for name in functions():
        assert sample_calls(name, drawn=1), name


def test_sample_calls_of_what_has_no_plan_work() -> None:
    assert set(EXPORTED) == {name for name in functions() if not hasattr(getattr(bc, name), "plan")}
    with np.errstate(all="ignore"):
        for name, made in EXPORTED.items():
            for operands, facts in made():
                getattr(bc, name)(*operands, **facts)


def test_differences_are_told_by_where_they_are() -> None:
    old = {("silu", "cuda", "given", "1 plain"): {"out": ["a"], "launches": [{"grid": [1, 1, 1]}]}}
    new = {("silu", "cuda", "given", "1 plain"): {"out": ["b"], "launches": [{"grid": [2, 1, 1]}]}}
    told = ["silu: 1 of its calls", "    cuda, given, 1 plain: out[0]: a → b (and 1 more)"]
    assert replay.compared(old, new, [], 5) == (told, 1)
    assert replay.compared(old, new, ["out", "launches"], 5) == ([], 0)
    assert replay.compared(old, old, [], 5) == ([], 0)
    assert replay.compared({}, new, [], 5)[0][1] == "    cuda, given, 1 plain: only in the new tree"
    assert replay.shortened("x" * 300 + "a", "x" * 300 + "b") == ("…" + "x" * 40 + "a", "…" + "x" * 40 + "b")


FAULTS = {
    "baracuda_py/schedules/map.py": ("Step(kernel, (grid, 1, 1)", "Step(kernel, (grid + 1, 1, 1)"),
    "baracuda_py/schedules/norms.py": ('"eps": desc.eps', '"eps": 2 * desc.eps'),
    "baracuda_py/ops/reduce/covariance.py": (
        "handed_back(_with_transpose(found.square(dy), options), 0.0, out)",
        'handed_back(_formula("-h")(h=_with_transpose(found.square(dy), options), **options), 0.0, out)',
    ),
}
"""A grid, a parameter, and the sign of a gradient of a function that is written by hand."""


def test_a_grid_a_parameter_and_a_gradient_that_changed_are_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for folder in ("baracuda_py", "kernels", "tests/interop"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (right, wrong) in FAULTS.items():
        text = (tmp_path / name).read_text()
        assert text.count(right) == 1
        (tmp_path / name).write_text(text.replace(right, wrong))
    before = str(tmp_path / "before.jsonl")
    names = ["silu", "rms_norm", "cov", "reshape"]
    where = ["--place", "numpy", "--place", "cuda", "--place", "torch gradient"]
    run("--record", before, *names, *where)
    again = run("--compare", before, str(ROOT), *names, *where)
    assert again.returncode == 0 and again.stdout.startswith("0 of 4 names differ"), again.stdout
    found = run("--compare", before, str(tmp_path), *names, *where, "--lines", "99")
    assert found.returncode == 1 and "3 of 4 names differ" in found.stdout, found.stdout
    told = {part.split(":")[0]: part for part in re.split(r"^(?=\w)", found.stdout, flags=re.MULTILINE)}
    assert "cuda, formed, 1 plain: launches[0].grid[0]: 1 → 2" in told["silu"]
    assert "params.eps: 1e-06 → 2e-06" in told["rms_norm"]
    assert "torch gradient, formed, 1 plain: gradients[0]: torch float32[4, 6] " in told["cov"]
    assert "    numpy, " not in found.stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/replay_calls.py"), *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return found
