"""`tools/check.py`: which ops a change concerns, and what is run for it. `pytest -m quick`: what it leaves out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import ROOT, tool

from baracuda_py.core import registry
from baracuda_py.core.device import driver_device_count
from baracuda_py.core.warm import jobs
from baracuda_py.jit import source

check = tool("check")


def test_a_closure_has_every_file_that_the_units_are_compiled_from() -> None:
    """By what flattening a unit of each kernel really reads."""
    missing, seen = set(), set()
    for name, plan in list(registry.plans().items())[::12]:
        closure = check.closure(plan)
        for job in jobs([plan]):
            key = name, job.variant.name, job.instance.kernel.name
            if key not in seen:
                seen.add(key)
                read = re.findall(r'^#line 1 "([^"]+)"$', source.flatten(job.unit.text), re.MULTILINE)
                missing |= {(name, one) for one in read if f"kernels/{one}" not in closure and "/" in one}
    assert len(seen) > 30 and not missing


@pytest.mark.parametrize("name", ["RMSNormPlan", "FlashSdpaBackwardPlan", "UnaryPlan"])
def test_a_closure_has_every_module_that_a_page_loads(name: str) -> None:
    page = registry.plans()[name].__module__
    code = f"import sys, {page}\nprint(*(m.__file__ for n, m in sys.modules.items() if n.startswith('baracuda_py.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {str(Path(path).resolve().relative_to(ROOT)) for path in done.stdout.split()}
    own = {path for path in loaded if path.startswith(("baracuda_py/ops/", "baracuda_py/schedules/"))}
    assert own and own <= check.closure(registry.plans()[name])


@pytest.mark.parametrize(
    ("file", "reached", "spared"),
    [
        ("baracuda_py/ops/norm/rms_norm.py", {"RMSNormPlan"}, {"SoftmaxPlan", "UnaryPlan"}),
        ("kernels/norm/forward.cuh", {"RMSNormPlan", "LayerNormPlan"}, {"SoftmaxPlan", "GemmPlan"}),
        ("kernels/include/baracuda/map.cuh", {"UnaryPlan", "BinaryPlan"}, {"FlashSdpaPlan"}),
        ("baracuda_py/schedules/map.py", {"UnaryPlan", "BinaryPlan"}, {"SoftmaxPlan"}),
        ("README.md", set(), set()),
    ],
)
def test_what_a_change_concerns(file: str, reached: set[str], spared: set[str]) -> None:
    found = set(check.concerned([file]))
    assert reached <= found and not spared & found
    assert bool(found) == bool(reached)


def test_ops_whose_own_files_changed_come_first() -> None:
    found = list(check.concerned(["baracuda_py/ops/norm/rms_norm.py", "kernels/include/baracuda/reduce.cuh"]))
    assert len(found) > check.MOST and "RMSNormPlan" in found[: check.MOST]


def test_what_runs_for_a_change() -> None:
    page = ["baracuda_py/ops/norm/rms_norm.py", "kernels/norm/rms_norm.cu", "tests/test_words.py"]
    words = [" ".join(map(str, command)) for command in check.tests(page, {"RMSNormPlan": 1})]
    assert any("tests/test_ops.py" in line and line.endswith("-k RMSNormPlan") for line in words)
    assert any("tests/test_words.py" in line and "tests/ops/norm/test_rms_norm.py" in line for line in words)
    assert not any("quick" in line for line in words)
    assert any("quick" in command for command in check.tests(["baracuda_py/core/plan.py"], {}))
    names = [command[0] for command in check.lint(page)]
    assert names.count("ruff") == 2 and "clang-format" in names and "mypy" in names
    assert check.lint(["gone.py"]) == []


def test_changes_are_commits_edits_and_new_files(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for name in ("kept", "edited", "committed"):
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "first")
    git("checkout", "-qb", "work")
    (tmp_path / "committed").write_text("2\n")
    git("commit", "-qam", "second")
    (tmp_path / "edited").write_text("2\n")
    (tmp_path / "new").write_text("1\n")
    assert check.changed("main", tmp_path) == {"committed", "edited", "new"}
    with pytest.raises(SystemExit, match="nowhere"):
        check.changed("nowhere", tmp_path)


def test_a_command_that_fails_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = "print('fi' + 'ne')", "print('why'); raise SystemExit(3)"
    assert len(check.run([(sys.executable, "-c", code) for code in (good, bad)])) == 1
    said = capsys.readouterr().out
    assert "FAILED" in said and "why" in said and "fine" not in said


def test_a_quick_run_takes_host_tests_alone_and_tells_what_needs_a_gpu() -> None:
    files = ("tests/test_ops.py", "tests/ops/gemm/test_gemv.py", "tests/ops/elementwise/test_everywhere.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-m", "quick"]
    done = subprocess.run([*command, "-o", "addopts=", "-q", *files], cwd=ROOT, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if "::" in line]
    of_ops = [line for line in found if line.startswith("tests/test_ops.py")]
    assert len(of_ops) >= 2 * len(registry.plans()) and all(
        re.search(r"-(layouts|launches)\]", line) for line in of_ops
    )
    of_products = [line for line in found if line.startswith("tests/ops/gemm/test_gemv.py")]
    assert of_products and not any("emulator" in line for line in found)
    assert not any("everywhere" in line for line in found)
    if driver_device_count() == 0:
        assert re.search(r"not collected: \d+ tests of 2 files need a CUDA device", done.stdout)
