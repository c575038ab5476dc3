"""Measured rows: which problems share an entry, what may be taken, the file, and the tuner without a device."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.cli.main import main
from baracuda_py.core import tuned
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.core.variant import Problem, Variant
from baracuda_py.measure import tuner
from baracuda_py.testing.recording import recording

H100 = fake_device(9.0)
F32 = ElementKind.F32


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))


def product(m: int = 64, **strides: tuple[int, ...]) -> tuple[Any, Problem]:
    """A float32 product of 64 columns on the fake device, and its plan."""
    desc = bc.GemmDescriptor(m=m, n=64, k=64, element="float32")
    plan = bc.GemmPlan.select(desc, device=H100)
    views: dict[str, Any] = dict.fromkeys(("a", "b", "y"))
    for name, shape in {"a": (m, 64), "b": (64, 64), "y": (m, 64)}.items():
        views[name] = View(0, shape, strides.get(name, dense_strides(shape)), F32)
    absent = ("up", "c", "bias", "up_bias", "row_bias", "scale_a", "scale_b", "residual", "pre", "up_pre")
    return plan, Problem(desc, H100, dict.fromkeys(absent) | views)


def names(rows: tuple[Variant, ...]) -> list[str]:
    return [row.name for row in rows]


def test_the_fastest_row_comes_first() -> None:
    plan, problem = product()
    assert names(tuned.ordered(plan, problem)) == ["cublas", "cublas_epilogue", "simt"]
    tuned.measurements().add(tuned.problem_key(plan, problem), {"cublas": 3.0, "simt": 2.0})
    assert names(tuned.ordered(plan, problem)) == ["simt", "cublas", "cublas_epilogue"]
    assert "simt                 sm80   bespoke  taken" in plan.explain()
    other, another = product(m=200)
    assert names(tuned.ordered(other, another)) == ["cublas", "cublas_epilogue", "simt"]


def test_problems_of_a_class_share_an_entry() -> None:
    same = {tuned.problem_key(*product(m=m)) for m in (72, 96, 128)}
    assert len(same) == 1
    others = [product(m=m) for m in (1, 2, 16, 24, 64, 65, 127, 129)] + [
        product(a=(1, 64)), product(a=(128, 2)), product(a=(65, 1)), product(b=(0, 1)),
    ]  # fmt: skip
    keys = [tuned.problem_key(plan, problem) for plan, problem in others]
    assert len(set(keys) - same) >= len(keys) - 1 and len(set(keys)) >= len(keys) - 1


def test_a_weaker_row_is_not_taken() -> None:
    plan, problem = product()
    plan = tuner.only(plan, plan.rows[1])
    plan.rows = tuple(reversed(bc.GemmPlan.select(plan.desc, device=H100).rows))  # batch-invariant first
    assert names(tuned.eligible(plan, problem)) == ["simt"]
    tuned.measurements().add(tuned.problem_key(plan, problem), {"cublas": 1.0, "simt": 2.0})
    assert names(tuned.ordered(plan, problem)) == ["simt", "cublas_epilogue", "cublas"]


def test_rows_that_are_gone_do_not_matter() -> None:
    plan, problem = product()
    tuned.measurements().add(tuned.problem_key(plan, problem), {"of_another_version": 1.0})
    assert names(tuned.ordered(plan, problem)) == ["cublas", "cublas_epilogue", "simt"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"format": 1}', '{"format": 1, "entries": 3}', '{"format": 1, "entries": {"k": 1}}',
     '{"format": 1, "entries": {"k": {"simt": "x"}}}', "[" * 100_000, "\udcff"],
    ids=range(10),
)  # fmt: skip
def test_a_damaged_file_is_not_used(text: str, caplog: pytest.LogCaptureFixture) -> None:
    table = tuned.measurements()
    table.path.write_bytes(text.encode("utf-8", "surrogateescape"))
    os.chmod(table.path, 0o600)
    with caplog.at_level(logging.WARNING, "baracuda_py.tune"):
        assert tuned.Measurements(table.path).entries() == {}
    assert "is not used" in caplog.text
    table.add("k", {"simt": 1.0})
    assert tuned.Measurements(table.path).entries() == {"k": {"simt": 1.0}}


def test_files_of_others_and_of_other_formats_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    path = tuned.measurements().path
    path.write_text(json.dumps({"format": 1, "entries": {"k": {"simt": 1.0}}}))
    os.chmod(path, 0o666)
    assert tuned.Measurements(path).entries() == {} and "others may write" in caplog.text
    os.chmod(path, 0o600)
    assert tuned.Measurements(path).entries() == {"k": {"simt": 1.0}}
    path.write_text(json.dumps({"format": 2, "entries": {"k": {"simt": 1.0}}}))
    assert tuned.Measurements(path).entries() == {}


def test_writers_keep_each_others_entries() -> None:
    path = tuned.measurements().path
    tables = [tuned.Measurements(path) for _ in range(8)]
    for table in tables:
        table.entries()

    def write(n: int) -> None:
        for i in range(5):
            tables[n].add(f"{n} {i}", {"simt": 1.0 + i})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tuned.Measurements(path).entries()) == 40


def test_without_a_place_to_write_it_lasts_for_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(tuned.storage, "write_file", refuse)
    table = tuned.measurements()
    table.add("k", {"simt": 1.0})
    assert "No space left" in caplog.text and table.entries() == {"k": {"simt": 1.0}} and not table.path.exists()


# ---- the tuner ------------------------------------------------------------------------------------------------------


def test_what_runs_is_chosen_again_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Stub:
        def again(self, key: str) -> bool:
            return False

        def measure(self, plan: Any, problem: Problem, rows: tuple[Variant, ...]) -> Mapping[str, float]:
            asked.append((problem.desc.m, names(rows)))
            return {"cublas": 2.0, "simt": 1.0}

    def operands(m: int) -> Any:
        shapes = {"a": (m, 32), "b": (32, 8), "y": (m, 8)}
        return bc.GemmArgs(**{n: bc.TensorRef(1 << 20 | k << 16, s, dense_strides(s), "float32", 1 << 15)
                              for k, (n, s) in enumerate(shapes.items())})  # fmt: skip

    desc = bc.GemmDescriptor(m=40, n=8, k=32, element="float32")
    with recording() as record:
        plan = bc.GemmPlan.select(desc, device=H100)
        assert plan.sku.variant == "cublas"
        with tuned.tuning(Stub()):
            assert not asked
            assert plan.can_implement(operands(40)).sku.variant == "cublas"  # asks, and measures nothing
            for _ in range(3):
                plan.run(operands(40))
        plan.run(operands(40))
    assert asked == [(40, ["cublas", "simt"])] and len(record.launches) == 4
    assert plan.sku.variant == "simt" and plan.can_implement(operands(40)).sku.variant == "simt"


def test_nothing_is_measured_on_a_device_that_is_not_there() -> None:
    plan, problem = product()
    with bc.autotune():
        assert names(tuned.ordered(plan, problem, measuring=True)) == ["cublas", "cublas_epilogue", "simt"]
    assert tuned.measurements().entries() == {}


@pytest.mark.parametrize("options", [{"rounds": 0}, {"rounds": 1.5}, {"again": 1}])
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(bc.InvalidProblemError, match=next(iter(options))), bc.autotune(**options):
        pass


@pytest.mark.parametrize("first", [0, 4, 12])
@pytest.mark.parametrize("strides", [(5, 1), (1, 3), (-5, 1), (7, -2), (0, 1), (5, 0), (0, 0), (-9, -1)])
def test_copies_lie_as_the_views_do(first: int, strides: tuple[int, int]) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    view = View((1 << 20) + first, (3, 5), strides, F32)
    made = tuner.laid(array, view)
    assert made.strides == tuple(4 * s for s in strides) and made.ctypes.data % 16 == first
    shared = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    np.testing.assert_array_equal(made[shared], array[shared])


def test_rows_that_compute_something_else_are_seen() -> None:
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    assert tuner.differ([x], [x * np.float32(1 + 1e-6)]) is None
    assert "away" in str(tuner.differ([x], [x * np.float32(1.01)]))
    y = x.copy()
    y[0, 0] = np.nan
    assert "finite" in str(tuner.differ([x], [y])) and tuner.differ([y], [y]) is None
    assert "integers" in str(tuner.differ([np.arange(3)], [np.arange(3)[::-1]]))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "gemm", "--device", "cpu"]) == 1
    assert "measured on a CUDA device" in capsys.readouterr().err
    tuned.measurements().add("one problem", {"simt": 2.0, "cublas": 1.0})
    assert main(["tune", "--list"]) == 0
    assert capsys.readouterr().out == "cublas 1.0 us, simt 2.0 us  one problem\n"
    assert main(["tune", "--forget"]) == 0
    assert "1 measurements deleted" in capsys.readouterr().out and not tuned.measurements().path.exists()


@pytest.mark.gpu
def test_products_are_measured() -> None:
    import cupy as cp

    a, b = (cp.random.default_rng(n).standard_normal((256, 256), dtype=cp.float32) for n in range(2))
    before, said = bc.matmul(a, b), []
    with bc.autotune(rounds=5, progress=said.append):
        tuned_result = bc.matmul(a, b)
        bc.matmul(a, b)
    assert len(said) == 1 and "cublas" in said[0] and "simt" in said[0]
    times = next(iter(tuned.measurements().entries().values()))
    best = min(times, key=lambda name: times[name])
    plan = bc.GemmPlan.select(bc.GemmDescriptor(m=256, n=256, k=256, element="float32"))
    assert plan.sku.variant == best
    cp.testing.assert_allclose(tuned_result, before, rtol=1e-3, atol=1e-4)
    cp.testing.assert_allclose(bc.matmul(a, b), before, rtol=1e-3, atol=1e-4)
