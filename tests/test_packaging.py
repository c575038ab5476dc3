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


def shipped() -> set[str]:
    """Names at the top of the repository, those that git knows where it can be asked."""
    names = {
        "baracuda_py",
        "kernels",
        "tests",
        "examples",
        "benchmarks",
        "docs",
        "tools",
        ".ci",
        "README.md",
        "CONTRIBUTING.md",
    }
    if (ROOT / ".git").exists():
        found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
        names |= {name.split("/")[0] for name in found.stdout.splitlines()}
    return names - {"pyproject.toml", ".gitignore"}  # hatchling adds these itself


def test_the_sdist_holds_everything(targets: dict[str, Any]) -> None:
    patterns = [pattern.removeprefix("/") for pattern in targets["sdist"]["include"]]
    assert not {name for name in shipped() if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    for pattern in patterns:
        assert list(ROOT.glob(pattern)), f"{pattern} names nothing"


def test_patterns_mean_the_top_alone(targets: dict[str, Any]) -> None:
    assert all(pattern.startswith("/") for pattern in targets["sdist"]["include"])


def test_the_wheel_is_typed_and_has_its_kernels(targets: dict[str, Any]) -> None:
    """PEP 561: type checkers read the package where it holds py.typed."""
    assert targets["wheel"]["packages"] == ["baracuda_py"] and (ROOT / "baracuda_py" / "py.typed").read_bytes() == b""
    assert (ROOT / "baracuda_py" / "__init__.pyi").is_file()
    assert targets["wheel"]["force-include"] == {"kernels": "baracuda_py/_kernels"}
