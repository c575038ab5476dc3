"""`examples/arrays.py` runs as it stands, on the NumPy backend and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "arrays.py"


def output() -> str:
    environ = os.environ | {"PYTHONPATH": str(EXAMPLE.parents[1])}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_on_numpy() -> None:
    assert output().startswith("NumPy  ndarray (4,) ")


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    said = output()
    assert "CuPy   ndarray (4, 64) 4.0" in said and "raw    128.0" in said and "graph  ndarray" in said
