"""What is shipped: the sdist is everything that tests and contributors need, the wheel says that it is typed."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def targets() -> dict[str, Any]:
    """The build targets of pyproject.toml."""
    facts: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    return facts


def tracked() -> set[str]:
    """Names at the top: those git knows, or in an unpacked sdist those that are there."""
    names = [path.name for path in ROOT.iterdir()]
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    made = {"", "PKG-INFO", ".pytest_cache", ".hypothesis", "__pycache__"}
    return {name.split("/")[0] for name in names} - made


def test_the_sdist_holds_everything(targets: dict[str, Any]) -> None:
    always = {"pyproject.toml", ".gitignore"}  # hatchling adds these itself
    patterns = [pattern.removeprefix("/") for pattern in targets["sdist"]["include"]]
    missing = {name for name in tracked() - always if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    assert not missing
    for pattern in patterns:
        assert list(ROOT.glob(pattern)), f"{pattern} names nothing"
    assert {"tools", "tests", "kernels", "CONTRIBUTING.md"} <= tracked()


def test_patterns_mean_the_top_alone(targets: dict[str, Any]) -> None:
    assert all(pattern.startswith("/") for pattern in targets["sdist"]["include"])


def test_the_wheel_is_typed_and_has_its_kernels(targets: dict[str, Any]) -> None:
    """PEP 561: type checkers read the package where it holds py.typed."""
    assert targets["wheel"]["packages"] == ["baracuda_py"] and (ROOT / "baracuda_py" / "py.typed").read_bytes() == b""
    assert (ROOT / "baracuda_py" / "__init__.pyi").is_file()
    assert targets["wheel"]["force-include"] == {"kernels": "baracuda_py/_kernels"}
