"""What pages declare for their measurement, and how results are filed; without a GPU and without torch."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from baracuda_py.core import registry
from baracuda_py.core.benchmark import Benchmark
from baracuda_py.core.plan import Plan

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
PLANS = registry.plans()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/record.py`."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "record", raising=False)
    import record

    return record


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_plan_is_measured(plan: type[Plan]) -> None:
    """By problems of its own, unless it takes rows of a plan that is."""
    assert plan.benchmarks, f"{plan.__name__} declares no benchmarks"
    if "benchmarks" not in vars(plan):
        base = next(cls for cls in plan.__mro__ if "benchmarks" in vars(cls))
        assert set(plan.variants) <= set(base.variants), f"{plan.__name__} has rows that its base does not measure"  # type: ignore[attr-defined]
    for benchmark in plan.benchmarks:
        assert plan.descriptor(**benchmark.fields).element


def declared() -> list[tuple[str, str]]:
    return [(plan.op, b.label) for plan in PLANS.values() for b in vars(plan).get("benchmarks", ())]


def test_problems_of_an_op_have_names_of_their_own() -> None:
    assert not [name for name, count in Counter(declared()).items() if count > 1]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("results/*.csv")), ids=lambda path: path.stem)
def test_results_on_file_are_of_declared_problems(path: Path) -> None:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    if {"sku", "shape"} <= rows[0].keys():
        assert {(row["op"], row["shape"]) for row in rows} <= set(declared())


def test_what_no_benchmark_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="work must be 'operands'"):
        Benchmark("x", work="time")
    with pytest.raises(ValueError, match=r"peers must be of 'torch', 'torch\.compile' and 'torch deterministic'"):
        Benchmark("x", peers=("cuDNN",))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--list", "softmax_backward"], "softmax.softmax_backward"), (["--list", "rmsnorm"], "no problem of rmsnorm")],
)
def test_the_runner_lists_without_torch_or_a_gpu(arguments: list[str], told: str, tmp_path: Path) -> None:
    for name in ("torch", "cupy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')\n")
    start = f"import sys, runpy; sys.argv = {['run.py', *arguments]!r}; sys.path.insert(0, {str(tmp_path)!r})\n"
    start += f"sys.path.insert(0, {str(FOLDER)!r}); runpy.run_path({str(FOLDER / 'run.py')!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, env={}, capture_output=True, text=True)
    assert told in done.stdout + done.stderr, done.stderr
    assert done.returncode == (0 if told in done.stdout else 2)


# -- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("NVIDIA H200", "nvidia_h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia_h100"),
        ("NVIDIA H100 PCIe", "nvidia_h100_pcie"),
        ("NVIDIA A100-SXM4-80GB", "nvidia_a100_sxm4"),
        ("NVIDIA GeForce RTX 4090", "nvidia_geforce_rtx_4090"),
    ],
)
def test_a_file_a_gpu(record: ModuleType, name: str, want: str) -> None:
    assert record.slug(name) == want


def test_a_rerun_replaces_rows_of_the_same_problem(record: ModuleType, tmp_path: Path) -> None:
    """In their place; other rows stay as they are, new ones follow, and each says what it was read with."""
    path, key = tmp_path / "new" / "x.csv", ("op", "shape")
    record.write(path, [{"op": "a", "shape": "1, 2", "us": 1}, {"op": "b", "shape": "1, 2", "us": 2}], key, "c0")
    record.write(path, [{"op": "c", "shape": "", "us": 3}, {"op": "a", "shape": "1, 2", "us": 4}], key, "c1")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["op"], r["us"], r["commit"]) for r in rows] == [("a", "4", "c1"), ("b", "2", "c0"), ("c", "3", "c1")]
    assert all(row["versions"].startswith("baracuda_py ") for row in rows)
    record.write(path, [{"op": "a", "us": 5}], (), "c2")
    assert path.read_text().splitlines()[0] == "op,us,commit,versions"
    assert len(path.read_text().splitlines()) == 2


def test_a_file_from_before_a_column_was_added(record: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("call,us,gone\nadd,1,z\nmul,2,z\n")
    record.write(path, [{"call": "mul", "us": "3", "p20": "2.5"}], ("call",), "c")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [list(row.values())[:4] for row in rows] == [["add", "1", "", ""], ["mul", "3", "2.5", "c"]]
    assert "gone" not in rows[0]


def test_nothing_is_kept_unasked(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    monkeypatch.setattr(record, "gpu", lambda: "nvidia_x")
    monkeypatch.setattr(record, "RESULTS", tmp_path)

    def path(*arguments: str, default: str | None = None) -> Path | None:
        parser = argparse.ArgumentParser()
        record.add_options(parser, default)
        found: Path | None = record.Results(parser.parse_args(arguments), "host").path
        return found

    assert path() is None
    assert path("--csv") == path(default="") == tmp_path / "nvidia_x_host.csv"
    assert path("--csv", "mine.csv") == Path("mine.csv")
    with pytest.raises(SystemExit):
        path("--csv", "rms_norm")
    record.Results(argparse.Namespace(csv=None, commit="c")).write([{"us": 1}])
    assert not list(tmp_path.iterdir())


def test_rows_say_which_commit(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clone its own, of a packed tree what was written when it was packed, and that it is unknown elsewhere."""
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(record, "PACKED", tmp_path / "COMMIT")
    assert record.head() == "unknown"
    for text, said in (("$Format:%H$\n", "unknown"), ("0123456789abcdef0123456789abcdef01234567\n", "0123456789ab")):
        (tmp_path / "COMMIT").write_text(text)
        assert record.head() == said
