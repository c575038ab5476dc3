"""What is shipped: the sdist is everything that tests and contributors need, the wheel says that it is typed."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import baracuda_py

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project() -> dict[str, Any]:
    """The table of the project in pyproject.toml."""
    facts: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return facts


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


def test_it_says_where_it_lives(project: dict[str, Any]) -> None:
    """Placeholders until it is published somewhere: no index, no machine."""
    assert set(project["urls"]) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(re.fullmatch(r"https://example\.org/baracuda_py(/[\w/]+)?", url) for url in project["urls"].values())


def test_one_version_everywhere(project: dict[str, Any]) -> None:
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert [project["version"]] == cited == [baracuda_py.__version__]


def test_its_pythons_are_those_of_the_documentation(project: dict[str, Any]) -> None:
    named = [c.rpartition(" :: ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert named == [f"3.{minor}" for minor in range(10, 15)] and project["requires-python"] == f">={named[0]}"
    (line,) = re.findall(r"^\| Python \|.*$", (ROOT / "docs" / "support.md").read_text(), re.MULTILINE)
    assert sorted(set(re.findall(r"3\.\d+", line)), key=lambda name: int(name[2:])) == named


def copied(folder: Path) -> Path:
    """The files that git knows; without git all of them."""
    if (ROOT / ".git").exists():
        found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, found.stdout.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    else:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    return folder


def built(tree: Path, out: Path, zone: str, umask: int) -> dict[str, bytes]:
    """What hatchling makes of a tree, by the names of the files."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"} | {"TZ": zone}
    before = os.umask(umask)
    try:
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=300)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_two_builds_are_equal_byte_for_byte(tmp_path: Path) -> None:
    """Of one tree whatever the clock, the zone and the user's mask, and of the sdist that was made of it."""
    pytest.importorskip("hatchling")
    one, two = copied(tmp_path / "one"), copied(tmp_path / "two")
    for path in two.rglob("*"):
        path.chmod(path.stat().st_mode | 0o020)
        os.utime(path, (10**9, 10**9))
    first = built(one, tmp_path / "first", "UTC", 0o022)
    assert sorted(name.rpartition(".")[2] for name in first) == ["gz", "whl"]
    assert built(two, tmp_path / "second", "Asia/Tokyo", 0o077) == first
    with tarfile.open(next((tmp_path / "first").glob("*.tar.gz"))) as file:
        file.extractall(tmp_path / "sdist", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert built(unpacked, tmp_path / "third", "UTC", 0o022) == first


def test_the_extra_test_is_enough_to_collect_all() -> None:
    """A file that imports a framework skips first where there is none; `.ci/run` runs the tests without and with."""
    extra = re.compile(r"(baracuda_py\.)?(torch|jax|flax|equinox|optax|transformers|peft)(\.|$)")
    early = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for statement in ast.parse(file.read_text()).body:
            if "importorskip" in ast.unparse(statement):
                break
            if isinstance(statement, ast.Import):
                names = [name.name for name in statement.names]
            else:
                names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            early += [f"{file.name}: {name}" for name in names if extra.match(name)]
    assert not early
