"""The README's Python runs as it stands: with CuPy or without, and the functional call comes first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def test_one_a_package_and_the_function_comes_first() -> None:
    assert [block.split()[1] for block in BLOCKS] == ["numpy", "torch", "jax"]
    assert 0 < BLOCKS[0].index("bc.rms_norm(") < BLOCKS[0].index("bc.RMSNormPlan")


@pytest.mark.parametrize("cupy", ["as installed", "missing", "broken"])
def test_it_runs(cupy: str, tmp_path: Path) -> None:
    """In a process and a folder of its own, and what follows checks the numbers."""
    if cupy != "as installed":
        error = "ModuleNotFoundError" if cupy == "missing" else "RuntimeError"
        (tmp_path / "cupy.py").write_text(f"raise {error}('not here')\n")
    check = (
        "got, rows = (a if xp is np else a.get() for a in (y, x))\n"
        "want = rows / np.sqrt((rows.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)\n"
        "np.testing.assert_allclose(got, want, rtol=1e-5)\n"
        "assert verdict and str(verdict.sku).startswith('norm.rms_norm/')\n"
    )
    assert ran(BLOCKS[0] + check, tmp_path).startswith("norm.rms_norm/")


@pytest.mark.parametrize("block", BLOCKS[1:], ids=["torch", "jax"])
def test_it_runs_in(block: str, tmp_path: Path) -> None:
    pytest.importorskip(block.split()[1])
    ran(block, tmp_path)


def ran(code: str, folder: Path) -> str:
    """What a script prints, in a process and a folder of its own."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_two_commands() -> None:
    """`.ci/run` runs the first two bash blocks as they stand: the example, and the tests."""
    commands = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert [command.count("\n") for command in commands] == [1, 1]
    assert commands[0].endswith("&& python examples/train_gpt.py\n") and (ROOT / "examples/train_gpt.py").exists()
    assert commands[1].endswith("&& pytest -n auto --dist loadfile\n")


def test_its_python_passes_mypy(tmp_path: Path) -> None:
    """Strict, as the package itself is checked; `follow_imports` leaves out what stands in the package.

    Where the package is, with its cache: what `mypy` has just read of it is not read again.
    """
    pytest.importorskip("mypy")
    files = []
    for number, block in enumerate(BLOCKS):
        files.append(tmp_path / f"block_{number}.py")
        files[-1].write_text(block)
    command = [sys.executable, "-m", "mypy", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
