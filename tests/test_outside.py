"""Ops of other packages: a page and a kernel that an installed package names are as those of this one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from baracuda_py._exports import EXPORTS

HERE = Path(__file__).resolve().parent
USED = """
import numpy as np
from my_package.pages import ShiftScalePlan, shift_scale
from baracuda_py.core import registry
from baracuda_py.core.device import fake_device
from baracuda_py.testing import exercise

assert registry.plan("my_ops.shift_scale") is registry.plan("ShiftScalePlan") is ShiftScalePlan
x = np.linspace(-1, 1, 6, dtype=np.float32)
assert np.allclose(shift_scale(x, shift=1.0, scale=3.0), (x + 1) * 3)
plan = ShiftScalePlan.select(ShiftScalePlan.descriptor(shape=6, element="float32"), device=fake_device(9.0))
assert str(plan.sku).startswith("my_ops.shift_scale/map/")
exercise(ShiftScalePlan, examples=2)  # on the emulator, where there is no GPU
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds the package, as installers lay it out."""
    shutil.copytree(HERE / "outside", tmp_path / "my_package", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "my_package/__init__.py").write_text('"""A package with an op."""\n')
    _say(tmp_path, "my_ops = my_package.pages")
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{HERE.parent}"}


def _say(folder: Path, *lines: str) -> None:
    info = folder / "my_package-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(("[baracuda_py.pages]", *lines, "")))


def _run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=600)


def test_it_runs_compiles_and_is_checked(installed: dict[str, str]) -> None:
    done = _run(installed, "-c", USED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "plan"), [("mix", "MixPlan"), ("range_pool", "RangePoolPlan")])
def test_the_pages_that_contributing_shows_work(
    name: str, plan: str, installed: dict[str, str], tmp_path: Path
) -> None:
    """As a page of another package, because one of this package would be exported; no function here has its name."""
    text = (HERE.parent / "CONTRIBUTING.md").read_text()
    page, kernel = (
        next(
            block
            for block in re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
            if block.lstrip('"/ ').startswith(name)
        )
        for kind in ("python", "cpp")
    )
    page = re.sub(r"^from \.\.\.", "from baracuda_py.", page, flags=re.MULTILINE)
    page = re.sub(rf'"\w+([./]){name}', rf'"my_ops\1{name}', page)
    (tmp_path / "my_package/pages.py").write_text(page)
    (tmp_path / f"my_package/kernels/{name}.cu").write_text(kernel)
    used = (
        f"from my_package.pages import {plan}; from baracuda_py.testing import exercise; exercise({plan}, examples=1)"
    )
    done = _run(installed, "-c", used)
    assert done.returncode == 0, done.stderr
    assert not {name, plan} & EXPORTS.keys()


def test_the_command_line_knows_it(installed: dict[str, str]) -> None:
    listed = _run(installed, "-m", "baracuda_py", "ops", "my_ops.shift_scale")
    assert listed.returncode == 0 and "(x + shift)" in listed.stdout, listed.stderr
    words = ("explain", "shift_scale", "shape=8", "element=float32", "--device", "9.0")
    explained = _run(installed, "-m", "baracuda_py", *words)
    assert explained.returncode == 0 and "my_ops.shift_scale" in explained.stdout, explained.stderr


def test_pages_that_cannot_be_imported_are_left_out_and_named(installed: dict[str, str], tmp_path: Path) -> None:
    _say(tmp_path, "my_ops = my_package.pages", "broken = my_package.not_there")
    listed = "print('my_ops.shift_scale' in {plan.op for plan in registry.plans().values()})"
    done = _run(installed, "-c", f"from baracuda_py.core import registry; {listed}")
    assert done.returncode == 0 and done.stdout == "True\n"
    assert "the pages broken (my_package.not_there) are left out" in done.stderr


def test_a_missing_kernel_is_named_without_a_place_of_this_machine(installed: dict[str, str], tmp_path: Path) -> None:
    code = "from baracuda_py.jit.source import flatten; print(flatten('#include \"my_ops/shift_scale.cu\"'))"
    done = _run(installed, "-c", code)
    assert '#line 1 "my_ops/shift_scale.cu"' in done.stdout and str(tmp_path) not in done.stdout
    (tmp_path / "my_package/kernels/shift_scale.cu").unlink()
    gone = _run(installed, "-c", code)
    assert gone.returncode and '#include "my_ops/shift_scale.cu" names no file' in gone.stderr
